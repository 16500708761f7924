// Flash Decode in one kernel launch: one new token per sequence attends to a KV cache whose tokens are spread over all
// ranks.
//
//   example_flash_decode [ranks]                  ranks are threads; default: one per GPU
//   scripts/run-ranks -n 4 example_flash_decode   ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/flash_decode.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int batch = 2, q_heads = 96, kv_heads = 12, d = 128, page_size = 16, max_pages = 16;
constexpr float scale = 0.0883883f;  // 1 / sqrt(d)

// Queries, keys and values in formulas that every rank knows; t counts the tokens of one rank and sequence.
float q_at(int s, int head, int j) { return float((head * 5 + j * 3 + s) % 7 - 3) / 4; }
float k_at(int r, int s, int t, int head, int j) { return float((t * (j + 3) + head + r * 3 + s) % 9 - 4) / 4; }
float v_at(int r, int s, int t, int head, int j) { return float((t * 7 + j * 5 + head * 3 + r + s) % 13 - j % 7) / 8; }
int tokens_of(int r, int s) { return s == 1 && r % 3 == 2 ? 0 : 40 + 25 * (r % 8) - 30 * s; }  // some shards are empty

/// Attention of one query head over the tokens of all ranks, on the host.
std::vector<float> reference(int ranks, int s, int head) {
  int const kv_head = head / (q_heads / kv_heads);
  std::vector<float> o(d);
  float l = 0;
  for (int r = 0; r < ranks; ++r)
    for (int t = 0; t < tokens_of(r, s); ++t) {
      float dot = 0;
      for (int j = 0; j < d; ++j) dot += q_at(s, head, j) * k_at(r, s, t, kv_head, j);
      float const weight = std::exp(dot * scale);
      l += weight;
      for (int j = 0; j < d; ++j) o[std::size_t(j)] += weight * v_at(r, s, t, kv_head, j);
    }
  for (float& x : o) x /= l;
  return o;
}

/// One rank: returns the largest error of its output.
float run_rank(world& w) {
  flash_decode_options const options{.max_batch = batch,
                                     .q_heads = q_heads,
                                     .kv_heads = kv_heads,
                                     .head_dim = d,
                                     .page_size = page_size,
                                     .max_pages = max_pages};
  constexpr int pages = batch * max_pages, cached = pages * page_size * kv_heads * d, outputs = batch * q_heads * d;
  requirements const needs = flash_decode<bf16>::requirements(w.size(), options) + 2 * requirements::of<bf16>(cached) +
                             2 * requirements::of<bf16>(outputs) + requirements::of<std::int32_t>(pages) +
                             requirements::of<std::int32_t>(batch);
  heap h(w, needs);
  channel ch(h, needs);
  flash_decode<bf16> attention(ch, options);

  // This rank's caches [pages, page_size, kv_heads, d]: the pages of the sequences in any order, here from the last one
  // down.
  std::vector<bf16> q, k(cached, bf16(0.0f)), v = k;
  std::vector<std::int32_t> table, lengths;
  for (int s = 0; s < batch; ++s) {
    for (int head = 0; head < q_heads; ++head)
      for (int j = 0; j < d; ++j) q.push_back(bf16(q_at(s, head, j)));
    for (int p = 0; p < max_pages; ++p) table.push_back(pages - 1 - (s * max_pages + p));
    lengths.push_back(tokens_of(w.rank(), s));
    for (int t = 0; t < lengths.back(); ++t)
      for (int head = 0; head < kv_heads; ++head)
        for (int j = 0; j < d; ++j) {
          int const page = table[std::size_t(s * max_pages + t / page_size)];
          auto const at = std::size_t(((page * page_size + t % page_size) * kv_heads + head) * d + j);
          k[at] = bf16(k_at(w.rank(), s, t, head, j));
          v[at] = bf16(v_at(w.rank(), s, t, head, j));
        }
  }
  auto const upload = [&]<class T>(std::vector<T> const& from) {
    T* const to = h.view().here(h.allocate<T>(from.size()));
    check_hip(hipMemcpy(to, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice), "hipMemcpy");
    return to;
  };
  std::vector<bf16> out(q.size());
  flash_decode_call<bf16> const call{.q = upload(q),
                                     .k_cache = upload(k),
                                     .v_cache = upload(v),
                                     .block_table = upload(table),
                                     .lengths = upload(lengths),
                                     .out = upload(out),
                                     .batch = batch};

  attention(w.stream(), call);
  w.check(w.stream());  // waits, and throws if a rank did not come

  check_hip(hipMemcpy(out.data(), call.out, out.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  float worst = 0;
  for (int s = 0; s < batch; ++s)
    for (int head = 0; head < q_heads; ++head) {
      auto const wanted = reference(w.size(), s, head);
      for (int j = 0; j < d; ++j) {
        float const error = std::abs(float(out[std::size_t((s * q_heads + head) * d + j)]) - wanted[std::size_t(j)]);
        if (!(error <= worst)) worst = error;  // NaN stays
      }
    }
  return worst;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(1, device_count()));
  std::printf("%d query heads, %d KV heads, d = %d, %d sequences, one kernel per rank\n", q_heads, kv_heads, d, batch);
  run(ranks, [](world& w) {
    float const worst = run_rank(w);
    std::printf("rank %d: %3d + %3d tokens here, largest error %.5f\n", w.rank(), tokens_of(w.rank(), 0),
                tokens_of(w.rank(), 1), double(worst));
    // weights are rounded to bf16 (1/512 of values up to 3/2), and so is the output
    if (!(worst <= 0.006f))
      throw error(text("rank ", w.rank(), ": the largest error is ", worst, "; expected at most 0.006"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
