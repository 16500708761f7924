// The launch of an operator whose call has no rows: it begins and ends an epoch, so that ranks stay together, and ranks
// that pass another m are told so.
#pragma once
#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/launch.hpp>

namespace fusewire::detail {

/// A template, so that any number of sources may have it.
template <class = void>
__global__ void no_rows_kernel(__grid_constant__ channel_view const ch) {
  block const b;
  ch.begin(b).end(b);
}

inline constexpr int no_rows_threads = 64;

/// Before the first launch that can wait; see load_kernel().
inline void load_no_rows(world const& w, std::source_location where) {
  (void)load_kernel(w, &no_rows_kernel<>, no_rows_threads, 0, where);
}

/// Fails: as launch().
inline void launch_no_rows(channel const& ch, hipStream_t stream, launch_header const& header,
                           std::source_location where) {
  launch(ch.world(), stream, {.blocks = 1, .threads = no_rows_threads, .where = where}, &no_rows_kernel<>,
         ch.view(header));
}

}  // namespace fusewire::detail
