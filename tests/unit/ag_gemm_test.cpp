// All-gather + GEMM against a reference on the host. Small integers: fp32 sums are exact, and results that 8 bits hold
// are exact in bf16, so == needs no tolerance.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/copy_gathered.hpp>

#include <chrono>
#include <cmath>
#include <thread>

#include "batch_invariance.hpp"
#include "counted.hpp"
#include "reference/products.hpp"
#include "simulator.hpp"
#include "streams.hpp"

using namespace support;

namespace {

/// One multiplication: its shape and what is in A and B.
struct problem {
  int m, n, k;
  layout b_layout;
  unsigned seed;

  float a(int i, int j) const { return a_of(seed, 0, i, j); }
  float b(int j, int column) const { return b_of(seed, 0, j, column); }
  float c(int i, int column) const { return product_of(seed, 0, k, i, column); }
};

/// One rank's memory for problems up to a capacity, and one call on it.
template <class T>
struct gemm_rank {
  rank_of_test& r;
  sym<T> a, b, c;

  gemm_rank(rank_of_test& rank, int max_m, int max_n, int max_k)
      : r(rank), a(r.heap.allocate<T>(std::size_t(max_m * max_k))), b(r.heap.allocate<T>(std::size_t(max_n * max_k))),
        c(r.heap.allocate<T>(std::size_t(max_m * max_n))) {}

  gather_map shard(problem const& p, gather by) const { return {by, p.m, p.k, r.size(), 128, 512}; }

  std::vector<T> a_values(problem const& p, gather by) const {
    gather_map const map = shard(p, by);
    int const rows = map.rows(r.rank()), cols = map.cols();
    std::vector<T> v(std::size_t(rows * cols));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        v[std::size_t(i * cols + j)] = T(p.a(map.first_row(r.rank()) + i, map.first_col(r.rank()) + j));
    return v;
  }
  std::vector<T> b_values(problem const& p) const {
    std::vector<T> v(std::size_t(p.k * p.n));
    for (int j = 0; j < p.k; ++j)
      for (int col = 0; col < p.n; ++col)
        v[std::size_t(p.b_layout == layout::row_major ? j * p.n + col : col * p.k + j)] = T(p.b(j, col));
    return v;
  }
  ag_gemm_call<T> call(problem const& p, gather by) const {
    gather_map const map = shard(p, by);
    int const rows = map.rows(r.rank()), cols = map.cols();
    return {.a = {r.here(a), rows, cols, cols},
            .b = {r.here(b), p.k, p.n, p.b_layout == layout::row_major ? p.n : p.k},
            .c = {r.here(c), p.m, p.n, p.n},
            .m = p.m,
            .b_layout = p.b_layout};
  }
  /// Uploads, launches, overwrites A immediately, and compares.
  template <class Epilogue = identity, class Wanted = float (*)(float, int, int)>
  void run(
      ag_gemm<T>& op, problem const& p, gather by, Epilogue const& epilogue = {},
      Wanted wanted = [](float x, int, int) { return x; }) {
    r.upload(a_values(p, by), a);
    r.upload(b_values(p), b);
    r.fill(c, 0xff);
    op(r.stream, call(p, by), epilogue);
    check_hip(hipMemsetAsync(r.here(a), 0xff, a.count * sizeof(T), r.stream), "hipMemsetAsync");
    r.world.check(r.stream);
    compare(p, wanted);
  }
  template <class Wanted>
  void compare(problem const& p, Wanted wanted) {
    auto const found = r.download(static_cast<T const*>(r.here(c)), std::size_t(p.m * p.n));
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.n; ++j) {
        float const f = float(found[std::size_t(i * p.n + j)]), w = float(T(wanted(p.c(i, j), i, j)));
        if (!r.found.expect(f == w, "m ", p.m, " n ", p.n, " k ", p.k,
                            p.b_layout == layout::row_major ? " row" : " column", ": c(", i, ", ", j, ") = ", f,
                            ", wanted ", w))
          return;
      }
  }
};

problem random_problem(lcg& random, int max_m, int max_n, int k) {
  return {1 + random.below(random.below(2) ? max_m : 8), 1 + random.below(max_n), k,
          random.below(2) ? layout::row_major : layout::column_major, random()};
}

channel_options small_channel() { return {.max_bytes = 1_MiB, .flags_per_source = 256}; }

template <class T>
void random_shapes(int ranks, int launches, int max_m, int max_n, gemm_tile tile = gemm_tile::automatic) {
  auto const by = GENERATE(gather::k, gather::m);
  auto const how = GENERATE(method::push, method::pull);
  CAPTURE(ranks, int(by), int(how));
  on_ranks(ranks, [&](rank_of_test& r) {
    lcg random{unsigned(ranks * 4 + int(by) * 2 + int(how))};
    int const k = by == gather::k ? 8 * r.size() * (1 + random.below(24)) : 8 * (1 + random.below(24 * r.size()));
    gemm_rank<T> g(r, max_m, max_n, k);
    channel ch(r.heap, small_channel());
    ag_gemm<T> op(
        ch, {.max_m = max_m, .k = k, .gather = by, .method = how, .tile = tile, .chunk_k = 64 * (1 + random.below(3))});
    for (int i = 0; i < launches; ++i) g.run(op, random_problem(random, max_m, max_n, k), by);
  });
}

