// How the benchmarks measure: ranks that live as long as the program; R iterations per replay of a graph; variants that take turns.
//
//   per replay:  poison outputs | ranks meet on the device | start event | R iterations | stop event | clock | check outputs
//
// A figure is the median over the repeats of the slowest rank's time, divided by R.
#pragma once
#include <benchmark/benchmark.h>
#include <fusewire/fusewire.hpp>

#include "commit.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace fusewire::bench {

// ---- command line -----------------------------------------------------------------------------------------------------------------

/// Takes --name and --name=value out of the arguments; what is left is Google Benchmark's. Ends the program after --help, which prints `usage`, and
/// with 2 after a value that is not accepted.
class command_line {
 public:
  command_line(int& argc, char** argv, char const* usage) : argc_(argc), argv_(argv) {
    if (!take("help")) return;
    std::printf("usage: %s\nand Google Benchmark's options:\n", usage);
    benchmark::PrintDefaultHelp();
    std::exit(0);
  }
  std::optional<std::string> take(std::string const& name) {
    for (int i = 1; i < argc_; ++i) {
      std::string const a = argv_[i], want = "--" + name;
      if (a != want && a.rfind(want + "=", 0) != 0) continue;
      for (int j = i; j < argc_; ++j) argv_[j] = argv_[j + 1];
      --argc_;
      return a == want ? "" : a.substr(want.size() + 1);
    }
    return std::nullopt;
  }
  bool flag(std::string const& name) { return take(name).has_value(); }
  /// `accepted`: a pattern for each word.
  std::vector<std::string> words(std::string const& name, char const* accepted, std::vector<std::string> otherwise) {
    auto const given = take(name);
    if (!given) return otherwise;
    std::vector<std::string> all;
    std::stringstream s(*given);
    for (std::string word; std::getline(s, word, ',');) {
      if (!std::regex_match(word, std::regex(accepted, std::regex::extended))) refuse(name, word, accepted);
      all.push_back(word);
    }
    if (all.empty()) refuse(name, "", accepted);
    return all;
  }
  std::vector<int> numbers(std::string const& name, std::vector<int> otherwise, char const* accepted = "[1-9][0-9]{0,8}") {
    std::vector<int> all;
    for (auto const& word : words(name, accepted, {})) all.push_back(std::stoi(word));
    return all.empty() ? otherwise : all;
  }
  int number(std::string const& name, int otherwise, char const* accepted = "[1-9][0-9]{0,8}") { return std::stoi(words(name, accepted, {text(otherwise)})[0]); }

 private:
  [[noreturn]] static void refuse(std::string const& name, std::string const& word, char const* accepted) {
    std::fprintf(stderr, "--%s=%s is not accepted; what matches %s is; --help shows all options\n", name.c_str(), word.c_str(), accepted);
    std::exit(2);
  }

  int& argc_;
  char** argv_;
};

inline bool selected(std::string const& name) {
  std::string filter = benchmark::GetBenchmarkFilter();
  bool const inverse = !filter.empty() && filter[0] == '-';
  if (inverse) filter.erase(0, 1);
  return filter.empty() || filter == "all" || std::regex_search(name, std::regex(filter, std::regex::extended)) != inverse;
}

inline int gpus() { return device_count(); }

/// Provenance for the JSON: what ran where.
inline void add_context(int ranks) {
  if (gpus() == 0) return;
  hipDeviceProp_t p;
  check_hip(hipGetDeviceProperties(&p, 0), "hipGetDeviceProperties");
  std::string name = p.name;
  if (name.rfind("NVIDIA ", 0) == 0) name.erase(0, 7);
  int runtime = 0, driver_api = 0;
  check_hip(hipRuntimeGetVersion(&runtime), "hipRuntimeGetVersion");
  check_hip(hipDriverGetVersion(&driver_api), "hipDriverGetVersion");
  std::ifstream file("/proc/driver/nvidia/version");
  std::string const text_of((std::istreambuf_iterator<char>(file)), {});
  std::smatch found;
  std::string const driver = std::regex_search(text_of, found, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+")) ? found.str() : text("for runtime ", driver_api);
  benchmark::AddCustomContext("machine", text(ranks, "x ", name));
  benchmark::AddCustomContext("driver", driver);
  benchmark::AddCustomContext("runtime", text(runtime));
  benchmark::AddCustomContext("commit", FUSEWIRE_COMMIT);
}

/// Reports the names that were registered, without what Google Benchmark appends to them.
template <class Reporter>
struct plain_names : Reporter {
  using Reporter::Reporter;
  void ReportRuns(std::vector<benchmark::BenchmarkReporter::Run> const& runs) override {
    auto plain = runs;
    for (auto& r : plain) r.run_name.iterations = r.run_name.time_type = "";
    Reporter::ReportRuns(plain);
  }
};

/// Runs what is registered; `to_file`: --benchmark_out was given.
inline void run_benchmarks(bool to_file) {
  plain_names<benchmark::ConsoleReporter> console(benchmark::ConsoleReporter::OO_None);
  plain_names<benchmark::JSONReporter> file;
  benchmark::RunSpecifiedBenchmarks(&console, to_file ? &file : nullptr);
}
inline bool writes_file(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](char const* a) { return std::string(a).rfind("--benchmark_out=", 0) == 0; });
}

