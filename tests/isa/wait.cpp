// What check_wait.py looks at: waits with their limit, each beside a twin that polls indefinitely.
#include <fusewire/device/ll.hpp>

using namespace fusewire;

namespace {

/// As wait(), without a limit.
template <group Group>
__device__ void wait_for_ever(Group g, flag const* f, epoch_t value) {
  if (g.leader()) {
    while (platform::atomic_load<order::relaxed, scope::system>(&f->value) != value) platform::backoff();
    platform::acquire_polled<scope::system>(&f->value);
  }
  g.sync();
}

}  // namespace

__global__ void thread_limited(world_view w, flag const* f, epoch_t value, int* out) {
  wait(thread{}, w, f, value, 1);
  *out = 1;
}
__global__ void thread_unlimited(world_view, flag const* f, epoch_t value, int* out) {
  wait_for_ever(thread{}, f, value);
  *out = 1;
}
__global__ void block_limited(world_view w, flag const* f, epoch_t value, int* out) {
  wait(block{}, w, f, value, 1);
  *out = 1;
}
__global__ void block_unlimited(world_view, flag const* f, epoch_t value, int* out) {
  wait_for_ever(block{}, f, value);
  *out = 1;
}
#ifndef __CUDACC__
// Not for sm_90a: its compiler computes what only a report needs ahead of the loop, some 25 instructions in uniform
// registers.
__global__ void word_limited(channel_view c, ll_word<> const* p, epoch_t epoch, float* out) {
  ll_reader read(channel_epoch(c, epoch), c.world);
  float x;
  do x = read(p, 1);
  while (read.again());
  *out = x;
}
__global__ void word_unlimited(channel_view, ll_word<> const* p, epoch_t epoch, float* out) {
  std::uint64_t word;
  while (std::uint32_t(word = platform::atomic_load<order::relaxed, scope::system>(&p->bits)) !=
         detail::ll_stamp(epoch))
    platform::backoff();
  *out = __uint_as_float(std::uint32_t(word >> 32));
}
#endif