/// Of a tile that the options name, and of sender blocks.
void named_plans(gemm_tile const& tile, int comm_blocks, int m) {
  auto const by = GENERATE(gather::k, gather::m);
  CAPTURE(int(by), tile.m, tile.n, tile.split_k, comm_blocks);
  on_ranks(2, [&](rank_of_test& r) {
    int const n = 104, k = 1024;
    gemm_rank<bf16> g(r, m, n, k);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = m, .k = k, .gather = by, .tile = tile, .comm_blocks = comm_blocks});
    for (unsigned seed = 0; seed < 2; ++seed) {
      problem const p{m - int(seed), n, k, layout::column_major, seed};
      std::string const said = op.describe(g.call(p, by));
      r.found.expect(said.find(text("tiles of ", tile.m, " x ", tile.n)) != std::string::npos &&
                         said.find("not a tuned") == std::string::npos &&
                         (said.find(text("split-k ", tile.split_k)) != std::string::npos) == (tile.split_k > 1),
                     said, "; wanted the tile ", tile.m, " x ", tile.n, ", split-k ", tile.split_k);
      g.run(op, p, by);
    }
  });
}

/// Computes C again and again, each copy below the last, by a block that overwrites its shared memory after each
/// store().
__global__ void __launch_bounds__(small_tile::config.threads())
    multiply_and_scribble(matrix<bf16 const> a, b_operand<bf16> b, matrix<bf16> c, int times) {
  extern __shared__ bytes16 shared[];
  block const all;
  for (int i = 0; i < times; ++i) {
    block_gemm<bf16, small_tile::config>::accumulator acc;
    block_gemm<bf16, small_tile::config> mainloop(shared, acc);
    mainloop.run(a, b, 0, 0);
    mainloop.finish();
    mainloop.store(c.submatrix(i * a.rows, 0, a.rows, c.cols), 0, 0, identity{});
    shared[all.size() - 1 - all.rank()] = {{~0u, ~0u, ~0u, ~0u}};
    all.sync();
  }
}

}  // namespace

TEST_CASE("ag_gemm: random shapes, 1 to 8 ranks, bf16", "[ag_gemm][long]") {
  random_shapes<bf16>(GENERATE(1, 2, 3, 4, 5, 6, 7, 8), 5, 150, 200);
}
TEST_CASE("ag_gemm: random shapes, f16", "[ag_gemm][long]") { random_shapes<f16>(GENERATE(1, 3, 8), 5, 150, 200); }
TEST_CASE("ag_gemm: a tile that the options name", "[ag_gemm]") {
  auto const& tiles = tuned_mainloops<bf16>::tiles;
  auto const& few = *std::find_if(std::begin(tiles), std::end(tiles), [](auto const& t) { return t.block_m == 64; });
  auto const& many = *std::find_if(std::begin(tiles), std::end(tiles), [](auto const& t) { return t.block_m > 64; });
  if constexpr (tuned_mainloops<bf16>::comm == comm_placement::leading_blocks) {
    named_plans({few.block_m, few.block_n, 2}, 3, 50);
    named_plans({many.block_m, many.block_n, 3}, 1, 140);
    named_plans({many.block_m, many.block_n, 3}, 12, 140);  // more sender blocks than chunks
  }
  named_plans({few.block_m, few.block_n, 1}, 0, 50);
  named_plans({many.block_m, many.block_n, 1}, 0, 140);
}
TEST_CASE("ag_gemm: few sender blocks push many chunks, of any width", "[ag_gemm]") {
  auto const& tiles = tuned_mainloops<bf16>::tiles;
  auto const& many = *std::find_if(std::begin(tiles), std::end(tiles), [](auto const& t) { return t.block_m > 64; });
  auto const by = GENERATE(gather::k, gather::m);
  int const chunk_k = GENERATE(0, 1024, 2304);  // the last is wider than half a block's words
  CAPTURE(int(by), chunk_k);
  on_ranks(3, [&](rank_of_test& r) {
    int const m = 140, n = 104, k = 3000;  // the last chunk of a shard is narrower
    gemm_rank<bf16> g(r, m, n, k);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = m,
                          .k = k,
                          .gather = by,
                          .method = method::push,
                          .tile = {many.block_m, many.block_n, 1},
                          .comm_blocks = tuned_mainloops<bf16>::comm == comm_placement::leading_blocks ? 1 : 0,
                          .chunk_k = chunk_k});
    std::string const said = op.describe(g.call({m, n, k, layout::column_major, 0}, by));
    r.found.expect(said.find("not a tuned") == std::string::npos, said, "; wanted a tuned mainloop");
    for (unsigned seed = 0; seed < 2; ++seed) g.run(op, {m, n, k, layout::column_major, seed}, by);
  });
}
TEST_CASE("ag_gemm: the small tile at any m", "[ag_gemm]") { random_shapes<bf16>(2, 5, 150, 100, gemm_tile::small); }
TEST_CASE("ag_gemm: the large tile at any m", "[ag_gemm]") { random_shapes<bf16>(2, 5, 150, 100, gemm_tile::large); }

