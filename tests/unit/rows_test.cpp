// Calls without rows, and ranks whose options differ.
#include <algorithm>

#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>

#include "support.hpp"

using namespace support;

namespace {

constexpr int k = 64, n = 24, max_m = 20;

/// Calls op with m rows, then with none, then with m rows again, as often in a graph; each result must be as ever.
template <class Op, class Call>
void with_and_without_rows(rank_of_test& r, Op& op, int a_rows, int a_cols, int c_rows, int c_cols, float wanted) {
  auto const a = r.heap.allocate<bf16>(std::size_t(max_m * k)), b = r.heap.allocate<bf16>(std::size_t(k * n)),
             c = r.heap.allocate<bf16>(std::size_t(max_m * n * r.size()));
  r.upload(std::vector(a.count, bf16(1.0f)), a);
  r.upload(std::vector(b.count, bf16(1.0f)), b);
  auto const call = [&](int m) {
    Call x;
    x.a = {r.here(a), m ? a_rows : 0, a_cols, a_cols};
    x.b = {r.here(b), k, n, n};
    x.c = {r.here(c), m ? c_rows : 0, c_cols, c_cols};
    x.m = m;
    return x;
  };
  auto const right = [&](char const* when) {
    r.world.check(r.stream);
    auto const found = r.download(c);
    bool same = true;
    for (std::size_t i = 0; i < found.size(); ++i)
      same &= i < std::size_t(c_rows * c_cols) ? float(found[i]) == wanted : found[i].bits == 0xffff;
    r.found.expect(same, when, ": an element is wrong, or was touched");
    r.fill(c, 0xff);
  };
  r.fill(c, 0xff);
  op(r.stream, call(max_m));
  op(r.stream, call(0));
  op(r.stream, call(max_m));
  right("calls");
  r.meet();
  graph const all(r.stream, [&] {
    op(r.stream, call(0));
    op(r.stream, call(max_m));
    op(r.stream, call(0));
  });
  r.found.expect(all.nodes().size() == 3, "a call without rows is ", all.nodes().size(), " / 3 nodes");
  r.meet();
  for (int i = 0; i < 3; ++i) all.launch(r.stream);
  right("replays");
  r.found.expect(contains(op.describe(call(0)), "no rows"), "describe: ", op.describe(call(0)));

  // One rank alone has rows.
  if (r.size() > 1) {
    op(r.stream, call(r.rank() == 1 ? max_m : 0));
    bool told = false;
    try {
      r.world.check(r.stream);
      r.found.expect(false, "rows on one rank: nothing was thrown");
    } catch (rank_mismatch const& e) {
      told = true;
      r.found.expect(contains(e.what(), "m = 0") && contains(e.what(), text("m = ", max_m)), e.what());
    } catch (launch_abandoned const& e) {  // a rank that saw it first has ended this one's waits
      r.found.expect(contains(e.what(), "aborted"), e.what());
    }
    auto const by = r.world.exchange().all_gather(int(told));
    r.found.expect(std::ranges::count(by, 1) > 0, "rows on one rank: no rank says which");
  }
}

}  // namespace

TEST_CASE("rows: a call without any keeps the ranks together, and stores nothing", "[rows]") {
  int const ranks = GENERATE(1, 2, 3, 8);
  on_ranks(ranks, [&](rank_of_test& r) {
    int const w = r.size(), per_rank = ceil_div(max_m, w), first = std::min(max_m, r.rank() * per_rank),
              own = std::min(max_m, first + per_rank) - first;
    channel ch(r.heap, {.max_bytes = 64_KiB, .flags_per_source = 640});
    for (gather const by : {gather::k, gather::m}) {
      if (by == gather::k && k % (8 * w) != 0) continue;
      ag_gemm<bf16> op(ch, {.max_m = max_m, .k = k, .gather = by});
      with_and_without_rows<ag_gemm<bf16>, ag_gemm_call<bf16>>(r, op, by == gather::k ? max_m : own,
                                                               by == gather::k ? k / w : k, max_m, n, float(k));
      ch.reset();
    }
    gemm_rs<bf16> rs(ch, {.max_m = max_m, .max_n = n, .k = k});
    with_and_without_rows<gemm_rs<bf16>, gemm_rs_call<bf16>>(r, rs, max_m, k, own, n, float(k * w));
    ch.reset();
    gemm_ar<bf16> ar(ch, {.max_m = max_m, .max_n = n, .k = k});
    with_and_without_rows<gemm_ar<bf16>, gemm_ar_call<bf16>>(r, ar, max_m, k, max_m, n, float(k * w));
    ch.reset();
    gemm_all_scatter<bf16> as(ch, {.max_m = max_m, .max_n = n, .k = k});
    with_and_without_rows<gemm_all_scatter<bf16>, gemm_all_scatter_call<bf16>>(r, as, max_m, k, max_m, n * w, float(k));
  });
}

TEST_CASE("rows: ranks whose options differ are told so when the operator is made", "[rows][errors]") {
  on_ranks(3, [&](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 64_KiB, .flags_per_source = 640});
    int const other = r.rank() == 2;
    auto const refuses = [&](char const* what, auto make) {
      r.found.throws<rank_mismatch>(what, {what, "rank 2"}, make);
    };
    refuses("k", [&] { ag_gemm<bf16>(ch, {.max_m = 8, .k = 64 - 8 * other, .gather = gather::m}); });
    refuses("max_m", [&] { ag_gemm<bf16>(ch, {.max_m = 8 + other, .k = 64, .gather = gather::m}); });
    refuses("method", [&] {
      ag_gemm<bf16>(ch, {.max_m = 8, .k = 64, .gather = gather::m, .method = other ? method::pull : method::push});
    });
    refuses("k", [&] { gemm_rs<bf16>(ch, {.max_m = 8, .max_n = 8, .k = 64 - 8 * other}); });
    refuses("max_n", [&] { gemm_rs<bf16>(ch, {.max_m = 8, .max_n = 8 + other, .k = 64}); });
    refuses("k", [&] { gemm_ar<bf16>(ch, {.max_m = 8, .max_n = 8, .k = 64 - 8 * other}); });
    refuses("shots", [&] {
      gemm_ar<bf16>(
          ch,
          {.max_m = 8, .max_n = 8, .k = 64, .shots = other ? reduce_algorithm::one_shot : reduce_algorithm::two_shot});
    });
    refuses("k", [&] { gemm_all_scatter<bf16>(ch, {.max_m = 8, .max_n = 8, .k = 64 - 8 * other}); });
    gemm_rs<bf16> op(ch, {.max_m = 8, .max_n = 8, .k = 64});  // nothing is left behind that would disturb it
  });
}
