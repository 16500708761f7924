// Attention of up to 16 query heads that share a KV head, by one wave: 32 tokens a step, K and V from memory straight
// into fragments.
//
//   K  [token, d]  --16 B per lane--> fragments --> scores = K x Q --exp2--> weights, in the registers that need them
//   V  [token, d]  --8 tokens x 8 d per lane, transposed in registers--> fragments --> o += V x weights
//
// Why no lane needs another's weights: a lane's scores are those of its 8 tokens of its heads, and the second product
// wants from it the weights of 8 tokens of the same heads. The order of tokens within a product is free, so the 8 that
// it has are the 8 that it issues, and V is loaded in that order. The order of d is free too: the rows of output
// atom j are chosen such that the lane's rows of all atoms are neighbours in memory.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/arch/mma.hpp>
#include <fusewire/attention/attention_atom.hpp>
#include <fusewire/attention/attention_instruction.hpp>
#include <fusewire/attention/paged_kv.hpp>
#include <fusewire/attention/softmax.hpp>

namespace fusewire {

/// Floats from a head's o in LDS to the next: at least d + 4, which spreads the heads over the banks.
__host__ __device__ constexpr int wave_attention_pitch(int d) { return d < 128 ? 132 : d + 4; }

/// Attention of one wave over a range of tokens. T: of Q, K and V; D: elements of a head, 64, 96, 128, 192 or 256;
/// SoftCap: whether score_map::cap counts.
template <class T, int D, bool SoftCap = false>
class wave_attention {
 public:
  using atom = attention_atom<T>;                                // its matrix instruction
  static constexpr decode_policy policy = decode_policy_for(D);  // of the architecture
  static constexpr int step = 32;                                // tokens

  /// Asks where the tokens [begin, begin + 32) are; start() loads them. run() takes them, and so on every `stride`
  /// tokens up to `end`.
  /// Memory: K, V and table entries of tokens below `end` only; what lies past it repeats the last, with weight 0.
  __device__ wave_attention(paged_kv<T> const& kv, int begin, int end, int stride)
      : kv_(kv), begin_(begin), end_(end), stride_(stride) {
#pragma unroll
    for (int j = 0; j < outputs; ++j)
#pragma unroll
      for (int v = 0; v < atom::values; ++v) o_[j][v] = 0;
    if (begin >= end) return;
    now_ = load_index(begin);
    next_ = load_index(begin + stride);
  }
  /// Called by: every lane, once, before run().
  __device__ void start() {
    if constexpr (policy.in_order_loads)
      platform::wait_loaded(std::uint64_t(now_) << 32 | next_);  // here, whatever comes
    if (begin_ >= end_) return;
    now_ = rows_of(now_, begin_);
    load_keys(now_, 0);
    if constexpr (policy.values_ahead) load_values(now_, 0);
  }

  /// Attends to all of the wave's tokens.
  __device__ void run(bytes16 const* q_shared, score_map map) {
    for (int t = begin_; t < end_; t += stride_) {
      unsigned const after = load_index(t + 2 * stride_);
      clear_scores();
      if constexpr (parts > 1) {
        now_ = run_parts(q_shared, map, t);
      } else {
        score(q_shared, 0);
        if constexpr (!policy.values_ahead) load_values(now_, 0);
        unsigned const next = rows_of(next_, t + stride_);
        load_keys(next, 0);  // of the last token again when there is no next step: a branch would cost registers
        platform::sched_barrier();
        weigh(map, end_ - t);
        platform::sched_barrier();
        accumulate(0);
        if constexpr (policy.values_ahead) load_values(next, 0);
        now_ = next;
      }
      next_ = after;
    }
  }

