// ag_gemm: C [M, N] = gather(A) [M, K] * B [K, N] on every rank, one kernel launch per call. The kernels are in ag_gemm_kernels.hpp.
#pragma once
#include <optional>

#include <fusewire/kernels/ag_gemm_call.hpp>
#include <fusewire/kernels/ag_gemm_kernels.hpp>
#include <fusewire/platform/architecture_kernels.hpp>
#include <fusewire/runtime/channel.hpp>

namespace fusewire {

/// A launch of ag_gemm in words, from what its header says.
inline std::string describe_ag_gemm(std::uint64_t const (&what)[launch_words]) {
  auto const variant = [&](int i) { return what[1] >> 8 * i & 255; };
  return text("ag_gemm ", variant(0) ? "pull" : "push", " gather::", gather(variant(1)) == gather::k ? "k" : "m", variant(3) ? " f16" : " bf16", ", m = ", what[2], ", n = ", what[3],
              ", k = ", what[4], variant(2) == 0 ? text(", large tile") : variant(2) == 1 ? text(", small tile") : text(", tile ", variant(5) * 8, " x ", variant(6) * 8, " in ", variant(4), " parts"),
              ", chunk_k = ", what[5]);
}

template <class T>
  requires is_16_bit_float<T>
class ag_gemm {
 public:
  /// Collective. Loads the kernels of calls without an epilogue. Fails: bad_argument; out_of_space when the channel cannot hold max_m x k elements or their flags.
  ag_gemm(channel& ch, ag_gemm_options const& o, std::source_location where = std::source_location::current()) : ch_(ch), o_(o) {
    int const ranks = ch.world().size();
    require(o.max_m >= 1 && o.max_m <= most, where, "ag_gemm: max_m = ", o.max_m, "; 1 to ", most, " is accepted");
    require(o.gather == gather::k || o.gather == gather::m, where, "ag_gemm: gather = ", int(o.gather), "; gather::k and gather::m are accepted");
    int const multiple = o.gather == gather::k ? 8 * ranks : 8;
    require(o.k >= 1 && o.k <= most && o.k % multiple == 0, where, "ag_gemm: k = ", o.k, "; a multiple of ", multiple, " up to ", most, " is accepted",
            o.gather == gather::k ? text(" for gather::k with ", ranks, " ranks") : "");
    require(o.comm_blocks >= 0, where, "ag_gemm: comm_blocks = ", o.comm_blocks, "; 0 (choose) or more is accepted");
    require(o.chunk_k >= 0 && o.chunk_k <= most && o.chunk_k % 8 == 0, where, "ag_gemm: chunk_k = ", o.chunk_k, "; 0 (choose) or a multiple of 8 up to ", most, " is accepted");
    require(o.method == method::push || o.method == method::pull || o.method == method::automatic, where, "ag_gemm: method = ", int(o.method), "; a method is accepted");
    require(o.tile == gemm_tile::automatic || o.tile == gemm_tile::small || o.tile == gemm_tile::large, where, "ag_gemm: tile = ", int(o.tile), "; a gemm_tile is accepted");
    require(o.reserved_units >= 0 && o.reserved_units < ch.world().compute_units(), where, "ag_gemm: reserved_units = ", o.reserved_units, "; 0 to ",
            ch.world().compute_units() - 1, " is accepted");
    std::size_t const inbox = std::size_t(o.max_m) * std::size_t(o.k) * sizeof(T);
    require<out_of_space>(inbox <= ch.options().max_bytes, where, "ag_gemm: the gathered A, ", o.max_m, " x ", o.k, ", takes ", inbox, " bytes; the channel's max_bytes is ",
                          ch.options().max_bytes);
    int const flags = least_flags(ranks, o);
    require<out_of_space>(flags <= ch.options().flags_per_source, where, "ag_gemm: needs ", flags, " flags per source; the channel has ", ch.options().flags_per_source);
    ch.heap().names().add_launch("ag_gemm", describe_ag_gemm);
    tuned_.emplace(ch, o);
    prepare<identity>(where);
    ch.world().exchange().barrier();
  }

