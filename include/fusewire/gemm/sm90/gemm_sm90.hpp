// The Hopper mainloop: C = A [M, K] * B [K, N] by persistent blocks with one warpgroup that loads and two that
// multiply.
//
//   warp 0           source: wait until a step of A is there --> TMA: A --> full_a
//   warp 1           TMA: B --> full_b; as far ahead as there are stages for B, also before the first of A is there
//   warps 2, 3       communication: what the kernel sends meanwhile; they also end the launch, if there is no tail
//   consumer 0, 1    wait full_a, full_b --> wgmma on its half of the tile, one group in flight --> empty
//   shared memory    | A: stages | B: stages | epilogue staging, per consumer warp | full_a, full_b, empty
//                    | free, whole: of partial sums |
//
// A half is 64 rows of a tile, because wgmma takes 64 rows of one operand and any multiple of 8 rows of the other. In
// swap-AB (C^T = B^T A^T) a half is 64 columns, and the rows are the multiple of 8: M = 320, N = 8192 are 128 tiles of
// 160 x 128, one for nearly every SM. A consumer whose half lies outside C releases each stage as it arrives. The ring
// of stages runs through all tiles of the block: while the consumers store a tile, the loaders fill the stages of the
// next. Where tiles are few, the blocks of a cluster share a tile. Each multiplies its slice of the steps along k,
// sends every other block the sums of that block's rows of the tile, and adds up its own rows from all blocks, in the
// order of the k slices.
//
// Deadlock: warp 0 waits for the source and for consumers, warp 1 for consumers and for its own loads, consumers for
// both warps and for consumers of the other blocks. The source must not wait for anything that a later tile of this
// block makes, nor for anything that its cluster does after this tile.
// Drain: if the source has timed out, warp 0 continues as usual. Every load that was started completes on its barrier,
// from memory that may hold anything. Consumers take it and arrive at `empty`, and no role ends before its last step.
// Reuse: a stage is loaded again when every consumer warp has arrived at its `empty`. A warp arrives when its
// multiplications that read the stage are complete. A may have fewer stages than B: step s then takes the A stage of
// step s - of_a, so the loader waits on that step's `empty` barrier. Its parity is unambiguous: the barrier cannot
// complete again before A of step s is loaded.
// A block's own sums overwrite its stages when all steps of its only tile are complete in both consumers. Sums of other
// blocks do so after this block has told them that its stages are free. A block ends when the sums that it has sent
// have arrived.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/gemm/sm90/gemm_config.hpp>
#include <fusewire/gemm/mainloop.hpp>
#include <fusewire/gemm/sm90/cluster_split_k.hpp>
#include <fusewire/gemm/sm90/pipeline.hpp>
#include <fusewire/gemm/sm90/tile_loader.hpp>
#include <fusewire/gemm/sm90/tile_store.hpp>
#include <fusewire/arch/sm90/wgmma.hpp>

namespace fusewire {

/// A mainloop's operands: the buffers of A, in boxes of sm90_stages::rows rows, and B, as TMA reads them in a launch.
template <int Buffers>
struct sm90_operands {
  box_maps a[Buffers], b;  // tensor maps of the buffers of A, and of B
  int columns;             // of B
  bool b_is_constant;      // no earlier work of the stream writes B, so it is read immediately
  sm90_stages stages;      // as stages() returns them
  divisor blocks_of_tile;  // the blocks of a cluster, which share a tile

  __device__ int stores() const { return blocks_of_tile.value(); }
  __device__ fusewire::k_slice k_slice() const { return {cluster_rank(), blocks_of_tile}; }
};

/// A mainloop.
template <class T, int BlockM, int BlockN, layout BOrder>
class gemm_sm90 {
 public:
  static constexpr sm90_gemm_config C{BlockM, BlockN};  // as a template argument of a kernel nvcc does not take it
  /// See mainloop_traits.
  static constexpr mainloop_traits traits{.name = "gemm_sm90",
                                          .threads = C.threads(),
                                          .tile_m = BlockM,
                                          .tile_n = BlockN,
                                          .comm = comm_placement::idle_warps,
                                          .clusters = true};
  __host__ __device__ static constexpr int shared_bytes() { return C.shared_bytes(); }

