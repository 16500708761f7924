// A tensor-parallel decoder layer in seven kernel launches, and in nine, decoder_layer.hpp: norm, QKV, RoPE, attention
// over a KV cache whose pages are dealt to the ranks in turn, output projection and SwiGLU MLP with their sums over
// ranks. One token of each sequence passes through it in each of two steps; the second step attends to what the first
// appended.
//
//   example_decoder_layer [ranks]                  ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_decoder_layer   ranks are processes; torchrun --no-python does as well
#include "decoder_layer.hpp"

#include <fusewire/ops/interleave_columns.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int batch = 3, hidden = 128, ffn_of_rank = 48, q_heads_of_rank = 2, kv_heads_of_rank = 1, d = 128, page = 16,
              max_pages = 5, steps = 2;
constexpr int cached[batch] = {37, 15, 0};  // tokens of each sequence before the first step

/// A number in [-1, 1] that every rank knows.
float value(unsigned what, int i, int j) {
  unsigned h = what * 0x9e3779b9u ^ unsigned(i) * 0x85ebca6bu ^ unsigned(j) * 0xc2b2ae35u;
  h = (h ^ h >> 15) * 0x2c1b3c6du, h = (h ^ h >> 12) * 0x297a2d39u;
  return float(h >> 16) / 32768 - 1;
}
float weight(unsigned what, int i, int j, int k) { return value(what, i, j) * std::sqrt(3.0f / float(k)); }

// The layer's weights, whole, without the norms'.
float qkv_at(int i, int j) { return weight(1, i, j, hidden); }
float out_at(int i, int j, int k) { return weight(2, i, j, k); }
float gate_at(int i, int j) { return weight(3, i, j, hidden); }
float up_at(int i, int j) { return weight(4, i, j, hidden); }
float down_at(int i, int j, int k) { return weight(5, i, j, k); }
float gamma_at(int norm, int i) { return 1 + value(6, norm, i) / 4; }
// The tokens: x of a step, and K and V, heads side by side, of those that are cached before the first.
float x_at(int step, int s, int i) { return value(7 + unsigned(step), s, i); }
float k_at(int s, int token, int i) { return value(10, s * 1000 + token, i); }
float v_at(int s, int token, int i) { return value(11, s * 1000 + token, i); }
double rounded(float x) { return double(float(bf16(x))); }
double angle(int token, int pair) { return token * std::pow(500000.0, -2.0 * pair / d); }

/// The layer on the host, in fp64, of one sequence.
class reference {
 public:
  reference(int ranks, int sequence)
      : s_(sequence), q_(q_heads_of_rank * ranks), kv_(kv_heads_of_rank * ranks), ffn_(ffn_of_rank * ranks) {
    for (int t = 0; t < cached[sequence]; ++t)
      for (int i = 0; i < kv_ * d; ++i) k_.push_back(rounded(k_at(s_, t, i))), v_.push_back(rounded(v_at(s_, t, i)));
  }
  std::vector<double> operator()(int step) {
    std::vector<double> x, attended(std::size_t(q_ * d));
    for (int i = 0; i < hidden; ++i) x.push_back(rounded(x_at(step, s_, i)));
    auto qkv = times(norm(x, 0), (q_ + 2 * kv_) * d, qkv_at);
    int const token = cached[s_] + step;
    for (int i = 0; i < (q_ + kv_) * d; i += 2) {
      double const a = angle(token, i % d / 2), even = qkv[std::size_t(i)], odd = qkv[std::size_t(i + 1)];
      qkv[std::size_t(i)] = even * std::cos(a) - odd * std::sin(a);
      qkv[std::size_t(i + 1)] = even * std::sin(a) + odd * std::cos(a);
    }
    k_.insert(k_.end(), qkv.begin() + q_ * d, qkv.begin() + (q_ + kv_) * d);
    v_.insert(v_.end(), qkv.begin() + (q_ + kv_) * d, qkv.end());
    for (int head = 0; head < q_; ++head) {
      double all = 0;
      for (int t = 0; t <= token; ++t) {
        auto const at = std::size_t((t * kv_ + head / (q_ / kv_)) * d);
        double score = 0;
        for (std::size_t j = 0; j < d; ++j) score += qkv[std::size_t(head * d) + j] * k_[at + j];
        double const p = std::exp(score / std::sqrt(double(d)));
        for (std::size_t j = 0; j < d; ++j) attended[std::size_t(head * d) + j] += p * v_[at + j];
        all += p;
      }
      for (std::size_t j = 0; j < d; ++j) attended[std::size_t(head * d) + j] /= all;
    }
    add(x, times(attended, hidden, [&](int i, int j) { return out_at(i, j, q_ * d); }));
    auto const y = norm(x, 1);
    auto inner = times(y, ffn_, gate_at);
    auto const up = times(y, ffn_, up_at);
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= up[i] / (1 + std::exp(-inner[i]));
    add(x, times(inner, hidden, [&](int i, int j) { return down_at(i, j, ffn_); }));
    return x;
  }

