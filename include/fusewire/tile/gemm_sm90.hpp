// The Hopper mainloop: C = A [M, K] * B [K, N] by persistent blocks with one warpgroup that loads and two that multiply.
//
//   producer lane    ready(tile, k)? wait empty --> copy engine loads A and B --> full     (both of a cluster get each half of B)
//   consumer 0, 1    wait full --> wgmma on its half of the tile's rows, one group in flight --> empty, to every block of the cluster
//   shared memory    | A, B: stages | one slab per consumer warp: C on its way out | full, empty |
//
// Stages go round through all tiles of the block: while the consumers store a tile, the producer fills the stages of the next.
//
// Deadlock: the producer waits for `ready` and for consumers, consumers wait only for the producers of their cluster, and all blocks of a
// cluster take the same tiles and steps in the same order. `ready` must not wait for anything that a later tile of this block makes.
// Drain: after a `ready` that was given up the producer goes on as after any other. Every load that it has started completes on `full`,
// from memory that may hold anything, consumers take it and arrive at `empty`, and the last meet() comes after all of them.
// Reuse: a stage is loaded again when every consumer warp of every block of the cluster has arrived at its `empty`, which a warp does
// after its multiplications that read the stage are complete.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/tile/grid.hpp>
#include <fusewire/tile/wgmma_sm90.hpp>

namespace fusewire {

/// Everything tunable about the mainloop. A step along k is 64 elements, which is what 128-byte swizzling holds. A cluster of two blocks,
/// side by side along m, shares its loads of B: that spares the L2, and on an H200 at its power limit gains no time.
struct sm90_gemm_config {
  int block_m = 128, block_n = 256;  // a block's tile
  int stages = 4;
  int cluster = 1;                   // blocks: 1 or 2

  __host__ __device__ constexpr int threads() const { return 384; }
  /// A row-major B comes in pieces of 64 columns, the last of which may be needed in part only.
  __host__ __device__ constexpr int b_columns(layout b) const { return b == layout::row_major ? ceil_div(block_n, 64) * 64 : block_n; }
  __host__ __device__ constexpr int stage_bytes(layout b) const { return (block_m + b_columns(b)) * 128; }
  __host__ __device__ constexpr int slab_bytes() const { return 16 * 128 * 2; }
  __host__ __device__ constexpr int shared_bytes() const { return stages * stage_bytes(layout::row_major) + 8 * slab_bytes() + stages * 16 + 1008; }
  /// How long an [m, n] result takes on `blocks` blocks, in columns of tiles one after the other: of two configurations with the same
  /// block_m, the one with less is faster.
  __host__ __device__ constexpr int rounds(int m, int n, int blocks) const {
    return ceil_div(ceil_div(m, block_m * cluster) * cluster * ceil_div(n, block_n), blocks) * block_n;
  }
};

/// Configurations that kernels are instantiated for: the one with fewer rounds(), the first if they are equal.
struct sm90_tile {
  static constexpr sm90_gemm_config config{};
};
struct sm90_narrow_tile {
  static constexpr sm90_gemm_config config{.block_n = 224};
};

/// A tile source that is there from the start.
struct always_ready {
  __device__ bool operator()(int, int) { return false; }
};

template <class T, sm90_gemm_config C, layout BOrder>
class gemm_sm90 {
 public:
  static constexpr int block_k = 64;
  // Of the tensor maps: boxes of A are m x 64 k; of a row-major B 64 k x 64 n, of a column-major one n x 64 k.
  static constexpr int a_box_rows = C.block_m, b_box_rows = BOrder == layout::row_major ? block_k : C.block_n / C.cluster;
  static_assert(C.block_m % 128 == 0 && C.block_m <= 256 && (C.cluster == 1 || C.cluster == 2));
  static_assert(C.b_columns(BOrder) % (C.cluster * (BOrder == layout::row_major ? 64 : 8)) == 0);
  static_assert(C.shared_bytes() <= platform::max_shared_bytes);

  /// The tiles of an [M, N] result, counted in clusters.
  __host__ __device__ static constexpr tile_order tiles(int m, int n, int first_m, int band) {
    return {ceil_div(m, C.block_m * C.cluster), ceil_div(n, C.block_n), first_m, band};
  }