  /// Stores (o, m, l): o[head * wave_attention_pitch(D) + d], scales[head].
  __device__ void finish(float* o, softmax_scale* scales, int heads) {
    int const lane = fresh_lane();
#pragma unroll
    for (int i = 0; i < atom::lane_heads; ++i) {
      int const head = atom::head(lane, i);
      float const l = over_siblings(l_[i], [](float a, float b) { return a + b; });
      if (head >= heads) continue;
      if (atom::eighth(lane) == 0) scales[head] = {m_[i], l};
#pragma unroll
      for (int x = 0; x < per_head; ++x)
#pragma unroll
        for (int j = 0; j < outputs; j += neighbours) {
          struct alignas(4 * neighbours) {
            float x[neighbours];
          } some;
#pragma unroll
          for (int e = 0; e < neighbours; ++e) some.x[e] = o_[j + e][i * per_head + x];
          *reinterpret_cast<decltype(some)*>(o + head * pitch + d_of(j, atom::row(lane, x))) = some;
        }
    }
  }

 private:
  static_assert(attention_instruction<atom>);
  static constexpr int pitch = wave_attention_pitch(D);
  static constexpr int parts = D / policy.part;        // of d, loaded one after the other
  static constexpr int slices = policy.part / 32;      // of a part, in a score
  static constexpr int key_atoms = step / atom::rows;  // of tokens
  static constexpr int outputs = D / atom::rows;       // atoms of d
  static constexpr int part_outputs = outputs / parts;
  /// Neighbouring d of a lane's V, a power of two; and of its o, stored together.
  static constexpr int together = part_outputs % 8 == 0 ? 8 : part_outputs % 4 == 0 ? 4 : 2;
  static constexpr int neighbours = together < 4 ? together : 4;
  static constexpr int groups = part_outputs / together;
  static constexpr int per_head = atom::values / atom::lane_heads;
  static_assert(D % policy.part == 0 && policy.part % 32 == 0 && part_outputs % together == 0);

  /// The lane, of which the compiler knows nothing: the many addresses that follow from it are computed where they are
  /// used, and do not take the registers that hold K and V.
  __device__ static int fresh_lane() { return platform::opaque_thread_index() % wave::width; }

  /// d of a row of output atom j.
  __device__ static int d_of(int j, int row) {
    return j / together * (atom::rows * together) + row * together + j % together;
  }
  /// The lane's i-th of its 8 tokens, within the step.
  __device__ static int token(int lane, int i) { return i / per_head * atom::rows + atom::row(lane, i % per_head); }

  template <class F>
  __device__ static float over_siblings(float x, F f) {
    x = f(x, platform::shuffle_xor(x, atom::sibling));
    return f(x, platform::shuffle_xor(x, 2 * atom::sibling));
  }

  /// The lane's token of the step from `first` on, the i-th in lane i % 32, and the last one beyond it.
  __device__ int token_of(int first) const {
    int const token = first + fresh_lane() % step;
    return token < end_ ? token : end_ - 1;
  }
  /// Loads the page-table entry of token_of(first), which rows_of() decodes.
  __device__ unsigned load_index(int first) const {
    int const token = token_of(first);
    unsigned const page = kv_.page(token);
    return policy.in_order_loads ? page : kv_.row(page, token);
  }
  /// The row of token_of(first), of which `index` is load_index(first).
  __device__ unsigned rows_of(unsigned index, int first) const {
    if constexpr (!policy.in_order_loads) return index;
    else return kv_.row(unsigned(platform::opaque(int(index))), token_of(first));
  }

  /// Rows that other lanes know: all issued before the first is used, if loads are waited for in their order.
  template <int N>
  struct lane_rows {
    template <class F>
    __device__ explicit lane_rows(F const& f) {
      if constexpr (policy.in_order_loads) {
#pragma unroll
        for (int i = 0; i < N; ++i) row[i] = f(i);
        platform::sched_barrier();
      }
    }
    template <class F>
    __device__ unsigned operator()(int i, F const& f) const {
      if constexpr (policy.in_order_loads) return row[i];
      else return f(i);
    }
    unsigned row[N];
  };

