// The Hopper mainloop: C = A [M, K] * B [K, N] by persistent blocks with one warpgroup that loads and two that multiply.
//
//   warp 0           source: wait until a step of A is there --> copy engine: A --> full_a
//   warp 1           copy engine: B --> full_b; as far ahead as there are stages for B, so before the first of A is there, too
//   warps 2, 3       what the caller wants done beside it
//   consumer 0, 1    wait full_a, full_b --> wgmma on its half of the tile, one group in flight --> empty
//   shared memory    | A: stages | B: stages | one slab per consumer warp: C on its way out | full_a, full_b, empty; free, whole: of sums |
//
// A half is 64 rows of a tile: wgmma takes 64 rows of one operand and any multiple of 8 of the other. In a turned tile it is 64 columns, as
// C^T = B^T A^T, and the rows are the multiple: M = 320, N = 8192 are 128 tiles of 160 x 128, one for nearly every SM.
// Where a consumer's half lies outside of C, it gives the stages back as they come.
// Stages go round through all tiles of the block: while the consumers store a tile, the loaders fill the stages of the next.
// Where tiles are few, the blocks of a cluster share one: each multiplies its part of the steps along k, sends every other block its sums of that
// one's rows of the tile, and adds up its own rows from all parts, in their order.
//
// Deadlock: warp 0 waits for the source and for consumers, warp 1 for consumers and what it has loaded, consumers for both, and for those of the
// other parts. The source must not wait for anything that a later tile of this block makes, nor for what its cluster does after its tile.
// Drain: after a source that gave up, warp 0 goes on as after any other. Every load that was started completes on its barrier, from memory that may
// hold anything, consumers take it and arrive at `empty`, and no role ends before its last step.
// Reuse: a stage is loaded again when every consumer warp has arrived at its `empty`, which a warp does after its multiplications that read
// the stage are complete. A may have fewer stages than B: a step's place for A is then that of an earlier step, whose `empty` is waited for instead;
// no later step of that barrier can be complete before this one's A is there, so its parity tells.
// A block's sums overwrite its stages when all steps of its only tile are complete in both consumers, and those of the others when it has told
// them so (free). It ends when what it has sent is there.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/tile/gemm_config_sm90.hpp>
#include <fusewire/tile/tiles.hpp>
#include <fusewire/tile/wgmma_sm90.hpp>

namespace fusewire {

/// What the copy engine reads in a launch: the buffers of A, in boxes of sm90_stages::rows rows, and B.
template <int Buffers>
struct sm90_operands {
  box_maps a[Buffers], b;
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

template <class T, sm90_gemm_config C, layout BOrder>
class gemm_sm90 {
 public:
  static constexpr int block_k = 64;
  // Of the tensor maps: boxes of A are rows x 64 k; of a row-major B 64 k x 64 n, of a column-major one n x 64 k.
  static constexpr int b_box_rows = BOrder == layout::row_major ? block_k : C.block_n;
  static constexpr int last_b_box_rows(int n) { return BOrder == layout::row_major ? block_k : last_box_rows(n, C.block_n); }
  static_assert(C.turned() ? C.block_n == 128 : C.block_m == 64 || C.block_m == 128);

  using consumers = warps<4, C.warpgroups() * 4>;
  using beside = warps<2, 2>;

  /// For an A of m rows. Where blocks share a tile, B waits for the first of A: then most of the memory is B's, that of the slabs too, which are not used.
  __host__ __device__ static constexpr sm90_stages stages(int m, int parts, int b_in_flight, int b_at_first = 0) {
    int const rows = box_rows(m, C.block_m), bytes = C.stage_bytes() + (parts > 1 ? C.slabs_bytes() : 0);
    int const both = bytes / (rows * 128 + b_bytes), most_of_a = parts > 1 ? 6 : C.most_stages, of_a = both < most_of_a ? both : most_of_a;
    int const fit = (bytes - of_a * rows * 128) / b_bytes, of_b = fit < C.most_stages ? fit : C.most_stages;
    int const in_flight = b_in_flight > 0 && b_in_flight < of_b ? b_in_flight : of_b;
    return {rows, of_a, of_b, in_flight, b_at_first > 0 && b_at_first < in_flight ? b_at_first : in_flight};
  }
  __host__ __device__ static constexpr tile_order tiles(int m, int n, int first_m, int band, int first_band = 0) {
    return {ceil_div(m, C.block_m), ceil_div(n, C.block_n), first_m, band, first_band};
  }

