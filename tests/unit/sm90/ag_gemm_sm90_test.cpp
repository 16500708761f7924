// The Hopper kernels: built for NVIDIA only. Small integers, so sums are exact and results that 8 bits hold are exact
// in bf16.
#include <fusewire/ops/ag_gemm.hpp>

#include "../faults.hpp"
#include "../push_losing.hpp"
#include <chrono>

using namespace support;

namespace {

struct problem {
  int m, n, k, chunk_k, split_k;
  unsigned seed;

  float a(int i, int j) const { return float((unsigned(i) * 7 + unsigned(j) * 3 + seed) % 5) - 2; }
  float b(int j, int c) const { return float((unsigned(j) * 5 + unsigned(c) * 3) % 3) - 1; }
};

/// Launches `epochs` times with changing A, overwrites A right after each launch, and compares all of C.
template <sm90_gemm_config C, layout BOrder>
void check(rank_of_test& r, channel& ch, problem p, gather by, bool pull, int epochs) {
  gather_map const map{by, p.m, p.k, r.size(), C.block_m, p.chunk_k};
  gemm_plan const gemm{.tuned = true,
                       .tile_m = C.block_m,
                       .tile_n = C.block_n,
                       .split_k = r.world.max_ranks_on_a_device() == 1 ? p.split_k : 1,
                       .group_m = 3,
                       .b_in_flight = (p.m + 1) % 3};
  ag_gemm_plan plan{.gemm = gemm, .chunk_k = p.chunk_k};
  while (!C.can_share(std::min(p.m, C.block_m), plan.gemm.split_k)) --plan.gemm.split_k;
  plan.chunks = by == gather::k ? chunk_order::nest::by_group
                : p.m % 2       ? chunk_order::nest::by_k_chunk
                                : chunk_order::nest::by_peer;
  int const rows = map.rows(r.rank()), cols = map.cols();
  bool const row_major = BOrder == layout::row_major;
  std::int64_t const ldb = row_major ? (p.n + 7) / 8 * 8 : p.k;
  auto const a = r.heap.allocate<bf16>(std::size_t(map.rows(0) * cols)),
             b = r.heap.allocate<bf16>(std::size_t(ldb) * std::size_t(row_major ? p.k : p.n));
  auto const c = r.heap.allocate<bf16>(std::size_t(p.m * p.n));
  std::vector<bf16> b_values(b.count, bf16(0.0f));
  for (int j = 0; j < p.k; ++j)
    for (int col = 0; col < p.n; ++col)
      b_values[std::size_t(row_major ? j * ldb + col : col * ldb + j)] = bf16(p.b(j, col));
  r.upload(b_values, b);
  gemm_launcher<bf16, ag_gemm_plan> const launcher(r.world, "ag_gemm");
  for (int e = 0; e < epochs; ++e) {
    p.seed = unsigned(e);
    std::vector<bf16> a_values(a.count, bf16(0.0f));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        a_values[std::size_t(i * cols + j)] = bf16(p.a(map.first_row(r.rank()) + i, map.first_col(r.rank()) + j));
    r.upload(a_values, a);
    r.fill(c, 0xff);
    ag_gemm_call<bf16> const call{.a = {r.here(a), rows, cols, cols},
                                  .b = {r.here(b), p.k, p.n, ldb},
                                  .c = {r.here(c), p.m, p.n, p.n},
                                  .m = p.m,
                                  .b_layout = BOrder,
                                  .b_is_constant = e % 2 == 0};
    ag_gemm_options const o{.max_m = p.m, .k = p.k, .gather = by, .local_shard_first = e != 1};
    launch_ag_gemm(launcher, ch, r.stream, call, o, plan, pull, identity{}, std::source_location::current());
    check_hip(hipMemsetAsync(r.here(a), 0x7f, a.count * sizeof(bf16), r.stream), "hipMemsetAsync");
    r.world.check(r.stream);
    auto const found = r.download(c);
    // Rows and columns of the formulas repeat: every 5 rows and 3 columns.
    float wanted[5][3] = {};
    for (int i = 0; i < 5; ++i)
      for (int col = 0; col < 3; ++col)
        for (int j = 0; j < p.k; ++j) wanted[i][col] += p.a(i, j) * p.b(j, col);
    for (int i = 0; i < p.m; ++i)
      for (int col = 0; col < p.n; ++col)
        if (!r.found.expect(found[std::size_t(i * p.n + col)].bits == bf16(wanted[i % 5][col % 3]).bits, "m ", p.m,
                            " n ", p.n, " k ", p.k, " epoch ", e, ": c(", i, ", ", col,
                            ") = ", float(found[std::size_t(i * p.n + col)]), ", wanted ", wanted[i % 5][col % 3]))
          return;
  }
  r.heap.free(c);
  r.heap.free(b);
  r.heap.free(a);
}

}  // namespace

