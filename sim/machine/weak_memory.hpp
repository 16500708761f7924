#pragma once
#include "machine/memory.hpp"

namespace fusewire::sim {

/// The memory model of gfx942 as LLVM's AMDGPU user guide states it ("Memory Model GFX942") with the memory types that the
/// kernel driver gives to local and peer memory, made as weak as those two allow.
///
///   wave --stores in flight--> L1 of the CU --> L2 of the XCD --> memory, of this GPU or of a peer
///
/// Stores in flight. A store reaches the L2 some time after it was issued: at the latest when its wave waits for it (s_waitcnt
///   vmcnt). Stores to different lines may overtake each other, stores to one line do not. Waves of the same workgroup use the same
///   path in order and see each other's stores at once; s_barrier does not wait for them.
/// L1. Plain loads may find a line that is old. `buffer_inv sc1` (agent, system) empties the CU's L1; loads with sc0 or sc1 and
///   atomics go past it.
/// L2. One per XCD. What happens to a line depends on whose memory it is:
///     hipMalloc, fine-grained, own GPU (RW)    written bytes stay until `buffer_wbl2 sc1`; a store with sc1 goes through.
///                                              Reads are kept right by probes.
///     hipMalloc, fine-grained, of a peer (NC)  written bytes stay until `buffer_wbl2 sc0 sc1`, lines that were read go stale until
///                                              `buffer_inv sc0 sc1`; loads and stores with sc0 sc1 go through.
///     uncached: own GPU (CC), of a peer (UC)   never kept; CC lines can be in an L1.
///     host memory (UC)                         never kept.
/// Atomics act in memory. With agent scope on memory of a peer they would act in the XCD's own L2, where nobody else sees them:
///   reported as a fault.
/// A kernel starts with empty L1s and no lines of peers in the L2s, and ends with everything written back.
/// What hardware does in its own time (a store arriving, a line evicted) is drawn at random; how often, also, once per seed: with
/// some seeds nothing is ever evicted, so a forgotten release shows as a hang.
class weak_memory final : public node_memory {
 public:
  explicit weak_memory(node&);
  bool load(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 (*out)[lanes]) override;
  bool store(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) override;
  bool atomic(wave&, cache_bits, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes], u32 const (*compare)[lanes], u32 (*old)[lanes]) override;
  void writeback(wave&, cache_bits) override;
  void invalidate(wave&, cache_bits) override;
  void wait_vmcnt(wave&, int outstanding) override;

  void kernel_begins(int gpu) override;
  void kernel_ends(int gpu) override;
  void group_ends(group_memory&) override;
  void tick(group_memory&) override;
  std::string hidden(u64 address, group_memory const&) const override;

  l1_cache& l1(int gpu, int cu);
  l2_cache& l2(int gpu, int xcd) { return gpus_[gpu].l2[xcd]; }

 private:
  enum class type { rw, nc, cc, uc };
  static type type_of(allocation const&, int gpu);

  u8 const* view(wave&, cache_bits, u64 line, u8* scratch);
  u8 const* view_l2(group_memory&, cache_bits, u64 line, type, u8* scratch);
  void send(wave&, store_in_flight&&);
  void arrive(group_memory&, store_in_flight const&);
  void drain_line(group_memory&, u64 line);
  void to_memory(cache_line&);

  struct gpu_caches {
    std::array<l2_cache, max_xcds> l2;
    std::vector<std::unique_ptr<l1_cache>> l1;
  };
  std::vector<gpu_caches> gpus_;
  u32 delay_one_in_, arrive_one_in_, evict_one_in_;  // 0: never
};

}  // namespace fusewire::sim
