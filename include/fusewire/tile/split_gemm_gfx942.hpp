// gfx942's mainloop for tiles that are too few for all compute units: block_gemm, with a tile's k split among blocks.
//
//   block   a range of a tile's k: A, B --block_gemm--> sums --LDS--> part_sums --all blocks of the tile--> its
//   part_rows() of C --> epilogue --> sink
//
// Deadlock: see part_sums_gfx942.hpp; blocks with a part of a tile begin with it, so all of a tile's are at it
// together.
#pragma once
#include <fusewire/tile/store_quad.hpp>
#include <fusewire/tile/units_gfx942.hpp>

namespace fusewire {

/// Tile: small_tile or large_tile.
template <class T, class Tile>
class split_gemm_gfx942 {
  static constexpr gemm_config config = Tile::config;
  using gemm = block_gemm<T, config>;

 public:
  static constexpr char const* name = "split_gemm_gfx942";
  static constexpr int askers = 1, threads = config.threads(), tile_m = config.block_m, tile_n = config.block_n,
                       min_blocks_per_cu = 1;
  static constexpr int shared_bytes() { return config.shared_bytes(); }
  static constexpr bool communicates_first = true, has_clusters = false, one_range_of_k = true;
  static_assert(tile_m * tile_n * int(sizeof(float)) <= shared_bytes());

  using asking = block;

  template <int Buffers>
  struct operands {
    gemm_operands<T, Buffers> x;
    int first_blocks;  // do what is to be done beside the tiles
    split_k split;

    __device__ divisor const& parts() const { return split.askers_of_tile; }
    __device__ divisor const& k_parts() const { return split.askers_of_tile; }
    __device__ int part() const { return split.part(first_blocks); }
    __device__ int k_part() const { return part(); }
  };

  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static unclaimed_work<Launch> run(void* shared, Launch& launch, operands<Buffers> const& x,
                                               tile_order const& tiles, Source& source, Sink const& sink,
                                               Beside const& beside, Epilogue const& epilogue) {
    drawn_work const w = go<false>(shared, launch, x, tiles, source, sink, beside, epilogue);
    return {launch, shared, w.before, w.drawn};
  }
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static void run_and_end(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles,
                                     Source& source, Sink const& sink, Beside const& beside, Epilogue const& epilogue) {
    (void)go<true>(shared, launch, x, tiles, source, sink, beside, epilogue);
  }

 private:
  template <bool Ends, class Launch, int Buffers, class Source, class Sink, class Beside, class Epilogue>
  __device__ static drawn_work go(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles,
                                  Source& source, Sink const& sink, Beside const& beside, Epilogue const& epilogue) {
    return take_units<Ends>(
        shared, launch, x, tiles, beside, [&](tile_at t, int nth, int part, auto const& on_its_way) {
          on_its_way();
          typename gemm::accumulator acc;
          int const rows = gemm(shared, acc).multiply(x.x, t, source);
          add_up(static_cast<float*>(shared), acc, sink.at(t), x.split, t, rows, nth, tiles.count(), part, epilogue);
          sink.stored(block{}, t);
        });
  }

  /// Where LDS has element (row, column): rows that a wave stores at once lie in other banks.
  __device__ static int at(int row, int column) { return row * tile_n + (column ^ (row / 4 % 2 * 16)); }

  template <class Matrix, class Epilogue>
  __device__ static void add_up(float* shared, typename gemm::accumulator& acc, Matrix const& c, split_k const& split,
                                tile_at t, int rows, int nth, int tiles, int part, Epilogue const& epilogue) {
    constexpr int per_row = tile_n / 4, count = tile_m * per_row;
    block const b;
    b.sync();
    gemm::for_each_sum(acc, [&](int row, int column, float& sum) { shared[at(row, column)] = sum; });
    b.sync();
    for (int f = b.rank(); f < count; f += threads)
      split.sums.store(f, count, nth, tiles, part,
                       *reinterpret_cast<float4 const*>(shared + at(f / per_row, f % per_row * 4)));
    split.sums.meet(nth, split.blocks);
    part_rows const mine(rows, part, split.blocks);
    bool const whole = has_whole_quads(c);
    for (int f = b.rank(); f < mine.count * per_row; f += threads) {
      int const row = mine.first + f / per_row, column = f % per_row * 4;
      store_quad(c, t.m * tile_m + row, t.n * tile_n + column,
                 split.sums.sum_of_all(row * per_row + column / 4, count, nth, tiles, split.blocks), whole, epilogue);
    }
  }
};

}  // namespace fusewire