  /// What channel_options::flags_per_source should be for these options: with less, down to what the constructor
  /// asks for, A travels in larger pieces. Requires: options that the constructor accepts.
  static int flags_per_source(int ranks, ag_gemm_options const& o) { return std::max(least_flags(ranks, o), tuned_ag_gemm<T>::flags_per_source(ranks, o)); }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <class Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    load_kernel(ch_.world(), &ag_gemm_kernel<T, small_tile, Epilogue>, small_tile::config.threads(), small_tile::config.shared_bytes(), where);
    load_kernel(ch_.world(), &ag_gemm_kernel<T, large_tile, Epilogue>, large_tile::config.threads(), large_tile::config.shared_bytes(), where);
    if (o_.tile == gemm_tile::automatic) tuned_->template prepare<Epilogue>(where);
  }

  /// Launches one kernel. Call it on every rank, in the same order; `stream` is the channel's one stream. Can be captured in a graph.
  /// After it, a may be overwritten by work on the stream.
  /// Fails: bad_argument, before anything is launched; as world::look().
  template <class Epilogue = identity>
  void operator()(hipStream_t stream, ag_gemm_call<T> const& call, Epilogue const& epilogue = {}, std::source_location where = std::source_location::current()) {
    check(call, where);
    bool const few = use_small(call.m), pull = use_pull(call.m, call.c.cols);
    gather_map const map = this->map(call.m);
    launch_header header = make_header("ag_gemm", std::uint64_t(pull) | std::uint64_t(o_.gather) << 8 | std::uint64_t(few) << 16 | std::uint64_t(std::is_same_v<T, f16>) << 24,
                                       std::uint64_t(call.m), std::uint64_t(call.c.cols), std::uint64_t(o_.k), std::uint64_t(map.chunk_k));  // see describe_ag_gemm
    header.same_blocks = 0;  // a rank with less room takes fewer
    if (pull) {
      std::size_t const bytes = map.rows(ch_.world().rank()) == 0 ? 0 : sizeof(T) * (std::size_t(call.a.rows - 1) * std::size_t(call.a.ld) + std::size_t(call.a.cols));
      header.mine[0] = bytes == 0 ? 0 : ch_.heap().offset_of(call.a.data, bytes, "ag_gemm: a (pull)", where);
      header.mine[1] = std::uint64_t(call.a.ld);
    }
    if (o_.tile == gemm_tile::automatic && tuned_->launch(stream, header, call, pull, epilogue, where)) return;
    if (few) start<small_tile>(stream, call, map, header, pull, epilogue, where);
    else start<large_tile>(stream, call, map, header, pull, epilogue, where);
  }

