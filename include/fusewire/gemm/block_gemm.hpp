// Block-level GEMM: acc [block_m, block_n] += A [block_m, k] * B [k, block_n], 16-bit floats in, fp32 accumulate.
//
//   memory --16 B--> registers --swizzled--> LDS --16 B--> fragments --> matrix instruction
//     step t+1 ............................... step t
//
// Communication is not here: a tile source says where a tile's rows of A are and waits for them; a tile sink says where
// the tile of C goes.
#pragma once
#include <fusewire/arch/mma.hpp>
#include <fusewire/gemm/block_config.hpp>
#include <fusewire/gemm/block_store.hpp>
#include <fusewire/gemm/gemm_operands.hpp>
#include <fusewire/gemm/tile_scheduler.hpp>
#include <fusewire/gemm/tile_sink.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// LDS address of 16 bytes (8 k) of a row of a tile, in units of 16 bytes. The exclusive-or avoids bank conflicts, both
/// in reads of fragments (16 rows, one unit) and in transposing writes (every fourth row, one unit).
template <int UnitsPerRow>
__device__ int swizzled(int row, int unit) {
  static_assert(UnitsPerRow == 4 || UnitsPerRow == 8);
  int const turn =
      UnitsPerRow == 8 ? ((row & 1) << 2 | (row >> 1 & 3)) ^ (row >> 3 & 7) : (row >> 1 & 3) ^ (row >> 3 & 3);
  return row * UnitsPerRow + (unit ^ turn);
}

/// One block's tile: accumulates in registers, stage by stage through LDS.
template <class T, gemm_config C>
class block_gemm {
 public:
  using atom = mma_atom<T>;                                                             // its matrix instruction
  static constexpr int threads = C.threads(), shared_bytes = C.shared_bytes();          // of the block
  static constexpr int wave_m = C.block_m / C.waves_m, wave_n = C.block_n / C.waves_n;  // rows and columns of a wave
  static constexpr int atoms_m = wave_m / atom::m, atoms_n = wave_n / atom::n;          // atoms of a wave
  static_assert(C.block_m % (C.waves_m * atom::m) == 0 && C.block_n % (C.waves_n * atom::n) == 0,
                "waves must tile the block");
  static_assert(wave_n % 8 == 0 && (C.block_k == 32 || C.block_k == 64), "swizzled() knows rows of 32 and 64");
  static_assert(C.stages == 1 || C.stages == 2, "a step is in LDS, and the next may be in another buffer");
  static_assert(C.shared_bytes() <= platform::max_shared_bytes);

  /// A wave's sums. The caller keeps them from one run() to the next.
  struct accumulator {
    typename atom::c_fragment c[atoms_m][atoms_n];  // by the atom's row and column in the wave's part
  };

  /// The first row, and the first column, of this wave's part of the tile.
  __device__ static int wave_row() { return wave{}.index() / C.waves_n * wave_m; }
  /// As wave_row().
  __device__ static int wave_col() { return wave{}.index() % C.waves_n * wave_n; }

