// What ag_gemm and nodes_ag_gemm check alike, and choose alike: options, calls and plans of so many ranks.
#pragma once
#include <algorithm>
#include <optional>

#include <fusewire/gemm/gemm_launcher.hpp>
#include <fusewire/ops/ag_gemm_call.hpp>
#include <fusewire/ops/detail/ag_gemm_kernel.hpp>
#include <fusewire/ops/detail/ag_gemm_plan.hpp>
#include <fusewire/ops/detail/gemm_launch.hpp>

namespace fusewire::detail {

/// An operator's ranks, as A is gathered from them.
struct ag_gemm_ranks {
  static constexpr int fixed_chunk_k = 512;  // elements, of a fixed order

  char const* name;  // of the operator, in messages
  ag_gemm_options o;
  int ranks, rank;
  int flags;  // that a source may raise in a launch

  /// Of the constructor. Fails: bad_argument.
  template <class T>
  void check_options(std::source_location where) const {
    require(o.max_m >= 1 && o.max_m <= max_extent, where, name, ": max_m = ", o.max_m, "; expected 1 to ", max_extent);
    require(o.gather == gather::k || o.gather == gather::m, where, name, ": gather = ", int(o.gather),
            "; expected gather::k or gather::m");
    int const multiple = o.gather == gather::k ? 8 * ranks : 8;
    require(o.k >= 1 && o.k <= max_extent && o.k % multiple == 0, where, name, ": k = ", o.k,
            "; expected a multiple of ", multiple, " up to ", max_extent,
            o.gather == gather::k ? text(" for gather::k with ", ranks, " ranks") : "");
    require(o.comm_blocks >= 0, where, name, ": comm_blocks = ", o.comm_blocks, "; expected 0 (choose) or more");
    require(o.comm_blocks == 0 || o.tile.generic || tuned_mainloops<T>::comm == comm_placement::leading_blocks, where,
            name, ": comm_blocks = ", o.comm_blocks, "; expected 0: tuned mainloops have warps that move A, and only ",
            "those of gemm_tile::small and gemm_tile::large have blocks for it");
    require(o.chunk_k >= 0 && o.chunk_k <= max_extent && o.chunk_k % 8 == 0, where, name, ": chunk_k = ", o.chunk_k,
            "; expected 0 (choose) or a multiple of 8 up to ", max_extent);
    require(o.method == method::push || o.method == method::pull || o.method == method::automatic, where, name,
            ": method = ", int(o.method), "; expected a value of fusewire::method");
  }
  /// Of a call. Fails: bad_argument.
  template <class Epilogue, class T>
  void check_call(ag_gemm_call<T> const& call, std::source_location where) const {
    accept(call.m, where);
    gather_map const g = map_of(std::max(1, call.m), plain_plan(call.m));
    int const rows = call.m == 0 ? 0 : g.rows(rank), cols = g.cols();
    require(call.a.rows == rows && call.a.cols == cols, where, name, ": a is [", call.a.rows, ", ", call.a.cols,
            "]; expected [", rows, ", ", cols, "] on rank ", rank, " (",
            o.gather == gather::k ? "gather::k: M, K/W" : "gather::m: rows of this rank, K", ")");
    constexpr int most = max_extent / columns_of_value<Epilogue>;
    int const columns = call.c.cols;
    require(columns >= 1 && columns <= most && call.c.rows == call.m, where, name, ": c is [", call.c.rows, ", ",
            columns, "]; expected [", call.m, ", 1 to ", most, "]");
    int const n = columns * columns_of_value<Epilogue>;
    check_gemm(name, call, o.k, n, where);
    std::int64_t const tiles = std::int64_t(ceil_div(call.m, small_tile::config.block_m)) *
                               ceil_div(n, small_tile::config.block_n),
                       chunks = std::int64_t(g.max_m_tiles()) * g.k_chunks() * g.ranks;
    require(tiles <= max_extent && chunks <= max_extent, where, name, ": c is [", call.m, ", ", n, "], up to ", tiles,
            " tiles, and A travels in ", chunks, " chunks; expected up to ", max_extent, " of each");
  }
  /// Of a number of rows. Fails: bad_argument.
  void accept(int m, std::source_location where) const {
    require(m >= 0 && m <= o.max_m, where, name, ": m = ", m, "; expected 0 to max_m = ", o.max_m);
  }
  /// Rows of A that this rank holds, of `m` in all. Fails: bad_argument.
  int rows(int m, std::source_location where) const {
    accept(m, where);
    return m == 0 ? 0 : gather_map(o.gather, m, o.k, ranks, 1, o.k).rows(rank);
  }

