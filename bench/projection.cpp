// One shape of a benchmark on fusewire-sim --time: few launches, since each instruction is interpreted.
// scripts/perf/project.py runs it and writes the benchmarks' JSON.
//
//   projection gemm         M N K [PLAN]                     on one GPU, without a channel
//   projection plans        k|m W M N K FACTOR               no launch: plans of ag_gemm (W = 1: of gemm), the chosen
//                                                            one first, each as PLAN SENDERS COLUMNS and its modelled
//                                                            time; up to FACTOR times that of the best, at least
//                                                            three if there are as many, at most two of a tile
//   projection ag_gemm      pull|push|chosen k|m W M N K [PLAN [SENDERS [COLUMNS]]]
//   projection all_gather   W BYTES                      BYTES in all; a kernel that pulls from every peer, in place
//                                                        of the vendor's
//   projection flash_decode fused|local W BATCH TOKENS   TOKENS of one sequence over all ranks; 96-12 heads of 128,
//                                                        f16, pages of 16
//
// PLAN: TILE_M TILE_N SPLIT_K, each 0 where the operator shall choose. SENDERS: blocks that move A; COLUMNS of A in a
// chunk; 0 likewise.
//
//   per rank:  graph of 1 call | graph of 2 calls
//
// All ranks begin a graph together. The time is that of 2 calls less that of 1 call, or that of 1 call if it is long.
//
// Every call has weights, or KV, that no earlier call has touched, so that no cache holds them. Outputs are checked.
// Prints "us: TIME", the slowest rank's.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <fusewire/ops/gemm.hpp>

#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "projection.hpp"

using namespace fusewire;
using namespace fusewire::projected;

