// What check_wait.py looks at: waits with their limit, each beside a twin that polls for ever.
#include <fusewire/device/flag.hpp>

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