TEST_CASE("ag_gemm: blocks share tiles, each with its range of k", "[ag_gemm][long]") {
  auto const by = GENERATE(gather::k, gather::m);
  auto const how = GENERATE(method::push, method::pull);
  CAPTURE(int(by), int(how));
  on_ranks(3, [&](rank_of_test& r) {
    int const k = 1992;  // shards and chunks end within a step
    gemm_rank<bf16> g(r, 200, 136, k);
    ag_gemm_options const o{.max_m = 200, .k = k, .gather = by, .method = how};
    channel ch(r.heap, {.max_bytes = 1_MiB, .flags_per_source = ag_gemm<bf16>::flags_per_source(r.size(), o)});
    ag_gemm<bf16> op(ch, o);
    for (layout const b : {layout::column_major, layout::row_major})
      for (int const m : {3, 16, 40, 64, 100, 200}) g.run(op, {m, 136, k, b, unsigned(m)}, by);
  });
}

TEST_CASE("ag_gemm: blocks that share tiles have every compute unit, and none is left to move A", "[ag_gemm]") {
  int const ranks = GENERATE(1, 2);
  auto const how = GENERATE(method::push, method::pull, method::automatic);
  on_ranks(ranks, [&](rank_of_test& r) {
    constexpr int max_n = 192, k = 2048;
    gemm_rank<bf16> g(r, 128, max_n, k);
    channel ch(r.heap, small_channel());
    int const all = r.world.compute_units(), sharing = r.world.ranks_on_device();
    for (int const units : {8, 16, 24}) {
      if (units * sharing > all) continue;
      ag_gemm<bf16> op(ch, {.max_m = 128, .k = k, .method = how, .reserved_cus = all - units * sharing});
      for (int const m : {16, 128})
        for (int const n : {32, 96, 192}) g.run(op, {m, n, k, layout::column_major, unsigned(m + n)}, gather::k);
    }
  });
}

TEST_CASE("ag_gemm: the edges of tiles", "[ag_gemm]") {
  on_ranks(2, [&](rank_of_test& r) {
    int const k = 80;
    gemm_rank<bf16> g(r, 129, 129, k);
    channel ch(r.heap, small_channel());
    for (auto how : {method::push, method::pull}) {
      ag_gemm<bf16> op(ch, {.max_m = 129, .k = k, .gather = gather::m, .method = how});
      for (int m : {1, 31, 32, 33, 64, 65, 127, 128, 129})
        for (int n : {1, 63, 64, 65, 128, 129})
          g.run(op, {m, n, k, m % 2 ? layout::row_major : layout::column_major, unsigned(m * n)}, gather::m);
    }
  });
}

TEST_CASE("ag_gemm: shards of whole tiles, in a channel that is just large enough", "[ag_gemm]") {
  auto const by = GENERATE(gather::k, gather::m);
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(2, [&](rank_of_test& r) {
    int const m = 64, k = 256, chunk_k = 64, tiles = m / small_tile::config.block_m,
              chunks = (by == gather::k ? k / 2 : k) / chunk_k;
    gemm_rank<bf16> g(r, m, 24, k);
    channel ch(r.heap, {.max_bytes = m * k * 2, .flags_per_source = tiles * chunks});
    ag_gemm<bf16> op(ch,
                     {.max_m = m, .k = k, .gather = by, .method = how, .tile = gemm_tile::small, .chunk_k = chunk_k});
    for (unsigned seed = 0; seed < 3; ++seed) g.run(op, {m, 24, k, layout::row_major, seed}, by);
  });
}

TEST_CASE("ag_gemm: a channel with as many flags as it asks for", "[ag_gemm]") {
  auto const by = GENERATE(gather::k, gather::m);
  on_ranks(2, [&](rank_of_test& r) {
    int const m = 129, k = 256;
    gemm_rank<bf16> g(r, m, 24, k);
    ag_gemm_options const o{.max_m = m, .k = k, .gather = by};
    int const flags = ag_gemm<bf16>::flags_per_source(2, o), most = 2 * (by == gather::k ? k / 2 : k) / 64;
    r.found.expect(flags >= 1 && flags <= most, flags, " flags for two M tiles of pieces, at most ", most, " of them");
    channel ch(r.heap, {.max_bytes = m * k * 2, .flags_per_source = flags});
    ag_gemm<bf16> op(ch, o);
    for (int i : {1, 64, m}) g.run(op, {i, 24, k, layout::column_major, unsigned(i)}, by);
  });
}

TEST_CASE("ag_gemm: every tile of C is taken once, in whole groups of M tiles and in a last one; an epilogue",
          "[ag_gemm]") {
  on_ranks(2, [&](rank_of_test& r) {
    int const max_m = 300, n = 130, k = 32;
    gemm_rank<bf16> g(r, max_m, n, k);
    auto const calls = r.heap.allocate<unsigned>(std::size_t(max_m * n));
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = max_m, .k = k, .gather = gather::m, .tile = gemm_tile::small});
    op.prepare<counted>();
    for (int m : {256, 300}) {  // 8 and 10 M tiles
      r.fill(calls, 0);
      g.run(op, {m, n, k, layout::row_major, unsigned(m)}, gather::m, counted{r.here(calls), n}, counted::of);
      auto const found = r.download(calls);
      for (int i = 0; i < m * n; ++i)
        r.found.expect(found[std::size_t(i)] == 1, "m = ", m, ": c(", i / n, ", ", i % n, ") was computed ",
                       found[std::size_t(i)], " times");
    }
  });
}