TEST_CASE("ag_gemm_sm90: all tiles, ragged shapes, shared tiles, both gathers, layouts and methods",
          "[ag_gemm][sm90]") {
  auto const by = GENERATE(gather::k, gather::m);
  bool const pull = GENERATE(false, true);
  on_ranks(GENERATE(1, 2, 3, 4),
           [&](rank_of_test& r) {
             channel ch(r.heap, {.max_bytes = 8_MiB, .flags_per_source = 512});
             int const unit = 8 * r.size();
             for (problem const& p : {problem{128, 224, 576, 64, 3, 0}, problem{512, 500, 768, 128, 2, 0},
                                      problem{1000, 1111, 1152, 192, 1, 0}, problem{300, 700, 240, 512, 1, 0},
                                      problem{5, 330, 512, 64, 2, 0}}) {
               problem q = p;
               q.k = p.k / unit * unit;
               check<sm90_gemm_config{128, 256}, layout::column_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{128, 224}, layout::row_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{128, 192}, layout::row_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{128, 176}, layout::column_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{128, 144}, layout::column_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{128, 128}, layout::row_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{128, 112}, layout::column_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{64, 128}, layout::row_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{64, 112}, layout::column_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{160, 128}, layout::row_major>(r, ch, q, by, pull, 3);
               check<sm90_gemm_config{160, 128}, layout::column_major>(r, ch, q, by, pull, 3);
             }
           },
           {.bulk = 64_MiB, .signal = 8_MiB, .wait_limit = std::chrono::seconds(5)});
}

namespace {

enum planted_fault { lost, late, shape };

}  // namespace

TEST_CASE(
    "ag_gemm_sm90: a push that gets lost, a rank that is late, one that launches another shape: the pipeline drains",
    "[ag_gemm][sm90][faults]") {
  auto const fault = GENERATE(lost, late, shape);
  auto const by = GENERATE(gather::k, gather::m);
  constexpr int ranks = 3, culprit = 1;
  CAPTURE(int(fault), int(by));
  heap_options o = short_waits();
  o.bulk = 64_MiB, o.signal = 8_MiB;
  auto const verdicts = on_ranks(
      ranks,
      [&](rank_of_test& r) {
        constexpr sm90_gemm_config tile{128, 224};
        problem const p{700, 500, 768, 128, 1, 0};
        channel ch(r.heap, {.max_bytes = 8_MiB, .flags_per_source = 512});
        ag_gemm<bf16> op(ch, {.max_m = p.m, .k = p.k, .gather = by});
        check<tile, layout::row_major>(r, ch, p, by, false, 1);
        gather_map map{by, fault == shape && r.rank() == culprit ? 600 : p.m, p.k, ranks, tile.block_m, p.chunk_k};
        int const rows = map.rows(r.rank()), cols = map.cols();
        auto const a = r.heap.allocate<bf16>(std::size_t(700 * p.k)), b = r.heap.allocate<bf16>(std::size_t(504 * p.k)),
                   c = r.heap.allocate<bf16>(std::size_t(700 * p.n));
        ag_gemm_call<bf16> const call{.a = {r.here(a), rows, cols, cols},
                                      .b = {r.here(b), p.k, p.n, 504},
                                      .c = {r.here(c), map.m, p.n, p.n},
                                      .m = map.m};
        load_kernel(r.world, spend<>, 64);
        using mainloop = gemm_sm90<bf16, tile.block_m, tile.block_n, layout::row_major>;
        load_kernel(r.world, push_losing<bf16, mainloop>, mainloop::traits.threads, mainloop::shared_bytes());
        r.meet();
        double const start = seconds_now();
        if (fault == late && r.rank() == culprit) r.launch({1, 64}, spend<>, r.view(), ns_of(2.5));
        if (fault == lost) {
          channel_view const view = ch.view(make_header("ag_gemm", std::uint64_t(by) << 8));
          auto const inbox = [&](int slot) { return gathered_in(view.slot<bf16 const>(slot), map); };
          matrix<bf16 const> const from[] = {call.a, inbox(0), inbox(1)};
          auto const x = make_operands<mainloop>(
              from, b_operand<bf16>{call.b.data, call.b.ld, call.b_layout, p.n}, p.k, false,
              gemm_plan{.b_in_flight = 2}, map.m, last_tile_rows(map.m, tile.block_m),
              tuned_mainloops<bf16>::memory{r.world, std::source_location::current()}, std::source_location::current());
          ag_gemm_arguments<bf16> const g{
              {call.a,
               map,
               {chunk_order::nest::by_group, ranks, map.m_tiles_of(r.rank()), map.k_chunks(), 8},
               false,
               true},
              call.c,
              {map.m_tiles(), ceil_div(p.n, mainloop::traits.tile_n), 0, 8}};
          r.launch({.blocks = 8, .threads = mainloop::traits.threads, .shared_bytes = mainloop::shared_bytes()},
                   push_losing<bf16, mainloop>, view, g, x, r.rank() == culprit ? 0 : -1);
        } else {
          op(r.stream, call);
        }
        r.note = verdict(r);
        double const seconds = seconds_now() - start;
        if (fault != late || r.rank() != culprit)
          r.found.expect(seconds <= seconds_to_report(), "the report came after ", seconds, " s: ", r.note);
        ch.reset();
        r.heap.free(c);
        r.heap.free(b);
        r.heap.free(a);
        check<tile, layout::row_major>(r, ch, p, by, false, 3);
      },
      o);
  std::string const all = verdicts[0] + "\n" + verdicts[1] + "\n" + verdicts[2];
  INFO(all);
  if (fault == lost) CHECK(contains(verdicts[0], " for a flag from rank 1 (data flag "));
  if (fault == late) CHECK(contains(all, " for a flag from rank 1 ("));
  if (fault == late) CHECK(contains(all, " of ag_gemm push gather::"));
  if (fault == shape) CHECK(contains(all, "rank 1 launched ag_gemm push gather::"));
  if (fault == shape) CHECK(!contains(all, "timeout: "));
}
