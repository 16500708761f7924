// Shared parts of the tests. Ranks are threads, and Catch2's assertions are not thread-safe. So a rank notes its
// findings, and on_ranks() asserts when all ranks have returned.
//
// Started as processes (fusewire-sim --processes 8, scripts/run-ranks -n 4), every process runs every test case. The
// first processes are the ranks of the case; the others wait. The findings of the ranks are gathered, so that all
// processes take the same path. A case that needs more ranks than there are processes, or that is about threads, is
// skipped.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>
#include <fusewire/ranks/tcp_options.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace support {

using namespace fusewire;

/// The mistakes that a rank found: the first few in words, all of them counted.
class findings {
 public:
  template <class... Parts>
  bool expect(bool ok, Parts const&... parts) {
    if (!ok && ++count_ <= 5) text_ += text(parts...) + "\n";
    return ok;
  }
  template <class T>
  bool equal(std::vector<T> const& found, std::vector<T> const& wanted, std::string const& what) {
    if (!expect(found.size() == wanted.size(), what, ": ", found.size(), " elements, wanted ", wanted.size()))
      return false;
    bool same = true;
    for (std::size_t i = 0; i < found.size(); ++i)
      same &= expect(found[i] == wanted[i], what, ": element ", i, " is ", +found[i], ", wanted ", +wanted[i]);
    return same;
  }
  /// Expects that f() throws E, and that the message contains all of the pieces.
  template <class E, class F>
  void throws(std::string const& what, std::vector<std::string> const& pieces, F f) {
    try {
      f();
      expect(false, what, ": nothing was thrown");
    } catch (E const& e) {
      for (auto const& p : pieces)
        expect(std::string(e.what()).find(p) != std::string::npos, what, ": '", p, "' is not in: ", e.what());
    } catch (std::exception const& e) {
      expect(false, what, ": another type of exception was thrown: ", e.what());
    }
  }
  std::string summary() const { return count_ ? text("rank ", rank, ": ", count_, " findings\n", text_) : ""; }

  int rank = 0;

 private:
  int count_ = 0;
  std::string text_;
};

/// FUSEWIRE_TEST_SHARING=descriptor: processes map each other's memory through file descriptors.
inline sharing sharing_of_tests() {
  char const* const how = std::getenv("FUSEWIRE_TEST_SHARING");
  return how && std::string(how) == "descriptor" ? sharing::descriptor : sharing::handle;
}
inline heap_options small_heap() {
  return {.bulk = 8_MiB, .signal = 2_MiB, .wait_limit = std::chrono::seconds(5), .share = sharing_of_tests()};
}

/// All processes of the test program; it lives as long as the program.
inline tcp_bootstrap& all_processes() {
  static tcp_bootstrap all([] {
    platform::prepare_runtime(false);
    return std::make_shared<tcp_session>(tcp_options::from_environment());
  }());
  return all;
}

/// Every rank's text, in rank order, in every process.
inline std::vector<std::string> gather_texts(std::string const& mine, int ranks) {
  auto& all = all_processes();
  auto const lengths = all.all_gather(mine.size());
  std::size_t const longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = mine;
  padded.resize(longest + 1);
  auto const raw = all.all_gather(padded.data(), padded.size());
  std::vector<std::string> texts;
  for (int r = 0; r < ranks; ++r)
    texts.emplace_back(reinterpret_cast<char const*>(raw.data()) + std::size_t(r) * padded.size(),
                       lengths[std::size_t(r)]);
  return texts;
}

inline bool contains(std::string const& s, std::string const& piece) { return s.find(piece) != s.npos; }

/// Calls f(world&) on every rank and returns the texts that they return, in rank order. Throws if a rank threw.
template <class F>
std::vector<std::string> on_worlds(int ranks, run_options const& options, F f) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  if (!started_as_processes()) {
    run_local(ranks, options, [&](world& w) { said[std::size_t(w.rank())] = f(w); });
    return said;
  }
  auto& all = all_processes();
  if (ranks > all.size()) SKIP(ranks << " ranks wanted, " << all.size() << " processes started");
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
  auto const device_of = [&](int r) { return options.devices.empty() ? r % devices : options.devices[std::size_t(r)]; };
  int share = 0;
  check_hip(platform::processes_share_device(&share, 0), "processes_share_device");
  for (int r = 0; r < ranks; ++r)
    for (int q = 0; q < r; ++q)
      if (!share && device_of(q) == device_of(r)) SKIP("ranks that share a GPU; processes cannot on this one");
  auto part = all.split(all.rank() < ranks);
  std::string mine, thrown;
  if (all.rank() < ranks) {
    std::optional<world> w;
    try {
      w.emplace(std::move(part), device_of(all.rank()));
      mine = f(*w);
    } catch (std::exception const& e) {
      thrown = text("rank ", all.rank(), " threw: ", e.what());
      if (w) w->exchange().fail(thrown);
    }
  }
  said = gather_texts(mine, ranks);
  for (auto const& t : gather_texts(thrown, ranks))
    if (!t.empty()) throw error(t);
  return said;
}
template <class F>
std::vector<std::string> on_worlds(int ranks, F f) {
  return on_worlds(ranks, run_options{}, std::move(f));
}

