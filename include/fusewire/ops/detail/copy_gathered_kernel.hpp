// The kernel of copy_gathered.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/device/memory.hpp>

namespace fusewire::detail {

/// Where a gathered A is, and where its copy goes.
template <class T>
struct gathered_copy {
  matrix<T const> a;  // this rank's shard: [R, K]
  T* to;              // row i of rank r goes to row r * pitch + i
  std::int64_t ld;    // elements from one of these rows to the next
  int ranks, rows;    // ranks; rows of every shard
  std::int64_t pitch;
};

inline constexpr int copy_gathered_threads = 256;

/// Which slot the channel's last launch has used is in the own headers, which only this rank's launches write. A launch
/// has acquired all that it gathered before it ends, this kernel begins after that, and no peer writes into the slot
/// before this rank has begun the launch after it. Called by: copy_gathered, with any number of blocks.
template <class T>
__global__ void copy_gathered_kernel(__grid_constant__ channel_view const ch,
                                     __grid_constant__ gathered_copy<T> const g) {
  block const b;
  int const own = ch.world.rank();
  flag const* const headers = ch.world.here(ch.flags) + own;
  auto const begun = [&](int slot) { return load(&headers[header_row(epoch_t(slot)) * ch.world.size()].value); };
  T const* const inbox = ch.template slot<T const>(begun(1) > begun(0));
  for (int i = b.index(); i < g.ranks * g.rows; i += b.count()) {
    int const rank = i / g.rows, row = i - rank * g.rows;
    copy(b, rank == own ? g.a.at(row, 0) : inbox + std::int64_t(i) * g.a.cols, g.to + (rank * g.pitch + row) * g.ld,
         g.a.cols);
  }
}

}  // namespace fusewire::detail
