// The host side that operators which add up the products of all ranks share.
#pragma once
#include <fusewire/kernels/matrix_operand.hpp>
#include <fusewire/kernels/partial_sums.hpp>
#include <fusewire/runtime/channel.hpp>

namespace fusewire::detail {

/// Options: max_m, max_n, k, tile, reserved_units.
template <class T, class Options>
  requires is_16_bit_float<T>
class sum_operator {
 public:
  static constexpr int most = 1 << 30;  // of any extent: sums of two fit an int
  static constexpr int few_rows = 64;   // of a shard, up to which small tiles are taken

  static bool use_small(Options const& o, int rows) { return o.tile == gemm_tile::small || (o.tile == gemm_tile::automatic && rows <= few_rows); }

  /// At least as many as a shard of up to `rows` rows has.
  static int most_tiles(Options const& o, int rows) {
    auto const tiles = [&](gemm_config const& c, int of_rows) { return std::int64_t(ceil_div(of_rows, c.block_m)) * ceil_div(o.max_n, c.block_n); };
    std::int64_t count = tiles(large_tile::config, rows);
    if (use_small(o, rows)) count = tiles(small_tile::config, rows);
    else if (o.tile == gemm_tile::automatic) count = std::max(count, tiles(small_tile::config, few_rows));  // of calls with fewer rows
    return int(std::min<std::int64_t>(most, count));
  }
  /// Of a channel's slot: fp32 sums [sources][rows][max_n].
  static std::size_t bytes_of_sums(Options const& o, int sources, int rows) {
    return std::size_t(sources) * std::size_t(rows) * std::size_t(owners_inbox::pitch(o.max_n)) * sizeof(float);
  }

 protected:
  /// `bytes`, `flags`: what the channel must have.
  sum_operator(char const* name, channel& ch, Options const& o, std::source_location where) : name_(name), ch_(ch), o_(o) {
    int const units = ch.world().compute_units();
    require(o.max_m >= 1 && o.max_m <= most, where, name, ": max_m = ", o.max_m, "; 1 to ", most, " is accepted");
    require(o.max_n >= 1 && o.max_n <= most, where, name, ": max_n = ", o.max_n, "; 1 to ", most, " is accepted");
    require(o.k >= 8 && o.k <= most && o.k % 8 == 0, where, name, ": k = ", o.k, "; a multiple of 8 up to ", most, " is accepted");
    require(o.tile == gemm_tile::automatic || o.tile == gemm_tile::small || o.tile == gemm_tile::large, where, name, ": tile = ", int(o.tile), "; a gemm_tile is accepted");
    require(o.reserved_units >= 0 && o.reserved_units < units, where, name, ": reserved_units = ", o.reserved_units, "; 0 to ", units - 1, " is accepted");
    std::int64_t const tiles = std::int64_t(ceil_div(o.max_m, small_tile::config.block_m) + ch.world().size()) * ceil_div(o.max_n, small_tile::config.block_n);
    require(tiles <= most / 2, where, name, ": max_m = ", o.max_m, " and max_n = ", o.max_n, " are up to ", tiles, " tiles; up to ", most / 2, " are accepted");
  }

  void require_room(std::size_t bytes, int flags, std::source_location where) const {
    require<out_of_space>(bytes <= ch_.options().max_bytes, where, name_, ": sums of ", ch_.world().size(), " ranks for max_m = ", o_.max_m, " and max_n = ", o_.max_n, " take ", bytes,
                          " bytes; the channel's max_bytes is ", ch_.options().max_bytes);
    require<out_of_space>(flags <= ch_.options().flags_per_source, where, name_, ": needs ", flags, " flags per source; the channel has ", ch_.options().flags_per_source);
  }

  void accept(int m, std::source_location where) const { require(m >= 1 && m <= o_.max_m, where, name_, ": m = ", m, "; 1 to max_m = ", o_.max_m, " is accepted"); }