  /// Called by: every thread of the block. Requires: `shared` is C.shared_bytes() bytes, aligned to 16.
  __device__ block_gemm(void* shared, accumulator& acc) : shared_(static_cast<bytes16*>(shared)), acc_(acc) {
#pragma unroll
    for (int i = 0; i < atoms_m; ++i)
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int v = 0; v < atom::c_values; ++v) acc_.c[i][j][v] = 0;
  }

  /// Claims numbers with next(). For each that is the number of a tile, stores the tile's part of epilogue(A * B) where
  /// the sink says. Returns the first number that is none.
  /// Called by: every thread of the block.
  /// Requires: as the constructor and run(); a tile has at most C.block_m rows of the source.
  template <int Buffers, tile_scheduler Tiles, tile_source Source, tile_sink Sink, class Next, class Epilogue>
  __device__ static int run_tiles(void* shared, gemm_operands<T, Buffers> const& x, Tiles const& tiles,
                                  Next const& next, Source& source, Sink const& sink, Epilogue const& epilogue) {
    int i = next();
    for (; i < tiles.count(); i = next()) {
      tile_coord const t = tiles[i];
      accumulator acc;
      block_gemm tile(shared, acc);
      tile.multiply(x, t, source);
      tile.store(sink.at(t), t.m * C.block_m, t.n * C.block_n, epilogue_of_tile(sink, t, epilogue));
      sink.stored(block{}, opaque(t), {{0, C.block_m}});
    }
    return i;
  }

  /// acc += A * B for the tile and the steps that the source hands out. Returns how many rows of A the tile has.
  /// Called by: every thread of the block. Requires: as run_tiles().
  template <int Buffers, tile_source Source>
  __device__ int multiply(gemm_operands<T, Buffers> const& x, tile_coord t, Source& source) {
    int const rows = source.begin(t);
    b_operand<T> const b = x.b.of_group(t.group);
    auto place = source.first();
    for (int left = source.steps(); platform::uniform(left) > 0;) {
      k_segment const there = source.wait(place);
      matrix<T const> const& a = x.a[there.buffer];
      int const columns = min(there.count * k_step, a.cols - there.column);
      run(a.submatrix(there.row, there.column, rows, columns), b, t.n * C.block_n, source.k(place));
      source.advance(place, there.count);
      left -= there.count;
    }
    finish();
    return rows;
  }
  /// Calls visit(row, column, sum) for each of this thread's sums of the tile: a float& and its row and column in the
  /// tile, whatever the architecture's map of lanes is. Each place of the tile belongs to one thread of the block.
  /// For sinks that store() does not know, and to change sums before store().
  /// Order: after finish().
  template <class Visit>
  __device__ static void for_each_sum(accumulator& acc, Visit const& visit) {
    int const lane = wave{}.rank();
#pragma unroll
    for (int i = 0; i < atoms_m; ++i)
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int v = 0; v < atom::c_values; ++v)
          visit(wave_row() + i * atom::m + atom::c_row(lane, v), wave_col() + j * atom::n + atom::c_col(lane, v),
                acc.c[i][j][v]);
  }

  /// acc += A * B[k0, k0 + a.cols). The last step stays in LDS: the next run() multiplies it when its own first loads
  /// are in flight, or finish() does. Column 0 of the tile is column n0 of b.
  /// Called by: every thread of the block.
  /// Requires: a.cols, a.ld and k0 multiples of 8; a.data aligned to 16 bytes; a.rows >= 1 valid rows (the tile's other
  /// rows repeat the last).
  __device__ void run(matrix<T const> a, b_operand<T> const& b, int n0, int k0) {
    if (b.order == layout::row_major) run_as<layout::row_major>(a, {b.data + k0 * b.ld, b.ld, b.order, b.n}, n0);
    else run_as<layout::column_major>(a, {b.data + k0, b.ld, b.order, b.n}, n0);
  }
  /// Multiplies the last step, which is still in LDS. Called by: every thread of the block, after its last run().
  __device__ void finish() {
    if (pending_) multiply(buffer_);
    pending_ = false;
  }

  /// c[r, j] = Out(epilogue(acc, m0 + r, n0 + j)) for the part of the tile inside c; of a pair epilogue, half as many
  /// columns. Called by: every thread of the block, after finish().
  template <class Out, class Epilogue>
  __device__ void store(matrix<Out> c, int m0, int n0, Epilogue const& epilogue) {
    using out = block_store<block_gemm>;
    if constexpr (pair_epilogue<Epilogue>) out::pairs(shared_, acc_.c, c, m0, n0, epilogue);
    else out::elements(shared_, acc_.c, c, m0, n0, epilogue);
  }

 private:
  static constexpr int units_per_row = C.block_k / 8;
  static constexpr int a_units = C.block_m * units_per_row, b_units = C.block_n * units_per_row;
  static constexpr int a_per_thread = ceil_div(a_units, threads), b_per_thread = ceil_div(b_units, threads);
  // A thread reads a row-major B in patches of 8 k x 4 n, and transposes each into four units.
  static constexpr int patches = b_units / 4, patches_per_thread = ceil_div(patches, threads);

  __device__ bytes16* a_buffer(int stage) const { return shared_ + stage * (a_units + b_units); }
  __device__ bytes16* b_buffer(int stage) const { return a_buffer(stage) + a_units; }

  template <layout Order>
  __device__ void run_as(matrix<T const> a, b_operand<T> const& b, int n0) {
    constexpr bool transpose = Order == layout::row_major;
    bool const whole = is_row_aligned<8>(b.data, b.ld) && n0 + C.block_n <= b.n;
    int const k_end = a.cols;
    for (int k = 0; k < k_end; k += C.block_k) {
      bytes16 next_a[a_per_thread];
      std::uint32_t next_b[patches_per_thread][8][2];  // row-major: [patch][k][n / 2]
      bytes16 next_bt[b_per_thread];                   // column-major
#pragma unroll
      for (int i = 0; i < a_per_thread; ++i) next_a[i] = load_unit(a.data, a.ld, a.rows, unit_of(i), k, k_end);
      if constexpr (transpose) {
#pragma unroll
        for (int i = 0; i < patches_per_thread; ++i) load_patch(next_b[i], b, n0, k, k_end, unit_of(i), whole);
      } else {
#pragma unroll
        for (int i = 0; i < b_per_thread; ++i)
          next_bt[i] = load_unit(b.data + n0 * b.ld, b.ld, b.n - n0, unit_of(i), k, k_end);
      }

      if (pending_) multiply(buffer_);
      if (C.stages == 1) block{}.sync();
      else buffer_ ^= 1;

#pragma unroll
      for (int i = 0; i < a_per_thread; ++i)
        if (unit_of(i) < a_units)
          a_buffer(buffer_)[swizzled<units_per_row>(unit_of(i) / units_per_row, unit_of(i) % units_per_row)] =
              next_a[i];
      if constexpr (transpose) {
#pragma unroll
        for (int i = 0; i < patches_per_thread; ++i)
          if (unit_of(i) < patches) write_patch(b_buffer(buffer_), next_b[i], unit_of(i));
      } else {
#pragma unroll
        for (int i = 0; i < b_per_thread; ++i)
          if (unit_of(i) < b_units)
            b_buffer(buffer_)[swizzled<units_per_row>(unit_of(i) / units_per_row, unit_of(i) % units_per_row)] =
                next_bt[i];
      }
      block{}.sync();
      pending_ = true;
    }
  }

  __device__ static int unit_of(int i) { return i * threads + platform::thread_index(); }

  /// 8 k of one row of an operand that is contiguous along k. They are zero beyond k_end, because garbage could be NaN,
  /// which times 0 is NaN; beyond `rows` they are those of the last valid row. No branch: memory is valid also where
  /// what it holds is not used.
  __device__ static bytes16 load_unit(T const* data, std::int64_t ld, int rows, int unit, int k, int k_end) {
    int const row = min(unit / units_per_row, rows - 1), at = k + unit % units_per_row * 8;
    bytes16 x = *reinterpret_cast<bytes16 const*>(data + row * ld + min(at, k_end - 8));
#pragma unroll
    for (int i = 0; i < 4; ++i) x.word[i] = at < k_end ? x.word[i] : 0;
    return x;
  }
  /// 4 n of one row of a row-major B, loaded one by one. Beyond n_end they are the last column.
  __device__ static unsigned long long four_of(T const* row, int n, int n_end) {
    unsigned long long four = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) four |= static_cast<unsigned long long>(row[min(n + e, n_end - 1)].bits) << 16 * e;
    return four;
  }

  /// A patch of a row-major B: 8 k x 4 n, two words per k.
  __device__ static void load_patch(std::uint32_t (&patch)[8][2], b_operand<T> const& b, int n0, int k, int k_end,
                                    int index, bool whole) {
    int const p = min(index, patches - 1), n = n0 + p % (C.block_n / 4) * 4, k0 = k + p / (C.block_n / 4) * 8;
    T const* const row = b.data + min(k0, k_end - 8) * b.ld;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      unsigned long long const four =
          whole ? *reinterpret_cast<unsigned long long const*>(row + r * b.ld + n) : four_of(row + r * b.ld, n, b.n);
      patch[r][0] = k0 < k_end ? std::uint32_t(four) : 0;
      patch[r][1] = k0 < k_end ? std::uint32_t(four >> 32) : 0;
    }
  }
  /// Writes the four columns of a patch to LDS, each as 8 k side by side.
  __device__ static void write_patch(bytes16* buffer, std::uint32_t const (&patch)[8][2], int index) {
    int const n = index % (C.block_n / 4) * 4, unit = index / (C.block_n / 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      bytes16 column;
#pragma unroll
      for (int r = 0; r < 8; r += 2) {
        std::uint32_t const even = patch[r][e / 2], odd = patch[r + 1][e / 2];
        column.word[r / 2] = e % 2 ? (even >> 16 | (odd & 0xffff0000u)) : ((even & 0xffffu) | odd << 16);
      }
      buffer[swizzled<units_per_row>(n + e, unit)] = column;
    }
  }

  __device__ void multiply(int stage) {
    int const lane = wave{}.rank();
    bytes16 const *const a = a_buffer(stage), *const b = b_buffer(stage);
#pragma unroll
    for (int slice = 0; slice < C.block_k / atom::k; ++slice) {
      int const unit = slice * 4 + atom::k_eighth(lane);
      typename atom::a_fragment fa[atoms_m];
      typename atom::b_fragment fb[atoms_n];
#pragma unroll
      for (int i = 0; i < atoms_m; ++i)
#pragma unroll
        for (int r = 0; r < atom::a_rows; ++r)
          fa[i].row[r] = a[swizzled<units_per_row>(wave_row() + i * atom::m + atom::a_row(lane, r), unit)];
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int r = 0; r < atom::b_rows; ++r)
          fb[j].row[r] = b[swizzled<units_per_row>(wave_col() + j * atom::n + atom::b_row(lane, r), unit)];
#pragma unroll
      for (int i = 0; i < atoms_m; ++i)
#pragma unroll
        for (int j = 0; j < atoms_n; ++j) atom::multiply(acc_.c[i][j], fa[i], fb[j]);
    }
  }

  bytes16* shared_;
  accumulator& acc_;
  int buffer_ = 0;
  bool pending_ = false;
};

}  // namespace fusewire