// ---- device side ------------------------------------------------------------------------------------------------------------------

/// A standard normal number that depends on the index alone.
__device__ inline float normal(std::uint64_t index, std::uint64_t seed) {
  auto const mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  };
  std::uint64_t const h = mix(mix(index + seed * 0x9e3779b97f4a7c15ull) + 0x632be59bd9b4e019ull);
  float const u = float((h >> 40) + 1) * 0x1p-24f, v = float(std::uint32_t(h) >> 8) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

/// out [rows, cols] of the block (first_row, first_col) of a matrix with `width` columns whose elements are normal(index, seed).
template <class T>
__global__ void fill_normal(T* out, std::int64_t rows, std::int64_t cols, std::int64_t first_row, std::int64_t first_col, std::int64_t width, std::uint64_t seed) {
  std::int64_t const step = std::int64_t(gridDim.x) * blockDim.x;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * cols; i += step)
    out[i] = T(normal(std::uint64_t((first_row + i / cols) * width + first_col + i % cols), seed));
}

/// All ranks begin what follows together: the host has time to enqueue it, then they meet.
__global__ void start_together(world_view w, sym<barrier_state> s, std::uint64_t head_start) {
  block const b;
  std::uint64_t const t0 = platform::clock_ns();
  while (platform::clock_ns() - t0 < head_start) platform::backoff();
  barrier(b, w, s);
}

/// What makes a rank late; 0: a kernel that ends at once.
__global__ void stand_still(std::uint64_t ns) {
  std::uint64_t const t0 = platform::clock_ns();
  while (platform::clock_ns() - t0 < ns) platform::backoff();
}

/// The clock of the compute units, in MHz.
__global__ void probe_clock(float* mhz) {
  auto const c0 = clock64();
  std::uint64_t const t0 = platform::clock_ns();
  std::uint64_t t1 = t0;
  while ((t1 = platform::clock_ns()) - t0 < 20'000) {}
  *mhz = float(clock64() - c0) * 1e3f / float(t1 - t0);
}

struct sums {
  double error2, reference2;
};

/// Adds up |x - reference|^2 and |reference|^2; a number that is not one, such as the poison, stays in the sum.
template <class T>
__global__ void compare(T const* x, float const* reference, std::int64_t n, sums* out) {
  double e = 0, r = 0;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = std::int64_t(gridDim.x) * blockDim.x; i < n; i += step) {
    float const d = float(x[i]) - reference[i];
    e += double(d) * d;
    r += double(reference[i]) * reference[i];
  }
  atomic_ref<double, scope::device>(&out->error2).fetch_add(e, order::relaxed);
  atomic_ref<double, scope::device>(&out->reference2).fetch_add(r, order::relaxed);
}