  /// For each tile i of `share`: c(r, j) = T(epilogue(sum over k of A(r, k) * B(k, j), r, j)) on the tile's part of c.
  /// Called by: every thread of every block of a cluster, with equal `k`, `tiles` and `share` in all its blocks.
  /// Order: before its loads of columns [k0, k0 + 64) of tile row m, the producer lane calls ready(m, k0); true says that it has just acquired
  /// memory that other threads wrote.
  /// Requires: a kernel with __launch_bounds__(C.threads(), 1), launched with C.threads() threads and cluster dimension C.cluster; `a`, `b`:
  /// kernel parameters, made by make_tensor_map() with a_box_rows and b_box_rows, `b` of the matrix whose rows are contiguous in B's memory;
  /// k >= 1; C.shared_bytes() bytes at `shared`.
  template <class Ready, class Epilogue>
  __device__ static void run(void* shared, CUtensorMap const& a, CUtensorMap const& b, int k, tile_order const& tiles, strided share, matrix<T> c, Ready ready,
                             Epilogue const& epilogue) {
    auto& s = *reinterpret_cast<storage*>((reinterpret_cast<std::uintptr_t>(shared) + 1023) / 1024 * 1024);
    int const cta = C.cluster == 1 ? 0 : cluster_rank(), steps = ceil_div(k, block_k);
    if (block{}.leader()) {
      for (int i = 0; i < C.stages; ++i) {
        s.full[i].init(1);
        s.empty[i].init(8 * C.cluster);
      }
      mbarrier::fence_init();
    }
    meet();
    if (wave{}.index() < 4) {
      give_registers<40>();
      if (block{}.leader()) load(s, a, b, cta, steps, tiles, share, ready);
      wave{}.sync();
      take_registers<registers>();
    } else {
      take_registers<232>();
      multiply(s, cta, steps, tiles, share, c, epilogue);
      give_registers<registers>();
    }
    meet();
  }

 private:
  static constexpr int registers = 168;  // of a thread, when 384 threads have the same
  using atom = wgmma_atom<T, C.block_n, BOrder == layout::row_major>;
  static constexpr int atoms_m = C.block_m / 2 / atom::m;
  static constexpr int chunk = 64 * block_k * 2;  // bytes of 64 n of a row-major B's stage

  struct alignas(1024) storage {
    std::byte a[C.stages][C.block_m * block_k * 2];
    std::byte b[C.stages][C.b_columns(BOrder) * block_k * 2];
    bytes16 slab[8][C.slab_bytes() / 16];
    mbarrier full[C.stages], empty[C.stages];
  };

  /// Place in the ring of stages.
  struct cursor {
    int stage = 0, parity = 0;
    __device__ void advance() {
      if (++stage < C.stages) return;
      stage = 0;
      parity ^= 1;
    }
  };

  __device__ static void meet() {
    if constexpr (C.cluster == 1) block{}.sync();
    else cluster_sync();
  }

  template <class Ready>
  __device__ static void load(storage& s, CUtensorMap const& a, CUtensorMap const& b, int cta, int steps, tile_order const& tiles, strided share, Ready& ready) {
    prefetch(a);
    prefetch(b);
    cursor at;
    for (int const i : share) {
      int const tile_m = tiles[i].m * C.cluster + cta, n0 = tiles[i].n * C.block_n;
      for (int step = 0; step < steps; ++step, at.advance()) {
        mbarrier& full = s.full[at.stage];
        if (ready(tile_m, step * block_k)) fence_copy_engine();
        s.empty[at.stage].wait(at.parity ^ 1);
        full.expect(C.stage_bytes(BOrder));
        load_box(s.a[at.stage], a, step * block_k, tile_m * C.block_m, full);
        if constexpr (BOrder == layout::column_major) {
          int const first = cta * b_box_rows;
          load_b(s.b[at.stage] + first * 128, b, step * block_k, n0 + first, full);
        } else {
          constexpr int chunks = C.b_columns(BOrder) / 64 / C.cluster;
#pragma unroll
          for (int j = cta * chunks; j < (cta + 1) * chunks; ++j) load_b(s.b[at.stage] + j * chunk, b, n0 + j * 64, step * block_k, full);
        }
      }
    }
  }
  __device__ static void load_b(std::byte* to, CUtensorMap const& b, int x, int y, mbarrier& full) {
    if constexpr (C.cluster == 1) load_box(to, b, x, y, full);
    else load_box(to, b, x, y, full, 3);
  }

