// Attention of up to 16 query heads that share a KV head, by one wave: 32 tokens a step, K and V from memory straight into fragments.
//
//   K  [token, d]  --16 B per lane--> fragments            scores = K x Q      -- exp2 --> weights, in the registers where they are needed
//   V  [token, d]  --8 tokens x 8 d per lane, transposed in registers--> fragments            o += V x weights
//
// Why no lane needs another's weights: a lane's scores are those of its 8 tokens of its heads, and the second product wants from it
// the weights of 8 tokens of the same heads. The order of tokens within a product is free, so the 8 that it has are the 8 that it
// is asked for, and V is loaded in that order. The order of d is free too: the rows of output atom j are chosen such that the lane's
// rows of all atoms are neighbours in memory.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/tile/mma.hpp>
#include <fusewire/tile/softmax.hpp>

namespace fusewire {

/// The matrix instruction with one side for heads (Q and the weights) and one for tokens or d (K and V), its `rows`. A lane holds
/// `lane_heads` heads, head(lane, i), in the head fragments and in the results alike; four lanes share a head, `sibling` apart. Of
/// each head it has values / lane_heads results of an atom: rows row(lane, 0), row(lane, 1), ...
template <class A>
concept attention_instruction = requires(int lane, typename A::head_fragment h, typename A::kv_fragment kv, typename A::c_fragment c) {
  requires A::values / A::lane_heads * 4 == A::rows && platform::wave_size / 4 * A::lane_heads == 16;
  A::head(lane, 0);
  A::kv_row(lane);
  A::row(lane, 0);
  A::eighth(lane);
  A::multiply(c, kv, h);
};

/// The KV cache of one sequence and KV head, in pages.
template <class T>
struct paged_kv {
  T const *k, *v;            // this head's first element of page 0
  std::int32_t const* pages; // of the sequence
  int page_shift;            // log2 of the page size
  unsigned row_bytes;        // from a token to the next in a page

  /// Where a token's row is: its number in the cache. Reads the table.
  __device__ unsigned row(int token) const {
    return (unsigned(pages[token >> page_shift]) << page_shift) + (unsigned(token) & ((1u << page_shift) - 1));
  }
};

template <class T, int D>
class wave_attention {
 public:
  using atom = attention_atom<T>;
  static constexpr int step = 32;  // tokens
  static constexpr int pitch = D + 4;  // floats, of a head's o in LDS

  /// Called by: every thread of the wave. `q`: [heads, D], 1 to 16 heads.
  __device__ wave_attention(T const* q, int heads) : lane_(wave{}.rank()) {
#pragma unroll
    for (int i = 0; i < atom::lane_heads; ++i) {
      int const head = atom::head(lane_, i);
      T const* const row = q + (head < heads ? head : 0) * D + atom::eighth(lane_) * 8;
#pragma unroll
      for (int s = 0; s < slices; ++s) q_[s].row[i] = *reinterpret_cast<bytes16 const*>(row + s * 32);
    }
#pragma unroll
    for (int j = 0; j < outputs; ++j)
#pragma unroll
      for (int v = 0; v < atom::values; ++v) o_[j][v] = 0;
  }

  /// Takes the tokens [begin, begin + 32), and so on every `stride` tokens up to `end`. `scale` is in units of log 2.
  /// Memory: K, V and table entries of tokens below `end` only; what lies past it repeats the last, with weight 0.
  __device__ void run(paged_kv<T> const& kv, float scale, int begin, int end, int stride) {
    if (begin >= end) return;
    auto const row_at = [&](int first) { return kv.row(first + lane_ % step < end ? first + lane_ % step : end - 1); };
    unsigned next = row_at(begin), after = row_at(begin + stride);
    load_keys(kv, next);
    load_values(kv, next);
    for (int t = begin; t < end; t += stride) {
      bool const more = t + stride < end;
      next = after;
      if (more) after = row_at(t + 2 * stride);
      score();
      if (more) load_keys(kv, next);
      weigh(scale, end - t);
      accumulate();
      if (more) load_values(kv, next);
    }
  }

  /// Stores (o, m, l): o[head * pitch + d], scales[head].
  __device__ void finish(float* o, softmax_scale* scales, int heads) {
#pragma unroll
    for (int i = 0; i < atom::lane_heads; ++i) {
      int const head = atom::head(lane_, i);
      float const l = over_siblings(l_[i], [](float a, float b) { return a + b; });
      if (head >= heads) continue;
      if (atom::eighth(lane_) == 0) scales[head] = {m_[i], l};
#pragma unroll
      for (int x = 0; x < per_head; ++x)
#pragma unroll
        for (int j = 0; j < outputs; j += 4) {
          quad four;
#pragma unroll
          for (int e = 0; e < 4; ++e) four.x[e] = o_[j + e][i * per_head + x];
          *reinterpret_cast<quad*>(o + head * pitch + d_of(j, atom::row(lane_, x))) = four;
        }
    }
  }