TEST_CASE("ag_gemm: A crosses each link once", "[ag_gemm]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 2) SKIP("two simulated GPUs are needed");
  auto const by = GENERATE(gather::k, gather::m);
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{192, 24, 64, layout::row_major, 1};
    gemm_rank<bf16> g(r, p.m, p.n, p.k);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch,
                     {.max_m = p.m, .k = p.k, .gather = by, .method = how, .tile = gemm_tile::small, .comm_blocks = 1});
    auto const bytes = [&] {
      r.meet();
      auto const link = simulator_stats()->links[r.rank()][r.partner()];
      r.meet();
      return how == method::push ? link.store_bytes : link.load_bytes;
    };
    auto const before = bytes();
    g.run(op, p, by);
    auto const crossed = bytes() - before, shard = std::uint64_t(p.m * p.k / 2) * sizeof(bf16);
    r.found.expect(crossed >= shard && crossed < shard + 512, crossed, " bytes crossed the link; the shard has ", shard,
                   ", flags and a header less than 512");
  });
}

TEST_CASE("ag_gemm: what is a rank's own is multiplied where it lies", "[ag_gemm]") {
  auto const by = GENERATE(gather::k, gather::m);
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{192, 24, 64, layout::row_major, 1};
    gemm_rank<bf16> g(r, p.m, p.n, p.k);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = p.m, .k = p.k, .gather = by, .method = how, .tile = gemm_tile::small});
    channel_view const view = ch.view(make_header("look", 0));
    std::size_t const bytes = std::size_t(p.m * p.k) * sizeof(bf16), own = bytes / 2 * std::size_t(r.rank());
    for (int slot : {0, 1}) check_hip(hipMemset(view.slot<std::byte>(slot), 0x5a, bytes), "hipMemset");
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
    r.meet();
    for (int launches = 0; launches < 2; ++launches) g.run(op, p, by);
    for (int slot : {0, 1}) {
      auto const inbox = r.download(static_cast<std::byte const*>(view.slot<std::byte>(slot)), bytes);
      for (std::size_t i = 0; i < bytes / 2; ++i)
        if (!r.found.expect(inbox[own + i] == std::byte(0x5a), "slot ", slot, ": byte ", i,
                            " of the own shard in the inbox was written"))
          break;
      r.found.expect(inbox[bytes / 2 - own] != std::byte(0x5a) || inbox[bytes / 2 - own + 1] != std::byte(0x5a),
                     "slot ", slot, ": the peer's shard is not in the inbox");
    }
  });
}

TEST_CASE("block_gemm: the shared memory is free when store() is over", "[ag_gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    problem const p{32, 64, 64, layout::column_major, 2};
    int const times = 20;
    gemm_rank<bf16> g(r, p.m * times, p.n, p.k);
    r.upload(g.a_values(p, gather::k), g.a);
    r.upload(g.b_values(p), g.b);
    r.fill(g.c, 0xff);
    constexpr gemm_config C = small_tile::config;
    r.launch({.blocks = 1, .threads = C.threads(), .shared_bytes = C.shared_bytes()}, multiply_and_scribble,
             matrix<bf16 const>{r.here(g.a), p.m, p.k, p.k},
             b_operand<bf16>{r.here(g.b), p.k, layout::column_major, p.n},
             matrix<bf16>{r.here(g.c), p.m * times, p.n, p.n}, times);
    auto const c = r.download(g.c);
    for (int i = 0; i < p.m * times; ++i)
      for (int j = 0; j < p.n; ++j)
        r.found.expect(float(c[std::size_t(i * p.n + j)]) == p.c(i % p.m, j), "time ", i / p.m, ": c(", i % p.m, ", ",
                       j, ") = ", float(c[std::size_t(i * p.n + j)]));
  });
}

TEST_CASE("ag_gemm: leading dimensions, and memory around the operands stays as it is", "[ag_gemm]") {
  auto const order = GENERATE(layout::row_major, layout::column_major);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{70, 50, 32, order, 3};
    int const a_ld = 24, b_ld = order == layout::row_major ? 53 : 40, c_ld = 61;
    gemm_rank<bf16> g(r, 80, 80, 64);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = 80, .k = p.k, .gather = gather::k, .method = method::pull});
    auto const a = g.a_values(p, gather::k), b = g.b_values(p);
    std::vector<bf16> wide_a(g.a.count, bf16(NAN)), wide_b(g.b.count, bf16(NAN));
    for (int i = 0; i < 70; ++i) std::copy_n(&a[std::size_t(i * 16)], 16, &wide_a[std::size_t(i * a_ld)]);
    int const lines = order == layout::row_major ? p.k : p.n, length = order == layout::row_major ? p.n : p.k;
    for (int i = 0; i < lines; ++i) std::copy_n(&b[std::size_t(i * length)], length, &wide_b[std::size_t(i * b_ld)]);
    r.upload(wide_a, g.a);
    r.upload(wide_b, g.b);
    r.fill(g.c, 0x7f);
    op(r.stream, {.a = {r.here(g.a), 70, 16, a_ld},
                  .b = {r.here(g.b), p.k, p.n, b_ld},
                  .c = {r.here(g.c), 70, 50, c_ld},
                  .m = 70,
                  .b_layout = order});
    r.world.check(r.stream);
    auto const c = r.download(g.c);
    for (int i = 0; i < 80 * 80; ++i) {
      int const row = i / c_ld, col = i % c_ld;
      if (row < p.m && col < p.n)
        r.found.expect(float(c[std::size_t(i)]) == p.c(row, col), "c(", row, ", ", col,
                       ") = ", float(c[std::size_t(i)]));
      else r.found.expect(c[std::size_t(i)].bits == 0x7f7f, "element ", i, " outside c was written");
    }
  });
}

