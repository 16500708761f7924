// The shared memory of the Hopper mainloop: stages, epilogue staging and barriers.
#pragma once
#include <fusewire/core/types.hpp>
#include <fusewire/gemm/sm90/gemm_config.hpp>
#include <fusewire/arch/sm90/named_barriers.hpp>
#include <fusewire/arch/sm90/tma.hpp>

namespace fusewire {

/// Addresses in the shared memory of the mainloop. BBytes: of a stage of B.
template <sm90_gemm_config C, int BBytes>
struct sm90_storage {
  sm90_stages const& stages;  // how many there are, and how large
  std::byte* base;            // of all stages, aligned to 1024
  shared_address_t at;        // of base
  int a_bytes;                // of a stage of A

  /// Called by: every thread. shared: the kernel's dynamic shared memory.
  __device__ sm90_storage(void* shared, sm90_stages const& stages) : stages(stages), a_bytes(stages.rows * 128) {
    base = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(shared) + 1023) / 1024 * 1024);
    at = shared_address(base);
    asm volatile("" : "+r"(at));  // computed here, not again in every loop
  }
  /// A stage of A.
  __device__ shared_address_t a(int stage) const { return at + stage * a_bytes; }
  /// A stage of B.
  __device__ shared_address_t b(int stage) const { return at + stages.of_a * a_bytes + stage * BBytes; }
  /// Barrier of a stage: A has arrived.
  __device__ mbarrier full_a(int stage) const { return {at + barriers_at + stage * 8}; }
  /// Barrier of a stage: B has arrived.
  __device__ mbarrier full_b(int stage) const { return {at + barriers_at + (C.max_stages + stage) * 8}; }
  /// Barrier of a step: the consumers have read its stages of A and B.
  __device__ mbarrier empty(int stage) const { return {at + barriers_at + (2 * C.max_stages + stage) * 8}; }
  /// Epilogue staging of a consumer warp.
  __device__ bytes16* staging(int consumer) const {
    return reinterpret_cast<bytes16*>(base + C.stage_bytes() + consumer * C.warp_staging_bytes);
  }
  /// The first byte of row `row` of the partial sums, which lie in place of the stages.
  __device__ shared_address_t sum(int row) const { return at + row * C.row_bytes(); }
  /// Barrier of split-k: the cluster's other blocks no longer read their stages.
  __device__ mbarrier free() const { return {at + barriers_at + 3 * C.max_stages * 8}; }
  /// Barrier of split-k: all sums that other blocks send have arrived.
  __device__ mbarrier whole() const { return {at + barriers_at + 3 * C.max_stages * 8 + 8}; }

  /// The first barrier, in bytes from base.
  static constexpr int barriers_at = C.stage_bytes() + C.staging_bytes();
};

/// A position in a ring of stages.
struct stage_cursor {
  int stage = 0, parity = 0;  // the stage; the parity of its barriers' phase
  /// Goes on to the next of `stages` stages.
  __device__ void next(int stages) {
    bool const round = ++stage == stages;
    stage = round ? 0 : stage;
    parity ^= round;
  }
};

/// A group: warps [First, First + Count) of a block, which sync at their own barrier.
template <int First, int Count, named_barrier Barrier>
struct warps {
  static constexpr int count = Count;  // warps

  __device__ int rank() const { return platform::thread_index() - First * 32; }
  __device__ int size() const { return Count * 32; }
  __device__ bool leader() const { return rank() == 0; }
  __device__ void sync() const { barrier_sync<Barrier, Count * 32>(); }
};

}  // namespace fusewire
