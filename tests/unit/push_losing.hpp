// AG+GEMM with a planted fault: one of its pushes gets lost.
#pragma once
#include <fusewire/ops/detail/ag_gemm_kernel.hpp>

namespace support {

/// ag_gemm_kernel in push, without the first chunk for rank `lost_to`.
template <class T, fusewire::mainloop Mainloop>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    push_losing(fusewire::channel_view ch, fusewire::ag_gemm_arguments<T> g,
                __grid_constant__ typename Mainloop::template operands<fusewire::gathered_buffers> const x,
                int lost_to) {
  using namespace fusewire;
  extern __shared__ bytes16 shared[];
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  gather_map const& map = g.gather.map;
  auto const push = [&](auto group, int worker, int workers, auto const& begin) {
    begin();
    for (int const i : round_robin(g.gather.chunks.count(), worker, workers)) {
      chunk_position const at = g.gather.chunks[i];
      int const peer = ch.world.next(map.ranks - at.turn);
      if (peer == lost_to && at.row == 0 && at.k_chunk == 0) continue;
      gather_chunk const p = map.chunk(ch.world.rank(), at.row, at.k_chunk);
      int const row = p.row - map.first_row(ch.world.rank()), col = p.col - map.first_col(ch.world.rank());
      copy_aligned(group, g.gather.a.submatrix(row, col, p.rows, p.cols),
                   shard_in(e.inbox<T>(peer), map, ch.world.rank()).submatrix(row, col, p.rows, p.cols));
      e.signal(group, peer, p.flag);
    }
  };
  gathered_tiles<typename Mainloop::source_group> source(e, ch.world.rank(), map, g.gather.local_shard_first,
                                                         x.k_slice());
  checked_local_sink<T> const sink{g.c, e, Mainloop::traits.tile_m, Mainloop::traits.tile_n};
  Mainloop::run(shared, launch, x, g.tiles, source, sink, push, identity{}, no_tail{});
}

}  // namespace support