  using source_group = wave;
  template <int Buffers>
  using operands = sm90_operands<Buffers>;
  // Tensor maps: boxes of A are rows x 64 k; of a row-major B 64 k x 64 n, of a column-major one n x 64 k.
  static constexpr int b_box_rows = BOrder == layout::row_major ? sm90_step : C.block_n;  // rows of B's boxes
  /// Rows of the boxes of B's last tile, of n columns.
  static constexpr int last_b_box_rows(int n) {
    return BOrder == layout::row_major ? sm90_step : last_box_rows(n, C.block_n);
  }
  static_assert(C.swap_ab() ? C.block_n == 128 : C.block_m == 64 || C.block_m == 128);

  using consumers = warps<4, C.warpgroups() * 4, named_barrier::multiplying>;  // the warps that multiply
  using idle = warps<2, 2, named_barrier::communicating>;                      // the warps that communicate

  /// For tiles of up to m rows of A, the last of which have last_m rows. If blocks share a tile, B waits for the first
  /// of A. Most of the shared memory is then for B, with that of the epilogue staging, which is unused.
  __host__ __device__ static constexpr sm90_stages stages(int m, int last_m, int split_k, int b_in_flight) {
    int const rows = box_rows(m, C.block_m), bytes = C.stage_bytes() + (split_k > 1 ? C.staging_bytes() : 0);
    int const both = bytes / (rows * 128 + b_bytes), max_of_a = split_k > 1 ? 6 : C.max_stages,
              of_a = min(both, max_of_a);
    int const fit = (bytes - of_a * rows * 128) / b_bytes, of_b = min(fit, C.max_stages);
    return {rows, box_rows(min(last_m, m), C.block_m), of_a, of_b, b_in_flight > 0 ? min(b_in_flight, of_b) : of_b};
  }
  /// As gemm/mainloop.hpp says. For each tile: c(r, j) = epilogue(sum over k of A(r, k) * B(k, j), r, j) on the tile's
  /// part of the sink's matrix c, of T or float. Warp 0 asks the source for A. Warp 1, which runs ahead, asks it for
  /// the steps of B. 64 threads of every block call `comm`.
  /// Requires: a kernel with __launch_bounds__(threads, 1), launched with as many threads and shared_bytes() at
  /// `shared`; x is a kernel parameter, made by make_operands(); if clusters have several blocks, no more tiles than
  /// clusters, and can_share() of these blocks.
  template <class Launch, int Buffers, tile_scheduler Tiles, tile_source Source, tile_sink Sink, class Comm,
            class Epilogue, class Tail>
  __device__ static void run(void* shared, Launch& launch, sm90_operands<Buffers> const& x, Tiles const& tiles,
                             Source source, Sink const& sink, Comm const& comm, Epilogue const& epilogue,
                             Tail const& last) {
    constexpr bool has_tail = !std::is_same_v<Tail, no_tail>;
    run_roles<!has_tail>(shared, launch, x, tiles, source, sink, comm, epilogue);
    if constexpr (has_tail) finish_launch(launch, shared, 0, launch.next(block{}, static_cast<int*>(shared)), last);
  }

