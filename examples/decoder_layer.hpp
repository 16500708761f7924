// A tensor-parallel decoder layer of Llama's kind, for one new token of each sequence, in seven kernel launches. Every
// rank has W-th parts of the weights and, of every sequence, some tokens of the KV cache. x is the same on all ranks.
//
//   launch                                                 reads --> makes                     on rank r
//   1 gemm_all_scatter    x Wqkv; columns to every rank    x --> qkv                           W-th of the columns
//   2 rotate_and_append   norm, RoPE, append to the cache  x, qkv --> q, the token's K and V   K and V it owns
//   3 flash_decode        attention, output::heads         q, cache --> attended               its tokens; its heads
//   4 gemm_ar             x + attended Wo, over ranks      x, attended --> h                   W-th of the sum
//   5 normalise           norm                             h --> y                             all
//   6 gemm                silu(y Wgate) * (y Wup)          y --> inner                         W-th of the columns
//   7 gemm_ar             h + inner Wdown, over ranks      h, inner --> x                      W-th of the sum
//
// `choices` has other operators in place of 1, and of 4, 5 and 7, for eight or nine launches: on many ranks they take
// less time (docs/operators.md).
//
// Bulk-synchronous code has fourteen: a collective of its own after 1, 3, 4 and 7, a kernel that merges after 3, a
// kernel for silu after 6, and norms of their own after 4 and 7, where residuals are added.
//
// The weights of both norms are multiplied into Wqkv and into Wgate and Wup, once. What is left of a norm is one number
// for each row, 1 / rms(x), which commutes with a product: launch 2 computes it and scales what launch 1 made of x.
// Before silu it has to be there, so launch 5 remains.
//
// Deadlock and reuse: the operators' arguments. Launches 2, 5 and 6 wait for nobody. The rank that owns the new token's
// place appends its K and V, which every rank has in qkv: no store goes to a peer. Launch 3 loads the cache before
// launch 2 has ended, but for each shard's last token, the only one that launch 2 writes (kv_is_ready).
#pragma once
#include <fusewire/device/block_reduce.hpp>
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_reduce.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <fusewire/ops/gemm.hpp>
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace decoder {

using namespace fusewire;

/// The whole model's layer, and capacities. All ranks pass the same; the number of ranks divides q_heads, heads(),
/// and ffn in multiples of 8.
struct shape {
  int hidden = 0, ffn = 0;             // multiples of 8
  int q_heads = 0, kv_heads = 0;       // as flash_decode wants them
  int max_batch = 0;                   // sequences
  int page_size = 16;                  // tokens, a power of two
  int max_pages = 0;                   // of one sequence on one rank
  static constexpr int d = 128;        // of a head
  static constexpr float eps = 1e-5f;  // added to the mean of squares

  __host__ __device__ constexpr int heads() const { return q_heads + 2 * kv_heads; }  // of Q, K and V
  /// Llama 3 70B's.
  static constexpr shape llama_70b(int batch, int pages) {
    return {.hidden = 8192, .ffn = 28672, .q_heads = 64, .kv_heads = 8, .max_batch = batch, .max_pages = pages};
  }
};

/// A rank's part of the weights, all column-major; those of norms are multiplied into qkv and gate_and_up.
struct weights {
  bf16 const* qkv = nullptr;          // [hidden, heads d / W]: its columns of the heads of Q, then K, then V
  bf16 const* out = nullptr;          // [q_heads d / W, hidden]: rows of its heads
  bf16 const* gate_and_up = nullptr;  // [hidden, 2 ffn / W]: columns in turn; see interleave_columns()
  bf16 const* down = nullptr;         // [ffn / W, hidden]
};

/// This rank's part of a layer's cache, [pages, page_size, kv_heads, d] each.
struct kv_cache {
  bf16 *k = nullptr, *v = nullptr;
};

/// What all layers share while one token of each sequence passes, in device memory. Nothing on the stream writes it
/// between the layers.
struct step {
  int batch = 0;                              // the same on all ranks, as rotations are
  std::int32_t const* block_table = nullptr;  // [batch, max_pages]
  std::int32_t const* lengths = nullptr;      // [batch]: tokens of this rank's shard, the new one with them
  std::int32_t const* slots = nullptr;  // [batch]: page x page_size + place of the new token; -1: another rank has it
  float2 const* rotations = nullptr;    // [batch, d / 2]: cosine and sine of the angle of each pair of RoPE
};

/// How the columns of QKV lie: those of `heads` heads side by side, the next ones `step` elements further on.
struct qkv_view {
  bf16 const* data;
  int heads;
  std::int64_t ld, step;

  __device__ bf16 const* at(int row, int head) const {
    return data + head / heads * step + row * ld + head % heads * shape::d;
  }
};

/// Eight neighbours of a row.
struct alignas(16) vec8 {
  bf16 x[8];
};

/// 1 / rms of a row, in every thread. Called by: a block; `shared` as for block_sum().
__device__ inline float by_rms(block b, bf16 const* row, int cols, float* shared) {
  float squares = 0;
  for (int j = b.rank(); j < cols / 8; j += b.size()) {
    vec8 const v = reinterpret_cast<vec8 const*>(row)[j];
    for (bf16 const& x : v.x) squares += float(x) * float(x);
  }
  return 1 / sqrtf(block_sum(b, squares, shared) / float(cols) + shape::eps);
}

/// q = RoPE(Q / rms(x)); K, rotated too, and V to their places. A block has a row and some heads of it, a thread eight
/// neighbours of a head at a time, which are four pairs of RoPE. x may be null: QKV was made of what is normalised.
static __global__ void __launch_bounds__(256)
    rotate_and_append(shape s, step t, bf16 const* x, qkv_view qkv, bf16* q, kv_cache cache, int blocks_of_row) {
  __shared__ float shared[block_reduce_words];
  block const b;
  wait_prior_grid();
  constexpr int vectors = shape::d / 8;  // of a head
  for (int i = b.index(); i < t.batch * blocks_of_row; i += b.count()) {
    int const row = i / blocks_of_row, part = i % blocks_of_row, all = s.heads() * vectors, slot = t.slots[row];
    float const scale = x ? by_rms(b, x + std::int64_t(row) * s.hidden, s.hidden, shared) : 1.0f;
    for (int j = part * b.size() + b.rank(); j < all; j += blocks_of_row * b.size()) {
      int const head = j / vectors, at = j % vectors, kv = head - s.q_heads;  // kv: K's heads, then V's
      if (kv >= 0 && slot < 0) break;
      vec8 v = reinterpret_cast<vec8 const*>(qkv.at(row, head))[at];
      for (int p = 0; p < 4; ++p) {
        float const even = float(v.x[2 * p]) * scale, odd = float(v.x[2 * p + 1]) * scale;
        float2 const r = kv >= s.kv_heads ? float2{1, 0} : t.rotations[row * (shape::d / 2) + at * 4 + p];
        v.x[2 * p] = bf16(even * r.x - odd * r.y);
        v.x[2 * p + 1] = bf16(even * r.y + odd * r.x);
      }
      bf16* const to = kv < 0 ? q + (std::int64_t(row) * s.q_heads + head) * shape::d
                              : (kv < s.kv_heads ? cache.k : cache.v) +
                                    (std::int64_t(slot) * s.kv_heads + kv % s.kv_heads) * shape::d;
      reinterpret_cast<vec8*>(to)[at] = v;
    }
  }
}

/// y = h / rms(h). A block for each row.
static __global__ void __launch_bounds__(1024) normalise(bf16 const* h, bf16* y, int rows, int cols) {
  __shared__ float shared[block_reduce_words];
  block const b;
  wait_prior_grid();
  for (int row = b.index(); row < rows; row += b.count()) {
    bf16 const* const from = h + std::int64_t(row) * cols;
    float const scale = by_rms(b, from, cols, shared);
    for (int j = b.rank(); j < cols / 8; j += b.size()) {
      vec8 v = reinterpret_cast<vec8 const*>(from)[j];
      for (bf16& e : v.x) e = bf16(float(e) * scale);
      reinterpret_cast<vec8*>(y + std::int64_t(row) * cols)[j] = v;
    }
  }
}

/// An epilogue: adds what the residual stream has in this place.
struct residual {
  bf16 const* x;
  int cols;
  __device__ float operator()(float sum, int row, int column) const {
    return sum + float(x[std::int64_t(row) * cols + column]);
  }
};

/// Which operators a layer consists of; the same on all ranks.
struct choices {
  bool gemm_scatters = true;  // launch 1 is gemm_all_scatter; else gemm and all_gather, one launch more
  /// Launches 4, 5 and 7 are gemm_ar, normalise and gemm_ar; else gemm and all_reduce with residual and norm, twice:
  /// one launch more
  bool gemm_reduces = true;

  constexpr int launches() const { return 9 - gemm_scatters - gemm_reduces; }
  /// The fewest launches for two ranks; for more the nine that take least on 8 MI300X, as projected.
  static constexpr choices of(int ranks) { return {ranks <= 2, ranks <= 2}; }
};

/// The operators of a layer and what lies between them; it serves all layers of a model, one after the other.
class layer {
 public:
  /// Collective. The ranks' launches are those of `ch`, in one order.
  layer(heap& h, channel& ch, shape const& s) : layer(h, ch, s, choices::of(ch.world().size())) {}
  /// The same with other operators.
  layer(heap& h, channel& ch, shape const& s, choices c)
      : ch_(ch), s_(s), ranks_(ch.world().size()), attend_(ch, attention_options(s)), gemm_(ch.world()) {
    auto const o = options(ranks_, s);
    if (c.gemm_scatters) make_qkv_.emplace(ch, o.qkv);
    else gather_.emplace(ch, o.gather);
    if (c.gemm_reduces) {
      project_.emplace(ch, o.out), down_.emplace(ch, o.down);
      project_->prepare<residual>(), down_->prepare<residual>();
    } else {
      reduce_.emplace(ch, o.reduce);
      reduce_->prepare<rms_norm<bf16>>();
    }
    gemm_.prepare<swiglu>();
    auto const allocate = [&](int cols) {
      return owned<bf16>(h, h.allocate<bf16>(std::size_t(s.max_batch) * std::size_t(cols)));
    };
    qkv_ = allocate(s.heads() * s.d), own_qkv_ = allocate(s.heads() * s.d / ranks_), q_ = allocate(s.q_heads * s.d),
    attended_ = allocate(s.q_heads / ranks_ * s.d), part_ = allocate(s.hidden), h_ = allocate(s.hidden),
    y_ = allocate(s.hidden), inner_ = allocate(s.ffn / ranks_);
    ones_ = {h, h.allocate<bf16>(std::size_t(s.hidden))};
    h.upload(ones_.get(), std::vector<bf16>(std::size_t(s.hidden), bf16(1.0f)));
    fit_ = {resident_blocks(ch.world(), rotate_and_append, 256, 0), resident_blocks(ch.world(), normalise, 1024, 0)};
  }

  /// What a layer takes of a heap of `ranks` ranks, and what it needs of a channel, whatever is chosen.
  static requirements needs(int ranks, shape const& s) {
    auto const o = options(ranks, s);
    auto const of_row =
        std::size_t((s.heads() + s.q_heads) * s.d * (ranks + 1) / ranks + 3 * s.hidden + s.ffn / ranks + 8);
    return gemm_all_scatter<bf16>::requirements(ranks, o.qkv) + all_gather<bf16>::requirements(ranks, o.gather) +
           flash_decode<bf16>::requirements(ranks, attention_options(s)) + gemm_ar<bf16>::requirements(ranks, o.out) +
           gemm_ar<bf16>::requirements(ranks, o.down) + all_reduce<bf16>::requirements(ranks, o.reduce) +
           requirements::of<bf16>(of_row * std::size_t(s.max_batch)) + requirements::of<bf16>(std::size_t(s.hidden)) +
           8 * requirements::of<bf16>(128);
  }

  /// One layer: x [batch, hidden] becomes what the next one takes. Call it on every rank. Can be captured in a graph,
  /// whose replays see the step of their time.
  void operator()(hipStream_t stream, weights const& w, kv_cache const& cache, step const& t, bf16* x) {
    heap& m = ch_.heap();
    int const n = t.batch, of_qkv = s_.heads() * s_.d / ranks_, own = s_.q_heads / ranks_ * s_.d,
              inner = s_.ffn / ranks_;
    auto const rows = [n](bf16* p, int cols) { return matrix<bf16>{p, n, cols, cols}; };
    auto const b = [](bf16 const* p, int k, int cols) { return matrix<bf16 const>{p, k, cols, k}; };
    bf16 *const qkv = m.here(qkv_.get()), *const q = m.here(q_.get()), *const attended = m.here(attended_.get()),
                *const h = m.here(h_.get()), *const y = m.here(y_.get()), *const act = m.here(inner_.get()),
                *const part = m.here(part_.get()), *const mine = m.here(own_qkv_.get());
    constexpr auto columns = layout::column_major;

    qkv_view view{qkv, s_.heads(), s_.heads() * s_.d, 0};
    if (make_qkv_) {
      (*make_qkv_)(stream,
                   {rows(x, s_.hidden), b(w.qkv, s_.hidden, of_qkv), rows(qkv, s_.heads() * s_.d), n, columns, true});
    } else {
      view = {qkv, s_.heads() / ranks_, of_qkv, std::int64_t(n) * of_qkv};
      gemm_(stream, {rows(x, s_.hidden), b(w.qkv, s_.hidden, of_qkv), rows(mine, of_qkv), columns, true});
      (*gather_)(stream, {.in = mine, .out = qkv, .count = view.step});
    }
    rotate(stream, t, x, view, q, cache);
    attend_(stream, attention(t, q, cache, attended));
    if (project_) {
      (*project_)(stream, {rows(attended, own), b(w.out, own, s_.hidden), rows(h, s_.hidden), n, columns, true},
                  residual{x, s_.hidden});
      norm(stream, h, y, n);
    } else {
      gemm_(stream, {rows(attended, own), b(w.out, own, s_.hidden), rows(part, s_.hidden), columns, true});
      add(stream, rows(part, s_.hidden), rows(x, s_.hidden), rows(h, s_.hidden), rows(y, s_.hidden));
    }
    gemm_(stream, {rows(y, s_.hidden), b(w.gate_and_up, s_.hidden, 2 * inner), rows(act, inner), columns, true},
          swiglu{});
    if (down_) {
      (*down_)(stream, {rows(act, inner), b(w.down, inner, s_.hidden), rows(x, s_.hidden), n, columns, true},
               residual{h, s_.hidden});
    } else {
      gemm_(stream, {rows(act, inner), b(w.down, inner, s_.hidden), rows(part, s_.hidden), columns, true});
      add(stream, rows(part, s_.hidden), rows(h, s_.hidden), rows(x, s_.hidden), rows(y, s_.hidden));
    }
  }

  /// Launch 2 alone. x: as rotate_and_append().
  void rotate(hipStream_t stream, step const& t, bf16 const* x, qkv_view const& qkv, bf16* q, kv_cache const& c) const {
    int const of_row = ceil_div(s_.heads() * s_.d / 8, 256);
    launch(ch_.world(), stream, {.blocks = std::min(fit_[0], t.batch * of_row), .threads = 256, .programmatic = true},
           rotate_and_append, s_, t, x, qkv, q, c, of_row);
  }
  /// Launch 5 alone.
  void norm(hipStream_t stream, bf16 const* h, bf16* y, int rows) const {
    launch(ch_.world(), stream,
           {.blocks = std::min(fit_[1], rows),
            .threads = std::min(1024, ceil_div(s_.hidden / 8, 64) * 64),
            .programmatic = true},
           normalise, h, y, rows, s_.hidden);
  }
  /// The call of launch 3.
  flash_decode_call<bf16> attention(step const& t, bf16 const* q, kv_cache const& cache, bf16* out) const {
    return {.q = q,
            .k_cache = cache.k,
            .v_cache = cache.v,
            .block_table = t.block_table,
            .lengths = t.lengths,
            .out = out,
            .batch = t.batch,
            .kv_is_ready = true};
  }
  /// Launch 3's options.
  static flash_decode_options attention_options(shape const& s) {
    return {.max_batch = s.max_batch,
            .q_heads = s.q_heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.d,
            .page_size = s.page_size,
            .max_pages = s.max_pages,
            .output = output::heads};
  }

 private:
  struct all_options {
    gemm_all_scatter_options qkv;
    all_gather_options gather;
    gemm_ar_options out, down;
    all_reduce_options reduce;
  };
  static all_options options(int ranks, shape const& s) {
    int const of_qkv = s.heads() * s.d / ranks;
    return {{.max_m = s.max_batch, .max_n = of_qkv, .k = s.hidden},
            {.max_count = std::int64_t(s.max_batch) * of_qkv},
            {.max_m = s.max_batch, .max_n = s.hidden, .k = s.q_heads / ranks * s.d},
            {.max_m = s.max_batch, .max_n = s.hidden, .k = s.ffn / ranks},
            {.max_rows = s.max_batch, .max_cols = s.hidden}};
  }
  /// out = x + the sum of the ranks' parts; y = out / rms(out).
  void add(hipStream_t stream, matrix<bf16 const> part, matrix<bf16 const> x, matrix<bf16> out, matrix<bf16> y) {
    (*reduce_)(stream, part,
               rms_norm<bf16>{.residual = x,
                              .gamma = ch_.heap().here(ones_.get()),
                              .eps = shape::eps,
                              .residual_out = out,
                              .norm_out = y});
  }

  channel& ch_;
  shape s_;
  int ranks_;
  std::optional<gemm_all_scatter<bf16>> make_qkv_;
  std::optional<all_gather<bf16>> gather_;
  flash_decode<bf16> attend_;
  std::optional<gemm_ar<bf16>> project_, down_;
  std::optional<all_reduce<bf16>> reduce_;
  gemm<bf16> gemm_;
  owned<bf16> qkv_, own_qkv_, q_, attended_, part_, h_, y_, inner_, ones_;
  std::array<int, 2> fit_{};  // blocks of rotate_and_append, of normalise
};

}  // namespace decoder
