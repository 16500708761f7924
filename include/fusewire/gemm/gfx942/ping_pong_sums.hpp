// The sums of a tile of ping_pong_gfx942, as its waves have them in registers, and their way to C.
#pragma once
#include <fusewire/gemm/gfx942/sliced_columns.hpp>
#include <fusewire/gemm/gfx942/split_k_workspace.hpp>
#include <fusewire/gemm/gfx942/staged_rows.hpp>
#include <fusewire/gemm/store_vec4.hpp>
#include <fusewire/gemm/tile_sink.hpp>

namespace fusewire {

/// Whether LDS has room for two steps of a tile.
constexpr bool has_room_for_two_steps(int rows, int columns) {
  return 2 * (rows + columns) * k_step * 2 <= platform::max_shared_bytes;
}

namespace detail {

/// How a tile of Rows x Columns is shared out among the waves of a block.
template <class T, int Rows, int Columns, layout BOrder>
struct ping_pong_shape {
  static constexpr int waves = 8;
  // If LDS has room for two steps, each half of the waves multiplies one slice of a step for the whole tile, so that a
  // fragment is read for more sums. Else both halves multiply both slices, each for half of the tile.
  static constexpr bool slice_per_half = has_room_for_two_steps(Rows, Columns);
  static constexpr int at_a_slice = slice_per_half ? waves / 2 : waves;
  static constexpr int waves_n = BOrder == layout::row_major || Columns == 256 ? Columns / 64
                                 : Columns % 32 == 0                           ? 2
                                                                               : 1,
                       waves_m = at_a_slice / waves_n;
  static constexpr int wave_m = Rows / waves_m, wave_n = Columns / waves_n;
  static constexpr int atoms_m = wave_m / 16, atoms_n = wave_n / 16;
  static constexpr int stored_m = slice_per_half ? atoms_m / 2 : atoms_m;  // rows of fragments that a wave stores
  // ring: steps whose loads are in flight, as many as fit in registers with sums and fragments
  static constexpr int registers_of_step = Rows / 16 + (BOrder == layout::row_major ? 16 : Columns / 16),
                       registers_left =
                           (BOrder == layout::row_major ? 176 : 200) - (atoms_m * atoms_n + atoms_m + atoms_n) * 4,
                       ring = slice_per_half                           ? 4
                              : registers_left < 2 * registers_of_step ? 1
                                                                       : 2;
  static constexpr bool issues_twice = registers_left >= 3 * registers_of_step;
  using slice_rows = sliced_rows<T, Rows, ring>;
  using slice_columns = sliced_columns<T, Columns, BOrder, ring>;
  static constexpr int slice_units = (Rows + slice_columns::rows) * slice_units_per_row;
  // Whether registers suffice for a copy of the steps behind the loop, and to store rows of C through LDS
  static constexpr bool is_roomy = slice_per_half && BOrder == layout::column_major;

  /// Bytes of two slices of A and B, or of four.
  static constexpr int shared_bytes = (slice_per_half ? 4 : 2) * slice_units * 16;
  static constexpr int row_granule = 16;  // rows of a fragment, which one block stores

  /// Rows and columns of the tile: the first that a wave multiplies, and the first that it stores
  __device__ static int first_row(int of_wave) { return of_wave % at_a_slice / waves_n * wave_m; }
  __device__ static int first_column(int of_wave) { return of_wave % waves_n * wave_n; }
  __device__ static int first_stored_row(int of_wave) {
    return first_row(of_wave) + of_wave / at_a_slice * stored_m * 16;
  }

  /// All waves sync; all can then read what each has written to LDS. The compiler moves nothing past it.
  __device__ static void sync_waves() {
    __builtin_amdgcn_sched_barrier(0);
    block{}.sync();
    __builtin_amdgcn_sched_barrier(0);
  }
};

/// The sums of one wave: clear() them, multiply into acc, add_halves() if there is a slice per half, then store() or
/// reduce() them. shared: the block's LDS, which nobody else uses meanwhile.
template <class T, int Rows, int Columns, layout BOrder>
class ping_pong_sums : ping_pong_shape<T, Rows, Columns, BOrder> {
  using shape = ping_pong_shape<T, Rows, Columns, BOrder>;
  using atom = mma_atom<T>;
  using shape::at_a_slice, shape::atoms_m, shape::atoms_n, shape::is_roomy, shape::row_granule, shape::stored_m,
      shape::wave_n, shape::waves, shape::waves_n;
  using shape::first_column, shape::first_stored_row, shape::sync_waves;
  using typename shape::slice_columns;

 public:
  typename atom::c_fragment acc[atoms_m][atoms_n];