TEST_CASE("ag_gemm: operators of both kinds share a channel, shapes drawn at random, a straggler among the ranks",
          "[ag_gemm][channel]") {
  on_ranks(3, [&](rank_of_test& r) {
    int const k = 240;
    gemm_rank<bf16> g(r, 100, 60, k);
    channel ch(r.heap, small_channel());
    auto make = [&](gather by, method how) {
      return ag_gemm<bf16>(ch, {.max_m = 100, .k = k, .gather = by, .method = how, .chunk_k = 64});
    };
    ag_gemm<bf16> ops[4] = {make(gather::k, method::push), make(gather::m, method::push), make(gather::k, method::pull),
                            make(gather::m, method::pull)};
    lcg random{7};
    for (int i = 0; i < 80; ++i) {
      int const which = random.below(4);
      problem const p = random_problem(random, 100, 60, k);
      if (random.below(4) == 0 && random.below(3) == r.rank())
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      g.run(ops[which], p, which % 2 ? gather::m : gather::k);
    }
  });
}

TEST_CASE("ag_gemm: A may be overwritten when the last piece of it has been pulled, and not before", "[ag_gemm]") {
  on_ranks(2, [&](rank_of_test& r) {
    constexpr int k = 1 << 17, pieces = 2;  // large ones, to which a write of A cannot come too late
    gemm_rank<bf16> g(r, 1, 8, k);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = 1,
                          .k = k,
                          .gather = gather::m,
                          .method = method::pull,
                          .tile = gemm_tile::small,
                          .comm_blocks = 1,
                          .chunk_k = k / pieces});
    for (unsigned seed = 0; seed < 2; ++seed) {
      r.meet();
      // Rank 0, which has all rows, waits for nothing but its acknowledgement
      if (r.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      g.run(op, {1, 8, k, layout::column_major, seed}, gather::m);
    }
  });
}

TEST_CASE("ag_gemm: 10,000 launches without a host wait in between", "[ag_gemm][channel][soak]") {
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(2, [&](rank_of_test& r) {
    constexpr int batch = 50, batches = 100, max_m = 4, n = 8, k = 32;  // x 2 methods
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = max_m, .k = k, .gather = gather::m, .method = how});
    gemm_rank<bf16> g(r, batch * max_m, batch * n, k);
    problem const b{0, n, k, layout::column_major, 0};
    r.upload(g.b_values(b), g.b);
    sym<bf16> const a_now = r.heap.allocate<bf16>(max_m * k);
    lcg random{99};
    for (int i = 0; i < batches; ++i) {
      std::vector<problem> p;
      for (int j = 0; j < batch; ++j) p.push_back({1 + random.below(max_m), n, k, layout::column_major, 0});
      std::vector<bf16> all(g.a.count);
      for (int j = 0; j < batch; ++j) {
        problem shifted = p[std::size_t(j)];
        shifted.seed = unsigned(i * batch + j) % 5;  // below 5: B stays the same
        p[std::size_t(j)] = shifted;
        auto const mine = g.a_values(shifted, gather::m);
        std::copy(mine.begin(), mine.end(), all.begin() + j * max_m * k);
      }
      r.upload(all, g.a);
      r.fill(g.c, 0xff);
      for (int j = 0; j < batch; ++j) {  // one A for all of them, overwritten right after each call
        auto const& q = p[std::size_t(j)];
        int const rows = op.rows(q.m);
        if (rows)
          check_hip(hipMemcpyAsync(r.here(a_now), r.here(g.a) + j * max_m * k, std::size_t(rows * k) * 2,
                                   hipMemcpyDeviceToDevice, r.stream),
                    "hipMemcpyAsync");
        op(r.stream, {.a = {r.here(a_now), rows, k, k},
                      .b = {r.here(g.b), k, n, k},
                      .c = {r.here(g.c) + j * max_m * n, q.m, n, n},
                      .m = q.m,
                      .b_layout = layout::column_major});
      }
      r.world.check(r.stream);
      auto const c = r.download(g.c);
      for (int j = 0; j < batch; ++j)
        for (int e = 0; e < p[std::size_t(j)].m * n; ++e)
          r.found.expect(float(c[std::size_t(j * max_m * n + e)]) == p[std::size_t(j)].c(e / n, e % n), "launch ",
                         i * batch + j, ", element ", e);
    }
  });
}