  template <class Epilogue>
  __device__ static void multiply(storage& s, int cta, int steps, tile_order const& tiles, strided share, matrix<T> c, Epilogue const& epilogue) {
    int const consumer = wave{}.index() / 4 - 1;
    cursor at;
    for (int const i : share) {
      typename atom::c_fragment acc[atoms_m];
      int previous = 0;
      for (int step = 0; step < steps; ++step, at.advance()) {
        s.full[at.stage].wait(at.parity);
        std::uint64_t const a = matrix_descriptor(s.a[at.stage] + consumer * (C.block_m / 2) * 128), b = matrix_descriptor(s.b[at.stage], chunk);
        wgmma_begin();
#pragma unroll
        for (int slice = 0; slice < block_k / atom::k; ++slice)
#pragma unroll
          for (int j = 0; j < atoms_m; ++j)
            atom::multiply(acc[j], further(a, j * atom::m * 128 + slice * 32), further(b, slice * (BOrder == layout::row_major ? 2048 : 32)), step > 0 || slice > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) release(s.empty[previous]);
        previous = at.stage;
      }
      wgmma_wait<0>();
      release(s.empty[previous]);

      int const m0 = (tiles[i].m * C.cluster + cta) * C.block_m + consumer * (C.block_m / 2), n0 = tiles[i].n * C.block_n;
      bool const whole = m0 + C.block_m / 2 <= c.rows && n0 + C.block_n <= c.cols && (c.ld % 8 | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) & 15)) == 0;
#pragma unroll
      for (int j = 0; j < atoms_m; ++j) {
        if (whole) store<true>(s.slab[wave{}.index() - 4], acc[j], m0 + j * atom::m, n0, c, epilogue);
        else store<false>(s.slab[wave{}.index() - 4], acc[j], m0 + j * atom::m, n0, c, epilogue);
      }
    }
  }

  /// This warp is done with a stage, which every block of the cluster loads into.
  __device__ static void release(mbarrier& empty) {
    int const lane = wave{}.rank();
    if constexpr (C.cluster == 1) {
      if (lane == 0) empty.arrive();
    } else if (lane < C.cluster) {
      empty.arrive_at(lane);
    }
  }

  __device__ static std::uint32_t pack(float low, float high) {
    std::uint32_t two;
    if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
  }

  /// A warp's 16 rows leave in pieces of 128 columns through its slab, whose 16-byte units are turned by row off each other's banks.
  template <bool Whole, class Epilogue>
  __device__ static void store(bytes16* slab, typename atom::c_fragment const& acc, int m0, int n0, matrix<T> c, Epilogue const& epilogue) {
    int const thread = block{}.rank() % 128, lane = wave{}.rank(), row0 = m0 + thread / 32 * 16;
    auto const value = [&](int v) {
      int const row = m0 + atom::c_row(thread) + v / 2 % 2 * 8, col = n0 + v / 4 * 8 + atom::c_col(thread) + v % 2;
      return Whole || (row < c.rows && col < c.cols) ? epilogue(acc[v], row, col) : 0.0f;
    };
    int const slab_row = lane % 16;
    std::uint32_t const slab_at = shared_address(slab + slab_row * 16);
#pragma unroll
    for (int piece = 0; piece < ceil_div(C.block_n, 128); ++piece) {
      int const units = C.block_n / 8 - piece * 16;  // of 8 columns; a piece has at most 16
#pragma unroll
      for (int pair = 0; pair < 8; ++pair) {
        if (pair * 2 >= units) continue;
        int const v = piece * 64 + pair * 8, unit = (pair * 2 + lane / 16) ^ (slab_row & 7);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(slab_at + unit * 16), "r"(pack(value(v), value(v + 1))),
                     "r"(pack(value(v + 2), value(v + 3))), "r"(pack(value(v + 4), value(v + 5))), "r"(pack(value(v + 6), value(v + 7)))
                     : "memory");
      }
      wave{}.sync();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        int const r = i * 2 + lane / 16, unit = lane % 16, row = row0 + r, col = n0 + piece * 128 + unit * 8;
        bytes16 const eight = slab[r * 16 + (unit ^ (r & 7))];
        if (unit >= units) continue;
        if constexpr (Whole) {
          *reinterpret_cast<bytes16*>(c.at(row, col)) = eight;
        } else if (row < c.rows) {
#pragma unroll
          for (int e = 0; e < 8; ++e)
            if (col + e < c.cols) c.at(row, col + e)->bits = std::uint16_t(eight.word[e / 2] >> e % 2 * 16);
        }
      }
      wave{}.sync();
    }
  }
};

}  // namespace fusewire
