// One block's k slice of a tile of small_m_gfx942: the rings, the multiplication, and the sum over waves and blocks.
// Figure and argument: small_m_gfx942.hpp.
#pragma once
#include <fusewire/arch/gfx942/memory_buffer.hpp>
#include <fusewire/gemm/gfx942/split_k_workspace.hpp>
#include <fusewire/gemm/store_vec4.hpp>
#include <fusewire/gemm/tile_sink.hpp>
#include <fusewire/gemm/tile_source.hpp>
#include <fusewire/gemm/gfx942/weight_fragments.hpp>

namespace fusewire {

/// One tile of small_m_gfx942, or a range of its k. Rows, Columns: of the tile. Each wave asks its Source for itself.
template <class T, int Rows, int Columns, layout BOrder, tile_source Source>
class small_m_tile {
  using weights = weight_fragments<T, Columns, BOrder>;
  using atom = mma_atom<T>;
  static constexpr int waves = 8, threads = waves * wave::width;
  static constexpr int atoms_m = Rows / 16, atoms_n = Columns / 16, slices = k_step / atom::k;
  static constexpr int ring = 16 / (atoms_m + atoms_n) < 2 ? 2 : 16 / (atoms_m + atoms_n);  // steps: 128 registers
  static_assert(Rows * Columns * split_k_workspace::blocks <= split_k_workspace::max_small);
  static constexpr int lds_rows = max(Rows, weights::lds_rows);  // of a wave, for A, then for B
  static constexpr int vec4s = Rows * Columns / 4,
                       per_thread = ceil_div(vec4s, threads);  // fours of neighbouring sums of the tile

 public:
  static constexpr int shared_bytes =
      lds_rows * 128 * waves > vec4s * 16 * waves / 2 ? lds_rows * 128 * waves : vec4s * 16 * waves / 2;  // steps; sums

  /// The tile of columns n0 and following. a: the launch's buffers of A; k: rows of B.
  __device__ small_m_tile(void* shared, Source& source, matrix<T const> const* a, b_operand<T> const& b, int k, int n0)
      : shared_(static_cast<bytes16*>(shared)), source_(source), a_(a), b_(b, k, n0), cols_(a[0].cols),
        at_(source.first()) {}

  /// Loads the first group of B. It asks the source only for what is known before a tile is begun.
  __device__ void issue_b() {
    left_ = platform::uniform(source_.steps());
    group_ = next_group();
#pragma unroll
    for (int s = 0; s < ring; ++s) {
      load_b(s);
      __builtin_amdgcn_sched_barrier(0);  // else the scheduler reverses the order, and the first wait is for all loads
    }
  }
  /// Waits until the first group of A is there, and loads it. rows: those of A that the tile has.
  __device__ void issue_a(int rows) {
    find_a(rows);
#pragma unroll
    for (int s = 0; s < ring; ++s) {
      load_a(s);
      __builtin_amdgcn_sched_barrier(0);
    }
  }
  /// Computes the sums of this wave.
  __device__ void multiply(int rows) {
#pragma unroll
    for (int i = 0; i < atoms_m; ++i)
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int v = 0; v < atom::c_values; ++v) acc_[i][j][v] = 0;
    while (group_ > 0) {
      source_.advance(at_, group_);
      left_ -= group_;
      group_ = next_group();
      if (group_ > 0) find_a(rows);
#pragma unroll
      for (int s = 0; s < ring; ++s) {
        multiply_step(s);
        __builtin_amdgcn_sched_barrier(0);
        load_b(s);
        load_a(s);
        __builtin_amdgcn_sched_barrier(0);
      }
    }
  }

  /// Adds up the sums of the eight waves in a fixed order, then those of all blocks that share the tile, and stores the
  /// tile to the sink.
  template <class Sink, class Epilogue>
  __device__ void reduce(Sink const& sink, split_k_workspace const& workspace, tile_coord t, int tile, int tiles,
                         int split, int splits, Epilogue const& epilogue) {
    block const b;
    wave const w;
    auto* const shared = reinterpret_cast<float4*>(shared_);
    float4* const mine = shared + w.index() % (waves / 2) * vec4s + w.rank();
    auto const of = [](typename atom::c_fragment& c) -> float4& { return reinterpret_cast<float4&>(c); };
    b.sync();
    if (platform::uniform(w.index()) >= waves / 2)
      for_each_fragment([&](int i, int j, int f) { mine[f] = of(acc_[i][j]); });
    b.sync();
    if (platform::uniform(w.index()) < waves / 2)
      for_each_fragment([&](int i, int j, int f) {
        float4 const other = mine[f];
        for (int v = 0; v < 4; ++v) acc_[i][j][v] += (&other.x)[v];
        mine[f] = of(acc_[i][j]);
      });
    b.sync();
    float4 sums[per_thread];
#pragma unroll
    for (int n = 0; n < per_thread; ++n)
      if (int const f = n * threads + b.rank(); f < vec4s) {
        sums[n] = {};
        for (int s = 0; s < waves / 2; ++s) {
          float4 const x =
              weights::vec4(shared + s * vec4s + f / (Columns * 4) * (Columns * 4), f % (Columns * 4) / 16, f % 16);
          sums[n].x += x.x, sums[n].y += x.y, sums[n].z += x.z, sums[n].w += x.w;
        }
      }
    b.sync();
    if (splits > 1 && !workspace.reduce(sums, vec4s / wave::width, tile, tiles, split, splits)) return;
    auto const c = sink.at(t);
    decltype(auto) e = epilogue_of_tile(sink, t, epilogue);
    bool const whole = is_row_aligned<4 * sizeof(*c.data)>(c);
#pragma unroll
    for (int n = 0; n < per_thread; ++n)
      if (int const f = n * threads + b.rank(); f < vec4s)
        store_vec4(c, t.m * Rows + f / (Columns * 4) * 16 + f % 16, t.n * Columns + f % (Columns * 4) / 16 * 4, sums[n],
                   whole, e);
    sink.stored(b, opaque(t), {{0, Rows}});
  }