TEST_CASE("ag_gemm: launches on both sides of 2^32", "[ag_gemm][channel]") {
  auto const by = GENERATE(gather::k, gather::m);
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(3, [&](rank_of_test& r) {
    gemm_rank<bf16> g(r, 70, 30, 48);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = 70, .k = 48, .gather = by, .method = how, .tile = gemm_tile::small});
    on_both_sides_of_2_to_32(r, ch,
                             [&](int i) { g.run(op, {1 + i * 29 % 70, 30, 48, layout::row_major, unsigned(i)}, by); });
  });
}

TEST_CASE("ag_gemm: a captured call is one kernel node, and its replays see changed data", "[ag_gemm][graph]") {
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(2, [&](rank_of_test& r) {
    problem p{40, 24, 64, layout::row_major, 0};
    gemm_rank<bf16> g(r, 64, 32, 64);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = 64, .k = p.k, .gather = gather::k, .method = how});
    graph const captured(r, [&] { op(r.stream, g.call(p, gather::k)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    for (p.seed = 0; p.seed < 50; ++p.seed) {
      r.upload(g.a_values(p, gather::k), g.a);
      r.upload(g.b_values(p), g.b);
      r.fill(g.c, 0xff);
      captured.launch(r.stream);
      r.world.check(r.stream);
      g.compare(p, [](float x, int, int) { return x; });
    }
  });
}

TEST_CASE("ag_gemm: calls on two streams alternately, and replays on one with calls on the other",
          "[ag_gemm][channel][graph]") {
  auto const how = GENERATE(method::push, method::pull);
  on_ranks(GENERATE(1, 2, 3), [&](rank_of_test& r) {
    constexpr int calls = 8, max_m = 24, n = 24;
    int const k = 32 * r.size();
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = max_m, .k = k, .gather = gather::k, .method = how});
    own_stream const second = make_stream();
    hipStream_t const streams[] = {r.stream, second.get()};
    std::vector<problem> p;
    std::vector<gemm_rank<bf16>> g;
    auto const fresh = [&](std::size_t i, int m, unsigned seed) {
      p[i] = {m, n, k, layout::row_major, seed};
      r.upload(g[i].a_values(p[i], gather::k), g[i].a);
      r.upload(g[i].b_values(p[i]), g[i].b);
      r.fill(g[i].c, 0xff);
    };
    auto const compare_all = [&] {
      for (hipStream_t s : streams) r.world.check(s);
      for (std::size_t i = 0; i < p.size(); ++i) g[i].compare(p[i], [](float x, int, int) { return x; });
    };
    for (int i = 0; i < calls; ++i) {
      p.emplace_back(), g.emplace_back(r, max_m, n, k);
      fresh(std::size_t(i), 1 + i * 7 % max_m, unsigned(i));
    }
    r.meet();
    for (std::size_t i = 0; i < calls; ++i) {  // no event of the program between the streams
      hipStream_t const s = streams[i % 2];
      op(s, g[i].call(p[i], gather::k));
      check_hip(hipMemsetAsync(r.here(g[i].a), 0xff, g[i].a.count * sizeof(bf16), s), "hipMemsetAsync");
    }
    compare_all();
    for (std::size_t i = 0; i < calls; ++i) fresh(i, max_m - int(i), unsigned(i + 9));
    graph const replayed(r, [&] { op(r.stream, g[0].call(p[0], gather::k)); });
    for (std::size_t i = 1; i < calls; ++i) {  // the program orders replays
      op(r.stream, g[i].call(p[i], gather::k));
      check_hip(hipMemsetAsync(r.here(g[0].c), 0xff, g[0].c.count * sizeof(bf16), r.stream), "hipMemsetAsync");
      put_behind(r.stream, second.get());
      replayed.launch(second.get());
      put_behind(second.get(), r.stream);
    }
    compare_all();
    r.meet();
  });
}

