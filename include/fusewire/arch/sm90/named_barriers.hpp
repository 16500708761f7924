// Named barriers: a block has 16, at which some of its warps synchronise. Number 0 is the one of block::sync().
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// The named barriers of gemm_sm90's blocks, by who waits for what.
enum class named_barrier {
  mbarriers_ready = 1,  // warp 0 and the multiplying warps wait for warp 1, which initialises the mbarriers
  communicating = 2,    // of the communicating warps
  epoch_known = 3,      // the communicating warps wait until all warps that need the epoch have it
  multiplying = 4,      // of the multiplying warps
};

/// Arrives, and waits until Threads threads have arrived. Called by: whole warps.
/// Order: what the others did before their arrival is visible in the block.
template <named_barrier Barrier, int Threads>
__device__ void barrier_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(int(Barrier)), "n"(Threads) : "memory");
}
/// Arrives without waiting. Called by: whole warps.
template <named_barrier Barrier, int Threads>
__device__ void barrier_arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(int(Barrier)), "n"(Threads) : "memory");
}

}  // namespace fusewire
