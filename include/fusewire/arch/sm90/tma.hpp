// The tensor memory accelerator of sm_90: boxes of a matrix from memory into shared memory, announced by an mbarrier.
//
//   producer lane   expect(bytes) --> load_box ... load_box
//   TMA                                 memory --> shared memory; counts bytes on the barrier
//   consumers       wait(parity) <------- all bytes there
#pragma once
#include <cuda.h>

#include <cstdint>

#include <fusewire/core/programmatic_launch.hpp>
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// An address in shared memory: 32 bits, as instructions for shared memory take it. The upper bits are the block's rank
/// in its cluster.
using shared_address_t = std::uint32_t;

/// The shared-memory address of p.
__device__ inline shared_address_t shared_address(void const* p) {
  return shared_address_t(__cvta_generic_to_shared(p));
}

/// True in one lane of the wave. The compiler knows that it is only one, and uses uniform registers for the code that
/// depends on it.
/// Called by: every lane of the wave.
/// Requires: that code waits for nothing. Else the other lanes would run ahead, and overwrite uniform registers that an
/// instruction of the one lane has yet to read (docs/decisions/all_gather_sm90.md); tests/isa/check_loads.py looks for
/// that in the compiled code.
__device__ inline bool elect_one() {
  int chosen;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p;}" : "=r"(chosen));
  return chosen != 0;
}

/// Rank of this block in its cluster.
__device__ inline int cluster_rank() {
  int r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
/// Blocks of the cluster.
__device__ inline int cluster_size() {
  int n;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
  return n;
}
/// The index of this block's cluster in the grid, whose clusters are cluster_size() neighbouring blocks.
__device__ inline int cluster_index() {
  int i;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(i));
  return i;
}
/// Clusters of the grid.
__device__ inline int cluster_count() {
  int n;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(n));
  return n;
}
/// The first half of a barrier over all threads of all blocks of the cluster. It orders no earlier accesses, except the
/// initialisation of mbarriers before mbarrier::fence_init(): more would take a round trip to memory.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
/// The second half of cluster_arrive().
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// Stores two neighbouring floats. Requires: `at` a multiple of 8.
__device__ inline void store_shared(shared_address_t at, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}
/// Stores one float.
__device__ inline void store_shared(shared_address_t at, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
/// Loads four neighbouring floats. Requires: `at` a multiple of 16.
__device__ inline float4 load_shared(shared_address_t at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

/// A barrier in shared memory, by its address: 8 bytes, aligned to 8. The parity of its phases alternates, starting
/// with 0. A wait for parity 1 of a new barrier returns immediately.
struct mbarrier {
  shared_address_t at;  // its address

  /// Makes it a barrier of `arrivals` arrivals.
  /// Called by: one thread, followed by fence_init() and a barrier of all threads that use it.
  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
  }
  /// Makes init() visible to the cluster and to TMA, which accesses memory through the async proxy.
  __device__ static void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
  }

  /// Arrives, and makes this phase also wait for `bytes` bytes from TMA.
  __device__ void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  /// Arrives. Called by: one of the threads that init() has counted.
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
  /// Arrives at the barrier at the same address in block `rank` of the cluster.
  __device__ void arrive_at(int rank) const {
    asm volatile(
        "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}" ::
            "r"(at),
        "r"(rank)
        : "memory");
  }
  /// Returns when the phase of this parity is complete.
  __device__ void wait(int parity) const {
    while (!try_wait(parity)) {}
  }

 private:
  __device__ bool try_wait(int parity) const {
    int done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
    return done;
  }
};

/// Makes this thread's earlier writes to shared memory visible to TMA.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Tensor maps of a matrix from which tiles load boxes. A last tile with fewer rows has its own map, because the
/// part of a box outside the matrix takes TMA longer than the part inside.
struct box_maps {
  CUtensorMap whole, last;  // for all tiles; for the last one, if it is shorter
};

/// Brings a tensor map into the cache before its first use. Called by: one thread.
__device__ inline void prefetch(CUtensorMap const& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts the load of the box of `map` that begins at column x of row y. Elements outside the matrix become zero.
/// Called by: one thread.
/// Requires: `to` aligned to 1024 bytes; `done` expects the box's bytes.
__device__ inline void load_box(shared_address_t to, CUtensorMap const& map, int x, int y, mbarrier done) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               :
               : "r"(to), "l"(&map), "r"(x), "r"(y), "r"(done.at)
               : "memory");
}

/// The same of a map of groups of rows: the box lies in group z.
__device__ inline void load_box(shared_address_t to, CUtensorMap const& map, int x, int y, int z, mbarrier done) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               :
               : "r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(done.at)
               : "memory");
}

/// Starts the copy of `bytes` bytes from this block's shared memory to address `to` in block `rank` of the cluster.
/// That block's barrier at the address of `done` counts the bytes.
/// Called by: one thread.
/// Requires: to, from and bytes are multiples of 16; this block does not end before the bytes have arrived.
__device__ inline void copy_to_block(int rank, shared_address_t to, shared_address_t from, int bytes, mbarrier done) {
  asm volatile(
      "{.reg .b32 there, counts; mapa.shared::cluster.u32 there, %0, %4; mapa.shared::cluster.u32 counts, %3, %4;"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [counts];}"
      :
      : "r"(to), "r"(from), "r"(bytes), "r"(done.at), "r"(rank)
      : "memory");
}

}  // namespace fusewire