  /// A plan for block_mainloop.
  ag_gemm_plan plain_plan(int m) const {
    ag_gemm_plan p{.gemm = plain_gemm_plan(o.tile, m),
                   .chunk_k = o.chunk_k  ? ceil_div(o.chunk_k, k_step) * k_step
                              : m <= 512 ? 512
                                         : 2048};
    p.chunks = o.gather == gather::k ? chunk_order::nest::by_group : chunk_order::nest::by_peer;
    return p;
  }
  /// How a plan cuts A.
  gather_map map_of(int m, ag_gemm_plan const& p) const { return {o.gather, m, o.k, ranks, p.gemm.tile_m, p.chunk_k}; }
  /// The plan of a call for `launcher`: a tuned one, unless the options name a generic tile, or tuned mainloops cannot
  /// read B, or there are too few flags. pulls(n): whether the call pulls. Fails: bad_argument.
  template <class Kernels, class T, class Pulls>
  ag_gemm_plan const& plan(gemm_launcher<T, ag_gemm_plan>& launcher, Kernels const& kernels,
                           ag_gemm_call<T> const& call, Pulls const& pulls, std::source_location where) const {
    auto const make = [&](char const* why_not, gemm_shape const& shape, auto const& groups) {
      if (!why_not)
        if (auto const tuned = tuned_plan<T>(shape, pulls(shape.n), groups)) return *tuned;
      ag_gemm_plan plain = plain_plan(call.m);
      plain.gemm.why_not_tuned = why_not ? why_not : "the channel has too few flags for it, or its chunks are too many";
      return plain;
    };
    return launcher.plan(kernels, problem(call), make, where);
  }
  /// What a call multiplies.
  template <class T>
  gemm_problem<T> problem(ag_gemm_call<T> const& call) const {
    int const shards = o.gather == gather::k ? ranks : 1;
    gemm_problem<T> p = problem_of(call, call.m, 1, shards);
    p.a_ld = std::max(p.a_ld, std::int64_t(o.k / shards));  // of the inbox
    return p;
  }

  /// Flags that the mainloops need which take any call.
  int min_flags() const {
    std::int64_t most = 0;
    for (int m = 1;; m = m > o.max_m / 2 ? o.max_m : 2 * m) {
      gather_map const g = map_of(m, plain_plan(m));
      most = std::max(most, std::int64_t(g.m_tiles()) * g.k_chunks());
      if (m >= o.max_m) return int(std::min(most, std::int64_t(max_extent)));
    }
  }
  /// Enough for the chunks of any tuned plan.
  template <class T>
  int tuned_flags() const {
    if constexpr (!tuned_mainloops<T>::any) return 0;
    return gather_map(o.gather, o.max_m, o.k, ranks, o.max_m <= 64 ? 64 : 128,
                      std::max(k_step, ceil_div(o.chunk_k, k_step) * k_step))
        .flags_per_source();
  }

 private:
  template <class T, class Groups>
  std::optional<ag_gemm_plan> tuned_plan(gemm_shape const& shape, bool pull, Groups const& groups) const {
    int const m = shape.rows;
    auto p = tuned_ag_gemm_plan(shape, ranks, o.gather, pull, o.comm_blocks, groups);
    if (!p) return p;
    bool const fixed = o.tile.fixed_order;  // then chunks, whose order is that of the sums, are as for max_m rows
    if (o.chunk_k > 0 || fixed) p->chunk_k = ceil_div(o.chunk_k > 0 ? o.chunk_k : fixed_chunk_k, k_step) * k_step;
    int const most = fixed ? o.max_m : m;
    while (map_of(most, *p).flags_per_source() > flags && p->chunk_k < o.k) p->chunk_k *= 2;
    gather_map const map = map_of(most, *p);
    if (with_mainloop<T>(p->gemm, shape.b_layout,
                         [&]<class M>() { return M::traits.slicing == k_slicing::interleaved; }))
      p->gemm.split_k = std::min(p->gemm.split_k, map.k_chunks() * shape.k_shards);
    // The shards' rows, one below the other, and the chunks of all are numbered with an int.
    bool const fits = map.flags_per_source() <= flags && map.m <= max_extent / map.ranks &&
                      std::int64_t(map.max_m_tiles()) * map.k_chunks() <= max_extent / map.ranks;
    return fits ? p : std::nullopt;
  }
};

}  // namespace fusewire::detail