 private:
  /// Ends: warps 2 and 3 end the launch while the others multiply.
  template <bool Ends, class Launch, int Buffers, class Tiles, class Source, class Sink, class Comm, class Epilogue>
  __device__ static void run_roles(void* shared, Launch& launch, sm90_operands<Buffers> const& x, Tiles const& tiles,
                                   Source source, Sink const& sink, Comm const& comm, Epilogue const& epilogue) {
    block const b;
    strided_range const share = round_robin(tiles.count(), cluster_index(), cluster_count());
    int const warp = wave{}.index();
    if (b.leader()) {
      prefetch(x.b.whole);
      prefetch(x.a[0].whole);
    }
    storage const s(shared, x.stages);
    int const split_k = cluster_size();
    if (warp == 1 && elect_one()) {
      for (int i = 0; i < x.stages.of_b; ++i) {
        s.full_a(i).init(1);
        s.full_b(i).init(1);
        s.empty(i).init(consumers::count);
      }
      s.free().init(split_k > 1 ? split_k - 1 : 1);
      s.whole().init(1);
      mbarrier::fence_init();
    }
    wave{}.sync();
    if (split_k > 1) cluster_arrive();
    if (warp < 2 || warp > 3) barriers_are_ready(warp);
    auto const begin = [&] { launch.begin(); };
    if (warp < 4) {
      if constexpr (moves_registers) decrease_registers<104>();
      if (warp == 0) {
        begin();
        loader::load_a(s, x.a, tiles, share, source);
        // Last, because this warp's loads are more urgent than waiting for the epoch
        if constexpr (Ends) epoch_is_known(launch);
      } else if (warp > 1) {
        comm(idle{}, b.index(), b.count(), begin);
        if constexpr (Ends) end_launch(launch);
      } else {
        if (!x.b_is_constant) wait_prior_grid();
        loader::load_b(s, x.b, x.columns, tiles, share, source);
        if constexpr (!Ends) begin();
      }
      wave{}.sync();
      if (split_k > 1) shared_tile::sync_cluster();
    } else {
      if constexpr (moves_registers) increase_registers<200>();
      begin();
      if constexpr (Ends) epoch_is_known(launch);
      multiply(s, split_k, source.steps(), tiles, share, sink, epilogue);
    }
    b.sync();
    // Not earlier: an idle warp would take registers back that the consumers have yet to get, and a warpgroup must sync
    // between two changes.
    if constexpr (moves_registers) {
      if (warp < 4) increase_registers<registers>();
      else decrease_registers<registers>();
    }
  }

  /// Arrives at epoch_known when this thread has the epoch, and not only its load in flight. Warps 2 and 3 wait there
  /// for all warps but warp 1, which needs no epoch.
  template <class Launch>
  __device__ static void epoch_is_known(Launch const& launch) {
    launch.wait_epoch();
    barrier_arrive<named_barrier::epoch_known, C.threads() - 32>();
  }
  template <class Launch>
  __device__ static void end_launch(Launch const& launch) {
    if (block{}.index() == 0) launch.wait_peers(idle{});
    launch.wait_epoch();
    barrier_sync<named_barrier::epoch_known, C.threads() - 32>();
    if (idle{}.leader()) launch.finish_exit(block{}, launch.arrive_exit());
  }

  static constexpr bool moves_registers = C.warpgroups() == 2;  // 384 threads: 168 each are too few for a tile's sums
  static constexpr int registers = 168;
  using atom =
      wgmma_atom<T, C.width(), C.swap_ab() && BOrder == layout::row_major, !C.swap_ab() && BOrder == layout::row_major>;
  static constexpr int b_bytes = C.b_bytes(BOrder);  // of a stage
  using storage = sm90_storage<C, b_bytes>;
  using loader = sm90_loader<storage, BlockN, BOrder, b_bytes>;
  using cursor = stage_cursor;
  using out = sm90_store<atom, C>;
  using shared_tile = sm90_split_k_tile<atom, C, storage, consumers>;

  /// Warp 1, which has initialised the mbarriers, tells warp 0 and the consumers, and does not wait: B is in flight
  /// before they are ready. Warps 2 and 3 do not use the mbarriers.
  __device__ static void barriers_are_ready(int warp) {
    if (warp == 1) barrier_arrive<named_barrier::mbarriers_ready, C.threads() - 64>();
    else barrier_sync<named_barrier::mbarriers_ready, C.threads() - 64>();
  }