 private:
  static_assert(attention_instruction<atom>);
  static constexpr int slices = D / 32;                    // of d, in a score
  static constexpr int key_atoms = step / atom::rows;      // of tokens
  static constexpr int outputs = D / atom::rows;           // atoms of d
  static constexpr int together = D / atom::rows < 8 ? D / atom::rows : 8;  // neighbouring d of a lane's V
  static constexpr int groups = outputs / together;
  static constexpr int per_head = atom::values / atom::lane_heads;

  /// d of a row of output atom j.
  __device__ static int d_of(int j, int row) { return j / together * (atom::rows * together) + row * together + j % together; }
  /// The lane's i-th of its 8 tokens, within the step.
  __device__ int token(int i) const { return i / per_head * atom::rows + atom::row(lane_, i % per_head); }

  template <class F>
  __device__ static float over_siblings(float x, F f) {
    x = f(x, platform::shuffle_xor(x, atom::sibling));
    return f(x, platform::shuffle_xor(x, 2 * atom::sibling));
  }

  __device__ void load_keys(paged_kv<T> const& kv, unsigned rows) {
#pragma unroll
    for (int a = 0; a < key_atoms; ++a) {
      auto const* const row = reinterpret_cast<std::byte const*>(kv.k) + std::uint64_t(platform::shuffle(rows, a * atom::rows + atom::kv_row(lane_))) * kv.row_bytes;
#pragma unroll
      for (int s = 0; s < slices; ++s) keys_[a][s].row[0] = *reinterpret_cast<bytes16 const*>(row + s * 64 + atom::eighth(lane_) * 16);
    }
  }
  __device__ void load_values(paged_kv<T> const& kv, unsigned rows) {
    struct alignas(together * 2) piece { std::uint32_t word[together / 2]; };
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      auto const* const row = reinterpret_cast<std::byte const*>(kv.v) + std::uint64_t(platform::shuffle(rows, token(i))) * kv.row_bytes;
#pragma unroll
      for (int c = 0; c < groups; ++c) {
        piece const p = *reinterpret_cast<piece const*>(row + d_of(c * together, atom::kv_row(lane_)) * 2);
#pragma unroll
        for (int w = 0; w < together / 2; ++w) values_[i][c][w] = p.word[w];
      }
    }
  }

  __device__ void score() {
#pragma unroll
    for (int a = 0; a < key_atoms; ++a) {
#pragma unroll
      for (int v = 0; v < atom::values; ++v) scores_[a][v] = 0;
#pragma unroll
      for (int s = 0; s < slices; ++s) atom::multiply(scores_[a], keys_[a][s], q_[s]);
    }
  }

  /// Scores become weights; o and l move to the new maximum.
  __device__ void weigh(float scale, int valid) {
#pragma unroll
    for (int i = 0; i < atom::lane_heads; ++i) {
      float x[8], m = minus_infinity;
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        float const score = scores_[t / per_head][i * per_head + t % per_head] * scale;
        x[t] = token(t) < valid ? score : minus_infinity;
        m = fmaxf(m, x[t]);
      }
      m = fmaxf(m_[i], over_siblings(m, [](float a, float b) { return fmaxf(a, b); }));
      float const shrink = softmax_weight(m_[i], m);
      m_[i] = m;
      l_[i] *= shrink;
#pragma unroll
      for (int t = 0; t < 8; t += 2) {
        float const even = softmax_weight(x[t], m), odd = softmax_weight(x[t + 1], m);
        l_[i] += even + odd;
        weights_.row[i].word[t / 2] = std::uint32_t(T(even).bits) | std::uint32_t(T(odd).bits) << 16;
      }
#pragma unroll
      for (int j = 0; j < outputs; ++j)
#pragma unroll
        for (int v = 0; v < per_head; ++v) o_[j][i * per_head + v] *= shrink;
    }
  }

  __device__ void accumulate() {
#pragma unroll
    for (int j = 0; j < outputs; ++j) {
      typename atom::kv_fragment column;  // one d of the lane's 8 tokens
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        std::uint32_t const even = values_[2 * w][j / together][j % together / 2], odd = values_[2 * w + 1][j / together][j % together / 2];
        column.row[0].word[w] = j % 2 ? (even >> 16 | (odd & 0xffff0000u)) : ((even & 0xffffu) | odd << 16);
      }
      atom::multiply(o_[j], column, weights_);
    }
  }

  int lane_;
  typename atom::head_fragment q_[slices], weights_;
  typename atom::kv_fragment keys_[key_atoms][slices];
  std::uint32_t values_[8][groups][together / 2];  // [token][group of d][two d]
  typename atom::c_fragment scores_[key_atoms], o_[outputs];
  float m_[2] = {minus_infinity, minus_infinity}, l_[2] = {};
};

}  // namespace fusewire