namespace {

[[noreturn]] void usage() {
  std::fprintf(stderr, "usage: projection gemm M N K [TILE_M TILE_N SPLIT_K | invariant]\n"
                       "       projection plans k|m W M N K FACTOR\n"
                       "       projection ag_gemm pull|push|chosen k|m W M N K "
                       "[TILE_M TILE_N SPLIT_K [SENDERS [COLUMNS]]]\n"
                       "       projection all_gather W BYTES\n"
                       "       projection flash_decode fused|local W BATCH TOKENS\n");
  std::exit(2);
}

struct gemm_case {
  std::string variant;
  fusewire::gather by;
  int ranks, m, n, k;
  gemm_tile tile{};
  int senders = 0, columns = 0;
};

bool is_long(double m, double n, double k) { return m * n * k > 256e6 * 64; }

/// What `projection plans` prints.
void list_plans(gather by, int ranks, int m, int n, int k, double factor) {
  auto const groups = [](gemm_plan const& p) { return 304 / p.split_k; };
  gemm_shape const shape{m, 1, n, k, by == gather::k ? ranks : 1, layout::column_major};
  std::vector<modelled<ag_gemm_plan>> all;
  if (ranks > 1) all = modelled_ag_gemm_plans(shape, ranks, by, false, 0, groups);
  else
    for (auto const& [gemm, us] : modelled_plans(shape, groups)) all.push_back({{.gemm = gemm}, us});
  std::size_t least = 3;
  std::map<int, int> listed;  // of each tile
  for (auto const& [plan, us] : all) {
    gemm_plan const& p = plan.gemm;
    if ((us > factor * all[0].us && least == 0) || listed[p.tile_m << 16 | p.tile_n]++ >= 2) continue;
    least -= least > 0;
    std::printf("%d %d %d %d %d %.3f\n", p.tile_m, p.tile_n, p.split_k, ranks == 1 ? 0 : plan.senders(by, ranks),
                plan.chunk_k, us);
  }
}

double gemm_time(world& w, int m, int n, int k, gemm_tile const& tile) {
  bool const few = is_long(m, n, k);
  heap h(w, {.bulk = 2_MiB, .signal = 2_MiB});
  stopwatch watch(w, h);
  gemm<bf16> op(w, {.tile = tile});
  std::vector<bf16> const& b = weights_of(std::size_t(n) * std::size_t(k));
  std::vector<bf16> a(std::size_t(m) * std::size_t(k));
  for (int r = 0; r < m; ++r)
    for (int at = 0; at < k; ++at) a[std::size_t(r) * std::size_t(k) + std::size_t(at)] = bf16(a_at(r, at, k));
  std::vector<bf16*> as, bs;
  for (int i = 0; i < stopwatch::calls(few); ++i) {
    as.push_back(upload(allocate<bf16>(a.size()), a));
    bs.push_back(upload(allocate<bf16>(b.size()), b));
  }
  bf16* const c = allocate<bf16>(std::size_t(m) * std::size_t(n));
  auto const call = [&](int i) {
    return gemm_call<bf16>{.a = {as[std::size_t(i)], m, k, k},
                           .b = {bs[std::size_t(i)], k, n, k},
                           .c = {c, m, n, n},
                           .b_layout = layout::column_major,
                           .b_is_constant = true};
  };
  std::printf("%s\n", op.describe(call(0)).c_str());
  double const us = watch.time(few, [&](int i) { op(w.stream(), call(i)); });
  check_product(w, {c, m, n, n}, b, n, k);
  return us;
}

double ag_gemm_time(world& w, gemm_case const& s) {
  bool const few = is_long(s.m, s.n, s.k), by_k = s.by == gather::k;
  int const calls = stopwatch::calls(few), rank = w.rank(), rows = by_k ? s.m : s.m / s.ranks,
            cols = by_k ? s.k / s.ranks : s.k;
  auto const gathered = std::size_t(s.m) * std::size_t(s.k), shard = gathered / std::size_t(s.ranks),
             weights = std::size_t(s.n) * std::size_t(s.k);
  ag_gemm_options o{.max_m = s.m,
                    .k = s.k,
                    .gather = s.by,
                    .method = s.variant == "pull"   ? method::pull
                              : s.variant == "push" ? method::push
                                                    : method::automatic,
                    .tile = s.tile,
                    .comm_blocks = s.senders,
                    .chunk_k = s.columns};
  heap h(w, {.bulk = round_up(2 * gathered * 2 + std::size_t(calls) * shard * 2 + 64_MiB, 2_MiB), .signal = 128_MiB});
  channel ch(h, {.max_bytes = gathered * 2, .flags_per_source = ag_gemm<bf16>::flags_per_source(s.ranks, o)});
  ag_gemm<bf16> op(ch, o);
  stopwatch watch(w, h);
  std::vector<bf16> a(shard);
  std::vector<bf16> const& b = weights_of(weights);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < cols; ++c)
      a[std::size_t(r) * std::size_t(cols) + std::size_t(c)] =
          bf16(a_at(by_k ? r : rank * rows + r, by_k ? rank * cols + c : c, s.k));
  std::vector<bf16*> shards, copies;
  for (int i = 0; i < calls; ++i) {
    shards.push_back(upload(h.view().here(h.allocate<bf16>(shard)), a));
    copies.push_back(upload(allocate<bf16>(weights), b));
  }
  auto const size = std::size_t(s.m) * std::size_t(s.n);
  bf16* const c = allocate<bf16>(size);
  double const us = watch.time(few, [&](int i) {
    op(w.stream(), {.a = {shards[std::size_t(i)], rows, cols, cols},
                    .b = {copies[std::size_t(i)], s.k, s.n, s.k},
                    .c = {c, s.m, s.n, s.n},
                    .m = s.m,
                    .b_layout = layout::column_major,
                    .b_is_constant = true});
  });
  check_product(w, {c, s.m, s.n, s.n}, b, s.n, s.k);
  return us;
}

/// Blocks b, b + W, ... of a rank bring rank b's shard. Blocks with one index sync on all ranks before and after.
///   Deadlock: all blocks are resident, and a block waits for nobody but those with its index.
__global__ void __launch_bounds__(512)
    pull_shards(world_view w, sym<barrier_state> meet, sym<bytes16> shards, bytes16* out, std::int64_t words) {
  block const b;
  sym<barrier_state> const mine = meet + b.index();
  barrier(b, w, mine);
  int const from = w.next(b.index() % w.size()), slice = b.index() / w.size(), slices = b.count() / w.size();
  std::int64_t const first = words * slice / slices, last = words * (slice + 1) / slices;
  copy(b, w.on(from, shards) + first, out + from * words + first, last - first);
  barrier(b, w, mine);
}

