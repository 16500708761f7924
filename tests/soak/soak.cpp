// All operators on one channel for as long as one likes: shapes drawn at random, ranks delayed at random, graphs
// replayed with changing inputs, launches that are abandoned on purpose. Every element of every output is checked; the
// first wrong one, or a wait that expires unasked, ends it.
//
//   fusewire_soak [--seconds 10] [--seed 1] [--ranks N] [--small 0|1] [--json FILE] [--only TEXT]
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "soak.hpp"

using namespace soak;

namespace {

struct options {
  double seconds = 10;
  unsigned seed = 1;
  int ranks = 0;
  bool small = false;  // problems, and steps at a time: what a simulator or a sanitizer can bear
  std::string json, only;
};

struct totals {
  long long rounds = 0, launches = 0, replays = 0, outputs = 0, resets = 0, delays = 0, wrong = 0, hangs = 0;
  double seconds = 0;
  std::string first_wrong;
};

bool simulated() { return dlsym(RTLD_DEFAULT, "fusewireSimStats") != nullptr; }

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

__global__ void next_generation(progress* now) { ++now->generation; }

__global__ void spend(std::uint64_t ns) {
  for (std::uint64_t const start = platform::clock_ns(); platform::clock_ns() - start < ns;) platform::backoff();
}

/// One rank's soak. All ranks draw the same from `common_`; delays come from a source of the rank's own.
class soaker {
 public:
  soaker(rank_state& r, options const& o, totals& t)
      : r_(r), o_(o), t_(t), common_{hash(o.seed, 1, 1)}, own_{hash(o.seed, 2, unsigned(r.world.rank()))} {
    for (factory const f : factories()) {
      auto s = f(r);
      if (s->name().find(o.only) != std::string::npos) subjects_.push_back(std::move(s));
    }
    require(!subjects_.empty(), std::source_location::current(), "soak: no subject's name contains '", o.only, "'");
    check_hip(hipStreamSynchronize(r.stream()), "hipStreamSynchronize");
    r.world.barrier();
  }

  void run() {
    auto const start = std::chrono::steady_clock::now();
    double said = 0;
    for (bool more = true; more;) {
      int const kind = common_.below(20);
      if (kind == 0) abandon();
      else if (kind <= 9) launches();
      else replays();
      ++t_.rounds;
      t_.seconds = seconds_since(start);
      if (r_.world.rank() == 0 && t_.seconds > said + 5) {
        said = t_.seconds;
        std::printf("%6.0f s  %lld rounds, %lld launches, %lld replays, %lld outputs checked, %lld resets, 0 wrong\n",
                    said, t_.rounds, t_.launches, t_.replays, t_.outputs, t_.resets);
        std::fflush(stdout);
      }
      int const go_on = inspect() && t_.seconds < o_.seconds;
      for (int const one : r_.world.exchange().all_gather(go_on)) more = more && one;
    }
  }

 private:
  /// Steps one after the other, each of another subject and shape.
  void launches() {
    for (int i = o_.small ? 6 : 60; i > 0; --i) {
      int const which = common_.below(int(subjects_.size()));
      subjects_[std::size_t(which)]->draw(common_);
      delay();
      t_.outputs += step(which);
      ++t_.launches;
    }
    r_.world.check(r_.stream());
  }

