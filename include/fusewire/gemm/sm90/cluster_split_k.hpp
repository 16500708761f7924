// Split-k in a cluster: its blocks share a tile, each multiplies its slice of the steps along k, and they add up their
// partial sums through shared memory.
#pragma once
#include <fusewire/gemm/raster_order.hpp>
#include <fusewire/gemm/sm90/pipeline.hpp>
#include <fusewire/gemm/sm90/tile_store.hpp>

namespace fusewire {

/// Storage: sm90_storage, whose stages the sums overwrite. Consumers: the warps that multiply.
template <class Atom, sm90_gemm_config C, class Storage, class Consumers>
struct sm90_split_k_tile {
  /// Syncs with the other blocks twice, as share() does: when the barriers are initialised, and when the sums have
  /// arrived. For warps without sums.
  __device__ static void sync_cluster() {
    cluster_wait();
    cluster_arrive();
    cluster_wait();
  }

  /// Which sums of a shared tile lie where. Part p owns rows(p). A block's shared memory holds its own sums of all
  /// rows, and behind them the sums of its rows that the others send.
  struct sum_rows {
    int split_k, me, all, each;  // blocks of the cluster; this one; rows of the tile; most rows of a slice

    __device__ index_range rows(int slice) const { return fixed_slice(all, each, slice); }
    /// The row of sums in block `by` from which on it receives those of block `from`.
    __device__ int received(int from, int by) const { return all + (from < by ? from : from - 1) * each; }
  };

  /// The sum_rows of this block's tile. split_k: blocks of the cluster.
  template <class Tiles, class Sink>
  __device__ static sum_rows rows_of(int split_k, Tiles const& tiles, strided_range share, Sink const& sink) {
    if (split_k == 1 || share.first >= share.last) return {split_k, 0, 0, 0};
    tile_coord const tile = tiles[share.first];
    int const rows = min(sink.at(tile).rows - tile.m * C.block_m, C.block_m);
    return {split_k, cluster_rank(), rows, ceil_slice(rows, split_k, 0).size()};
  }

  /// Every block sends the others its sums of their rows. It adds up the sums of its own rows in the order of the k
  /// slices, and stores epilogue(sum).
  template <class Out, class Epilogue>
  __device__ static void share(Storage const& s, sum_rows const& r, typename Atom::c_fragment const& acc, int row0,
                               int column0, int m0, int n0, int columns, matrix<Out> c, Epilogue const& epilogue) {
    index_range const mine = r.rows(r.me);
    cluster_wait();
    if (Consumers{}.leader())
      s.whole().expect((r.split_k - 1) * mine.size() * C.row_bytes());  // before other blocks send
    Consumers{}.sync();                                                 // all multiplications are done
    // Relaxed, because all reads of the stages are complete, and no data is published
    if (Consumers{}.rank() < r.split_k && Consumers{}.rank() != r.me) s.free().arrive_at(Consumers{}.rank());
    keep(s, acc, row0, column0, r.all);
    fence_async_shared();
    Consumers{}.sync();
    if (wave{}.index() == 4) {
      s.free().wait(0);
#pragma unroll 1
      for (int to = 0; to < r.split_k; ++to)
        if (to != r.me && r.rows(to).size() > 0 && elect_one())
          copy_to_block(to, s.sum(r.received(r.me, to)), s.sum(r.rows(to).begin), r.rows(to).size() * C.row_bytes(),
                        s.whole());
    }
    s.whole().wait(0);
    cluster_arrive();
    if (mine.size() > 0) {
      if (r.split_k == 2) reduce_slices<2>(s, r, m0 + mine.begin, mine.size(), n0, columns, c, epilogue);
      else reduce_slices<0>(s, r, m0 + mine.begin, mine.size(), n0, columns, c, epilogue);
    }
    cluster_wait();  // the sums that this block has sent have arrived
  }

  /// Stores this warpgroup's sums to shared memory. They begin at row row0 and column column0 of the tile, which has
  /// `rows` rows.
  __device__ static void keep(Storage const& s, typename Atom::c_fragment const& acc, int row0, int column0, int rows) {
    int const thread = block{}.rank() % 128;
    if constexpr (C.swap_ab()) {
#pragma unroll
      for (int v = 0; v < Atom::c_values; ++v) {
        int const row = v / 4 * 8 + Atom::c_col(thread) + v % 2;
        if (row < rows) store_shared(s.sum(row) + (column0 + Atom::c_row(thread) + v / 2 % 2 * 8) * 4, acc[v]);
      }
    } else {
      int const row = row0 + Atom::c_row(thread);
#pragma unroll
      for (int v = 0; v < Atom::c_values; v += 2)
        if (row + v / 2 % 2 * 8 < rows)
          store_shared(s.sum(row) + Atom::c_col(thread) * 4 + v / 2 % 2 * 8 * C.row_bytes() + v / 4 * 32,
                       {acc[v], acc[v + 1]});
    }
  }

  /// Adds up and stores this block's `rows` rows of a tile, from row m0 of c on. SplitK: blocks of the cluster; 0: any
  /// number up to 8.
  template <int SplitK, class Out, class Epilogue>
  __device__ static void reduce_slices(Storage const& s, sum_rows const& r, int m0, int rows, int n0, int columns,
                                       matrix<Out> c, Epilogue const& epilogue) {
    constexpr int max_slices = SplitK ? SplitK : 8, at_once = 8 / max_slices,
                  per_row = C.block_n / 4;  // a unit is 4 columns
    int const split_k = SplitK ? SplitK : r.split_k, units = rows * per_row;
    bool const aligned = is_row_aligned<16>(c);
    shared_address_t sums[max_slices];
#pragma unroll
    for (int p = 0; p < max_slices; ++p) sums[p] = s.sum(p == r.me ? r.rows(p).begin : r.received(p, r.me));
#pragma unroll 1
    for (int first = Consumers{}.rank(); first < units; first += at_once * Consumers{}.size()) {
      float4 partial[at_once][max_slices];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const u = first + i * Consumers{}.size(), at = u / per_row * C.row_bytes() + u % per_row * 16;
#pragma unroll
        for (int p = 0; p < max_slices; ++p)
          if (p < split_k && u < units) partial[i][p] = load_shared(sums[p] + at);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const u = first + i * Consumers{}.size(), row = u / per_row, column = u % per_row * 4,
                  left = columns - column;
        if (u >= units) break;
        float sum[4] = {};
#pragma unroll
        for (int p = 0; p < max_slices; ++p)
          if (p < split_k) {
            sum[0] += partial[i][p].x;
            sum[1] += partial[i][p].y;
            sum[2] += partial[i][p].z;
            sum[3] += partial[i][p].w;
          }
        if constexpr (pair_epilogue<Epilogue>) {
          store_vec4(c, m0 + row, n0 + column, {sum[0], sum[1], sum[2], sum[3]}, aligned, epilogue);
        } else {
          Out* const to = c.at(m0 + row, n0 + column);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (e < left) sum[e] = epilogue(sum[e], m0 + row, n0 + column + e);
          if (aligned && left >= 4) {
            if constexpr (std::is_same_v<Out, float>) *reinterpret_cast<float4*>(to) = {sum[0], sum[1], sum[2], sum[3]};
            else *reinterpret_cast<uint2*>(to) = {detail::pack<Out>(sum[0], sum[1]), detail::pack<Out>(sum[2], sum[3])};
          } else {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              if (e < left) to[e] = Out(sum[e]);
          }
        }
      }
    }
  }
};

}  // namespace fusewire
