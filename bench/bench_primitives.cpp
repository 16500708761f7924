// Latency and bandwidth of the primitives between two GPUs: loads, stores and atomics of one thread, copies, signals,
// barriers. And what launches cost that those avoid.
//
//   bench_primitives [--benchmark_filter=REGEX] [--benchmark_out=FILE --benchmark_out_format=json] ...
//
// Names: load, store (each released), atomic/fetch_add, copy/DIRECTION/GROUP/blocks:b/bytes:n (bytes_per_second: of one
// GPU to its peer), copy_all/DIRECTION/GROUP/ranks:w/blocks:b/bytes:n (the same to, or from, each of w - 1 peers at
// once, b blocks and n bytes for each; bytes_per_second: of one of them), signal/one_way, signal/round_trip,
// barrier/ranks:w, launch/graph, launch/stream. A name that ends in `plain`, or has it as its group, does the same
// without the library: a loop over pointers, or a flag without limit or report. The counter `target` is in GB/s for
// copies, in us for signals. A time is that of one operation, by the clock of rank 0's device; launch/... is the time
// from one empty kernel to the next, by events. With fewer than two GPUs the others are skipped.
#include "harness.hpp"

using namespace fusewire;
using namespace fusewire::bench;

namespace {

constexpr int threads = 512, repeats = 15, rounds = 200;

struct copy_arguments {
  sym<bytes16> from, to;     // to: of each source, one after the other
  std::int64_t words;        // of 16 bytes, for each peer
  bool push;                 // to peers; else from them
  sym<barrier_state> start;  // at which all ranks sync
  unsigned* go;              // set by block 0 when they have met
  unsigned long long* ns;    // time of the slowest block, from the common start
};

/// Used in place of a group: copies without calls of the library.
struct plain {};

/// Which of the blocks that copy the same words the calling one is.
struct part_of_copy {
  int part, parts;
};

/// Each thread has eight accesses of 16 bytes in flight.
__device__ void plain_copy(bytes16 const* from, bytes16* to, std::int64_t words, part_of_copy p) {
  constexpr int flight = 8;
  std::int64_t const threads_of_all = std::int64_t(p.parts) * blockDim.x;
  std::int64_t i = std::int64_t(p.part) * blockDim.x + threadIdx.x;
  for (; i + (flight - 1) * threads_of_all < words; i += flight * threads_of_all) {
    bytes16 w[flight];
#pragma unroll
    for (int j = 0; j < flight; ++j) w[j] = from[i + j * threads_of_all];
#pragma unroll
    for (int j = 0; j < flight; ++j) to[i + j * threads_of_all] = w[j];
  }
  for (; i < words; i += threads_of_all) to[i] = from[i];
}

template <class Group>
__device__ void copy_by(bytes16 const* from, bytes16* to, std::int64_t words, part_of_copy p) {
  if constexpr (std::is_same_v<Group, plain>) {
    plain_copy(from, to, words, p);
  } else {
    block const b;
    Group const g;
    int const groups = b.size() / g.size(), group = p.part * groups + b.rank() / g.size(), all = p.parts * groups;
    std::int64_t const first = words * group / all, last = words * (group + 1) / all;
    copy(g, from + first, to + first, last - first);
  }
}

/// Each block copies its part for one of the peers. All ranks copy at the same time, so that both directions of the
/// links are busy.
///   Deadlock: all blocks are resident; block 0 syncs with the other ranks before it releases its own blocks.
template <class Group>
__global__ void __launch_bounds__(threads) copy_kernel(world_view w, copy_arguments a, unsigned turn) {
  block const b;
  if (b.index() == 0) {
    barrier(b, w, a.start);
    if (b.leader()) atomic_ref<unsigned, scope::device>(a.go).store(turn, order::release);
  }
  if (b.leader()) {
    while (atomic_ref<unsigned, scope::device>(a.go).load(order::relaxed) != turn) platform::backoff();
    platform::acquire_polled<scope::system>(a.go);  // so that no cache keeps what the launch before has read of a peer
  }
  b.sync();
  int const peers = w.size() - 1, peer = w.next(1 + b.index() % peers), source = a.push ? w.rank() : peer;
  std::uint64_t const t0 = platform::clock_ns();
  copy_by<Group>(w.on(source, a.from), w.on(a.push ? peer : w.rank(), a.to) + source * a.words, a.words,
                 {b.index() / peers, b.count() / peers});
  platform::drain_stores();
  b.sync();
  if (!b.leader()) return;
  platform::fence<order::release, scope::system>();  // the stores have arrived
  atomic_ref<unsigned long long, scope::device>(a.ns).fetch_max(platform::clock_ns() - t0, order::relaxed);
}

enum class access { load, store, fetch_add };

/// One thread accesses the next rank's memory, one access after the other. Only the times of rank 0 count.
__global__ void one_by_one(world_view w, sym<unsigned> x, access what, unsigned long long* ns) {
  atomic_ref<unsigned> const theirs(w.on(w.next(1), x) + w.rank());
  std::uint64_t const t0 = platform::clock_ns();
  unsigned last = 0;
  for (int i = 0; i < rounds && w.rank() == 0; ++i) {
    if (what == access::load) last += theirs.load(order::acquire);
    if (what == access::store) theirs.store(unsigned(i), order::release);
    if (what == access::fetch_add) last = theirs.fetch_add(last % 2 + 1, order::relaxed);
  }
  *ns = platform::clock_ns() - t0 + (last == 0xffffffff);
}

__global__ void ping_pong(world_view w, sym<flag> f, epoch_t first, unsigned long long* ns) {
  thread const me;
  std::uint64_t const t0 = platform::clock_ns();
  for (epoch_t i = first; i < first + rounds; ++i)
    if (w.rank() == 0) {
      signal(me, w.on(1, f), i);
      wait(me, w, w.here(f), i, 1);
    } else if (w.rank() == 1) {
      wait(me, w, w.here(f), i, 0);
      signal(me, w.on(0, f), i);
    }
  *ns = platform::clock_ns() - t0;
}

/// Gives up after 2^24 polls, a few seconds; its times mean nothing then.
__global__ void ping_pong_plain(world_view w, sym<flag> f, epoch_t first, unsigned long long* ns) {
  std::uint64_t const t0 = platform::clock_ns();
  auto const raise = [&](int rank, epoch_t i) {
    platform::atomic_store<order::release, scope::system>(&w.on(rank, f)->value, i);
  };
  int left = 1 << 24;
  auto const poll = [&](epoch_t i) {
    while (--left > 0 && platform::atomic_load<order::acquire, scope::system>(&w.here(f)->value) != i)
      platform::backoff();
  };
  for (epoch_t i = first; i < first + rounds; ++i)
    if (w.rank() == 0) {
      raise(1, i);
      poll(i);
    } else if (w.rank() == 1) {
      poll(i);
      raise(0, i);
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

void report(benchmark::State& state, std::vector<double> const& seconds) {
  for (auto _ : state) state.SetIterationTime(median(seconds));
  state.counters["min_us"] = *std::min_element(seconds.begin(), seconds.end()) * 1e6;
  state.counters["max_us"] = *std::max_element(seconds.begin(), seconds.end()) * 1e6;
}

/// Runs launch(world, heap, i) `repeats` times on every rank and hands rank 0's nanoseconds to the benchmark, divided
/// by `per`.
template <class Prepare>
void on_ranks(benchmark::State& state, int ranks, double per, heap_options const& options, Prepare prepare) {
  if (!progress::get().begins(state)) return;
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
  report(state, seconds);
}

void accesses(benchmark::State& state, access what) {
  on_ranks(state, 2, rounds, {.bulk = 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
    auto const x = h.allocate<unsigned>(std::size_t(w.size()));
    check_hip(hipMemset(h.view().here(x), 0, 4 * std::size_t(w.size())), "hipMemset");
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
    w.barrier();
    return [&w, view = h.view(), x, what, ns](int) {
      launch(w, w.stream(), {.blocks = 1, .threads = 1}, one_by_one, view, x, what, ns);
    };
  });
}

template <class Group>
void copies(benchmark::State& state, bool push, bool all) {
  int const ranks = all ? int(state.range(0)) : 2, blocks = int(state.range(all)) * (ranks - 1);
  std::int64_t const bytes = state.range(all + 1);
  auto const total = std::size_t(bytes) * std::size_t(ranks);
  on_ranks(
      state, ranks, 1, {.bulk = total + std::size_t(bytes) + 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
        copy_arguments const a{h.allocate<bytes16>(std::size_t(bytes / 16)),
                               h.allocate<bytes16>(total / 16),
                               bytes / 16,
                               push,
                               h.allocate<barrier_state>(1),
                               h.view().here(h.allocate<unsigned>(1)),
                               ns};
        check_hip(hipMemset(a.go, 0, 4), "hipMemset");
        check_hip(hipMemset(h.view().here(a.from), 0x5a, std::size_t(bytes)), "hipMemset");
        check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
        return [&w, view = h.view(), a, blocks](int i) {
          launch(w, w.stream(), {.blocks = blocks, .threads = threads}, copy_kernel<Group>, view, a, unsigned(i + 1));
        };
      });
  state.SetBytesProcessed(state.iterations() * bytes);
  // 97 % of what a plain kernel reaches
  if (!all && bytes >= 64 << 20 && !std::is_same_v<Group, plain>) state.counters["target"] = 0.97 * (push ? 367 : 371);
}

void signals(benchmark::State& state, double per_round, bool by_library) {
  on_ranks(state, 2, rounds * per_round, {.bulk = 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
    auto const f = h.allocate<flag>(1);
    return [&w, view = h.view(), f, ns, by_library](int i) {
      launch(w, w.stream(), {.blocks = 1, .threads = 1}, by_library ? ping_pong : ping_pong_plain, view, f,
             epoch_t(1 + i * rounds), ns);
    };
  });
  if (by_library) state.counters["target"] = 1.1 * 1.32 * 2 / per_round;  // of what a plain flag takes
}

void barrier_of_all(benchmark::State& state) {
  on_ranks(state, int(state.range(0)), rounds, {.bulk = 1_MiB}, [&](world& w, heap& h, unsigned long long* ns) {
    auto const s = h.allocate<barrier_state>(1);
    return [&w, view = h.view(), s, ns](int) {
      launch(w, w.stream(), {.blocks = 1, .threads = 64}, barriers, view, s, ns);
    };
  });
}

__global__ void empty() {}

/// Empty kernels, one behind the other: nodes of a graph, or enqueued by the host, which may be slower than the device.
void launches(benchmark::State& state, bool as_graph) {
  if (!progress::get().begins(state)) return;
  constexpr int kernels = 64;
  std::vector<double> seconds;
  try {
    run_local(1, [&](world& w) {
      hipStream_t const stream = w.stream();
      auto const enqueue = [&](int count) {
        for (int i = 0; i < count; ++i) launch(w, stream, {.blocks = 1, .threads = 64}, empty);
      };
      hipEvent_t start, stop;
      check_hip(hipEventCreate(&start), "hipEventCreate");
      check_hip(hipEventCreate(&stop), "hipEventCreate");
      auto const us_of = [&](int count) {
        hipGraphExec_t exec = nullptr;
        if (as_graph) {
          hipGraph_t graph;
          check_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
          enqueue(count);
          check_hip(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
          check_hip(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
          check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
          check_hip(hipGraphLaunch(exec, stream), "hipGraphLaunch");  // the first one is slower
        }
        check_hip(hipEventRecord(start, stream), "hipEventRecord");
        if (exec) check_hip(hipGraphLaunch(exec, stream), "hipGraphLaunch");
        else enqueue(count);
        check_hip(hipEventRecord(stop, stream), "hipEventRecord");
        w.check(stream);
        float ms = 0;
        check_hip(hipEventElapsedTime(&ms, start, stop), "hipEventElapsedTime");
        if (exec) check_hip(hipGraphExecDestroy(exec), "hipGraphExecDestroy");
        return double(ms) * 1e3;
      };
      for (int i = 0; i < repeats; ++i) seconds.push_back((us_of(kernels + 1) - us_of(1)) / kernels * 1e-6);
      check_hip(hipEventDestroy(start), "hipEventDestroy");
      check_hip(hipEventDestroy(stop), "hipEventDestroy");
    });
  } catch (error const& e) {
    state.SkipWithError(e.what());
    return;
  }
  report(state, seconds);
}

benchmark::internal::Benchmark* configure(benchmark::internal::Benchmark* b) {
  return b->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  command_line c(argc, argv, "bench_primitives [--budget=S]");
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  using arguments = std::vector<std::pair<std::string, std::int64_t>>;
  auto const add = [](std::string const& name, arguments const& all, auto... f) {
    std::string full = name;
    std::vector<std::string> what;
    std::vector<std::int64_t> values;
    for (auto const& [of, value] : all) {
      full += text('/', of, ':', value);
      what.push_back(of);
      values.push_back(value);
    }
    if (!selected(full)) return;
    progress::get().plan();
    auto* const b = configure(benchmark::RegisterBenchmark(name.c_str(), f...));
    if (!all.empty()) b->Args(values)->ArgNames(what);
  };
  add("load", {}, accesses, access::load);
  add("store", {}, accesses, access::store);
  add("atomic/fetch_add", {}, accesses, access::fetch_add);
  for (bool const push : {true, false}) {
    std::string const direction = push ? "copy/push/" : "copy/pull/";
    for (int const blocks : {4, 16, 32, 64})
      for (std::int64_t const bytes : {std::int64_t(1) << 20, std::int64_t(1) << 26}) {
        arguments const size{{"blocks", blocks}, {"bytes", bytes}};
        add(direction + "thread", size, copies<thread>, push, false);
        add(direction + "wave", size, copies<wave>, push, false);
        add(direction + "block", size, copies<block>, push, false);
        add(direction + "plain", size, copies<plain>, push, false);
      }
    for (int const ranks : {4, 8})
      for (std::int64_t const bytes : {std::int64_t(1) << 20, std::int64_t(1) << 24})
        add(push ? "copy_all/push/block" : "copy_all/pull/block", {{"ranks", ranks}, {"blocks", 16}, {"bytes", bytes}},
            copies<block>, push, true);
  }
  add("signal/one_way", {}, signals, 2.0, true);
  add("signal/one_way_plain", {}, signals, 2.0, false);
  add("signal/round_trip", {}, signals, 1.0, true);
  add("signal/round_trip_plain", {}, signals, 1.0, false);
  for (int const ranks : {2, 4, 8}) add("barrier", {{"ranks", ranks}}, barrier_of_all);
  add("launch/graph", {}, launches, true);
  add("launch/stream", {}, launches, false);
  add_context(gpus());
  run_benchmarks(to_file);
  benchmark::Shutdown();
  return 0;
}