TEST_CASE("copy_gathered: A of every launch, with the next one right behind it on another stream",
          "[ag_gemm][channel][graph]") {
  on_ranks(GENERATE(1, 2, 3), [&](rank_of_test& r) {
    constexpr int calls = 6, max_rows = 12, n = 8, k = 64, gap = 8, far = max_rows + 3;
    int const ranks = r.size();
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = max_rows * ranks, .k = k, .gather = gather::m});
    prepare_copy_gathered<bf16>(ch);
    own_stream const second = make_stream();
    std::vector<problem> p;
    std::vector<gemm_rank<bf16>> g;
    std::vector<sym<bf16>> copies;
    auto const pitch = [&](std::size_t i) { return i % 2 ? far : p[i].m / ranks; };  // A [M, K], or rows apart
    auto const run = [&](std::size_t i, hipStream_t s) {
      ag_gemm_call<bf16> const call = g[i].call(p[i], gather::m);
      op(s, call);
      int const rows = (ranks - 1) * pitch(i) + call.a.rows;
      copy_gathered(ch, s, call.a, {r.here(copies[i]), rows, k, k + gap}, pitch(i));
      check_hip(hipMemsetAsync(r.here(g[i].a), 0xff, g[i].a.count * sizeof(bf16), s), "hipMemsetAsync");
    };
    auto const compare = [&](std::size_t i) {
      std::vector<bf16> const found = r.download(copies[i]);
      for (int rank = 0; rank < ranks; ++rank)
        for (int row = 0; row < far && rank * pitch(i) + row < far * ranks; ++row)
          for (int col = 0; col < k + gap; ++col) {
            int const rows = p[i].m / ranks;
            bf16 const x = found[std::size_t((rank * pitch(i) + row) * (k + gap) + col)];
            if (row < rows && col < k)
              r.found.expect(float(x) == p[i].a(rank * rows + row, col), "call ", i, ", rank ", rank, ", row ", row,
                             ", column ", col, ": ", float(x));
            else if (col >= k || pitch(i) == far) r.found.expect(std::isnan(float(x)), "call ", i, " wrote beside A");
          }
    };
    for (int i = 0; i < calls; ++i) {
      p.push_back({(1 + i * 5 % max_rows) * ranks, n, k, layout::column_major, unsigned(i)});
      g.emplace_back(r, max_rows * ranks, n, k);
      copies.push_back(r.heap.allocate<bf16>(std::size_t(far * ranks * (k + gap))));
      r.upload(g.back().a_values(p.back(), gather::m), g.back().a);
      r.upload(g.back().b_values(p.back()), g.back().b);
      r.fill(copies.back(), 0xff);
    }
    r.meet();
    for (std::size_t i = 0; i < calls; ++i) run(i, i % 2 ? second.get() : r.stream);
    for (hipStream_t s : {r.stream, second.get()}) r.world.check(s);
    for (std::size_t i = 0; i < calls; ++i) compare(i);
    // Replays do not know on the host which slot they use
    graph const replayed(r, [&] { run(0, r.stream); });
    for (unsigned seed = 20; seed < 23; ++seed) {
      p[0].seed = seed;
      r.upload(g[0].a_values(p[0], gather::m), g[0].a);
      replayed.launch(r.stream);
      r.world.check(r.stream);
      compare(0);
    }
    r.meet();
  });
}

TEST_CASE("ag_gemm: every rank gets the same bits", "[ag_gemm]") {
  on_ranks(4, [&](rank_of_test& r) {
    int const m = 40, n = 48, k = 256;
    gemm_rank<bf16> g(r, m, n, k);
    sym<bf16> const rank0 = r.heap.allocate<bf16>(m * n);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = m, .k = k, .gather = gather::k, .local_shard_first = false});
    lcg mine{unsigned(r.rank() + 1)}, common{77};
    std::vector<bf16> a, b;
    for (int i = 0; i < m * k / r.size(); ++i) a.push_back(bf16(float(mine.below(20001) - 10000) / 7777.0f));
    for (int i = 0; i < n * k; ++i) b.push_back(bf16(float(common.below(20001) - 10000) / 3333.0f));
    r.upload(a, g.a);
    r.upload(b, g.b);
    problem const p{m, n, k, layout::row_major, 0};
    op(r.stream, g.call(p, gather::k));
    r.world.check(r.stream);
    auto const c = r.download(static_cast<bf16 const*>(r.here(g.c)), m * n);
    if (r.rank() == 0)
      for (int peer = 1; peer < r.size(); ++peer)
        check_hip(hipMemcpy(r.view().on(peer, rank0), c.data(), m * n * 2, hipMemcpyDefault), "hipMemcpy");
    r.meet();
    if (r.rank() == 0) return;
    auto const other = r.download(rank0);
    for (int i = 0; i < m * n; ++i)
      r.found.expect(c[std::size_t(i)].bits == other[std::size_t(i)].bits, "element ", i, " differs from rank 0's");
  });
}

TEST_CASE("ag_gemm: ranks that call with different shapes get an error that says in what", "[ag_gemm][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rank<bf16> g(r, 64, 32, 64);
    channel ch(r.heap, small_channel());
    ag_gemm<bf16> op(ch, {.max_m = 64, .k = 64, .gather = gather::k});
    problem const p{r.rank() == 0 ? 20 : 21, 24, 64, layout::row_major, 1};
    op(r.stream, g.call(p, gather::k));
    r.found.throws<rank_mismatch>("different m", {"ag_gemm push gather::k bf16, m = 20, n = 24, k = 64", "m = 21"},
                                  [&] { r.world.check(r.stream); });
    ch.reset();
    g.run(op, {20, 24, 64, layout::row_major, 1}, gather::k);
  });
}