  /// `rows`: of this rank's c.
  template <class Call>
  void check(Call const& call, int rows, std::source_location where) const {
    std::string const name = name_;
    int const n = call.c.cols;
    require(call.a.rows == call.m && call.a.cols == o_.k, where, name, ": a is [", call.a.rows, ", ", call.a.cols, "]; [", call.m, ", ", o_.k, "] is accepted");
    require(n >= 1 && n <= o_.max_n && call.c.rows == rows, where, name, ": c is [", call.c.rows, ", ", n, "]; [", rows, ", 1 to max_n = ", o_.max_n, "] is accepted on rank ",
            ch_.world().rank());
    require(call.b.rows == o_.k && call.b.cols == n, where, name, ": b is [", call.b.rows, ", ", call.b.cols, "]; [", o_.k, ", ", n, "] is accepted");
    require(call.b_layout == layout::row_major || call.b_layout == layout::column_major, where, name, ": b_layout = ", int(call.b_layout), "; a layout is accepted");
    check_matrix((name + ": a").c_str(), call.a.data, call.a.ld, o_.k, 8, where);
    if (call.b_layout == layout::column_major) check_matrix((name + ": b (column-major)").c_str(), call.b.data, call.b.ld, o_.k, 8, where);
    else check_matrix((name + ": b (row-major)").c_str(), call.b.data, call.b.ld, n, 1, where);
    if (rows > 0) check_matrix((name + ": c").c_str(), call.c.data, call.c.ld, n, 1, where);
    operand const read[] = {operand_of("a", call.a), operand_of("b", call.b, call.b_layout)}, written[] = {operand_of("c", call.c)};
    check_operands(name_, written, read, where);
  }

  /// Launches `kernel`, whose tiles are Tile's, with as many blocks as fit and have something to do. `variant`: what else the ranks
  /// have to agree on; it stands in the header.
  template <class Tile, class Arguments, class Call, class Epilogue>
  void start(hipStream_t stream, void (*kernel)(channel_view, Arguments, Epilogue), Call const& call, row_shards const& shards, int first_tile_row, std::uint64_t variant,
             Epilogue const& epilogue, std::source_location where) const {
    constexpr gemm_config C = Tile::config;
    world const& w = ch_.world();
    int const n = call.c.cols;
    Arguments const g{{{call.a}, {call.b.data, call.b.ld, call.b_layout, n}}, call.c, shards, {shards.all_tile_rows(), ceil_div(n, C.block_n), first_tile_row, 8}};
    int const fit = resident_blocks(w, kernel, C.threads(), C.shared_bytes(), o_.reserved_units, where);
    require(fit >= 1, where, name_, ": no block of ", C.threads(), " threads and ", C.shared_bytes(), " bytes of shared memory fits on this rank's part of the device (", w.compute_units(),
            " units, ", o_.reserved_units, " reserved, ", w.ranks_on_device(), " ranks)");
    launch_header header = make_header(name_, std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(std::is_same_v<Tile, small_tile>) << 8 | variant << 16, std::uint64_t(call.m),
                                       std::uint64_t(n), std::uint64_t(o_.k), 0, where);
    header.same_blocks = 0;  // a rank with less room takes fewer
    launch(w, stream, {.blocks = std::min(fit, g.tiles.count()), .threads = C.threads(), .shared_bytes = C.shared_bytes(), .where = where}, kernel, ch_.view(header), g, epilogue);
  }

  /// A launch in words, from what its header says.
  static std::string describe(std::string const& name, std::uint64_t const (&what)[launch_words]) {
    return text(name, what[1] & 1 ? " f16" : " bf16", ", m = ", what[2], ", n = ", what[3], ", k = ", what[4], what[1] >> 8 & 1 ? ", small tile" : ", large tile");
  }

  template <class Tile, class... P>
  void load(void (*kernel)(P...), std::source_location where) const {
    load_kernel(ch_.world(), kernel, Tile::config.threads(), Tile::config.shared_bytes(), where);
  }

  char const* name_;
  channel& ch_;
  Options o_;
};

}  // namespace fusewire::detail
