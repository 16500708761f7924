// C [M, N] = A [M, K] * B [K, N]: the mainloop alone, with a source and a sink in this rank's memory. The operator is
// in gemm.hpp.
#pragma once
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// Arguments of gemm_kernel besides its operands.
template <class T>
struct gemm_arguments {
  matrix<T> c;         // [M, N]
  raster_order tiles;  // of C
  int k;               // columns of A
  /// What launches of a channel have in common; null without one. The kernel does not use it.
  void const* of_channel;
  void const* memory_of_one_launch() const { return of_channel; }  // as launch() asks for it
};

/// C = epilogue(A B). Called by: gemm, and operators in a world of one rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    gemm_kernel(gemm_arguments<T> g, __grid_constant__ typename Mainloop::template operands<1> const x,
                Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  platform::fetch_arguments<sizeof(g) + sizeof(x)>();
  local_launch launch;
  local_rows source(g.c.rows, g.k, Mainloop::traits.tile_m, x.k_slice());
  Mainloop::run(shared, launch, x, g.tiles, source, local_sink<T>{g.c}, no_comm{}, epilogue, no_tail{});
}

}  // namespace fusewire