  /// For each tile i of `share`: c(r, j) = T(epilogue(sum over k of A(r, k) * B(k, j), r, j)) on the tile's part of c; `other(beside{})`
  /// at the same time, by 64 threads. `start()`: what must come before A is asked for; called once by every other thread but those of warp 1. `asked()`: called by
  /// those of warp 0 when all of A has been asked for.
  /// Called by: every thread of every block of a cluster, with equal `tiles` and `share` in all its blocks.
  /// Warp 0 asks the source for A; what of it concerns B is asked by warp 1, which runs ahead. The sink hears of a tile from the consumers, `columns` is C's.
  /// Requires: a kernel with __launch_bounds__(C.threads(), 1), launched with C.threads() threads; if the cluster has several blocks, at most one
  /// tile in `share`, and can_share() of it; `x`: a kernel parameter; its b made by make_box_maps() with b_box_rows and last_b_box_rows(columns) of the matrix whose
  /// rows are contiguous in B's memory; C.shared_bytes() bytes at `shared`. B is read at once if `b_is_there`, else after wait_for_stream().
  template <int Buffers, tile_source Source, tile_sink Sink, class Start, class Asked, class Other, class Epilogue>
  __device__ static void run(void* shared, sm90_stages const& stages, sm90_operands<Buffers> const& x, bool b_is_there, tile_order const& tiles, strided share, Source source, Sink const& sink,
                             int columns, Start const& start, Asked const& asked, Other const& other, Epilogue const& epilogue) {
    storage const s(shared, stages);
    int const parts = cluster_size();
    int const warp = wave{}.index();
    if (warp == 1 && elect_one()) {
      for (int i = 0; i < stages.of_b; ++i) {
        s.full_a(i).init(1);
        s.full_b(i).init(1);
        s.empty(i).init(consumers::count);
      }
      s.free().init(parts > 1 ? parts - 1 : 1);
      s.whole().init(1);
      mbarrier::fence_init();
    }
    wave{}.sync();
    if (parts > 1) cluster_arrive();
    if (warp < 2 || warp > 3) barriers_are_ready(warp);
    if (warp < 4) {
      if constexpr (moves_registers) give_registers<104>();
      if (warp == 0) {
        start();
        load_a(s, x.a, tiles, share, source);
        asked();
      } else if (warp > 1) {
        other(beside{});
      } else {
        if (!b_is_there) wait_for_stream();
        load_b(s, x.b, columns, tiles, share, source);
      }
      wave{}.sync();
      if (parts > 1) meet_parts();
    } else {
      if constexpr (moves_registers) take_registers<200>();
      start();
      multiply(s, parts, source.steps(), tiles, share, sink, epilogue);
    }
    block{}.sync();
    // Not before: a warp with nothing to do would take back what the consumers have yet to take, and a warpgroup must meet between two changes.
    if constexpr (moves_registers) {
      if (warp < 4) take_registers<registers>();
      else give_registers<registers>();
    }
  }

 private:
  static constexpr bool moves_registers = C.warpgroups() == 2;  // 384 threads have 168 each, too few for a tile's sums
  static constexpr int registers = 168;
  using atom = wgmma_atom<T, C.width(), C.turned() && BOrder == layout::row_major, !C.turned() && BOrder == layout::row_major>;
  static constexpr int b_bytes = C.b_bytes(BOrder);  // of a stage
  static constexpr int chunk = 64 * block_k * 2;   // bytes of 64 n of a row-major B's stage
  static constexpr int row_bytes = C.sum_pitch() * 4;  // of sums

  /// Warps 2 and 3 have nothing to do with them, and warp 1, which made them, need not wait: B is on its way before the others are ready.
  __device__ static void barriers_are_ready(int warp) {
    if (warp == 1) asm volatile("bar.arrive 1, %0;" ::"n"(C.threads() - 64) : "memory");
    else asm volatile("bar.sync 1, %0;" ::"n"(C.threads() - 64) : "memory");
  }

  /// Where things are in shared memory.
  struct storage {
    sm90_stages const& stages;
    std::byte* base;
    shared_address_t at;  // of base
    int a_bytes;