double all_gather_time(world& w, std::size_t bytes) {
  auto const words = std::int64_t(std::max<std::size_t>(bytes / std::size_t(w.size()) / 16, 1));
  int const blocks = w.size() * int(std::clamp<std::int64_t>(words / 4096, 1, 8));
  heap h(w, {.bulk = round_up(std::size_t(words) * 16 * 3 + 64_MiB, 2_MiB)});
  stopwatch watch(w, h);
  auto const meet = h.allocate<barrier_state>(std::size_t(blocks));
  auto const value = [](int rank, std::int64_t i) { return unsigned(rank * 7919 + i); };
  std::vector<sym<bytes16>> shards;
  std::vector<bytes16> mine(static_cast<std::size_t>(words));
  for (std::int64_t i = 0; i < words; ++i) {
    unsigned const x[4] = {value(w.rank(), i), 1, 2, 3};
    std::memcpy(static_cast<void*>(&mine[std::size_t(i)]), x, 16);
  }
  for (int i = 0; i < stopwatch::calls(false); ++i) {
    shards.push_back(h.allocate<bytes16>(std::size_t(words)));
    upload(h.view().here(shards.back()), mine);
  }
  w.barrier();
  auto* const out = allocate<bytes16>(std::size_t(words) * std::size_t(w.size()));
  double const us = watch.time(false, [&](int i) {
    launch(w, w.stream(), {.blocks = blocks, .threads = 512}, pull_shards, h.view(), meet, shards[std::size_t(i)], out,
           words);
  });
  std::vector<bytes16> got(std::size_t(words) * std::size_t(w.size()));
  check_hip(hipMemcpy(got.data(), out, got.size() * 16, hipMemcpyDeviceToHost), "hipMemcpy");
  for (int r = 0; r < w.size(); ++r)
    for (std::int64_t i = 0; i < words; ++i) {
      unsigned x[4];
      std::memcpy(x, static_cast<void const*>(&got[std::size_t(r * words + i)]), 16);
      require<runtime_failure>(x[0] == value(r, i) && x[3] == 3, std::source_location::current(), "rank ", w.rank(),
                               ": word ", i, " of rank ", r, " is wrong");
    }
  return us;
}

constexpr int q_heads = 96, kv_heads = 12, d = 128, page = 16;

/// Attends to this rank's share of the tokens, `local` without the others.
double flash_decode_time(world& w, world& of, int ranks, int batch, int tokens) {
  int const pages = ceil_div(tokens / ranks, page), all_pages = pages * batch;
  auto const copy_elements = std::size_t(all_pages) * page * kv_heads * d;
  bool const few = copy_elements * 4 > std::size_t(128) << 20;
  int const calls = stopwatch::calls(few);
  heap h(of, {.bulk = 256_MiB, .signal = 64_MiB});
  channel ch(h, {.max_bytes = 1_MiB, .flags_per_source = 1});
  flash_decode<f16> op(ch, {.max_batch = batch,
                            .q_heads = q_heads,
                            .kv_heads = kv_heads,
                            .head_dim = d,
                            .page_size = page,
                            .max_pages = pages});
  stopwatch watch(of, h);
  auto const elements = std::size_t(batch) * q_heads * d;
  // All values of a page and head are alike over d, so the host can check what comes out.
  std::vector<f16> q(elements), k(copy_elements), v(copy_elements);
  for (std::size_t i = 0; i < elements; ++i) q[i] = f16(0.0f);
  auto const v_of = [](std::size_t token, int head) { return float(small_number(token * 13 + std::size_t(head))); };
  for (std::size_t t = 0; t < copy_elements / d; ++t) {
    f16 const x(v_of(t / kv_heads, int(t % kv_heads))), y(float(small_number(t)) / 8);
    std::fill_n(v.begin() + std::ptrdiff_t(t) * d, d, x);
    std::fill_n(k.begin() + std::ptrdiff_t(t) * d, d, y);
  }
  std::vector<std::int32_t> table(static_cast<std::size_t>(all_pages)), lengths(std::size_t(batch), tokens / ranks);
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1u));
  f16 *const dq = upload(allocate<f16>(elements), q), *const out = allocate<f16>(elements);
  auto* const dtable = upload(allocate<std::int32_t>(table.size()), table);
  auto* const dlengths = upload(allocate<std::int32_t>(lengths.size()), lengths);
  std::vector<f16*> ks, vs;
  for (int i = 0; i < calls; ++i) {
    ks.push_back(upload(allocate<f16>(copy_elements), k));
    vs.push_back(upload(allocate<f16>(copy_elements), v));
  }
  w.barrier();
  double const us = watch.time(few, [&](int i) {
    op(of.stream(), {.q = dq,
                     .k_cache = ks[std::size_t(i)],
                     .v_cache = vs[std::size_t(i)],
                     .block_table = dtable,
                     .lengths = dlengths,
                     .out = out,
                     .batch = batch,
                     .kv_is_ready = true});
  });
  // The query is zero, so every token weighs the same: the output is the mean of v over the sequence, which is the same
  // on all ranks.
  std::vector<f16> got(elements);
  check_hip(hipMemcpy(got.data(), out, elements * sizeof(f16), hipMemcpyDeviceToHost), "hipMemcpy");
  for (int s = 0; s < batch; ++s)
    for (int head = 0; head < q_heads; head += 17) {
      double want = 0;
      for (int p = 0; p < pages; ++p)
        for (int t = 0; t < page; ++t)
          want += double(v_of(std::size_t(table[std::size_t(s * pages + p)]) * page + std::size_t(t),
                              head / (q_heads / kv_heads)));
      want /= double(pages) * page;
      float const x = float(got[(std::size_t(s) * q_heads + std::size_t(head)) * d + 5]);
      require<runtime_failure>(std::abs(double(x) - want) <= 4e-3, std::source_location::current(), "rank ", w.rank(),
                               ", sequence ", s, ", head ", head, ": ", x, ", not ", want);
    }
  auto const all = w.exchange().all_gather(us);
  return *std::max_element(all.begin(), all.end());
}

