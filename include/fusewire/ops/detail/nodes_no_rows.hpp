// The launch over nodes of a call without rows; see no_rows.hpp.
#pragma once
#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/detail/no_rows.hpp>

namespace fusewire::detail {

/// A template, so that any number of sources may have it.
template <class = void>
__global__ void nodes_no_rows_kernel(__grid_constant__ nodes_view const ch) {
  block const b;
  ch.begin(b).end(b);
}

/// Fails: as launch().
inline void launch_nodes_no_rows(nodes_channel& ch, hipStream_t stream, launch_header const& header,
                                 std::source_location where) {
  launch(ch.near().world(), stream, {.blocks = 1, .threads = no_rows_threads, .where = where}, &nodes_no_rows_kernel<>,
         ch.view(header));
}

}  // namespace fusewire::detail
