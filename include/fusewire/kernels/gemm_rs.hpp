// gemm_rs: C of rank r = rows of rank r of the sum over ranks of A [M, K] * B [K, N], one kernel launch per call. The kernel is in gemm_rs_kernels.hpp.
#pragma once
#include <fusewire/kernels/gemm_rs_kernels.hpp>
#include <fusewire/kernels/matrix_operand.hpp>
#include <fusewire/runtime/channel.hpp>

namespace fusewire {

struct gemm_rs_options {
  int max_m = 0;              // capacity: rows of A
  int max_n = 0;              // capacity: columns of B
  int k = 0;                  // columns of A, a multiple of 8: this rank's share of what is summed, as large on every rank
  gemm_tile tile = gemm_tile::automatic;
  int reserved_units = 0;     // compute units left to other work
};

/// One call. All ranks pass the same m, n and layout.
template <class T>
struct gemm_rs_call {
  matrix<T const> a;                   // [M, K]
  matrix<T const> b;                   // [K, N]; column-major: b.ld is the distance between columns
  matrix<T> c;                         // [rows of this rank, N]: rows [r R, (r + 1) R) of the sum, R = ceil(M / W); the last ranks may have fewer, or none
  int m = 0;                           // rows of A, 1 to max_m
  layout b_layout = layout::row_major;
};

/// A launch of gemm_rs in words, from what its header says.
inline std::string describe_gemm_rs(std::uint64_t const (&what)[launch_words]) {
  return text("gemm_rs ", what[1] & 1 ? "f16" : "bf16", ", m = ", what[2], ", n = ", what[3], ", k = ", what[4], what[1] >> 8 & 1 ? ", small tile" : ", large tile");
}

/// Sums are fp32, in the order of ranks: the same bits in every run. The epilogue sees the sum, with the row counted within this rank's rows.
template <class T>
  requires is_16_bit_float<T>
class gemm_rs {
 public:
  /// Collective. Loads the kernels of calls without an epilogue. Fails: bad_argument; out_of_space when the channel cannot hold the sums or their flags.
  gemm_rs(channel& ch, gemm_rs_options const& o, std::source_location where = std::source_location::current()) : ch_(ch), o_(o) {
    check(o, where);
    int const ranks = ch.world().size();
    require<out_of_space>(max_bytes(ranks, o) <= ch.options().max_bytes, where, "gemm_rs: sums of ", ranks, " ranks, ", ceil_div(o.max_m, ranks), " x ", o.max_n, " each, take ",
                          max_bytes(ranks, o), " bytes; the channel's max_bytes is ", ch.options().max_bytes);
    require<out_of_space>(flags_per_source(ranks, o) <= ch.options().flags_per_source, where, "gemm_rs: needs ", flags_per_source(ranks, o), " flags per source; the channel has ",
                          ch.options().flags_per_source);
    ch.heap().names().add_launch("gemm_rs", describe_gemm_rs);
    prepare<identity>(where);
    ch.world().barrier();
  }

  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, gemm_rs_options const& o) {
    return std::size_t(ranks) * std::size_t(ceil_div(o.max_m, ranks)) * std::size_t(owners_inbox::pitch(o.max_n)) * sizeof(float);
  }
  static int flags_per_source(int ranks, gemm_rs_options const& o) {
    int const rows = ceil_div(o.max_m, ranks);
    auto const tiles = [&](gemm_config const& c, int of_rows) { return std::int64_t(ceil_div(of_rows, c.block_m)) * ceil_div(o.max_n, c.block_n); };
    std::int64_t const small = use_small(o, rows) ? tiles(small_tile::config, rows) : tiles(small_tile::config, std::min(rows, few_rows));
    std::int64_t const flags = o.tile == gemm_tile::small ? small : o.tile == gemm_tile::large ? tiles(large_tile::config, rows) : std::max(small, tiles(large_tile::config, rows));
    return int(std::min(flags, std::int64_t(most)));
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <class Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    load_kernel(ch_.world(), &gemm_rs_kernel<T, small_tile, Epilogue>, small_tile::config.threads(), small_tile::config.shared_bytes(), where);
    load_kernel(ch_.world(), &gemm_rs_kernel<T, large_tile, Epilogue>, large_tile::config.threads(), large_tile::config.shared_bytes(), where);
  }

  /// Launches one kernel. Call it on every rank, in the same order; `stream` is the channel's one stream. Can be captured in a graph.
  /// Fails: bad_argument, before anything is launched.
  template <class Epilogue = identity>
  void operator()(hipStream_t stream, gemm_rs_call<T> const& call, Epilogue const& epilogue = {}, std::source_location where = std::source_location::current()) {
    check(call, where);
    if (use_small(o_, ceil_div(call.m, ch_.world().size()))) start<small_tile>(stream, call, epilogue, where);
    else start<large_tile>(stream, call, epilogue, where);
  }

