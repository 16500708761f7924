// C [max_rows, N]: rows of group g = A's rows of group g * B [g]. The operator is in grouped_gemm.hpp.
//
//   groups' first and last rows, in this rank's memory
//      --grouped_scheduler, every wave--> tile i: group, m, n     as many tiles as the rows of the launch need
//   grouped_rows: A's rows of the group --+
//   B of the group -----------------------+--mainloop--> epilogue --> grouped_sink: C's rows of the group
//
// Tiles begin at the first row of a group, and C's view of a tile ends with its group, so no tile stores rows of
// another group. What a tile loads behind its group's rows goes into sums of rows that are not stored.
//
// Deadlock: no block waits for another. The blocks of the launch are as many as fit, or as the most tiles that the rows
// can have; a block without tiles ends.
// Order: what the groups point to is read when earlier work of the stream is over, by every wave for itself. It is the
// same for all blocks if nobody writes it meanwhile, and then each tile has one block.
#pragma once
#include <fusewire/gemm/grouped_rows.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// Arguments of grouped_gemm_kernel besides its operands.
template <class T>
struct grouped_gemm_arguments {
  matrix<T> c;        // [max_rows, N], of a pair epilogue [max_rows, N / 2]
  row_groups groups;  // of the rows of A and C
  divisor n_tiles;    // tile columns
  int k, group_m;     // columns of A; M tiles of a group that are in flight together
};

/// Called by: grouped_gemm, with any number of blocks.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    grouped_gemm_kernel(__grid_constant__ grouped_gemm_arguments<T> const g,
                        __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  platform::fetch_arguments<sizeof(g) + sizeof(x)>();
  wait_prior_grid();  // which may write the groups
  constexpr int tile_m = Mainloop::traits.tile_m;
  grouped_scheduler const tiles(g.groups, tile_m, g.n_tiles, g.group_m);
  local_launch launch;
  grouped_rows source(g.groups, g.k, tile_m, x.k_slice());
  Mainloop::run(shared, launch, x, tiles, source, grouped_sink<T>{g.c, g.groups}, no_comm{}, epilogue, no_tail{});
}

}  // namespace fusewire