    __device__ storage(void* shared, sm90_stages const& stages) : stages(stages), a_bytes(stages.rows * 128) {
      base = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(shared) + 1023) / 1024 * 1024);
      at = shared_address(base);
      asm volatile("" : "+r"(at));  // computed here, not again in every loop
    }
    __device__ shared_address_t a(int stage) const { return at + stage * a_bytes; }
    __device__ shared_address_t b(int stage) const { return at + stages.of_a * a_bytes + stage * b_bytes; }
    __device__ mbarrier full_a(int stage) const { return {at + barriers_at + stage * 8}; }
    __device__ mbarrier full_b(int stage) const { return {at + barriers_at + (C.most_stages + stage) * 8}; }
    __device__ mbarrier empty(int stage) const { return {at + barriers_at + (2 * C.most_stages + stage) * 8}; }
    __device__ bytes16* slab(int consumer) const { return reinterpret_cast<bytes16*>(base + C.stage_bytes() + consumer * C.slab_bytes); }
    __device__ shared_address_t sum(int row) const { return at + row * row_bytes; }  // of a row of sums, in place of the stages
    __device__ mbarrier free() const { return {at + barriers_at + 3 * C.most_stages * 8}; }       // the other parts' stages
    __device__ mbarrier whole() const { return {at + barriers_at + 3 * C.most_stages * 8 + 8}; }  // this part's rows of sums

    static constexpr int barriers_at = C.stage_bytes() + C.slabs_bytes();
  };

  /// Place in a ring of stages.
  struct cursor {
    int stage = 0, parity = 0;
    __device__ void next(int stages) {
      bool const round = ++stage == stages;
      stage = round ? 0 : stage;
      parity ^= round;
    }
  };

  template <class Source>
  __device__ static void load_a(storage const& s, box_maps const* a, tile_order const& tiles, strided share, Source& source) {
    cursor at, to, used{s.stages.of_b - s.stages.of_a, 1};  // `used`: the step before in the same place, of_a steps ago
    for (int const i : share) {
      int const rows = source.begin(tiles[i].m), bytes = box_rows(rows, C.block_m) * 128;
      auto place = source.first();
      for (int left = source.steps(); left > 0;) {
        k_run const there = source.wait(place);
        CUtensorMap const& map = rows < C.block_m ? a[there.buffer].last : a[there.buffer].whole;
        for (int i = 0, column = there.column; i < there.count; ++i, column += block_k, at.next(s.stages.of_b), to.next(s.stages.of_a), used.next(s.stages.of_b)) {
          s.empty(used.stage).wait(used.parity);
          if (elect_one()) {
            s.full_a(at.stage).expect(bytes);
            load_box(s.a(to.stage), map, column, there.row, s.full_a(at.stage));
          }
        }
        source.advance(place, there.count);
        left -= there.count;
      }
    }
  }

  template <class Source>
  __device__ static void load_b(storage const& s, box_maps const& b, int columns, tile_order const& tiles, strided share, Source const& source) {
    cursor at, landed;
    int ahead = s.stages.b_at_first, asked = 0;  // `ahead` more may be asked for before one has landed
    for (int const i : share) {
      int const n = tiles[i].n * C.block_n, pieces = columns - n < C.block_n ? ceil_div(columns - n, 64) : b_bytes / chunk;
      CUtensorMap const& map = n + C.block_n > columns ? b.last : b.whole;
      int const bytes = BOrder == layout::row_major ? pieces * chunk : box_rows(columns - n, C.block_n) * 128;
      auto place = source.first();
      for (int left = source.steps(); left > 0;) {
        int const count = source.left(place);
        for (int nth = 0, k = source.k(place); nth < count; ++nth, k += block_k, at.next(s.stages.of_b)) {
          mbarrier const full = s.full_b(at.stage);
          s.empty(at.stage).wait(at.parity ^ 1);
          if (++asked == C.b_start) ahead += s.stages.b_in_flight - s.stages.b_at_first;
          if (ahead > 0) {
            --ahead;
          } else {
            s.full_b(landed.stage).wait(landed.parity);
            landed.next(s.stages.of_b);
          }
          if (elect_one()) {
            full.expect(bytes);
            if constexpr (BOrder == layout::column_major) {
              load_box(s.b(at.stage), map, k, n, full);
            } else {
#pragma unroll
              for (int j = 0; j < b_bytes / chunk; ++j)
                if (j < pieces) load_box(s.b(at.stage) + j * chunk, map, n + j * 64, k, full);
            }
          }
        }
        source.advance(place, count);
        left -= count;
      }
    }
  }

