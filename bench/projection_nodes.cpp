// Operators over nodes on fusewire-sim --time, whose network is a model: each rank has a NIC, and a thread that makes
// puts (loopback_options).
//
//   projection_nodes put GBS BYTES                        rank 0 puts to rank 1, on another node
//   projection_nodes all_reduce GBS NODES NEAR BYTES      bf16; BYTES of a rank's array
//   projection_nodes ag_gemm GBS NODES NEAR M N K         gather::m; N of a rank; K of A
//   projection_nodes gemm_rs|gemm_ar GBS NODES NEAR M N K K of all ranks together
//
// GBS: what a NIC carries in each direction. NODES nodes of NEAR ranks. bf16, column-major B. All ranks begin a graph
// of one call together, whose weights no earlier call has touched. Some outputs are checked. Prints "us: TIME", the
// slowest rank's.
#include <fusewire/nodes/loopback_engine.hpp>
#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/nodes_ag_gemm.hpp>
#include <fusewire/ops/nodes_all_reduce.hpp>
#include <fusewire/ops/nodes_gemm_ar.hpp>
#include <fusewire/ops/nodes_gemm_rs.hpp>

#include <string>

#include "projection.hpp"

using namespace fusewire;
using namespace fusewire::projected;

namespace {

// Assumptions, with the rate that the command line says: NIC, wire and both hosts' buses; a post by the thread
constexpr double one_way_us = 3, post_us = 0.3;

/// What the command line says.
struct shape {
  std::string what;
  double gbs;
  int nodes, near, m, n, k;
  std::int64_t bytes;
  int ranks() const { return nodes * near; }
};

/// Ends when all ranks of all nodes have begun.
__global__ void meet(nodes_view ch) {
  block const b;
  ch.begin(b).end(b);
}

/// One put of `words` 16-byte words from rank 0, and the wait for it.
__global__ void put_kernel(nodes_view ch, int words) {
  block const b;
  nodes_epoch const e = ch.begin(b);
  if (e.rank() == 0) {
    auto* const to = e.inbox<platform::native16>(1);
    for (int i = b.rank(); i < words; i += b.size()) to[i] = {};
    e.signal(b, 1, 0, to, words);
  } else {
    e.wait(b, 0, 0);
  }
  e.end(b);
}

/// One rank: its node, a network of all, and a clock.
struct rank {
  world& all;
  shape const& s;
  world near;
  heap memory;
  network net;
  nodes_channel to_meet;
  stopwatch watch;

  rank(world& w, shape const& s, std::shared_ptr<loopback_network> wires)
      : all(w), s(s), near(w.split(w.node_of(w.rank()))), memory(near, {.bulk = 768_MiB, .signal = 64_MiB}),
        net(w, memory,
            std::make_unique<loopback_engine>(
                wires, w.rank(),
                loopback_options{.bytes_per_us = s.gbs * 1e3, .one_way_us = one_way_us, .post_us = post_us}),
            {.reach = network_reach::device}),
        to_meet(net, {.max_bytes = 256, .flags_per_source = 1}), watch(near, memory) {}