  /// Some steps captured, and replayed many times.
  void replays() {
    int const steps = 1 + common_.below(4), times = o_.small ? 4 : 200 + common_.below(400);
    long long outputs = 0;
    hipGraph_t captured = nullptr;
    hipGraphExec_t graph = nullptr;
    r_.world.barrier();  // nobody copies any more
    check_hip(hipStreamBeginCapture(r_.stream(), hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
    for (int i = 0; i < steps; ++i) {
      int const which = common_.below(int(subjects_.size()));
      subjects_[std::size_t(which)]->draw(common_);
      outputs += step(which);
    }
    check_hip(hipStreamEndCapture(r_.stream(), &captured), "hipStreamEndCapture");
    check_hip(hipGraphInstantiate(&graph, captured, nullptr, nullptr, 0), "hipGraphInstantiate");
    r_.world.barrier();
    for (int i = 0; i < times; ++i) {
      delay();
      check_hip(hipGraphLaunch(graph, r_.stream()), "hipGraphLaunch");
      if (r_.world.ranks_on_device() > 1) check_hip(hipStreamSynchronize(r_.stream()), "hipStreamSynchronize");
    }
    r_.world.check(r_.stream());
    r_.world.barrier();  // destroying may wait for the device, where another rank may be waiting for us
    check_hip(hipGraphExecDestroy(graph), "hipGraphExecDestroy");
    check_hip(hipGraphDestroy(captured), "hipGraphDestroy");
    t_.outputs += outputs * times;
    t_.launches += static_cast<long long>(steps) * times;
    t_.replays += times;
  }

  /// A rank launches something else, or now and then nothing: an error on the others, then reset().
  void abandon() {
    int const which = common_.below(int(subjects_.size())), culprit = common_.below(r_.world.size());
    bool const missing = common_.below(16) == 0, mine = r_.world.rank() == culprit;
    subjects_[std::size_t(which)]->draw(common_);
    std::string said;
    try {
      if (!mine || !missing) subjects_[std::size_t(which)]->disagree(mine);
      r_.world.check(r_.stream());
    } catch (wait_timeout const& e) {
      said = e.what();
    } catch (rank_mismatch const& e) {
      said = e.what();
    }
    int heard = 0;
    for (int const h : r_.world.exchange().all_gather(int(!said.empty()))) heard += h;
    r_.channel.reset();
    require<error>(heard > 0 || r_.world.size() == 1, std::source_location::current(), "soak: rank ", culprit,
                   missing ? " launched nothing" : " launched another shape of ", subjects_[std::size_t(which)]->name(),
                   ", and nobody noticed");
    ++t_.resets;
  }

  long long step(int which) {
    r_.local(1, 1, next_generation, r_.now);
    return subjects_[std::size_t(which)]->step(which);
  }

  /// This rank lags now and then, on the device or on the host.
  void delay() {
    int const dice = own_.below(40);
    if (dice > 2) return;
    ++t_.delays;
    int const us = own_.below(dice == 0 ? 2000 : 100);
    if (dice == 2) std::this_thread::sleep_for(std::chrono::microseconds(us));
    else r_.local(1, 1, spend, std::uint64_t(us) * 1000);
  }

  /// False if an element was wrong.
  bool inspect() {
    progress now;
    check_hip(hipMemcpyAsync(&now, r_.now, sizeof now, hipMemcpyDeviceToHost, r_.stream()), "hipMemcpyAsync");
    check_hip(hipStreamSynchronize(r_.stream()), "hipStreamSynchronize");
    if (now.wrong == 0) return true;
    t_.wrong = now.wrong;
    t_.first_wrong = text("rank ", r_.world.rank(), ": ", subjects_[std::size_t(now.subject)]->name(), " (",
                          now.extent[0], ", ", now.extent[1], ", ", now.extent[2], "), generation ", now.of_generation,
                          ": element (", now.at[0], ", ", now.at[1], ") is ", now.found, ", wanted ", now.wanted);
    return false;
  }

  rank_state& r_;
  options const& o_;
  totals& t_;
  random_source common_, own_;
  std::vector<std::unique_ptr<subject>> subjects_;
};

void soak_rank(world& w, options const& o, totals& t) {
  sizes const size = o.small ? sizes{96, 96, 64, 3, 96} : sizes{2048, 2048, 2048, 16, 4096};
  heap h(w, {.bulk = o.small ? 32_MiB : 2_GiB,
             .signal = o.small ? 4_MiB : 16_MiB,
             .wait_limit = std::chrono::seconds(simulated() ? 10 : 2)});
  channel ch(h, {.max_bytes = o.small ? 1_MiB : 32_MiB, .flags_per_source = o.small ? 1024 : 4096});
  progress* const now = h.view().here(h.allocate<progress>(1));
  check_hip(hipMemsetAsync(now, 0, sizeof *now, w.stream()), "hipMemsetAsync");
  rank_state r{w, h, ch, size, now};
  load_kernel(w, spend, 1);
  load_kernel(w, next_generation, 1);
  soaker(r, o, t).run();
}

options parse(int argc, char** argv) {
  options o;
  o.small = simulated();
  for (int i = 1; i < argc; i += 2) {
    std::string const name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--seconds" && !value.empty()) o.seconds = std::atof(value.c_str());
    else if (name == "--seed" && !value.empty()) o.seed = unsigned(std::atoll(value.c_str()));
    else if (name == "--ranks" && !value.empty()) o.ranks = std::atoi(value.c_str());
    else if (name == "--small" && !value.empty()) o.small = value != "0";
    else if (name == "--json" && !value.empty()) o.json = value;
    else if (name == "--only" && !value.empty()) o.only = value;
    else
      throw bad_argument(
          "usage: fusewire_soak [--seconds 10] [--seed 1] [--ranks N] [--small 0|1] [--json FILE] [--only TEXT]");
  }
  int gpus = 0;
  check_hip(hipGetDeviceCount(&gpus), "hipGetDeviceCount");
  if (o.ranks == 0) o.ranks = simulated() ? 3 : std::max(2, gpus);
  return o;
}

std::string quoted(std::string const& s) {
  std::string q = "\"";
  for (char const c : s) q += c == '"' || c == '\\' ? text('\\', c) : c == '\n' ? "\\n" : text(c);
  return q + "\"";
}

}  // namespace

int main(int argc, char** argv) try {
  options const o = parse(argc, argv);
  std::vector<totals> of(static_cast<std::size_t>(std::max(1, o.ranks)));
  std::string failure;
  long long hangs = 0;
  try {
    run_local(o.ranks, [&](world& w) { soak_rank(w, o, of[std::size_t(w.rank())]); });
  } catch (wait_timeout const& e) {
    failure = e.what();
    hangs = 1;
  } catch (error const& e) {
    failure = e.what();
  }
  totals all = of[0];  // rounds, launches and replays are alike on all ranks
  all.outputs = all.delays = all.wrong = 0;
  for (totals const& t : of) {
    all.outputs += t.outputs;
    all.delays += t.delays;
    all.wrong += t.wrong;
    if (all.first_wrong.empty()) all.first_wrong = t.first_wrong;
  }
  std::string const json = text(
      "{\"seed\": ", o.seed, ", \"ranks\": ", o.ranks, ", \"seconds\": ", all.seconds, ", \"rounds\": ", all.rounds,
      ", \"launches\": ", all.launches, ", \"replays\": ", all.replays, ", \"outputs_checked\": ", all.outputs,
      ", \"delays\": ", all.delays, ", \"abandoned_on_purpose\": ", all.resets, ", \"wrong\": ", all.wrong,
      ", \"hangs\": ", hangs, ", \"first_wrong\": ", quoted(all.first_wrong), ", \"failure\": ", quoted(failure), "}");
  std::printf("%s\n", json.c_str());
  if (!o.json.empty()) std::ofstream(o.json) << json << "\n";
  return all.wrong != 0 || !failure.empty();
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