  /// Rows of C that this rank owns, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m, std::source_location where = std::source_location::current()) const {
    accept(m, where);
    return row_shards(m, ch_.world().size(), 1).rows(ch_.world().rank());
  }

 private:
  static constexpr int most = 1 << 30;  // of any extent: sums of two fit an int
  static constexpr int few_rows = 64;   // of a rank, up to which small tiles are taken

  static bool use_small(gemm_rs_options const& o, int rows) { return o.tile == gemm_tile::small || (o.tile == gemm_tile::automatic && rows <= few_rows); }
  void accept(int m, std::source_location where) const { require(m >= 1 && m <= o_.max_m, where, "gemm_rs: m = ", m, "; 1 to max_m = ", o_.max_m, " is accepted"); }

  template <class Tile, class Epilogue>
  void start(hipStream_t stream, gemm_rs_call<T> const& call, Epilogue const& epilogue, std::source_location where) const {
    constexpr gemm_config C = Tile::config;
    auto const f = &gemm_rs_kernel<T, Tile, Epilogue>;
    world const& w = ch_.world();
    int const n = call.c.cols, n_tiles = ceil_div(n, C.block_n);
    row_shards const shards(call.m, w.size(), C.block_m);
    int const after = (w.rank() + 1) % w.size() * shards.tile_rows;  // the next rank's first tile row, if it has one
    gemm_rs_arguments<T> const g{{{call.a}, {call.b.data, call.b.ld, call.b_layout, n}}, call.c, shards,
                                 {shards.all_tile_rows(), n_tiles, after < shards.all_tile_rows() ? after : 0, 8}};
    int const fit = resident_blocks(w, f, C.threads(), C.shared_bytes(), o_.reserved_units, where);
    require(fit >= 1, where, "gemm_rs: no block of ", C.threads(), " threads and ", C.shared_bytes(), " bytes of shared memory fits on this rank's part of the device (",
            w.compute_units(), " units, ", o_.reserved_units, " reserved, ", w.ranks_on_device(), " ranks)");
    launch_header header = make_header("gemm_rs", std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(std::is_same_v<Tile, small_tile>) << 8, std::uint64_t(call.m), std::uint64_t(n),
                                       std::uint64_t(o_.k), 0, where);  // see describe_gemm_rs
    header.same_blocks = 0;  // a rank with less room takes fewer
    launch(w, stream, {.blocks = std::min(fit, g.tiles.count()), .threads = C.threads(), .shared_bytes = C.shared_bytes(), .where = where}, f, ch_.view(header), g, epilogue);
  }

  void check(gemm_rs_options const& o, std::source_location where) const {
    require(o.max_m >= 1 && o.max_m <= most, where, "gemm_rs: max_m = ", o.max_m, "; 1 to ", most, " is accepted");
    require(o.max_n >= 1 && o.max_n <= most, where, "gemm_rs: max_n = ", o.max_n, "; 1 to ", most, " is accepted");
    require(o.k >= 8 && o.k <= most && o.k % 8 == 0, where, "gemm_rs: k = ", o.k, "; a multiple of 8 up to ", most, " is accepted");
    require(o.tile == gemm_tile::automatic || o.tile == gemm_tile::small || o.tile == gemm_tile::large, where, "gemm_rs: tile = ", int(o.tile), "; a gemm_tile is accepted");
    require(o.reserved_units >= 0 && o.reserved_units < ch_.world().compute_units(), where, "gemm_rs: reserved_units = ", o.reserved_units, "; 0 to ", ch_.world().compute_units() - 1,
            " is accepted");
    std::int64_t const tiles = std::int64_t(ceil_div(o.max_m, small_tile::config.block_m) + ch_.world().size()) * ceil_div(o.max_n, small_tile::config.block_n);
    require(tiles <= most, where, "gemm_rs: max_m = ", o.max_m, " and max_n = ", o.max_n, " are up to ", tiles, " tiles; up to ", most, " are accepted");
  }

  void check(gemm_rs_call<T> const& call, std::source_location where) const {
    accept(call.m, where);
    int const rank = ch_.world().rank(), rows = this->rows(call.m, where), n = call.c.cols;
    require(call.a.rows == call.m && call.a.cols == o_.k, where, "gemm_rs: a is [", call.a.rows, ", ", call.a.cols, "]; [", call.m, ", ", o_.k, "] is accepted");
    require(n >= 1 && n <= o_.max_n && call.c.rows == rows, where, "gemm_rs: c is [", call.c.rows, ", ", n, "]; [", rows, ", 1 to max_n = ", o_.max_n, "] is accepted on rank ", rank);
    require(call.b.rows == o_.k && call.b.cols == n, where, "gemm_rs: b is [", call.b.rows, ", ", call.b.cols, "]; [", o_.k, ", ", n, "] is accepted");
    require(call.b_layout == layout::row_major || call.b_layout == layout::column_major, where, "gemm_rs: b_layout = ", int(call.b_layout), "; a layout is accepted");
    detail::check_matrix("gemm_rs: a", call.a.data, call.a.ld, o_.k, 8, where);
    if (call.b_layout == layout::column_major) detail::check_matrix("gemm_rs: b (column-major)", call.b.data, call.b.ld, o_.k, 8, where);
    else detail::check_matrix("gemm_rs: b (row-major)", call.b.data, call.b.ld, n, 1, where);
    if (rows > 0) detail::check_matrix("gemm_rs: c", call.c.data, call.c.ld, n, 1, where);
  }

  channel& ch_;
  gemm_rs_options o_;
};

}  // namespace fusewire