  template <class Sink, class Epilogue>
  __device__ static void multiply(storage const& s, int parts, int steps, tile_order const& tiles, strided share, Sink const& sink, Epilogue const& epilogue) {
    int const first = (wave{}.index() / 4 - 1) * atom::m, row0 = C.turned() ? 0 : first, column0 = C.turned() ? first : 0;  // of the tile's, which are this warpgroup's
    shared_rows const shared = rows_of_parts(parts, tiles, share, sink);  // a division, done before there is anything to multiply
    cursor at, from;  // of B, of A
    for (int const i : share) {
      tile_at const tile = tiles[i];
      matrix<T> const c = sink.at(tile);
      int const m0 = tile.m * C.block_m, n0 = tile.n * C.block_n, columns = c.cols - n0 < C.block_n ? c.cols - n0 : C.block_n;
      if (C.warpgroups() == 2 && parts == 1 && (m0 + row0 >= c.rows || column0 >= columns)) {  // this warpgroup's part is not there
        for (int step = 0; step < steps; ++step, at.next(s.stages.of_b), from.next(s.stages.of_a)) {
          s.full_b(at.stage).wait(at.parity);
          s.full_a(at.stage).wait(at.parity);
          wave{}.sync();  // all lanes have seen this phase: the next but one looks like it
          release(s.empty(at.stage));
        }
        sink.stored(consumers{}, tile);
        continue;
      }
      typename atom::c_fragment acc;
      int previous = 0;
      for (int step = 0; step < steps; ++step, at.next(s.stages.of_b), from.next(s.stages.of_a)) {
        s.full_b(at.stage).wait(at.parity);
        s.full_a(at.stage).wait(at.parity);
        std::uint64_t const a = matrix_descriptor(s.a(from.stage) + row0 * 128), b = matrix_descriptor(s.b(at.stage) + column0 * 128, chunk);
        wgmma_begin();
#pragma unroll
        for (int slice = 0; slice < block_k / atom::k; ++slice) {
          std::uint64_t const a16 = further(a, slice * 32), b16 = further(b, slice * (BOrder == layout::row_major ? 2048 : 32));
          atom::multiply(acc, C.turned() ? b16 : a16, C.turned() ? a16 : b16, step > 0 || slice > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) release(s.empty(previous));
        previous = at.stage;
      }
      wgmma_wait<0>();
      atom::settle(acc);
      release(s.empty(previous));
      if (parts == 1) {
        bytes16* const slab = s.slab(wave{}.index() - 4);
        if (m0 + row0 + (C.turned() ? C.block_m : atom::m) <= c.rows && columns == C.block_n && rows_aligned(c)) store<true>(slab, acc, m0 + row0, n0 + column0, columns - column0, c, epilogue);
        else store<false>(slab, acc, m0 + row0, n0 + column0, columns - column0, c, epilogue);
        sink.stored(consumers{}, tile);
      } else {
        share_sums(s, shared, acc, row0, column0, m0, n0, columns, c, epilogue);
        sink.stored(consumers{}, tile);
        return;
      }
    }
    if (parts > 1) meet_parts();
  }

  __device__ static bool rows_aligned(matrix<T> c) { return (c.ld % 8 | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) & 15)) == 0; }

  /// Twice: barriers are there, sums are there. For warps that have none.
  __device__ static void meet_parts() {
    cluster_wait();
    cluster_arrive();
    cluster_wait();
  }

  /// Which rows of sums are whose, in a tile that is shared: part p gets rows [p * each, (p + 1) * each). A block has its own sums of all rows,
  /// and behind them what the others send of its rows.
  struct shared_rows {
    int parts, me, rows, each;

    __device__ int count(int part) const { return rows - part * each < each ? rows - part * each : each; }  // or less than 1
    __device__ int received(int from, int by) const { return rows + (from < by ? from : from - 1) * each; }
  };

  template <class Sink>
  __device__ static shared_rows rows_of_parts(int parts, tile_order const& tiles, strided share, Sink const& sink) {
    if (parts == 1 || share.first >= share.last) return {parts, 0, 0, 0};
    tile_at const tile = tiles[share.first];
    int const below = sink.at(tile).rows - tile.m * C.block_m, rows = below < C.block_m ? below : C.block_m;
    return {parts, cluster_rank(), rows, ceil_div(rows, parts)};
  }

  /// Every part sends the others its sums of their rows, adds up those of its own rows in the order of parts, and stores them.
  template <class Epilogue>
  __device__ static void share_sums(storage const& s, shared_rows const& r, typename atom::c_fragment const& acc, int row0, int column0, int m0, int n0, int columns, matrix<T> c,
                                    Epilogue const& epilogue) {
    int const mine = r.count(r.me);
    cluster_wait();
    if (consumers{}.leader()) s.whole().expect(mine > 0 ? (r.parts - 1) * mine * row_bytes : 0);  // before anybody sends
    consumers{}.sync();  // all multiplications are done
    if (consumers{}.rank() < r.parts && consumers{}.rank() != r.me) s.free().arrive_at(consumers{}.rank());  // what read the stages is complete, and nothing is published
    keep(s, acc, row0, column0, r.rows);
    fence_copy_engine_shared();
    consumers{}.sync();
    if (wave{}.index() == 4) {
      s.free().wait(0);
#pragma unroll 1
      for (int to = 0; to < r.parts; ++to)
        if (to != r.me && r.count(to) > 0 && elect_one()) copy_to_block(to, s.sum(r.received(r.me, to)), s.sum(to * r.each), r.count(to) * row_bytes, s.whole());
    }
    s.whole().wait(0);
    cluster_arrive();
    if (mine > 0) {
      if (r.parts == 2) add_parts<2>(s, r, m0 + r.me * r.each, mine, n0, columns, c, epilogue);
      else add_parts<0>(s, r, m0 + r.me * r.each, mine, n0, columns, c, epilogue);
    }
    cluster_wait();  // what this block has sent is there
  }

  /// Leaves this warpgroup's sums, from that row and column of the tile on, of which there are `rows` rows.
  __device__ static void keep(storage const& s, typename atom::c_fragment const& acc, int row0, int column0, int rows) {
    int const thread = block{}.rank() % 128;
    if constexpr (C.turned()) {
#pragma unroll
      for (int v = 0; v < atom::c_values; ++v) {
        int const row = v / 4 * 8 + atom::c_col(thread) + v % 2;
        if (row < rows) store_shared(s.sum(row) + (column0 + atom::c_row(thread) + v / 2 % 2 * 8) * 4, acc[v]);
      }
    } else {
      int const row = row0 + atom::c_row(thread);
#pragma unroll
      for (int v = 0; v < atom::c_values; v += 2)
        if (row + v / 2 % 2 * 8 < rows) store_shared(s.sum(row) + atom::c_col(thread) * 4 + v / 2 % 2 * 8 * row_bytes + v / 4 * 32, {acc[v], acc[v + 1]});
    }
  }

  /// Adds up this part's `rows` rows of a tile, from row m0 of c on. Parts: how many, 0: any number up to 8.
  template <int Parts, class Epilogue>
  __device__ static void add_parts(storage const& s, shared_rows const& r, int m0, int rows, int n0, int columns, matrix<T> c, Epilogue const& epilogue) {
    constexpr int most = Parts ? Parts : 8, at_once = 8 / most, per_row = C.block_n / 4;  // a unit is 4 columns
    int const parts = Parts ? Parts : r.parts, units = rows * per_row;
    bool const aligned = rows_aligned(c);
    shared_address_t sums[most];
#pragma unroll
    for (int p = 0; p < most; ++p) sums[p] = s.sum(p == r.me ? r.me * r.each : r.received(p, r.me));
#pragma unroll 1
    for (int first = consumers{}.rank(); first < units; first += at_once * consumers{}.size()) {
      float4 part[at_once][most];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const u = first + i * consumers{}.size(), at = u / per_row * row_bytes + u % per_row * 16;
#pragma unroll
        for (int p = 0; p < most; ++p)
          if (p < parts && u < units) part[i][p] = load_shared(sums[p] + at);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const u = first + i * consumers{}.size(), row = u / per_row, column = u % per_row * 4, left = columns - column;
        if (u >= units) break;
        float sum[4] = {};
#pragma unroll
        for (int p = 0; p < most; ++p)
          if (p < parts) {
            sum[0] += part[i][p].x;
            sum[1] += part[i][p].y;
            sum[2] += part[i][p].z;
            sum[3] += part[i][p].w;
          }
        T* const to = c.at(m0 + row, n0 + column);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < left) sum[e] = epilogue(sum[e], m0 + row, n0 + column + e);
        if (aligned && left >= 4) {
          *reinterpret_cast<uint2*>(to) = {pack(sum[0], sum[1]), pack(sum[2], sum[3])};
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (e < left) to[e] = T(sum[e]);
        }
      }
    }
  }

  /// This warp is done with a stage.
  __device__ static void release(mbarrier empty) {
    if (wave{}.leader()) empty.arrive();
  }

  __device__ static std::uint32_t pack(float low, float high) {
    std::uint32_t two;
    if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
  }

  /// Four 8 x 8 matrices of 16 bits, as wgmma leaves them; each lane has the address of a row, or if Transposed of a column.
  template <bool Transposed>
  __device__ static void store_matrices(shared_address_t at, std::uint32_t const (&four)[4]) {
    if constexpr (Transposed) asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3]) : "memory");
    else asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3]) : "memory");
  }

  /// This warpgroup's part of a tile, from c(m0, n0) on; `columns` of the tile's are left from there on. A warp's 16 rows leave in pieces of 64 columns through its
  /// slab, or if turned its 16 columns in pieces of 64 rows. The slab's 16-byte units are turned by row off each other's banks.
  template <bool Whole, class Epilogue>
  __device__ static void store(bytes16* slab, typename atom::c_fragment const& acc, int m0, int n0, int columns, matrix<T> c, Epilogue const& epilogue) {
    int const thread = block{}.rank() % 128, lane = wave{}.rank(), warp0 = thread / 32 * 16;
    bool const aligned = Whole || rows_aligned(c);
    shared_address_t const slab_at = shared_address(slab);
    auto const value = [&](int v) {
      int const down = atom::c_row(thread) + v / 2 % 2 * 8, right = v / 4 * 8 + atom::c_col(thread) + v % 2;
      int const row = m0 + (C.turned() ? right : down), col = C.turned() ? down : right;
      return Whole || (row < c.rows && col < columns) ? epilogue(acc[v], row, n0 + col) : 0.0f;
    };
    // Turned, rows of a multiplication are columns of C, and are written as such: a slab's row is two units of a warp's 16.
    auto const unit_at = [](int row, int unit) { return C.turned() ? row * 2 + (unit ^ (row / 4 & 1)) : row * 8 + (unit ^ (row & 7)); };
#pragma unroll
    for (int piece = 0; piece < ceil_div(C.width(), 64); ++piece) {
      int const left = C.width() - piece * 64 < 64 ? C.width() - piece * 64 : 64;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        if (pair * 16 >= left) continue;
        int const v = piece * 32 + pair * 8;
        std::uint32_t const four[] = {pack(value(v), value(v + 1)), pack(value(v + 2), value(v + 3)), pack(value(v + 4), value(v + 5)), pack(value(v + 6), value(v + 7))};
        if constexpr (C.turned()) store_matrices<true>(slab_at + unit_at(pair * 16 + lane / 16 * 8 + lane % 8, lane / 8 % 2) * 16, four);
        else store_matrices<false>(slab_at + unit_at(lane % 16, pair * 2 + lane / 16) * 16, four);
      }
      wave{}.sync();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const r = C.turned() ? i * 16 + lane / 2 : i * 4 + lane / 8, unit = C.turned() ? lane % 2 : lane % 8;
        bytes16 const eight = slab[unit_at(r, unit)];
        if (C.turned() ? i * 16 >= left : unit * 8 >= left) continue;
        int const row = m0 + (C.turned() ? piece * 64 : warp0) + r, col = (C.turned() ? warp0 : piece * 64) + unit * 8;
        if (Whole || (aligned && row < c.rows && col + 8 <= columns)) {
          *reinterpret_cast<bytes16*>(c.at(row, n0 + col)) = eight;
        } else if (row < c.rows) {
#pragma unroll
          for (int e = 0; e < 8; ++e)
            if (col + e < columns) c.at(row, n0 + col + e)->bits = std::uint16_t(eight.word[e / 2] >> e % 2 * 16);
        }
      }
      wave{}.sync();
    }
  }
};

}  // namespace fusewire