 private:
  /// Steps of the group that begins at at_.
  __device__ int next_group() const {
    if (left_ == 0) return 0;
    int const side_by_side = platform::uniform(source_.left(at_));
    return min(side_by_side, ring);
  }

  /// Waits until the group's A is there.
  __device__ void find_a(int rows) {
    if (group_ == 0) return;
    k_segment const first = source_.wait(at_);
    auto place = at_;
    for (int there = platform::uniform(first.count), more = there; there < group_; there += more) {
      source_.advance(place, more);
      more = platform::uniform(source_.wait(place).count);
    }
    matrix<T const> const& a = a_[platform::uniform(first.buffer)];
    std::int64_t const ld = a.ld;
    a_memory_ = {a.data + platform::uniform(first.row) * ld,
                 std::uint32_t(platform::uniform(rows)) * std::uint32_t(ld) * 2};
    a_lane_ = wave{}.rank() / 8 * int(ld) * 2 + wave{}.rank() % 8 * 16;
    a_eight_bytes_ = int(ld) * 16;
    a_column_ = platform::uniform(first.column);
  }

  /// Columns of A from the group's s-th step on; none beyond the group.
  __device__ int columns_of(int column, int s) const { return s < group_ ? cols_ - column - s * k_step : 0; }

  __device__ void load_b(int s) {
    b_.load(fb_[s], platform::uniform(source_.k(at_)) + s * k_step,
            columns_of(platform::uniform(source_.column(at_)), s));
  }
  /// At a time 8 rows, of each of which 8 neighbouring lanes load 128 bytes.
  __device__ void load_a(int s) {
    int const lane = wave{}.rank() % 8 * 8 < columns_of(a_column_, s) ? a_lane_ : oob_offset;
#pragma unroll
    for (int i = 0; i < Rows / 8; ++i)
      fa_[s][i] = a_memory_.load(lane, i * a_eight_bytes_ + (a_column_ + s * k_step) * 2);
  }
  /// B, then A, goes through LDS, from rows of 128 bytes to fragments. Only this wave uses its part of LDS, and its
  /// accesses to LDS stay in order.
  __device__ void multiply_step(int s) {
    wave const w;
    bytes16* const a = shared_ + platform::uniform(w.index()) * lds_rows * 8;
    bytes16 b[slices][atoms_n];
    weights::fragments(fb_[s], a, b);
#pragma unroll
    for (int i = 0; i < Rows / 8; ++i) a[swizzled<8>(i * 8 + w.rank() / 8, w.rank() % 8)] = fa_[s][i];
    w.sync();
#pragma unroll
    for (int slice = 0; slice < slices; ++slice) {
      typename atom::b_fragment rows[atoms_m];
#pragma unroll
      for (int i = 0; i < atoms_m; ++i)
        rows[i].row[0] = a[swizzled<8>(i * 16 + w.rank() % 16, slice * 4 + w.rank() / 16)];
#pragma unroll
      for (int j = 0; j < atoms_n; ++j) {
        typename atom::a_fragment const columns{{b[slice][j]}};
#pragma unroll
        for (int i = 0; i < atoms_m; ++i) atom::multiply(acc_[i][j], columns, rows[i]);
      }
    }
    w.sync();
  }

  template <class F>
  __device__ static void for_each_fragment(F const& f) {
#pragma unroll
    for (int i = 0; i < atoms_m; ++i)
#pragma unroll
      for (int j = 0; j < atoms_n; ++j) f(i, j, (i * atoms_n + j) * wave::width);
  }

  bytes16* shared_;
  Source& source_;
  matrix<T const> const* a_;
  weights b_;
  int cols_;
  typename atom::c_fragment acc_[atoms_m][atoms_n];
  typename weights::step fb_[ring];
  bytes16 fa_[ring][Rows / 8];
  memory_buffer a_memory_{nullptr, 0};
  int a_lane_ = 0, a_eight_bytes_ = 0, a_column_ = 0;
  typename Source::place at_;  // of the group
  int left_ = 0, group_ = 0;   // steps of the tile from at_ on; steps of the group
};

}  // namespace fusewire