  /// Rows of A that this rank holds, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m) const {
    accept(m, std::source_location::current());
    return map(m).rows(ch_.world().rank());
  }

 private:
  static constexpr int most = 1 << 30;  // of any extent: sums of two fit an int

  void accept(int m, std::source_location where) const {
    require(m >= 1 && m <= o_.max_m, where, "ag_gemm: m = ", m, "; 1 to max_m = ", o_.max_m, " is accepted");
  }
  bool use_pull(int m, int n) const { return o_.method == method::pull || (o_.method == method::automatic && tuned_ag_gemm<T>::pull_is_faster(m, n, o_.k, ch_.world().size(), o_.gather)); }
  static bool use_small(ag_gemm_options const& o, int m) { return o.tile == gemm_tile::small || (o.tile == gemm_tile::automatic && m <= 64); }
  bool use_small(int m) const { return use_small(o_, m); }

  static gather_map map(int ranks, ag_gemm_options const& o, int m) {
    gemm_config const tile = use_small(o, m) ? small_tile::config : large_tile::config;
    return {o.gather, m, o.k, ranks, tile.block_m, o.chunk_k ? ceil_div(o.chunk_k, k_step) * k_step : m <= 512 ? 512 : 2048};
  }
  gather_map map(int m) const { return map(ch_.world().size(), o_, m); }

  /// Of the kernels that take any call.
  static int least_flags(int ranks, ag_gemm_options const& o) {
    std::int64_t flags = 0;
    for (int m = 1;; m = m > o.max_m / 2 ? o.max_m : 2 * m) {
      gather_map const g = map(ranks, o, m);
      flags = std::max(flags, std::int64_t(g.m_tiles()) * g.chunks());
      if (m >= o.max_m) return int(std::min(flags, std::int64_t(most)));
    }
  }

  template <class Tile, class Epilogue>
  void start(hipStream_t stream, ag_gemm_call<T> const& call, gather_map const& map, launch_header const& header, bool pull, Epilogue const& epilogue, std::source_location where) const {
    constexpr gemm_config C = Tile::config;
    auto const f = &ag_gemm_kernel<T, Tile, Epilogue>;
    int const rank = ch_.world().rank(), ranks = ch_.world().size();
    int const fit = resident_blocks(ch_.world(), f, C.threads(), C.shared_bytes(), o_.reserved_units, where);
    require(fit >= 1, where, "ag_gemm: no block of ", C.threads(), " threads and ", C.shared_bytes(), " bytes of shared memory fits on this rank's part of the device (",
            ch_.world().compute_units(), " units, ", o_.reserved_units, " reserved, ", ch_.world().ranks_on_device(), " ranks)");
    require(o_.comm_blocks <= fit, where, "ag_gemm: comm_blocks = ", o_.comm_blocks, "; at most ", fit, " blocks are resident at once");
    constexpr int band = 8;
    gather_order const order = order_of_gather(map, rank, pull, map.by == gather::k ? piece_order::nest::by_band : piece_order::nest::by_peer, band);
    int const comm_blocks = o_.comm_blocks ? o_.comm_blocks : std::max(1, std::min({order.pieces.count(), fit / 4, 8 * ranks}));
    channel_view const view = ch_.view(header);
    auto const inbox = [&](int slot) { return gathered_in(view.template slot<T const>(slot), map); };
    ag_gemm_arguments<T> const g{{call.a, map, order.pieces, pull, o_.own_shard_first}, {{call.a, inbox(0), inbox(1)}, {call.b.data, call.b.ld, call.b_layout, call.c.cols}}, call.c,
                                 {map.m_tiles(), ceil_div(call.c.cols, C.block_n), order.first_tile_row, band, order.first_band}, comm_blocks};
    int const least = pull ? ch_.world().dispatch_parts() : 1;  // begin_readable()
    fusewire::launch(ch_.world(), stream, {.blocks = std::min(fit, std::max(least, comm_blocks + g.tiles.count())), .threads = C.threads(), .shared_bytes = C.shared_bytes(), .where = where}, f, view, g, epilogue);
  }

  void check(ag_gemm_call<T> const& call, std::source_location where) const {
    int const rank = ch_.world().rank();
    accept(call.m, where);
    gather_map const g = map(call.m);
    int const rows = g.rows(rank), cols = g.cols();
    require(call.a.rows == rows && call.a.cols == cols, where, "ag_gemm: a is [", call.a.rows, ", ", call.a.cols, "]; [", rows, ", ", cols, "] is accepted on rank ", rank,
            " (", o_.gather == gather::k ? "gather::k: M, K/W" : "gather::m: rows of this rank, K", ")");
    int const n = call.c.cols;
    require(n >= 1 && n <= most && call.c.rows == call.m, where, "ag_gemm: c is [", call.c.rows, ", ", n, "]; [", call.m, ", 1 to ", most, "] is accepted");
    require(call.b.rows == o_.k && call.b.cols == n, where, "ag_gemm: b is [", call.b.rows, ", ", call.b.cols, "]; [", o_.k, ", ", n, "] is accepted");
    require(call.b_layout == layout::row_major || call.b_layout == layout::column_major, where, "ag_gemm: b_layout = ", int(call.b_layout), "; a layout is accepted");
    if (rows > 0) detail::check_matrix("ag_gemm: a", call.a.data, call.a.ld, cols, 8, where);
    if (call.b_layout == layout::column_major) detail::check_matrix("ag_gemm: b (column-major)", call.b.data, call.b.ld, o_.k, 8, where);
    else detail::check_matrix("ag_gemm: b (row-major)", call.b.data, call.b.ld, n, 1, where);
    detail::check_matrix("ag_gemm: c", call.c.data, call.c.ld, n, 1, where);
    detail::operand const read[] = {detail::operand_of("a", call.a), detail::operand_of("b", call.b, call.b_layout)}, written[] = {detail::operand_of("c", call.c)};
    detail::check_operands("ag_gemm", written, read, where);
    std::int64_t const tiles = std::int64_t(ceil_div(call.m, small_tile::config.block_m)) * ceil_div(n, small_tile::config.block_n), pieces = std::int64_t(g.most_tile_rows()) * g.chunks() * g.ranks;
    require(tiles <= most && pieces <= most, where, "ag_gemm: c is [", call.m, ", ", n, "], up to ", tiles, " tiles, and A travels in ", pieces, " pieces; up to ", most, " of each are accepted");
  }

  channel& ch_;
  ag_gemm_options o_;
  std::optional<tuned_ag_gemm<T>> tuned_;  // made when the options are known to be good
};

}  // namespace fusewire
