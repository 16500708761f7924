#pragma once
#include "machine/memory.hpp"

namespace fusewire::sim {

/// The memory model of gfx942, as weak as its sources allow: LLVM's AMDGPU user guide ("Memory Model GFX942"), the
/// CDNA3 ISA document, ROCclr, and the memory types that the kernel driver gives to local and peer memory.
/// docs/simulator.md has a row for each promise.
///
///   wave --in flight--> L1 of the CU --> L2 of the XCD --> released lines of the GPU
///     --> memory, of this GPU or of a peer
///
/// In flight. A store reaches the L2, a load takes its value and an atomic acts some time after it was issued, at the
///   latest when its wave waits for it (s_waitcnt vmcnt). Operations of one workgroup on one line keep their order,
///   because waves of a workgroup share an L1; otherwise any may overtake any. s_barrier waits for none. A load's
///   registers keep their old values until it has its value. LDS operations and scalar loads are in flight as well,
///   until lgkmcnt; those of one wave on LDS keep their order (isa/late.cpp).
/// Writebacks. buffer_wbl2 is done some time after it was issued, at the latest at the wait. It takes the lines that
///   were dirty when it was issued, and what its own wave had stored before.
/// L1. Plain loads may find a line that is old. `buffer_inv sc1` (agent, system) empties the CU's L1; loads with sc1
///   and atomics bypass it. Scalar loads use a cache of their own, which the start of a kernel or s_dcache_inv empties,
///   and no acquire does.
/// L2. One per XCD. What happens to a line depends on whose memory it is:
///     hipMalloc, fine-grained, own GPU (RW)    written bytes stay until `buffer_wbl2 sc1`. Probes keep reads right.
///     hipMalloc, fine-grained, of a peer (NC)  written bytes stay until `buffer_wbl2 sc0 sc1`; lines that were read
///                                              go stale until `buffer_inv sc0 sc1`; loads and stores with sc0 sc1
///                                              bypass the L2.
///     uncached: own GPU (CC), of a peer (UC)   never kept; CC lines can be in an L1. Through an IPC handle of a peer:
///                                              as NC, because no source says that the mapping is uncached, too.
///                                              config::cached_ipc plants a mapping that keeps all.
///     host memory (UC)                         never kept.
/// Released lines. What is released at agent scope, by a writeback, a store, an atomic or the end of a kernel, is
///   visible to all XCDs of the GPU, and to no other reader until the XCD that wrote it releases it at system scope.
/// Atomics with agent scope on memory of a peer would act in the XCD's own L2, where no other device sees them: they
///   are reported as a fault.
/// Kernels begin and end at agent scope: empty L1s and scalar caches at the start, a release at the end. When the host
///   waits or copies, everything is written back, and lines of peers are dropped.
/// What hardware does in its own time (an operation takes effect, a line is evicted) is drawn at random. How often it
///   happens is drawn, too, once per seed: with some seeds nothing is ever evicted, so a forgotten release shows as a
///   hang.
class weak_memory final : public node_memory {
 public:
  explicit weak_memory(node&);
  void issue(wave&) override;
  bool load(wave&, cache_bits, u64 mask, u64 const* address, int bytes, destination const&) override;
  bool store(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) override;
  bool atomic(wave&, cache_bits, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
              u32 const (*compare)[lanes], destination const& old) override;
  bool scalar_load(wave&, u64 address, int bytes, bool fresh, u32* out) override;
  void invalidate_scalars(wave&) override;
  void writeback(wave&, cache_bits) override;
  void invalidate(wave&, cache_bits) override;
  void wait_vmcnt(wave&, int outstanding) override;
  bool late(wave&) override { return late_local_one_in_ && node_.chance.one_in(late_local_one_in_); }

  void kernel_begins(int gpu) override;
  void kernel_ends(int gpu) override;
  void group_ends(group_memory&) override;
  void tick(group_memory&) override;
  void system_scope(int gpu) override;
  void fill(int gpu, u8* to, u8 const* from, u64 bytes) override;
  std::string hidden(u64 address, group_memory const&) const override;

  l1_cache& l1(int gpu, int cu);
  l2_cache& l2(int gpu, int xcd) { return gpus_[gpu].l2[xcd]; }

 private:
  enum class type { rw, nc, cc, uc };
  static type type_of(allocation const&, int gpu);
  bool keeps(allocation const& a) const {
    return node_.settings.cached_ipc && a.imported && a.kind == memory_kind::uncached;
  }

  // in_flight.cpp
  void keep_order(wave&, destination const&);
  void put_in_flight(wave&, bool is_atomic, cache_bits, u64 mask, u64 const* address, int bytes, destination const&,
                     rmw, u32 const (*data)[lanes], u32 const (*compare)[lanes]);
  void settle(group_memory&, u64 line);
  void perform(operation_in_flight&, u64 mask);
  void retire(group_memory&, std::size_t i);
  void finish(group_memory&, std::size_t i);
  void send(wave&, store_in_flight&&);
  void drain_line(group_memory&, u64 line);
  void complete(group_memory&, writeback_in_flight const&);

  bool read(wave&, cache_bits, u32 pc, u64 mask, u64 const* address, int bytes, destination const&);
  bool act(wave&, cache_bits, u32 pc, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
           u32 const (*compare)[lanes], destination const& old) override;
  u8 const* view(wave&, cache_bits, u64 line, u8* scratch);
  u8 const* view_l2(group_memory&, cache_bits, u64 line, type, u8* scratch);
  void arrive(group_memory&, store_in_flight const&);
  void to_memory(cache_line&);
  void release(int gpu, int xcd, u64 line, u8 const* data, byte_mask const&);
  void release(int gpu, int xcd, l2_cache::slot&);
  void unrelease(u64 line, byte_mask const*);
  l2_cache::slot* released(int gpu, u64 line) {
    l2_cache::slot* const s = gpus_[gpu].released.find(line);
    return s && s->mask.any() ? s : nullptr;
  }

  struct gpu_caches {
    std::array<l2_cache, max_xcds> l2;
    l2_cache released;
    std::vector<std::unique_ptr<l1_cache>> l1, scalar;  // per CU, per two CUs
  };
  std::vector<gpu_caches> gpus_;
  std::vector<std::unique_ptr<operation_in_flight>> spare_;
  u32 delay_one_in_, late_one_in_, arrive_one_in_, evict_one_in_;  // stores, loads and atomics, both, lines; 0: never
  u32 late_local_one_in_;                                          // LDS operations and scalar loads
};

}  // namespace fusewire::sim