  /// A step whose K and V are loaded where they are used, the first part of K a step ahead. Returns the rows of the
  /// next step.
  __device__ unsigned run_parts(bytes16 const* q_shared, score_map map, int t) {
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      if (p > 0) load_keys(now_, p);
      score(q_shared, p);
    }
    load_values(now_, 0);
    unsigned const next = rows_of(next_, t + stride_);
    weigh(map, end_ - t);
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      if (p > 0) load_values(now_, p);
      accumulate(p);
    }
    load_keys(next, 0);
    return next;
  }

  /// Loads part p of K.
  __device__ void load_keys(unsigned rows, int p) {
    int const lane = fresh_lane();
    auto const of_atom = [&](int a) { return platform::shuffle(rows, a * atom::rows + atom::kv_row(lane)); };
    lane_rows<key_atoms> const known(of_atom);
#pragma unroll
    for (int a = 0; a < key_atoms; ++a) {
      T const* const row = kv_.k + std::uint64_t(known(a, of_atom)) * D;
#pragma unroll
      for (int s = 0; s < slices; ++s)
        keys_[a][s].row[0] = *reinterpret_cast<bytes16 const*>(row + (p * slices + s) * 32 + atom::eighth(lane) * 8);
    }
  }
  /// Loads part p of V.
  __device__ void load_values(unsigned rows, int p) {
    int const lane = fresh_lane();
    struct alignas(together * 2) vector {
      std::uint32_t word[together / 2];
    };
    auto const of_token = [&](int i) { return platform::shuffle(rows, token(lane, i)); };
    lane_rows<8> const known(of_token);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      T const* const row = kv_.v + std::uint64_t(known(i, of_token)) * D;
#pragma unroll
      for (int c = 0; c < groups; ++c) {
        vector const x = *reinterpret_cast<vector const*>(row + d_of((p * groups + c) * together, atom::kv_row(lane)));
#pragma unroll
        for (int w = 0; w < together / 2; ++w) values_[i][c][w] = x.word[w];
      }
    }
  }

  __device__ void clear_scores() {
#pragma unroll
    for (int a = 0; a < key_atoms; ++a)
#pragma unroll
      for (int v = 0; v < atom::values; ++v) scores_[a][v] = 0;
  }
  /// Adds the products of part p of d.
  __device__ void score(bytes16 const* q_shared, int p) {
    bytes16 const* const mine = q_shared + fresh_lane();
#pragma unroll
    for (int s = 0; s < slices; ++s) {
      typename atom::head_fragment q;
#pragma unroll
      for (int i = 0; i < atom::lane_heads; ++i)
        q.row[i] = mine[((p * slices + s) * atom::lane_heads + i) * wave::width];
#pragma unroll
      for (int a = 0; a < key_atoms; ++a) atom::multiply(scores_[a], keys_[a][s], q);
    }
  }

  /// Scores become weights; o and l move to the new maximum.
  __device__ void weigh(score_map map, int valid) {
    int const lane = fresh_lane();
#pragma unroll
    for (int i = 0; i < atom::lane_heads; ++i) {
      float x[8], m = minus_infinity;
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        float const score = map.template score<SoftCap>(scores_[t / per_head][i * per_head + t % per_head]);
        x[t] = token(lane, t) < valid ? score : minus_infinity;
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

  /// Adds part p of d.
  __device__ void accumulate(int p) {
#pragma unroll
    for (int j = 0; j < part_outputs; ++j) {
      typename atom::kv_fragment column;  // one d of the lane's 8 tokens
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        std::uint32_t const even = values_[2 * w][j / together][j % together / 2],
                            odd = values_[2 * w + 1][j / together][j % together / 2];
        column.row[0].word[w] = j % 2 ? platform::high_halves(even, odd) : platform::low_halves(even, odd);
      }
      atom::multiply(o_[p * part_outputs + j], column, weights_);
    }
  }

  paged_kv<T> kv_;
  int begin_, end_, stride_;
  unsigned now_ = 0, next_ = 0;  // the rows of this step; load_index() of those of the next
  typename atom::head_fragment weights_;
  typename atom::kv_fragment keys_[key_atoms][slices];
  std::uint32_t values_[8][groups][together / 2];  // [token][group of d][two d]
  typename atom::c_fragment scores_[key_atoms], o_[outputs];
  float m_[2] = {minus_infinity, minus_infinity}, l_[2] = {};
};

}  // namespace fusewire