  template <class Tiles, class Sink, class Epilogue>
  __device__ static void multiply(storage const& s, int split_k, int steps, Tiles const& tiles, strided_range share,
                                  Sink const& sink, Epilogue const& epilogue) {
    // The first row and the first column of this warpgroup's part of a tile
    int const first = (wave{}.index() / 4 - 1) * atom::m, row0 = C.swap_ab() ? 0 : first,
              column0 = C.swap_ab() ? first : 0;
    // Here, because its division runs while there is nothing to multiply yet
    auto const shared = shared_tile::rows_of(split_k, tiles, share, sink);
    cursor at, from;  // of B, of A
    // The sink is told of a tile when the next one is multiplied: by then what was stored has arrived, and nobody waits
    tile_coord before{};
    bool tells = false;
    auto const tell = [&] {
      if (tells) sink.stored(consumers{}, opaque(before), {{0, C.block_m}});
    };
    for (int const i : share) {
      tile_coord const tile = tiles[i];
      auto const c = sink.at(tile);
      decltype(auto) e = epilogue_of_tile(sink, tile, epilogue);
      constexpr int per_value = columns_of_value<std::remove_cvref_t<decltype(e)>>;
      int const m0 = tile.m * C.block_m, n0 = tile.n * C.block_n, columns = min(c.cols * per_value - n0, C.block_n);
      // This warpgroup's part lies outside C
      if (C.warpgroups() == 2 && split_k == 1 && (m0 + row0 >= c.rows || column0 >= columns)) {
        for (int step = 0; step < steps; ++step, at.next(s.stages.of_b), from.next(s.stages.of_a)) {
          s.full_b(at.stage).wait(at.parity);
          s.full_a(at.stage).wait(at.parity);
          wave{}.sync();  // all lanes have seen this phase: the next but one looks like it
          release(s.empty(at.stage));
        }
        tell();
        before = tile, tells = true;
        continue;
      }
      typename atom::c_fragment acc;
      int previous = 0;
      for (int step = 0; step < steps; ++step, at.next(s.stages.of_b), from.next(s.stages.of_a)) {
        s.full_b(at.stage).wait(at.parity);
        s.full_a(at.stage).wait(at.parity);
        std::uint64_t const a = matrix_descriptor(s.a(from.stage) + row0 * 128),
                            b = matrix_descriptor(s.b(at.stage) + column0 * 128, loader::swizzle_atom);
        wgmma_begin();
#pragma unroll
        for (int slice = 0; slice < sm90_step / atom::k; ++slice) {
          std::uint64_t const a16 = further(a, slice * 32),
                              b16 = further(b, slice * (BOrder == layout::row_major ? 2048 : 32));
          atom::multiply(acc, C.swap_ab() ? b16 : a16, C.swap_ab() ? a16 : b16, step > 0 || slice > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) release(s.empty(previous));
        previous = at.stage;
      }
      wgmma_wait<0>();
      atom::fence_accumulator(acc);
      release(s.empty(previous));
      if (split_k == 1) {
        tell();
        int const row = m0 + row0, column = n0 + column0, left = columns - column0;
        if constexpr (std::is_same_v<decltype(c), matrix<float> const> || per_value > 1) {
          out::store_sums(s.staging(wave{}.index() - 4), acc, row, column, left, c, e);
        } else {
          bytes16* const staging = s.staging(wave{}.index() - 4);
          bool const whole =
              row + (C.swap_ab() ? C.block_m : atom::m) <= c.rows && columns == C.block_n && is_row_aligned<16>(c);
          if (whole) out::template store<true>(staging, acc, row, column, left, c, e);
          else out::template store<false>(staging, acc, row, column, left, c, e);
        }
        before = tile, tells = true;
      } else {
        shared_tile::share(s, shared, acc, row0, column0, m0, n0, columns, c, e);
        sink.stored(consumers{}, opaque(tile), {shared.rows(shared.me), shared.me, split_k});
        return;
      }
    }
    tell();
    if (split_k > 1) shared_tile::sync_cluster();
  }

  /// This warp is done with a stage.
  __device__ static void release(mbarrier empty) {
    if (wave{}.leader()) empty.arrive();
  }
};

}  // namespace fusewire