/// C [m, n] = A [m, k] B in fp32; element (k, n) of B is b[k * k_step + n * n_step]. Plain on purpose: it is what the others are checked by.
template <class T>
__global__ void __launch_bounds__(256) reference_gemm(T const* a, T const* b, float* c, int m, int n, int k, std::int64_t k_step, std::int64_t n_step) {
  __shared__ float as[16][68], bs[16][68];
  int const m0 = int(blockIdx.y) * 64, n0 = int(blockIdx.x) * 64, t = int(threadIdx.x), tm = t / 16 * 4, tn = t % 16 * 4;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = t; i < 1024; i += 256) {
      int const row = i / 16, kk = i % 16;
      as[kk][row] = m0 + row < m && k0 + kk < k ? float(a[std::int64_t(m0 + row) * k + k0 + kk]) : 0.0f;
      bs[kk][row] = n0 + row < n && k0 + kk < k ? float(b[(k0 + kk) * k_step + (n0 + row) * n_step]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; ++kk)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += as[kk][tm + i] * bs[kk][tn + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (m0 + tm + i < m && n0 + tn + j < n) c[std::int64_t(m0 + tm + i) * n + n0 + tn + j] = sum[i][j];
}

/// Device memory of one rank.
class buffer {
 public:
  buffer() = default;
  explicit buffer(std::size_t bytes) : bytes_(bytes) { check_hip(hipMalloc(&data_, bytes), "hipMalloc"); }
  buffer(buffer&& b) noexcept : data_(std::exchange(b.data_, nullptr)), bytes_(b.bytes_) {}
  buffer& operator=(buffer&& b) noexcept {
    std::swap(data_, b.data_);
    std::swap(bytes_, b.bytes_);
    return *this;
  }
  ~buffer() { (void)hipFree(data_); }
  template <class T>
  T* as() const { return reinterpret_cast<T*>(data_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// ---- ranks ------------------------------------------------------------------------------------------------------------------------

/// What every rank has for all shapes.
struct rank_base {
  explicit rank_base(world& w_, std::size_t bulk, std::size_t signal) : w(w_), h(w, {.bulk = bulk, .signal = signal, .wait_limit = std::chrono::seconds(2)}) {
    meet = h.allocate<barrier_state>(1);
    check_hip(hipEventCreate(&start), "hipEventCreate");
    check_hip(hipEventCreate(&stop), "hipEventCreate");
  }
  ~rank_base() {
    (void)hipEventDestroy(start);
    (void)hipEventDestroy(stop);
  }
  hipStream_t stream() const { return w.stream(); }

  /// Calls f on this rank alone and tells all ranks whether it failed on any: an empty text if it did not.
  template <class F>
  std::string attempt(F f) {
    struct outcome {
      int rank_of_error;  // 0: none, 1: a consequence, 2: the reason
      char what[400];
    } mine{};
    auto const failed = [&](int how, char const* what) {
      mine.rank_of_error = how;
      std::snprintf(mine.what, sizeof mine.what, "%s", what);
    };
    try {
      f();
    } catch (launch_abandoned const& e) {
      failed(1, e.what());
    } catch (std::exception const& e) {
      failed(2, e.what());
    }
    outcome worst{};
    for (auto const& o : w.exchange().all_gather(mine))
      if (o.rank_of_error > worst.rank_of_error) worst = o;
    return worst.what;
  }

  world& w;
  heap h;
  sym<barrier_state> meet;
  buffer scratch{256};  // sums at 0, MHz at 128
  hipEvent_t start, stop;
};

/// Rank threads that take one job after the other. A job that fails ends them, and the next run() starts new ones.
template <class State>
class team {
 public:
  team(int ranks, std::function<std::unique_ptr<State>(world&)> make) : ranks_(ranks), make_(std::move(make)) {}
  ~team() { stop(); }

  /// Calls job(state) on every rank. Rethrows what a rank threw. A job that takes longer than 90 s is a hang, and ends the program.
  void run(std::function<void(State&)> job) {
    std::unique_lock lock(m_);
    if (!host_.joinable()) start();
    job_ = std::move(job);
    done_ = 0;
    ++turn_;
    wake_.notify_all();
    if (!wake_.wait_for(lock, std::chrono::seconds(90), [&] { return done_ == ranks_ || ended_; })) {
      std::fprintf(stderr, "no answer from the ranks for 90 s; giving up\n");
      std::_Exit(3);
    }
    if (!ended_) return;
    lock.unlock();
    host_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void start() {
    ended_ = quit_ = false;
    failure_ = nullptr;
    int const first = turn_;
    host_ = std::thread([this, first] {
      std::exception_ptr failure;
      try {
        run_local(ranks_, [&](world& w) {
          auto const state = make_(w);
          for (int turn = first;;) {
            std::function<void(State&)> job;
            {
              std::unique_lock lock(m_);
              wake_.wait(lock, [&] { return quit_ || turn_ != turn; });
              if (quit_) return;
              turn = turn_;
              job = job_;
            }
            job(*state);
            w.barrier();
            std::lock_guard const lock(m_);
            if (++done_ == ranks_) wake_.notify_all();
          }
        });
      } catch (...) {
        failure = std::current_exception();
      }
      std::lock_guard const lock(m_);
      failure_ = failure;
      ended_ = true;
      wake_.notify_all();
    });
  }
  void stop() {
    if (!host_.joinable()) return;
    {
      std::lock_guard const lock(m_);
      quit_ = true;
      wake_.notify_all();
    }
    host_.join();
  }

  int ranks_;
  std::function<std::unique_ptr<State>(world&)> make_;
  std::mutex m_;
  std::condition_variable wake_;
  std::function<void(State&)> job_;
  int turn_ = 0, done_ = 0;
  bool quit_ = false, ended_ = false;
  std::exception_ptr failure_;
  std::thread host_;
};

// ---- measuring --------------------------------------------------------------------------------------------------------------------

/// One way to do the job of a shape, on one rank.
struct variant {
  std::string name;
  std::function<void(int)> iteration;       // enqueues the i-th
  bool graph = true;
  std::function<void()> poison, check;      // enqueue; check adds to the sums
  std::optional<int> late = {};             // us: in turns, one rank per iteration begins it that much later
};

/// --late=US,...; `taxes`: some, if it is not given. With any there is 0, too, which the others are compared with.
inline std::vector<int> late_times(command_line& c, bool taxes) {
  auto late = c.numbers("late", taxes ? std::vector{0, 10, 40} : std::vector<int>{}, "0|[1-9][0-9]{0,5}");
  if (!late.empty() && std::find(late.begin(), late.end(), 0) == late.end()) late.insert(late.begin(), 0);
  return late;
}

/// The names under which a variant is measured with late ranks, NAME/late:US; none if its ranks do not communicate, or it is not in a graph.
inline std::vector<std::string> late_names(std::string const& name, std::vector<int> const& late) {
  std::vector<std::string> all;
  if (name == "bsp_graph" || name == "pull" || name == "push" || name == "chosen" || name == "fused")
    for (int const us : late) all.push_back(text(name, "/late:", us));
  return all;
}

/// The names and all their late_names().
inline std::vector<std::string> with_late(std::vector<std::string> names, std::vector<int> const& late) {
  for (auto const& name : std::vector(names))
    for (auto const& of_late : late_names(name, late)) names.push_back(of_late);
  return names;
}

/// Appends the variants again, with late ranks, under their late_names().
inline void add_late(std::vector<variant>& variants, std::vector<int> const& late) {
  for (auto const& v : std::vector(variants)) {
    auto const names = late_names(v.name, late);
    for (std::size_t i = 0; i < names.size(); ++i) variants.push_back({names[i], v.iteration, v.graph, v.poison, v.check, late[i]});
  }
}

struct figure {
  std::string name, failure;
  double us = 0, least = 0, most = 0, error = 0, mhz = 0;  // us: the median
  double kernels = 0, host_us = 0;                         // of an iteration: kernels in the graph; without one, what the slowest rank's host needs to enqueue it
};

class graph_exec {
 public:
  graph_exec() = default;
  graph_exec(graph_exec&& g) noexcept : exec_(std::exchange(g.exec_, nullptr)) {}
  ~graph_exec() {
    if (exec_) (void)hipGraphExecDestroy(exec_);
  }
  /// Returns the number of kernels.
  template <class F>
  int capture(hipStream_t stream, F enqueue) {
    hipGraph_t graph = nullptr;
    check_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
    try {
      enqueue();
    } catch (...) {
      (void)hipStreamEndCapture(stream, &graph);
      throw;
    }
    check_hip(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
    check_hip(hipGraphInstantiate(&exec_, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
    std::size_t count = 0;
    check_hip(hipGraphGetNodes(graph, nullptr, &count), "hipGraphGetNodes");
    std::vector<hipGraphNode_t> nodes(count);
    check_hip(hipGraphGetNodes(graph, nodes.data(), &count), "hipGraphGetNodes");
    int const kernels = int(std::count_if(nodes.begin(), nodes.end(), [](hipGraphNode_t node) {
      hipGraphNodeType type;
      check_hip(hipGraphNodeGetType(node, &type), "hipGraphNodeGetType");
      return type == hipGraphNodeTypeKernel;
    }));
    check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
    return kernels;
  }
  void launch(hipStream_t stream) const { check_hip(hipGraphLaunch(exec_, stream), "hipGraphLaunch"); }

 private:
  hipGraphExec_t exec_ = nullptr;
};

/// Microseconds that `enqueue` took on this rank's device, from the moment at which all ranks began.
template <class F>
double timed(rank_base& s, F enqueue, std::function<void()> const& before = {}, std::function<void()> const& after = {}) {
  if (before) before();
  launch(s.w, s.stream(), {.blocks = 1, .threads = 64}, start_together, s.h.view(), s.meet, std::uint64_t(150'000));
  check_hip(hipEventRecord(s.start, s.stream()), "hipEventRecord");
  enqueue();
  check_hip(hipEventRecord(s.stop, s.stream()), "hipEventRecord");
  if (after) after();
  s.w.check(s.stream());
  float ms = 0;
  check_hip(hipEventElapsedTime(&ms, s.start, s.stop), "hipEventElapsedTime");
  return double(ms) * 1e3;
}

inline double slowest(rank_base& s, double mine) {
  auto const all = s.w.exchange().all_gather(mine);
  return *std::max_element(all.begin(), all.end());
}
inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// The n variants in the order of a round. From round to round each follows another one, until it has followed all (where n, or n + 1, is prime):
/// what ran just before decides how hot a device is.
inline std::vector<std::size_t> order_of_round(std::size_t n, std::size_t round) {
  std::size_t prime = std::max<std::size_t>(n, 2);
  for (std::size_t d = 2; d * d <= prime; ++d)
    if (prime % d == 0) ++prime, d = 1;
  std::vector<std::size_t> order;
  for (std::size_t i = 0, step = 1 + round % (prime - 1); i < prime; ++i)
    if (std::size_t const v = (i * step + round) % prime; v < n) order.push_back(v);
  return order;
}

/// Measures the variants in turns, R iterations at a time, in rounds of which the first is a warm-up.
/// `recover` is called on all ranks after a failure. Collective; the same figures on every rank.
inline std::vector<figure> measure(rank_base& s, std::vector<variant> const& variants, int R, int repeats, std::function<void()> const& recover) {
  std::size_t const n = variants.size();
  std::vector<figure> figures(n);
  std::vector<graph_exec> graphs(n);
  std::vector<std::vector<double>> times(n), host_times(n);
  std::vector<sums> totals(n, sums{0, 0});
  auto const all_iterations = [&](std::size_t v) {
    for (int i = 0; i < R; ++i) {
      if (variants[v].late && i % s.w.size() == s.w.rank()) stand_still<<<dim3(1), dim3(1), 0, s.stream()>>>(std::uint64_t(*variants[v].late) * 1000);
      variants[v].iteration(i);
    }
  };
  auto const fail = [&](std::size_t v, std::string const& why) {
    if (why.empty()) return;
    figures[v].failure = why;
    recover();
  };
  for (std::size_t v = 0; v < n; ++v) {
    figures[v].name = variants[v].name;
    fail(v, s.attempt([&] {
      for (int i = 0; i < std::min(R, 2); ++i) variants[v].iteration(i);  // loads code and makes connections
      s.w.check(s.stream());
    }));
    if (figures[v].failure.empty() && variants[v].graph) fail(v, s.attempt([&] { figures[v].kernels = double(graphs[v].capture(s.stream(), [&] { all_iterations(v); })) / R; }));
  }
  for (int round = 0; round <= repeats; ++round)
    for (std::size_t const v : order_of_round(n, std::size_t(round))) {
      if (!figures[v].failure.empty()) continue;
      double us = 0, host_us = 0;
      float mhz = 0;
      sums sum{};
      auto const enqueue = [&] {
        if (variants[v].graph) return graphs[v].launch(s.stream());
        auto const start = std::chrono::steady_clock::now();
        all_iterations(v);
        host_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / R;
      };
      fail(v, s.attempt([&] {
        check_hip(hipMemsetAsync(s.scratch.as<sums>(), 0, sizeof(sums), s.stream()), "hipMemsetAsync");
        auto const after = [&] {
          probe_clock<<<dim3(1), dim3(1), 0, s.stream()>>>(s.scratch.as<float>() + 32);
          if (variants[v].check) variants[v].check();
        };
        us = timed(s, enqueue, variants[v].poison, after) / R;
        check_hip(hipMemcpy(&sum, s.scratch.as<sums>(), sizeof sum, hipMemcpyDeviceToHost), "hipMemcpy");
        check_hip(hipMemcpy(&mhz, s.scratch.as<float>() + 32, sizeof mhz, hipMemcpyDeviceToHost), "hipMemcpy");
      }));
      if (!figures[v].failure.empty()) continue;
      double const slowest_us = slowest(s, us), slowest_host_us = slowest(s, host_us);
      if (round > 0) {
        times[v].push_back(slowest_us);
        host_times[v].push_back(slowest_host_us);
      }
      totals[v].error2 += sum.error2;
      totals[v].reference2 += sum.reference2;
      figures[v].mhz = double(mhz);
    }
  for (std::size_t v = 0; v < n; ++v) {
    if (!figures[v].failure.empty()) continue;
    figures[v].us = median(times[v]);
    figures[v].host_us = median(host_times[v]);
    figures[v].least = *std::min_element(times[v].begin(), times[v].end());
    figures[v].most = *std::max_element(times[v].begin(), times[v].end());
    double const mine = totals[v].reference2 > 0 ? std::sqrt(totals[v].error2 / totals[v].reference2) : 0;
    for (double const e : s.w.exchange().all_gather(mine))
      if (std::isnan(e) || e > figures[v].error) figures[v].error = e;  // a NaN stays
  }
  return figures;
}

}  // namespace fusewire::bench