/// For a case that is about threads of one process.
inline void needs_threads(char const* why) {
  if (started_as_processes()) SKIP(why);
}

/// One rank with everything that a test needs.
struct rank_of_test {
  fusewire::world& world;
  fusewire::heap heap;
  hipStream_t stream;
  findings found;
  std::string note;  // on_ranks() returns it; any bytes

  rank_of_test(fusewire::world& w, heap_options const& o) : world(w), heap(w, o), stream(w.stream()) {
    found.rank = w.rank();
  }

  int rank() const { return world.rank(); }
  int size() const { return world.size(); }
  int partner() const { return (rank() + size() / 2) % size(); }
  world_view const& view() const { return heap.view(); }

  template <class T>
  T* here(sym<T> x) const {
    return view().here(x);
  }
  /// Also needed before copies from and to pageable memory: a copy that waits behind a kernel can stop the other ranks
  /// of the process, for which that kernel waits.
  void synchronize() const { check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize"); }
  template <class T>
  void upload(std::vector<T> const& from, T* to) const {
    synchronize();
    check_hip(hipMemcpyAsync(to, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice, stream),
              "hipMemcpyAsync");
    synchronize();
  }
  template <class T>
  void upload(std::vector<T> const& from, sym<T> to) const {
    upload(from, here(to));
  }
  template <class T>
  std::vector<T> download(T const* from, std::size_t count) const {
    std::vector<T> to(count);
    synchronize();
    check_hip(hipMemcpyAsync(to.data(), from, count * sizeof(T), hipMemcpyDeviceToHost, stream), "hipMemcpyAsync");
    synchronize();
    return to;
  }
  template <class T>
  std::vector<T> download(sym<T> from) const {
    return download(static_cast<T const*>(here(from)), from.count);
  }
  template <class T>
  void fill(sym<T> to, int byte) const {
    check_hip(hipMemsetAsync(here(to), byte, to.count * sizeof(T), stream), "hipMemsetAsync");
    synchronize();
  }
  template <class... P, class... A>
  void launch(launch_shape shape, void (*kernel)(P...), A const&... arguments) const {
    fusewire::launch(world, stream, shape, kernel, arguments...);
  }
  /// Returns when all earlier work of all ranks is done.
  void meet() {
    synchronize();
    world.barrier();
  }
};

inline void none_found_anything(std::vector<std::string> const& summaries) {
  for (auto const& s : summaries)
    if (!s.empty()) FAIL_CHECK(s);
  SUCCEED();
}

/// Runs f(rank_of_test&) on every rank and asserts that none of them found anything wrong. Returns what each rank noted
/// in rank_of_test::note, in rank order.
template <class F>
std::vector<std::string> on_ranks(int ranks, F f, heap_options const& options = small_heap(),
                                  run_options const& where = {}) {
  auto const said = on_worlds(ranks, where, [&](world& w) {
    rank_of_test r(w, options);
    f(r);
    r.synchronize();
    return r.note + '\0' + r.found.summary();
  });
  std::vector<std::string> notes, summaries;
  for (auto const& s : said) {
    auto const end = s.rfind('\0');
    notes.push_back(s.substr(0, end));
    summaries.push_back(s.substr(end + 1));
  }
  none_found_anything(summaries);
  return notes;
}

/// The channel goes on, on every rank, as if `launches` had ended. Flags and inboxes stay as they are.
inline void skip_to(rank_of_test& r, channel& ch, epoch_t launches) {
  channel_view const view = ch.view(make_header("test", 0));
  r.meet();
  r.upload(std::vector{launches}, &r.here(view.state)->epoch);
  r.meet();
}
/// Launches from epoch `first` on in which each of `records` records of both slots has its turn to be refreshed, at
/// least four launches apart.
inline std::vector<epoch_t> turns_of(unsigned records, epoch_t first) {
  std::vector<epoch_t> turns;
  std::vector<bool> seen(2 * records);
  for (epoch_t e = first; turns.size() < seen.size(); ++e) {
    unsigned const turn = ll_turn(e, records);
    if (turn >= records || seen[2 * turn + e % 2]) continue;
    seen[2 * turn + e % 2] = true;
    turns.push_back(e);
    e += 3;
  }
  return turns;
}
/// Calls launch(i) for a new channel's first five launches, and for seven launches from 2^32 - 1 on. The last five have
/// the epochs of the first five in their low 32 bits. Each time another rank comes late. Words that the first launches
/// left behind must not be taken for those of the later ones. Half way come launches in which each of `records` records
/// of LL words has its turn to be refreshed.
template <class F>
void on_both_sides_of_2_to_32(rank_of_test& r, channel& ch, F launch, unsigned records = 0) {
  auto const five = [&](int first) {
    for (int i = first; i < first + 5; ++i) {
      if (i % r.size() == r.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      launch(i);
    }
  };
  five(0);
  r.world.check(r.stream);
  int i = 0;
  for (epoch_t const e : turns_of(records, epoch_t(1) << 31)) {
    skip_to(r, ch, e - 1);
    launch(i++);
    r.world.check(r.stream);
  }
  skip_to(r, ch, (epoch_t(1) << 32) - 2);
  launch(4);
  launch(3);
  five(5);
  r.world.check(r.stream);
}

/// A captured graph of what f() enqueues on the stream.
class graph {
 public:
  template <class F>
  graph(hipStream_t s, F f) {
    capture(s, f);
    instantiate();
  }
  /// Collective: ranks that are threads meet before the first begins to capture, and after the last has ended. A rank
  /// that fails waits for the others' captures, too: what it destroys would end them.
  template <class F>
  graph(rank_of_test& r, F f) {
    auto const meet = [&] { (void)r.world.exchange().all_gather(0); };
    meet();
    try {
      capture(r.stream, f);
    } catch (...) {
      meet();
      throw;
    }
    meet();
    instantiate();
  }
  void launch(hipStream_t s) const { check_hip(hipGraphLaunch(exec_.get(), s), "hipGraphLaunch"); }
  /// The types of its nodes.
  std::vector<hipGraphNodeType> nodes() const {
    std::size_t n = 0;
    check_hip(hipGraphGetNodes(graph_.get(), nullptr, &n), "hipGraphGetNodes");
    std::vector<hipGraphNode_t> all(n);
    check_hip(hipGraphGetNodes(graph_.get(), all.data(), &n), "hipGraphGetNodes");
    std::vector<hipGraphNodeType> types(n);
    for (std::size_t i = 0; i < n; ++i) check_hip(hipGraphNodeGetType(all[i], &types[i]), "hipGraphNodeGetType");
    return types;
  }

 private:
  template <class F>
  void capture(hipStream_t s, F f) {
    check_hip(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
    hipGraph_t graph = nullptr;
    try {
      f();
    } catch (...) {
      if (hipStreamEndCapture(s, &graph) == hipSuccess) graph_.reset(graph);
      throw;
    }
    check_hip(hipStreamEndCapture(s, &graph), "hipStreamEndCapture");
    graph_.reset(graph);
  }
  void instantiate() {
    hipGraphExec_t exec = nullptr;
    check_hip(hipGraphInstantiate(&exec, graph_.get(), nullptr, nullptr, 0), "hipGraphInstantiate");
    exec_.reset(exec);
  }

  struct destroy {
    void operator()(hipGraph_t g) const { (void)hipGraphDestroy(g); }
    void operator()(hipGraphExec_t e) const { (void)hipGraphExecDestroy(e); }
  };
  std::unique_ptr<std::remove_pointer_t<hipGraph_t>, destroy> graph_;
  std::unique_ptr<std::remove_pointer_t<hipGraphExec_t>, destroy> exec_;
};

/// The same sequence on every rank and on the device.
struct lcg {
  unsigned state;
  __host__ __device__ unsigned operator()() { return (state = state * 1664525u + 1013904223u) >> 8; }
  __host__ __device__ int below(int n) { return int(operator()() % unsigned(n)); }
};

}  // namespace support
