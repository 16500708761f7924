// The bulk-synchronous twin of examples/decoder_layer.hpp: the same layer as fourteen launches, whose GEMMs and
// collectives are given.
//
//   GEMM, all-gather, RoPE and append, local attention, all-gather, merge,
//   GEMM, all-reduce, add and normalise, GEMM, silu, GEMM, all-reduce, add and normalise
#pragma once
#include "../examples/decoder_layer.hpp"

#include <functional>
#include <optional>

namespace fusewire::bench {

/// A thread has eight neighbours of d. `all`: of each rank out [rows, heads, d], then lse [rows, heads] of all heads,
/// `payload` bytes apart; out: those of heads [first, first + own).
static __global__ void __launch_bounds__(256) merge_attention(std::byte const* all, std::int64_t payload, int ranks,
                                                              int rows, int heads, int first, int own, bf16* out) {
  using decoder::vec8;
  constexpr int d = decoder::shape::d;
  int const i = int(blockIdx.x) * 256 + int(threadIdx.x), result = i / (d / 8);
  if (result >= rows * own) return;
  int const from = result / own * heads + first + result % own;
  auto const lse = [&](int r) {
    return reinterpret_cast<float const*>(all + r * payload + std::int64_t(rows) * heads * d * 2)[from];
  };
  float m = minus_infinity, l = 0, o[8] = {};
  for (int r = 0; r < ranks; ++r) m = fmaxf(m, lse(r));
  for (int r = 0; r < ranks; ++r) {
    float const weight = lse(r) == minus_infinity ? 0 : expf(lse(r) - m);
    vec8 const part = reinterpret_cast<vec8 const*>(all + r * payload)[from * (d / 8) + i % (d / 8)];
    l += weight;
    for (int j = 0; j < 8; ++j) o[j] += float(part.x[j]) * weight;
  }
  vec8 sum;
  for (int j = 0; j < 8; ++j) sum.x[j] = bf16(l > 0 ? o[j] / l : 0.0f);
  reinterpret_cast<vec8*>(out)[i] = sum;
}

/// out[i] = silu(pairs[2 i]) * pairs[2 i + 1], of `n` results, a multiple of 4.
static __global__ void __launch_bounds__(256) gate_pairs(bf16 const* pairs, bf16* out, int n) {
  struct alignas(8) four {
    bf16 x[4];
  };
  int const i = int(blockIdx.x) * 256 + int(threadIdx.x);
  if (i >= n / 4) return;
  decoder::vec8 const v = reinterpret_cast<decoder::vec8 const*>(pairs)[i];
  four y;
  for (int j = 0; j < 4; ++j) {
    float const gate = float(v.x[2 * j]);
    y.x[j] = bf16(gate / (1 + expf(-gate)) * float(v.x[2 * j + 1]));
  }
  reinterpret_cast<four*>(out)[i] = y;
}

/// x += sum; y = x / rms(x). A block of 1024 threads for each row of up to 8192.
static __global__ void __launch_bounds__(1024) add_and_normalise(bf16 const* sum, bf16* x, bf16* y, int cols) {
  using decoder::vec8;
  __shared__ float shared[block_reduce_words];
  block const b;
  std::int64_t const at = std::int64_t(b.index()) * (cols / 8) + b.rank();
  bool const mine = b.rank() < cols / 8;
  vec8 h{};
  float squares = 0;
  if (mine) {
    vec8 const more = reinterpret_cast<vec8 const*>(sum)[at];
    h = reinterpret_cast<vec8 const*>(x)[at];
    for (int j = 0; j < 8; ++j) {
      h.x[j] = bf16(float(h.x[j]) + float(more.x[j]));
      squares += float(h.x[j]) * float(h.x[j]);
    }
    reinterpret_cast<vec8*>(x)[at] = h;
  }
  float const scale = 1 / sqrtf(block_sum(b, squares, shared) / float(cols) + decoder::shape::eps);
  if (!mine) return;
  for (bf16& e : h.x) e = bf16(float(e) * scale);
  reinterpret_cast<vec8*>(y)[at] = h;
}

/// What the twin is given. All take place on the stream.
struct twin_operations {
  /// C [m, n] = A [m, k] B [k, n], B column-major. which: 0 to 3, of QKV, out, gate and up, down.
  std::function<void(int which, bf16 const* a, bf16 const* b, bf16* c, int m, int n, int k)> multiply;
  std::function<void(void const* mine, void* all, std::size_t bytes)> gather;
  std::function<void(bf16 const* mine, bf16* sum, std::size_t count)> reduce;
  /// Makes `gather` wait for fusewire's kernel before it; may be empty, where it does by itself.
  std::function<void()> complete = {};
};

/// The twin on one rank.
class decoder_twin {
 public:
  /// `alone`: a channel of this rank alone. allocate(bytes): memory that the collectives take.
  template <class Allocate>
  decoder_twin(world const& w, channel& alone, decoder::layer const& fused, decoder::shape const& s,
               twin_operations operations, Allocate const& allocate)
      : w_(w), fused_(fused), s_(s), do_(std::move(operations)), attend_(alone, options(s)) {
    auto const batch = std::size_t(s.max_batch);
    auto const rows = [&](int cols) { return reinterpret_cast<bf16*>(allocate(batch * std::size_t(cols) * 2)); };
    own_qkv_ = rows(s.heads() * s.d / w.size()), qkv_ = rows(s.heads() * s.d), q_ = rows(s.q_heads * s.d);
    part_ = allocate(payload(s.max_batch)), parts_ = allocate(payload(s.max_batch) * std::size_t(w.size()));
    attended_ = rows(s.q_heads * s.d / w.size()), product_ = rows(s.hidden), sum_ = rows(s.hidden);
    pairs_ = rows(2 * s.ffn / w.size()), inner_ = rows(s.ffn / w.size());
  }