  /// All sums are 0 from here on.
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < atoms_m; ++i)
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int v = 0; v < atom::c_values; ++v) acc[i][j][v] = 0;
  }

  /// Adds up the sums of both slices. Each half of the waves ends up with half of the rows, in its first fragments.
  /// second: this wave is one of the second half. Called by: every thread of the block.
  __device__ void add_halves(void* shared, bool second) {
    wave const w;
    auto* const first = reinterpret_cast<float4*>(shared) + w.index() % at_a_slice * atoms_n * wave::width + w.rank();
    auto* const mine = first + (second ? at_a_slice * atoms_n * wave::width : 0);
    auto* const others = first + (second ? 0 : at_a_slice * atoms_n * wave::width);
#pragma unroll
    for (int i = 0; i < stored_m; ++i) {
#pragma unroll
      for (int j = 0; j < atoms_n; ++j) {
        auto const low = acc[i][j].value, high = acc[i + stored_m][j].value;
        if (second) {
          mine[j * wave::width] = __builtin_bit_cast(float4, low);
          acc[i][j].value = high;
        } else {
          mine[j * wave::width] = __builtin_bit_cast(float4, high);
        }
      }
      sync_waves();
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
        acc[i][j].value += __builtin_bit_cast(typename atom::four_floats, others[j * wave::width]);
      sync_waves();
    }
  }

  /// Stores the tile of c = epilogue(sums).
  template <class Out, class Epilogue>
  __device__ void store(void* shared, matrix<Out> c, tile_coord t, Epilogue const& epilogue) {
    wave const w;
    int const of_wave = platform::uniform(w.index()), m0 = t.m * Rows + first_stored_row(of_wave),
              n0 = t.n * Columns + first_column(of_wave);
    if constexpr (sizeof(Out) == 2 && is_roomy) {
      constexpr int per_value = columns_of_value<Epilogue>;
      staged_rows<Out, wave_n / per_value, stored_m % 2 == 0 ? 2 : 1> const staged(shared, c, of_wave, m0,
                                                                                   n0 / per_value);
      static_assert(waves * staged.bytes <= shape::shared_bytes);
#pragma unroll
      for (int i = 0; i < stored_m; ++i) {
#pragma unroll
        for (int q = 0; q < atoms_n; ++q) staged.put(i, slice_columns::first_column(q, w.rank()), vec4(i, q), epilogue);
        if (i % staged.fragments == staged.fragments - 1) staged.store(i);
      }
    } else {
      bool const whole = is_row_aligned<4 * sizeof(Out)>(c);
#pragma unroll
      for (int i = 0; i < stored_m; ++i)
#pragma unroll
        for (int q = 0; q < atoms_n; ++q)
          store_vec4(c, m0 + i * 16 + w.rank() % 16, n0 + slice_columns::first_column(q, w.rank()), vec4(i, q), whole,
                     epilogue);
    }
  }

  /// Adds up the sums of the `splits` blocks that share the tile, and stores this block's slice of the tile's `rows`
  /// rows of c = epilogue(sums). Returns the slice.
  template <class Out, class Epilogue>
  __device__ stored_slice reduce(void* shared, split_k_workspace const& workspace, matrix<Out> c, tile_coord t,
                                 int rows, int tile, int tiles, int split, int splits, Epilogue const& epilogue) {
    wave const w;
    int const of_wave = platform::uniform(w.index());
    constexpr int of_sixteen = waves_n * atoms_n;  // groups of sums in 16 rows of the tile
    tile_partials const all = workspace.of_tile(tile, tiles, Rows / 16 * of_sixteen);
    index_range const mine = ceil_slice(rows, splits, split, row_granule);
    int const first = platform::uniform(mine.begin / 16 * of_sixteen),
              count = platform::uniform(ceil_div(mine.size(), 16) * of_sixteen), end = first + count;
    // What this block adds up itself stays in LDS, if there is room
    auto* const kept = reinterpret_cast<float4*>(shared) + w.rank();
    bool const keeps = count * wave::width * int(sizeof(float4)) <= shape::shared_bytes;
#pragma unroll
    for (int i = 0; i < stored_m; ++i) {
      int const group = (first_stored_row(of_wave) / 16 + i) * of_sixteen + of_wave % waves_n * atoms_n;
      bool const stays = keeps && group >= first && group < end;
#pragma unroll
      for (int q = 0; q < atoms_n; ++q)
        if (stays) kept[(group + q - first) * wave::width] = vec4(i, q);
        else all.store(split, group + q, vec4(i, q));
    }
    workspace.arrive_and_wait(tile, split, splits);

    constexpr int at_once = 2;
    bool const whole = is_row_aligned<4 * sizeof(Out)>(c);
    for (int group = first + of_wave; group < end; group += at_once * waves) {
      float4 sums[at_once] = {};
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        if (keeps && group + u * waves < end) sums[u] = kept[(group + u * waves - first) * wave::width];
      all.reduce(sums, group, waves, end, splits, keeps ? split : -1);
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        int const g = group + u * waves, n = g % of_sixteen;
        if (g < end)
          store_vec4(c, t.m * Rows + g / of_sixteen * 16 + w.rank() % 16,
                     t.n * Columns + n / atoms_n * wave_n + slice_columns::first_column(n % atoms_n, w.rank()), sums[u],
                     whole, epilogue);
      }
    }
    block{}.sync();  // LDS is free again
    return {mine, split, splits};
  }

 private:
  /// Four neighbouring sums of row i * 16 + lane % 16 of the wave.
  __device__ float4 vec4(int i, int q) { return slice_columns::vec4(acc[i], q); }
};

}  // namespace detail

}  // namespace fusewire