TEST_CASE("ag_gemm refuses what it cannot do, and says what it can", "[ag_gemm][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rank<bf16> g(r, 64, 32, 64);
    channel ch(r.heap, {.max_bytes = 64 * 64 * 2, .flags_per_source = 2});
    std::size_t const allocations = r.heap.allocations();
    auto refuses = [&](char const* what, std::vector<std::string> const& pieces, ag_gemm_options const& o) {
      r.found.throws<error>(what, pieces, [&] { ag_gemm<bf16> op(ch, o); });
    };
    refuses("max_m", {"max_m = 0"}, {.max_m = 0, .k = 64});
    refuses("k", {"k = 40", "16"}, {.max_m = 8, .k = 40});
    refuses("channel bytes", {"65 x 64", "8320", "8192"}, {.max_m = 65, .k = 64});
    refuses("channel flags", {"4 flags", "has 2"}, {.max_m = 8, .k = 512, .gather = gather::k, .chunk_k = 64});
    refuses("chunk_k", {"chunk_k = 12"}, {.max_m = 8, .k = 64, .chunk_k = 12});
    refuses("comm_blocks", {"comm_blocks = -1"}, {.max_m = 8, .k = 64, .comm_blocks = -1});
    if constexpr (tuned_mainloops<bf16>::comm == comm_placement::idle_warps)
      refuses("comm_blocks with warps", {"comm_blocks = 1", "expected 0"}, {.max_m = 8, .k = 64, .comm_blocks = 1});
    refuses("reserved_cus", {"reserved_cus = 100000"}, {.max_m = 8, .k = 64, .reserved_cus = 100000});

    ag_gemm<bf16> op(ch, {.max_m = 64, .k = 64, .gather = gather::k, .method = method::pull});
    problem const p{20, 24, 64, layout::row_major, 1};
    auto refuses_call = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = g.call(p, gather::k);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { op(r.stream, c); });
    };
    using call = ag_gemm_call<bf16>;
    refuses_call("m = -1", {"m = -1", "64"}, [](call& c) { c.m = -1; });
    refuses_call("a's rows without m", {"a is [20, 32]", "[0, 32]"}, [](call& c) { c.m = 0; });
    refuses_call("m too large", {"m = 65", "64"}, [](call& c) { c.m = 65; });
    refuses_call("a's shape", {"a is [20, 16]", "[20, 32]"}, [](call& c) { c.a.cols = 16; });
    refuses_call("b's shape", {"b is [32, 24]", "[64, 24]"}, [](call& c) { c.b.rows = 32; });
    refuses_call("c's shape", {"c is [19, 24]", "[20, "}, [](call& c) { c.c.rows = 19; });
    refuses_call("n = 0", {"c is [20, 0]"}, [](call& c) { c.c.cols = 0; });
    refuses_call("a's ld", {"a.ld = 24", "32"}, [](call& c) { c.a.ld = 24; });
    refuses_call("a's ld not a multiple of 8", {"a.ld = 36", "8"}, [](call& c) { c.a.ld = 36; });
    refuses_call("a misaligned", {"a.data", "16"}, [](call& c) { c.a.data += 1; });
    refuses_call("a null", {"a.data is null"}, [](call& c) { c.a.data = nullptr; });
    refuses_call("b's ld", {"b (row-major).ld = 23", "24"}, [](call& c) { c.b.ld = 23; });
    refuses_call("c's ld", {"c.ld = 23", "24"}, [](call& c) { c.c.ld = 23; });
    bf16* outside = nullptr;
    check_hip(hipMalloc(&outside, 20 * 32 * 2), "hipMalloc");
    refuses_call("a not on the heap", {"not on the symmetric heap"}, [&](call& c) { c.a.data = outside; });
    check_hip(hipFree(outside), "hipFree");
    refuses_call("c over a", {"c = ", "overlaps a = "}, [](call& c) { c.c.data = const_cast<bf16*>(c.a.at(19, 31)); });
    refuses_call("c over b", {"c = ", "overlaps b = "},
                 [](call& c) { c.c.data = const_cast<bf16*>(c.b.data) - 19 * 24; });
    std::vector<bf16> on_host(64 * 24);
    if (simulator_stats())
      refuses_call("host memory", {"b = ", "memory of the host"}, [&](call& c) { c.b.data = on_host.data(); });
    r.meet();  // a free waits for the device, where a rank that is ahead may be waiting for us
    r.found.expect(r.heap.allocations() == allocations, "a refused call left memory allocated");
    g.run(op, p, gather::k);
  });
}

TEST_CASE("batch_invariant: ag_gemm along both dimensions, every number of rows from 1 to 256",
          "[ag_gemm][batch_invariant]") {
  using namespace batch_invariance;
  layout const b_layout = any_layout();
  auto const by = GENERATE(gather::k, gather::m);
  int const ranks = GENERATE(2, 3), k = by == gather::k ? 344 * ranks : 600;  // no shard in whole steps
  CAPTURE(int(by), ranks);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        // All ranks know the gathered A, and pass their part of it
        batches x(r, k, max_n, b_layout, 1);
        ag_gemm_options const o{.max_m = max_m, .k = k, .gather = by, .tile = gemm_tile::batch_invariant};
        channel ch(r.heap, channel_for<ag_gemm<bf16>>(ranks, o));
        ag_gemm<bf16> op(ch, o);
        x.compare("ag_gemm", max_n, ranks == 2 ? 1 : 9, [&](int first, int m) {
          gather_map const map{by, m, k, ranks, 128, 512};
          int const rows = map.rows(r.rank()), cols = map.cols(), row0 = first + map.first_row(r.rank()),
                    col0 = map.first_col(r.rank());
          std::vector<bf16> mine;
          for (int i = 0; i < rows; ++i) {
            auto const row = x.all_rows.begin() + (row0 + i) * k + col0;
            mine.insert(mine.end(), row, row + cols);
          }
          if (rows > 0) r.upload(mine, x.a);
          r.fill(x.c, 0xff);
          op(r.stream, {.a = {r.here(x.a), rows, cols, cols},
                        .b = x.whole_b(),
                        .c = {r.here(x.c), m, max_n, max_n},
                        .m = m,
                        .b_layout = b_layout});
          r.world.check(r.stream);
          return std::pair(0, r.download(static_cast<bf16 const*>(r.here(x.c)), std::size_t(m * max_n)));
        });
      },
      large_heap());
}