  /// x [batch, hidden] and y, x normalised, become those that the next layer takes.
  void operator()(hipStream_t stream, decoder::weights const& w, decoder::kv_cache const& cache, decoder::step const& t,
                  bf16* x, bf16* y) {
    int const ranks = w_.size(), n = t.batch, of_qkv = s_.heads() * s_.d / ranks, own = s_.q_heads / ranks,
              inner = s_.ffn / ranks;
    auto const blocks = [](int threads) { return dim3(unsigned(ceil_div(threads, 256))); };
    do_.multiply(0, y, w.qkv, own_qkv_, n, of_qkv, s_.hidden);
    do_.gather(own_qkv_, qkv_, std::size_t(n * of_qkv) * 2);
    fused_.rotate(stream, t, nullptr, {qkv_, s_.heads() / ranks, of_qkv, std::int64_t(n) * of_qkv}, q_, cache);
    auto call = fused_.attention(t, q_, cache, reinterpret_cast<bf16*>(part_));
    call.lse = reinterpret_cast<float*>(part_ + std::size_t(n * s_.q_heads * s_.d) * 2);
    attend_(stream, call);
    if (do_.complete) do_.complete();
    do_.gather(part_, parts_, payload(n));
    merge_attention<<<blocks(n * own * s_.d / 8), dim3(256), 0, stream>>>(parts_, std::int64_t(payload(n)), ranks, n,
                                                                          s_.q_heads, w_.rank() * own, own, attended_);
    do_.multiply(1, attended_, w.out, product_, n, s_.hidden, own * s_.d);
    add(stream, x, y, n);
    do_.multiply(2, y, w.gate_and_up, pairs_, n, 2 * inner, s_.hidden);
    gate_pairs<<<blocks(n * inner / 4), dim3(256), 0, stream>>>(pairs_, inner_, n * inner);
    do_.multiply(3, inner_, w.down, product_, n, s_.hidden, inner);
    add(stream, x, y, n);
    check_hip(hipGetLastError(), "the twin's kernels");
  }

 private:
  static flash_decode_options options(decoder::shape const& s) {
    auto o = decoder::layer::attention_options(s);
    o.output = output::replicated;
    return o;
  }
  std::size_t payload(int batch) const {
    return round_up(std::size_t(batch) * std::size_t(s_.q_heads) * (std::size_t(s_.d) * 2 + 4), 256);
  }
  void add(hipStream_t stream, bf16* x, bf16* y, int rows) const {
    do_.reduce(product_, sum_, std::size_t(rows) * std::size_t(s_.hidden));
    add_and_normalise<<<dim3(unsigned(rows)), dim3(1024), 0, stream>>>(sum_, x, y, s_.hidden);
  }

  world const& w_;
  decoder::layer const& fused_;
  decoder::shape s_;
  twin_operations do_;
  flash_decode<bf16> attend_;
  bf16 *own_qkv_, *qkv_, *q_, *attended_, *product_, *sum_, *pairs_, *inner_;
  std::byte *part_, *parts_;
};

}  // namespace fusewire::bench
