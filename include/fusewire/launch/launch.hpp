// Launching kernels whose blocks wait for each other, on this rank and on others.
#pragma once
#include <array>
#include <concepts>
#include <span>
#include <vector>

#include <fusewire/device/channel_view.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Grid and block of a launch, both one-dimensional.
struct launch_shape {
  int blocks = 1, threads = 256;  // blocks of the grid; threads of a block, 1 to 1024
  int shared_bytes = 0;           // dynamic shared memory of a block
  /// Blocks that start together and reach each other's shared memory; 1 where the hardware has no clusters
  int cluster = 1;
  /// The kernel itself waits for earlier work on the stream (wait_prior_grid), so it may be launched before that work
  /// is over
  bool programmatic = false;
  std::source_location where = std::source_location::current();  // the caller, for messages
};

namespace detail {
template <class... P>
void const* address_of(void (*kernel)(P...)) {
  return reinterpret_cast<void const*>(kernel);
}

/// The name in a launch's header, where the argument brings one; else 0.
template <class T>
std::uint64_t name_in(T const& argument) {
  if constexpr (std::derived_from<T, channel_view>) return argument.header.what[0];
  else return 0;
}

/// Memory of a kernel's argument that one launch at a time may use; null if it has none.
template <class T>
void const* memory_of_one_launch(T const& argument) {
  if constexpr (std::derived_from<T, channel_view>) return argument.world.here(argument.state);
  else if constexpr (requires { argument.memory_of_one_launch(); }) return argument.memory_of_one_launch();
  else return nullptr;
}

/// What launch() does, whatever the kernel. `memory`: what its arguments say of memory_of_one_launch(). `arguments`:
/// the address of each.
void launch_kernel(world const& w, hipStream_t stream, launch_shape const& s, void const* kernel, std::uint64_t name,
                   std::span<void const* const> memory, void** arguments);
}  // namespace detail

/// Loads the kernel's code on this rank's device. Loading can block on a device whose kernels wait for this rank, so it
/// should happen before the first launch that can wait. Operators call it when they are made. Call it for kernels of
/// your own, unless the program's first use of the GPU was run() or device_count(): on NVIDIA these have all code
/// loaded together.
/// Where ranks share a device, every block asks for more than half of a compute unit's shared memory, and so has the
/// unit to itself. Then blocks of different kernels, of ranks in different launches, fit whenever their total number
/// does.
residency load_kernel(world const& w, void const* kernel, int threads, int shared_bytes = 0,
                      std::source_location where = std::source_location::current());
/// The same of a kernel by its type.
template <class... P>
residency load_kernel(world const& w, void (*kernel)(P...), int threads, int shared_bytes = 0,
                      std::source_location where = std::source_location::current()) {
  return load_kernel(w, detail::address_of(kernel), threads, shared_bytes, where);
}

/// How many blocks of the kernel fit concurrently on this rank's part of its device. `reserved` compute units are left
/// to other work.
template <class... P>
int resident_blocks(world const& w, void (*kernel)(P...), int threads, int shared_bytes, int reserved = 0,
                    std::source_location where = std::source_location::current()) {
  return w.cus_per_rank(reserved) * load_kernel(w, kernel, threads, shared_bytes, where).at_once;
}

/// How many clusters of `cluster` blocks of the kernel fit concurrently on this rank's device. `reserved` compute units
/// are left out, and each of them may take the room of a whole cluster. The answer is 0 where ranks share a device: a
/// cluster needs room side by side, and blocks of another rank may have broken that up.
int resident_clusters(world const& w, void const* kernel, int cluster, int threads, int shared_bytes, int reserved = 0,
                      std::source_location where = std::source_location::current());
/// The same of a kernel by its type.
template <class... P>
int resident_clusters(world const& w, void (*kernel)(P...), int cluster, int threads, int shared_bytes,
                      int reserved = 0, std::source_location where = std::source_location::current()) {
  return resident_clusters(w, detail::address_of(kernel), cluster, threads, shared_bytes, reserved, where);
}

/// Launches the kernel once. Blocks of one launch, and launches of different ranks, may wait for each other. Where
/// ranks share a device, it returns when the kernel has ended (unless it is captured): work that is queued behind a
/// waiting kernel keeps the device's front end from starting the kernels that it waits for. The thread's current device
/// may be any, and an error that somebody else left behind stays.
/// Launches of this rank on other streams that are not known to be over: this one waits for them, as if an event had
/// ordered the streams, where both use one channel or operator, or where not all blocks fit side by side. See
/// launch_order.
/// Order: every rank makes its launches in the same order, those on several streams, too.
/// Requires: all blocks fit concurrently on this rank's part of the device, in the units that a mask of the stream
/// leaves. Streams of earlier launches exist until world::check() has been called for them. Replays of graphs, and
/// kernels of others whose blocks wait, do not run concurrently; that is not checked. Fails: bad_argument when the
/// blocks do not fit (it says how many do), or when it must wait for a stream that has begun a capture;
/// runtime_failure, and nothing is launched; as world::poll_errors().
template <class... P>
void launch(world const& w, hipStream_t stream, launch_shape const& s, void (*kernel)(P...),
            std::type_identity_t<P> const&... arguments) {
  std::array<void const*, sizeof...(P)> const memory{detail::memory_of_one_launch(arguments)...};
  void* at[] = {const_cast<void*>(static_cast<void const*>(&arguments))..., nullptr};
  detail::launch_kernel(w, stream, s, detail::address_of(kernel), (detail::name_in(arguments) | ... | 0), memory, at);
}
/// The same of a kernel by its address, as programs have it that compile kernels while they run. Its first parameter is
/// the channel's view. `others`: the addresses of what is passed for its other parameters. Requires: as many of them,
/// of the parameters' types; kernel_parameters says which.
inline void launch(world const& w, hipStream_t stream, launch_shape const& s, void const* kernel,
                   channel_view const& ch, std::span<void* const> others) {
  std::vector<void*> at{const_cast<channel_view*>(&ch)};
  at.insert(at.end(), others.begin(), others.end());
  detail::launch_kernel(w, stream, s, kernel, detail::name_in(ch), std::array{detail::memory_of_one_launch(ch)},
                        at.data());
}

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/launch/launch.ipp>
#endif
