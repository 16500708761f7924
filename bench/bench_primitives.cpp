// What the primitives reach between two GPUs: copies by one kernel, one-way and round-trip signals, barriers.
//
//   bench_primitives [--benchmark_filter=REGEX] [--benchmark_out=FILE --benchmark_out_format=json] ...
//
// Names: copy/DIRECTION/blocks:b/bytes:n (bytes_per_second: of one GPU to its peer), signal/one_way, signal/round_trip,
// barrier/ranks:w. A time is one operation's, in the clock of rank 0's device; between GPUs only, so fewer than two skip.
#include <benchmark/benchmark.h>
#include <fusewire/fusewire.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace fusewire;

namespace {

constexpr int threads = 512, repeats = 15, rounds = 200;

int gpus() {
  int n = 0;
  return hipGetDeviceCount(&n) == hipSuccess ? n : 0;
}

struct copy_arguments {
  bytes16 const* from;
  bytes16* to;
  std::int64_t words;         // of 16 bytes
  sym<barrier_state> start;   // both ranks begin together
  unsigned* go;               // block 0 says that both have begun
  unsigned long long* ns;     // how long the slowest block took, from the common start
};

/// Each block copies its part; both ranks at once, so that both directions of the link are busy.
///   Deadlock: all blocks are resident; block 0 meets the other rank before it lets its own blocks go.
__global__ void __launch_bounds__(threads) copy_kernel(world_view w, copy_arguments a, unsigned turn) {
  block const b;
  if (b.index() == 0) {
    barrier(b, w, a.start);
    if (b.leader()) atomic_ref<unsigned, scope::device>(a.go).store(turn, order::release);
  }
  if (b.leader())
    while (atomic_ref<unsigned, scope::device>(a.go).load(order::relaxed) != turn) platform::backoff();
  b.sync();
  std::uint64_t const t0 = platform::clock_ns();
  std::int64_t const first = a.words * b.index() / b.count(), last = a.words * (b.index() + 1) / b.count();
  copy(b, a.from + first, a.to + first, last - first);
  platform::drain_stores();
  b.sync();
  if (!b.leader()) return;
  platform::fence<order::release, scope::system>();  // the stores have arrived
  atomic_ref<unsigned long long, scope::device>(a.ns).fetch_max(platform::clock_ns() - t0, order::relaxed);
}

__global__ void ping_pong(world_view w, sym<flag> f, epoch_t first, unsigned long long* ns) {
  thread const me;
  std::uint64_t const t0 = platform::clock_ns();
  for (epoch_t i = first; i < first + rounds; ++i)
    if (w.rank == 0) {
      signal(me, w.on(1, f), i);
      wait(me, w, w.here(f), i, 1);
    } else if (w.rank == 1) {
      wait(me, w, w.here(f), i, 0);
      signal(me, w.on(0, f), i);
    }
  *ns = platform::clock_ns() - t0;
}

__global__ void barriers(world_view w, sym<barrier_state> s, unsigned long long* ns) {
  block const b;
  barrier(b, w, s);
  std::uint64_t const t0 = platform::clock_ns();
  for (int i = 0; i < rounds; ++i) barrier(b, w, s);
  if (b.leader()) *ns = platform::clock_ns() - t0;
}

/// Runs launch(world, heap, i) `repeats` times on every rank and hands rank 0's nanoseconds to the benchmark, divided by `per`.
template <class Prepare>
void measure(benchmark::State& state, int ranks, double per, heap_options const& options, Prepare prepare) {
  if (gpus() < ranks) {
    state.SkipWithError("needs more GPUs");
    return;
  }
  std::vector<double> seconds;
  try {
    run_local(ranks, [&](world& w) {
      heap h(w, options);
      auto* const ns = h.view().here(h.allocate<unsigned long long>(1));
      auto const launch_once = prepare(w, h, ns);
      for (int i = 0; i < repeats; ++i) {
        check_hip(hipMemsetAsync(ns, 0, 8, w.stream()), "hipMemsetAsync");
        launch_once(i);
        w.check(w.stream());
        unsigned long long took;
        check_hip(hipMemcpy(&took, ns, 8, hipMemcpyDeviceToHost), "hipMemcpy");
        if (w.rank() == 0) seconds.push_back(double(took) / per * 1e-9);
        w.barrier();
      }
    });
  } catch (error const& e) {
    state.SkipWithError(e.what());
    return;
  }
  std::size_t i = 0;
  for (auto _ : state) state.SetIterationTime(seconds[i++ % seconds.size()]);
  std::sort(seconds.begin(), seconds.end());
  state.counters["median_us"] = seconds[seconds.size() / 2] * 1e6;
}

void copies(benchmark::State& state, bool push) {
  int const blocks = int(state.range(0));
  std::int64_t const bytes = state.range(1);
  measure(state, 2, 1, {.bulk = std::size_t(2 * bytes) + 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
    auto const from = h.allocate<bytes16>(std::size_t(bytes / 16)), to = h.allocate<bytes16>(std::size_t(bytes / 16));
    auto const start = h.allocate<barrier_state>(1);
    auto const go = h.allocate<unsigned>(1);
    check_hip(hipMemset(h.view().here(go), 0, 4), "hipMemset");
    check_hip(hipMemset(h.view().here(from), 0x5a, std::size_t(bytes)), "hipMemset");
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
    int const other = 1 - w.rank();
    copy_arguments const a{h.view().on(push ? w.rank() : other, from), h.view().on(push ? other : w.rank(), to), bytes / 16, start, h.view().here(go), ns};
    return [&w, view = h.view(), a, blocks](int i) { launch(w, w.stream(), {.blocks = blocks, .threads = threads}, copy_kernel, view, a, unsigned(i + 1)); };
  });
  state.SetBytesProcessed(state.iterations() * bytes);
}

void signals(benchmark::State& state, double per_round) {
  measure(state, 2, rounds * per_round, {.bulk = 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
    auto const f = h.allocate<flag>(1);
    return [&w, view = h.view(), f, ns](int i) { launch(w, w.stream(), {.blocks = 1, .threads = 1}, ping_pong, view, f, epoch_t(1 + i * rounds), ns); };
  });
}

void barrier_of_all(benchmark::State& state) {
  measure(state, int(state.range(0)), rounds, {.bulk = 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
    auto const s = h.allocate<barrier_state>(1);
    return [&w, view = h.view(), s, ns](int) { launch(w, w.stream(), {.blocks = 1, .threads = 64}, barriers, view, s, ns); };
  });
}

void configure(benchmark::internal::Benchmark* b) { b->UseManualTime()->Iterations(repeats)->Unit(benchmark::kMicrosecond); }

}  // namespace

int main(int argc, char** argv) {
  for (bool const push : {true, false})
    for (int const blocks : {4, 16, 32, 64})
      for (std::int64_t const bytes : {std::int64_t(1) << 20, std::int64_t(1) << 26})
        configure(benchmark::RegisterBenchmark(push ? "copy/push" : "copy/pull", copies, push)->Args({blocks, bytes})->ArgNames({"blocks", "bytes"}));
  configure(benchmark::RegisterBenchmark("signal/one_way", signals, 2.0));
  configure(benchmark::RegisterBenchmark("signal/round_trip", signals, 1.0));
  for (int const ranks : {2, 4, 8}) configure(benchmark::RegisterBenchmark("barrier", barrier_of_all)->Arg(ranks)->ArgName("ranks"));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