 private:
  static std::vector<double> norm(std::vector<double> x, int which) {
    double squares = 0;
    for (double const e : x) squares += e * e;
    for (int i = 0; i < hidden; ++i)
      x[std::size_t(i)] *= double(gamma_at(which, i)) / std::sqrt(squares / hidden + double(decoder::shape::eps));
    return x;
  }
  template <class W>
  static std::vector<double> times(std::vector<double> const& x, int columns, W const& w) {
    std::vector<double> y(static_cast<std::size_t>(columns));
    for (int i = 0; i < int(x.size()); ++i)
      for (int j = 0; j < columns; ++j) y[std::size_t(j)] += x[std::size_t(i)] * double(w(i, j));
    return y;
  }
  static void add(std::vector<double>& x, std::vector<double> const& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  int s_, q_, kv_, ffn_;
  std::vector<double> k_, v_;  // [tokens, kv heads, d]
};

/// One rank: returns |error| / |x| of the last step's rows, which grows with rounding to bf16 at every launch.
double run_rank(world& w, decoder::choices const& c) {
  int const ranks = w.size(), rank = w.rank();
  decoder::shape const s{.hidden = hidden,
                         .ffn = ffn_of_rank * ranks,
                         .q_heads = q_heads_of_rank * ranks,
                         .kv_heads = kv_heads_of_rank * ranks,
                         .max_batch = batch,
                         .page_size = page,
                         .max_pages = max_pages};
  int const of_qkv = s.heads() * d / ranks, own = q_heads_of_rank * d, of_kv = s.kv_heads * d,
            in_cache = batch * max_pages * page * of_kv;
  requirements const needs =
      decoder::layer::needs(ranks, s) + requirements::of<bf16>(std::size_t(hidden * (of_qkv + own))) +
      3 * requirements::of<bf16>(hidden * 2 * ffn_of_rank) + requirements::of<bf16>(hidden * ffn_of_rank) +
      2 * requirements::of<bf16>(std::size_t(in_cache)) + requirements::of<bf16>(batch * hidden) +
      requirements::of<float2>(batch * d / 2) + 3 * requirements::of<std::int32_t>(batch * max_pages);
  heap h(w, needs);
  channel ch(h, needs);
  decoder::layer layer(h, ch, s, c);

  auto const upload = [&]<class T>(std::vector<T> const& values) {
    sym<T> const to = h.allocate<T>(values.size());
    h.upload(to, values);
    return h.here(to);
  };
  // Column-major [rows, columns]
  auto const weights = [&](int rows, int columns, auto at) {
    std::vector<bf16> values;
    for (int j = 0; j < columns; ++j)
      for (int i = 0; i < rows; ++i) values.push_back(bf16(at(i, j)));
    return matrix<bf16>{upload(values), rows, columns, rows};
  };
  int const f0 = rank * ffn_of_rank;
  auto const gate = weights(hidden, ffn_of_rank, [&](int i, int j) { return gamma_at(1, i) * gate_at(i, f0 + j); }),
             up = weights(hidden, ffn_of_rank, [&](int i, int j) { return gamma_at(1, i) * up_at(i, f0 + j); }),
             gate_and_up = weights(hidden, 2 * ffn_of_rank, [](int, int) { return NAN; });
  interleave_columns<bf16>(w, w.stream(), gate, up, gate_and_up, layout::column_major);
  auto const qkv = [&](int i, int j) { return gamma_at(0, i) * qkv_at(i, rank * of_qkv + j); };
  auto const out = [&](int i, int j) { return out_at(rank * own + i, j, q_heads_of_rank * ranks * d); };
  auto const down = [&](int i, int j) { return down_at(f0 + i, j, s.ffn); };
  decoder::weights const of_layer{.qkv = weights(hidden, of_qkv, qkv).data,
                                  .out = weights(own, hidden, out).data,
                                  .gate_and_up = gate_and_up.data,
                                  .down = weights(ffn_of_rank, hidden, down).data};

  // Page p of a sequence is on rank p % ranks, as that rank's page p / ranks; here a sequence's pages lie from the last
  // one down
  auto const page_of = [&](int i, int p) { return (i + 1) * max_pages - 1 - p / ranks; };
  std::vector<bf16> k(std::size_t(in_cache), bf16(0.0f)), v = k;
  std::vector<std::int32_t> table;
  for (int i = 0; i < batch; ++i) {
    for (int p = 0; p < max_pages; ++p) table.push_back(page_of(i, p * ranks));
    for (int t = 0; t < cached[i]; ++t)
      for (int j = 0; t / page % ranks == rank && j < of_kv; ++j) {
        auto const at = std::size_t((page_of(i, t / page) * page + t % page) * of_kv + j);
        k[at] = bf16(k_at(i, t, j)), v[at] = bf16(v_at(i, t, j));
      }
  }
  decoder::kv_cache const cache{upload(k), upload(v)};
  sym<bf16> const x = h.allocate<bf16>(batch * hidden);
  sym<std::int32_t> const lengths = h.allocate<std::int32_t>(batch), slots = h.allocate<std::int32_t>(batch);
  sym<float2> const rotations = h.allocate<float2>(batch * d / 2);
  decoder::step const step{batch, upload(table), h.here(lengths), h.here(slots), h.here(rotations)};

  std::vector<reference> whole;
  for (int i = 0; i < batch; ++i) whole.emplace_back(ranks, i);
  double error2 = 0, size2 = 0;
  for (int n = 0; n < steps; ++n) {
    std::vector<bf16> tokens;
    std::vector<std::int32_t> length, slot;
    std::vector<float2> rotation;
    for (int i = 0; i < batch; ++i) {
      int const token = cached[i] + n;  // the new one
      length.push_back(0);
      for (int t = 0; t <= token; ++t) length.back() += t / page % ranks == rank;
      slot.push_back(token / page % ranks == rank ? page_of(i, token / page) * page + token % page : -1);
      for (int p = 0; p < d / 2; ++p)
        rotation.push_back({float(std::cos(angle(token, p))), float(std::sin(angle(token, p)))});
      for (int j = 0; j < hidden; ++j) tokens.push_back(bf16(x_at(n, i, j)));
    }
    h.upload(x, tokens), h.upload(lengths, length), h.upload(slots, slot), h.upload(rotations, rotation);
    layer(w.stream(), of_layer, cache, step, h.here(x));
    w.check(w.stream());  // waits, and throws if a rank did not come
    auto const found = h.download(x);
    for (int i = 0; i < batch; ++i) {
      auto const wanted = whole[std::size_t(i)](n);
      for (int j = 0; j < hidden; ++j) {
        double const e = double(float(found[std::size_t(i * hidden + j)])) - wanted[std::size_t(j)];
        error2 += e * e, size2 += wanted[std::size_t(j)] * wanted[std::size_t(j)];
      }
    }
  }
  return std::sqrt(error2 / size2);
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    for (decoder::choices const c : {decoder::choices{}, decoder::choices{false, false}}) {
      double const e = run_rank(w, c);
      std::printf("rank %d: a decoder layer of %d ranks in %d launches, %d sequences, %d steps: error %.4f\n", w.rank(),
                  w.size(), c.launches(), batch, steps, e);
      if (!(e <= 0.008)) throw error(text("rank ", w.rank(), ": the error is ", e, "; expected at most 0.008"));
    }
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