  /// us of the slowest rank of all nodes.
  double time(std::function<void()> const& call) {
    auto const of_node = watch.of_ranks(call, enqueued::as_graph, [&] {
      for (int i = 0; i < 2; ++i) launch(near, near.stream(), {.blocks = 1, .threads = 64}, meet, to_meet.view({}));
    });
    return stopwatch::slowest(all.exchange().all_gather(of_node[std::size_t(near.rank())]));
  }
  /// Column-major B, the same on all ranks.
  matrix<bf16 const> weights(int n, int k) const {
    auto const& b = weights_of(std::size_t(n) * std::size_t(k));
    return {upload(allocate<bf16>(b.size()), b), k, n, k};
  }
  /// Columns [k0, k0 + k) of rows [row0, row0 + rows) of A, which has of_k columns.
  matrix<bf16 const> rows_of_a(int row0, int rows, int k0, int k, int of_k) const {
    std::vector<bf16> a(std::size_t(rows) * std::size_t(k));
    for (int row = 0; row < rows; ++row)
      for (int at = 0; at < k; ++at)
        a[std::size_t(row) * std::size_t(k) + std::size_t(at)] = bf16(a_at(row0 + row, k0 + at, of_k));
    return {upload(allocate<bf16>(std::max<std::size_t>(1, a.size())), a), rows, k, k};
  }
};

double put_time(rank& r) {
  nodes_channel ch(r.net, {.max_bytes = std::size_t(r.s.bytes), .flags_per_source = 1});
  return r.time([&] {
    launch(r.near, r.near.stream(), {.blocks = 1, .threads = 1024}, put_kernel, ch.view({}), int(r.s.bytes / 16));
  });
}

double all_reduce_time(rank& r) {
  nodes_all_reduce_options const o{.max_count = r.s.bytes / 2};
  nodes_channel ch(r.net, nodes_all_reduce<bf16>::channel_for(r.s.nodes, r.s.near, o));
  nodes_all_reduce<bf16> op(ch, o);
  std::vector<bf16> const ones(std::size_t(o.max_count), bf16(1.0f));
  bf16 *const in = upload(allocate<bf16>(ones.size()), ones), *const out = allocate<bf16>(ones.size());
  double const us = r.time([&] { op(r.near.stream(), {.in = in, .out = out, .count = o.max_count}); });
  std::vector<bf16> found(ones.size());
  check_hip(hipMemcpy(found.data(), out, found.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  for (bf16 x : found)
    require<runtime_failure>(float(x) == float(r.s.ranks()), std::source_location::current(), "a sum is ", float(x));
  return us;
}

double ag_gemm_time(rank& r) {
  shape const& s = r.s;
  ag_gemm_options const o{.max_m = s.m, .k = s.k, .gather = gather::m, .method = method::push};
  nodes_channel ch(r.net, nodes_ag_gemm<bf16>::channel_for(s.nodes, s.near, o));
  nodes_ag_gemm<bf16> op(ch, o);
  int const rows = s.m / s.ranks();
  ag_gemm_call<bf16> const call{.a = r.rows_of_a(r.all.rank() * rows, rows, 0, s.k, s.k),
                                .b = r.weights(s.n, s.k),
                                .c = {allocate<bf16>(std::size_t(s.m) * std::size_t(s.n)), s.m, s.n, s.n},
                                .m = s.m,
                                .b_layout = layout::column_major,
                                .b_is_constant = true};
  double const us = r.time([&] { op(r.near.stream(), call); });
  check_product(r.all, call.c, weights_of(std::size_t(s.n) * std::size_t(s.k)), s.n, s.k);
  return us;
}

/// C has `rows` rows, the sum's from `first` on.
template <class Op, class Call, class Options>
double sum_time(rank& r, Options o, int first, int rows) {
  shape const& s = r.s;
  int const k = s.k / s.ranks();
  o.max_m = s.m, o.max_n = s.n, o.k = k;
  nodes_channel ch(r.net, Op::channel_for(s.nodes, s.near, o));
  Op op(ch, o);
  Call const call{.a = r.rows_of_a(0, s.m, r.all.rank() * k, k, s.k),
                  .b = r.weights(s.n, k),
                  .c = {allocate<bf16>(std::max<std::size_t>(1, std::size_t(rows) * std::size_t(s.n))), rows, s.n, s.n},
                  .m = s.m,
                  .b_layout = layout::column_major,
                  .b_is_constant = true};
  double const us = r.time([&] { op(r.near.stream(), call); });
  if (rows) check_product(r.all, call.c, weights_of(std::size_t(s.n) * std::size_t(k)), s.n, k, s.ranks(), first);
  return us;
}

double time_of(rank& r) {
  shape const& s = r.s;
  if (s.what == "put") return put_time(r);
  if (s.what == "all_reduce") return all_reduce_time(r);
  if (s.what == "ag_gemm") return ag_gemm_time(r);
  if (s.what == "gemm_ar") return sum_time<nodes_gemm_ar<bf16>, gemm_ar_call<bf16>>(r, gemm_ar_options{}, 0, s.m);
  int const each = ceil_div(s.m, s.ranks()), first = std::min(s.m, r.all.rank() * each);
  return sum_time<nodes_gemm_rs<bf16>, gemm_rs_call<bf16>>(r, gemm_rs_options{}, first, std::min(each, s.m - first));
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: projection_nodes put GBS BYTES\n"
               "       projection_nodes all_reduce GBS NODES NEAR BYTES\n"
               "       projection_nodes ag_gemm|gemm_rs|gemm_ar GBS NODES NEAR M N K\n"
               "       at most 16 ranks; BYTES a multiple of 16; M of ag_gemm a multiple of the ranks, and K of the\n"
               "       others of 8 times their number\n");
  std::exit(2);
}

shape shape_of(int argc, char** argv) {
  std::string const what = argc > 1 ? argv[1] : "";
  auto const number = [&](int i) { return i < argc ? std::atoi(argv[i]) : 0; };
  shape s{what, argc > 2 ? std::atof(argv[2]) : 0, 2, 1, 0, 0, 0, 0};
  bool good = false;
  if (what == "put") s.bytes = number(3), good = argc == 4;
  else if (what == "all_reduce") s.nodes = number(3), s.near = number(4), s.bytes = number(5), good = argc == 6;
  else
    s.nodes = number(3), s.near = number(4), s.m = number(5), s.n = number(6), s.k = number(7),
    good = argc == 8 && (what == "ag_gemm" || what == "gemm_rs" || what == "gemm_ar");
  bool const multiplies = good && s.m + s.n + s.k > 0, sums = what != "ag_gemm";
  good &= s.gbs > 0 && s.nodes >= 2 && s.near >= 1 && s.ranks() <= 16 &&
          (multiplies ? s.m >= 1 && s.n >= 1 && s.k >= 8 && (sums ? s.k % (8 * s.ranks()) : s.m % s.ranks()) == 0
                      : s.bytes >= 16 && s.bytes % 16 == 0);
  if (!good) usage();
  return s;
}

}  // namespace

int main(int argc, char** argv) try {
  shape const s = shape_of(argc, argv);
  setenv("FUSEWIRE_RANKS_PER_NODE", std::to_string(s.near).c_str(), 1);
  auto const wires = std::make_shared<loopback_network>();
  run_local(s.ranks(), [&](world& w) {
    rank r(w, s, wires);
    double const us = time_of(r);
    if (w.rank() == 0) std::printf("us: %.3f\n", us);
    w.barrier();
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