int number(char const* text, int least = 1) {
  int const n = std::atoi(text);
  if (n < least) usage();
  return n;
}
gather gather_in(std::string const& text) {
  if (text != "k" && text != "m") usage();
  return text == "m" ? gather::m : gather::k;
}
gemm_tile tile_in(char** argv) { return {number(argv[0], 0), number(argv[1], 0), number(argv[2], 0)}; }

}  // namespace

int main(int argc, char** argv) try {
  std::string const what = argc > 1 ? argv[1] : "", second = argc > 2 ? argv[2] : "", third = argc > 3 ? argv[3] : "";
  double us = 0;
  auto const on = [&](int ranks, auto f) {
    run_local(ranks, [&](world& w) {
      double const mine = f(w);
      if (w.rank() == 0) us = mine;
    });
  };
  std::string const last = argv[argc - 1];
  if (what == "gemm" && (argc == 5 || argc == 8 || (argc == 6 && last == "invariant"))) {
    gemm_tile const tile = argc == 8   ? tile_in(argv + 5)
                           : argc == 6 ? gemm_tile::batch_invariant
                                       : gemm_tile::automatic;
    on(1, [&](world& w) { return gemm_time(w, number(argv[2]), number(argv[3]), number(argv[4]), tile); });
  } else if (what == "plans" && argc == 8) {
    list_plans(gather_in(second), number(argv[3]), number(argv[4]), number(argv[5]), number(argv[6]),
               std::atof(argv[7]));
    return 0;
  } else if (what == "ag_gemm" && (argc == 8 || (argc >= 11 && argc <= 13))) {
    gemm_case const s{second,
                      gather_in(third),
                      number(argv[4]),
                      number(argv[5]),
                      number(argv[6]),
                      number(argv[7]),
                      argc > 8 ? tile_in(argv + 8) : gemm_tile::automatic,
                      argc > 11 ? number(argv[11], 0) : 0,
                      argc > 12 ? number(argv[12], 0) : 0};
    if (second != "pull" && second != "push" && second != "chosen") usage();
    on(s.ranks, [&](world& w) { return ag_gemm_time(w, s); });
  } else if (what == "all_gather" && argc == 4) {
    on(number(argv[2]), [&](world& w) { return all_gather_time(w, std::size_t(number(argv[3]))); });
  } else if (what == "flash_decode" && argc == 6) {
    int const ranks = number(argv[3]), batch = number(argv[4]), tokens = number(argv[5]);
    if ((second != "fused" && second != "local") || tokens % (ranks * page)) usage();
    on(ranks, [&](world& w) {
      if (second == "fused") return flash_decode_time(w, w, ranks, batch, tokens);
      world alone = w.split(w.rank());
      return flash_decode_time(w, alone, ranks, batch, tokens);
    });
  } else {
    usage();
  }
  std::printf("us: %.3f\n", us);
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
