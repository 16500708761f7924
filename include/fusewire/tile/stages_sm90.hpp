// The shared memory of the Hopper mainloop: stages, epilogue staging and barriers.
#pragma once
#include <fusewire/core/types.hpp>
#include <fusewire/tile/gemm_config_sm90.hpp>
#include <fusewire/tile/tma_sm90.hpp>

namespace fusewire {

/// Where things are in shared memory. BBytes: of a stage.
template <sm90_gemm_config C, int BBytes>
struct sm90_storage {
  sm90_stages const& stages;
  std::byte* base;
  shared_address_t at;  // of base
  int a_bytes;

  __device__ sm90_storage(void* shared, sm90_stages const& stages) : stages(stages), a_bytes(stages.rows * 128) {
    base = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(shared) + 1023) / 1024 * 1024);
    at = shared_address(base);
    asm volatile("" : "+r"(at));  // computed here, not again in every loop
  }
  __device__ shared_address_t a(int stage) const { return at + stage * a_bytes; }
  __device__ shared_address_t b(int stage) const { return at + stages.of_a * a_bytes + stage * BBytes; }
  __device__ mbarrier full_a(int stage) const { return {at + barriers_at + stage * 8}; }
  __device__ mbarrier full_b(int stage) const { return {at + barriers_at + (C.max_stages + stage) * 8}; }
  __device__ mbarrier empty(int stage) const { return {at + barriers_at + (2 * C.max_stages + stage) * 8}; }
  __device__ bytes16* staging(int consumer) const {
    return reinterpret_cast<bytes16*>(base + C.stage_bytes() + consumer * C.warp_staging_bytes);
  }
  // Of a row of sums, in place of the stages
  __device__ shared_address_t sum(int row) const { return at + row * C.row_bytes(); }
  // The other parts' stages
  __device__ mbarrier free() const { return {at + barriers_at + 3 * C.max_stages * 8}; }
  // This part's rows of sums
  __device__ mbarrier whole() const { return {at + barriers_at + 3 * C.max_stages * 8 + 8}; }

  static constexpr int barriers_at = C.stage_bytes() + C.staging_bytes();
};

/// Place in a ring of stages.
struct stage_cursor {
  int stage = 0, parity = 0;
  __device__ void next(int stages) {
    bool const round = ++stage == stages;
    stage = round ? 0 : stage;
    parity ^= round;
  }
};

/// Warps [First, First + Count) of a block; a barrier of their own, number First.
template <int First, int Count>
struct warps {
  static constexpr int count = Count;

  __device__ int rank() const { return platform::thread_index() - First * 32; }
  __device__ int size() const { return Count * 32; }
  __device__ bool leader() const { return rank() == 0; }
  __device__ void sync() const { asm volatile("bar.sync %0, %1;" ::"n"(First), "n"(Count * 32) : "memory"); }
};

}  // namespace fusewire
