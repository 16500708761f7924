// copy_gathered: the A that an ag_gemm has gathered, out of the channel's inbox, before the channel's next launch.
#pragma once
#include <algorithm>

#include <fusewire/launch/channel.hpp>
#include <fusewire/ops/detail/copy_gathered_kernel.hpp>

namespace fusewire {

/// Loads the kernel; see load_kernel(). Fails: as load_kernel().
template <class T>
void prepare_copy_gathered(channel const& ch, std::source_location where = std::source_location::current()) {
  (void)load_kernel(ch.world(), &detail::copy_gathered_kernel<T>, detail::copy_gathered_threads, 0, where);
}

/// Copies the gathered A of the channel's last launch, and waits for no other rank. Can be captured in a graph. Row i
/// of rank r goes to row r * pitch + i of `to`; pitch = a.rows makes it A [M, K].
/// Requires: the channel's last launch was an ag_gemm with gather::m that pushed this `a`, and every rank has as many
/// rows. The channel's next launch is ordered behind this one, on any stream.
/// Fails: bad_argument; as launch().
template <class T>
void copy_gathered(channel const& ch, hipStream_t stream, matrix<T const> a, matrix<T> to, int pitch,
                   std::source_location where = std::source_location::current()) {
  int const ranks = ch.world().size();
  std::int64_t const rows = (ranks - 1) * std::int64_t(pitch) + a.rows;
  require(pitch >= a.rows && to.cols == a.cols && to.rows == rows, where, "copy_gathered: to is [", to.rows, ", ",
          to.cols, "] and pitch = ", pitch, "; expected [", rows, ", ", a.cols, "] and at least ", a.rows);
  if (a.rows == 0) return;
  auto const kernel = &detail::copy_gathered_kernel<T>;
  int const threads = detail::copy_gathered_threads,
            blocks = std::min(ranks * a.rows, resident_blocks(ch.world(), kernel, threads, 0, 0, where));
  launch(ch.world(), stream, {.blocks = blocks, .threads = threads, .where = where}, kernel,
         ch.view(make_header("gathered", 0, 0, 0, 0, 0, where)),
         detail::gathered_copy<T>{a, to.data, to.ld, ranks, a.rows, pitch});
}

}  // namespace fusewire
