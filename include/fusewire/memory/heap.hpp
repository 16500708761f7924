// The symmetric heap: the same offset means the same array on every rank.
//
//   bulk segment    hipMalloc                               data
//   signal segment  uncached on gfx942                      watch | flags and barriers: whatever a kernel polls
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>
#include <tuple>

#include <fusewire/device/barrier.hpp>
#include <fusewire/memory/exchange.hpp>
#include <fusewire/memory/offset_allocator.hpp>
#include <fusewire/memory/simulator.hpp>
#include <fusewire/memory/try_flags.hpp>
#include <fusewire/runtime/names.hpp>

namespace fusewire {

inline namespace literals {
constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

namespace detail {
/// A word of the host's memory that kernels of this rank raise.
class alarm {
 public:
  explicit alarm(std::source_location where) {
    check_hip(hipHostMalloc(&word_, sizeof *word_, hipHostMallocMapped | hipHostMallocCoherent), "hipHostMalloc(alarm)",
              where);
    lower();
  }
  alarm(alarm const&) = delete;
  ~alarm() { ignore_hip(hipHostFree(word_)); }

  bool raised() const { return std::atomic_ref(*word_).load(std::memory_order_relaxed) != 0; }
  void lower() const { std::atomic_ref(*word_).store(0, std::memory_order_relaxed); }
  unsigned* word() const { return word_; }

 private:
  unsigned* word_ = nullptr;
};
}  // namespace detail

struct heap_options {
  std::size_t bulk = 256_MiB;  // bytes per rank
  std::size_t signal = 8_MiB;  // bytes per rank
  /// Of one wait inside a kernel, longer than a rank may be late; a quarter of a second more for what comes by two
  /// shots
  std::chrono::nanoseconds wait_limit = std::chrono::minutes(5);
  sharing share = sharing::handle;  // how processes map each other's memory
};

/// Collective calls: all ranks make them in the same order and with the same arguments; a difference is an error that
/// says who asked for what. Not movable: channels and operators keep a reference.
class heap {
 public:
  /// Collective. Requires: peer access between all devices of the world.
  /// Fails: runtime_failure, naming the two ranks, where flags of one rank do not arrive at another (on AMD hardware,
  /// where that is a question of memory types).
  heap(world& w, heap_options const& options, std::source_location where = std::source_location::current())
      : world_(w), options_(options), bulk_(0, options.bulk, 256), signal_(sizeof(watch), options.signal, 256) {
    require(options.bulk >= 1_MiB, where, "heap: bulk segment of ", options.bulk, " bytes; expected at least ", 1_MiB);
    require(options.signal >= 64_KiB, where, "heap: signal segment of ", options.signal, " bytes; expected at least ",
            64_KiB);
    for (std::size_t const bytes : {options.bulk, options.signal})
      require<out_of_space>(bytes <= SIZE_MAX / 4, where, "heap: a segment of ", bytes, " bytes; at most ",
                            SIZE_MAX / 4, " have addresses");
    require(options.wait_limit.count() > 0, where, "heap: wait_limit of ", options.wait_limit.count(),
            " ns; expected more than 0");
    agree("heap", std::array{named{"bulk bytes", options.bulk}, named{"signal bytes", options.signal}}, where);
    enable_peer_access(where);
    segments_.emplace(
        w, std::vector<shared_segments::request>{{options.bulk, false, "bulk"}, {options.signal, true, "signal"}},
        options.share, where);
    view_.rank = w.rank();
    view_.size = w.size();
    view_.bulk_bytes = options.bulk;
    for (int r = 0; r < w.size(); ++r) {
      view_.bulk[r] = segments_->of(0, r);
      view_.signal[r] = segments_->of(1, r);
    }
    check_hip(hipMemset(view_.signal[w.rank()], 0, options.signal), "hipMemset(signal segment)", where);
    alarm_.emplace(where);
    arm_watch();
    using trial = detail::flag_trial<platform::tries_flags>;
    trial::load(where);
    w.exchange().barrier();  // no peer may touch the segment before it is zero
    if (w.size() > 1) {
      using namespace std::chrono_literals;
      trial::run(w, view_, round_up(sizeof(watch), 256),
                 std::clamp<std::chrono::nanoseconds>(options.wait_limit, 2s, 10s), where);
    }
    name_part(false, 0, 0, "");
    name_part(true, 0, sizeof(watch), text("what the heap at ", detail::short_place(where), " notes of its launches"));
    check_key_ =
        w.add_check([this](hipStream_t stream) { throw_if_abandoned(stream); }, [this] { throw_if_alarmed(); });
  }
  heap(heap const&) = delete;
  /// Collective: memory goes when no rank's kernels can touch it any more. A rank that leaves by an exception does not
  /// wait for the others; then, and when a device cannot tell that it is done, memory stays until all ranks are gone.
  ~heap() {
    world_.remove_check(check_key_);
    hipError_t const e = hipDeviceSynchronize();
    ignore_hip(e);
    if (std::uncaught_exceptions() > exceptions_) return;
    if (e == hipSuccess) tell_if_nobody_asked();
    try {
      bool over = true;
      for (hipError_t of_rank : world_.exchange().all_gather(e)) over &= of_rank == hipSuccess;
      if (over) segments_->unmap_peers();
      else segments_->abandon();
      world_.exchange().barrier();
    } catch (rank_mismatch const&) {  // somebody else failed, and run() reports it
      segments_->abandon();
    }
  }

  fusewire::world& world() const { return world_; }
  world_view const& view() const { return view_; }

  /// `count` elements of T on every rank, at the same offset, in the segment where T belongs. Collective. Signal memory
  /// starts zero.
  /// Fails: out_of_space; rank_mismatch when ranks ask for different sizes; on all ranks, when one has to say what
  /// world::look() would, and nothing is allocated then.
  template <class T>
  sym<T> allocate(std::size_t count, std::size_t alignment = alignof(T) < 256 ? 256 : alignof(T),
                  std::source_location where = std::source_location::current()) {
    require(count > 0, where, "heap::allocate: 0 elements; expected at least 1");
    require((alignment & (alignment - 1)) == 0 && alignment >= alignof(T) && alignment <= max_alignment, where,
            "heap::allocate: alignment ", alignment, "; expected a power of two from ", alignof(T), " to ",
            max_alignment);
    require<out_of_space>(count <= (SIZE_MAX - 1) / sizeof(T), where, "heap::allocate: ", count, " elements of ",
                          sizeof(T), " bytes wanted; at most ", (SIZE_MAX - 1) / sizeof(T), " have addresses");
    constexpr bool in_signal = lives_in_signal_segment<T>;
    agree("heap::allocate",
          std::array{named{"bytes", count * sizeof(T)}, named{"alignment", alignment},
                     named{"signal segment", in_signal}},
          where, alarmed());
    auto& segment = in_signal ? signal_ : bulk_;
    auto const offset = segment.allocate(count * sizeof(T) + gap_behind(count * sizeof(T)), alignment);
    require<out_of_space>(offset.has_value(), where, "heap::allocate: ", count * sizeof(T), " bytes wanted in the ",
                          in_signal ? "signal" : "bulk", " segment, ", segment.largest_free(),
                          " bytes free in one piece; enlarge heap_options::", in_signal ? "signal" : "bulk");
    sym<T> const x{*offset, count};
    if (detail::simulator::get().there())
      name_part(in_signal, x.offset, count * sizeof(T),
                text("heap::allocate<", detail::type_name<T>(), ">(", count, ") at ", detail::short_place(where)));
    if (in_signal) {
      name_flags(x);
      try {
        check_hip(hipMemset(view_.here(x), 0, count * sizeof(T)), "hipMemset", where);
        check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize", where);
        world_.exchange().barrier();  // no peer may signal before it is zero
      } catch (...) {
        forget(x);
        throw;
      }
    }
    return x;
  }

  /// Collective. Fails: bad_argument when x is not allocated, or freed already.
  template <class T>
  void free(sym<T> x, std::source_location where = std::source_location::current()) {
    constexpr bool in_signal = lives_in_signal_segment<T>;
    agree("heap::free", std::array{named{"offset", x.offset}, named{"signal segment", in_signal}}, where);
    forget_parts(in_signal, x.offset);
    require((in_signal ? signal_ : bulk_).release(x.offset), where, "heap::free: nothing is allocated at offset ",
            x.offset, " of the ", in_signal ? "signal" : "bulk",
            " segment; expected a sym that allocate() returned and that was not freed yet");
    if (in_signal) names_.remove_flags(x.offset);
  }

  /// Frees on this rank alone, for a collective that fails on its way: the other ranks' part of it fails too, and
  /// nobody meets any more.
  template <class T>
  void forget(sym<T> x) {
    if (x.count == 0) return;
    forget_parts(lives_in_signal_segment<T>, x.offset);
    (lives_in_signal_segment<T> ? signal_ : bulk_).release(x.offset);
    if (lives_in_signal_segment<T>) names_.remove_flags(x.offset);
  }

  /// The offset of p in this rank's bulk segment. Fails: bad_argument when [p, p + bytes) is not inside it.
  std::uint64_t offset_of(void const* p, std::size_t bytes, char const* name, std::source_location where) const {
    auto const* const b = static_cast<std::byte const*>(p);
    std::byte const* const base = view_.bulk[view_.rank];
    bool const inside =
        b >= base && b < base + options_.bulk && bytes <= options_.bulk - static_cast<std::size_t>(b - base);
    require(inside, where, name, " = ", p, " (", bytes,
            " bytes) is not on the symmetric heap; expected memory from heap::allocate, in [",
            static_cast<void const*>(base), ", ", static_cast<void const*>(base + options_.bulk), ")");
    return static_cast<std::uint64_t>(b - base);
  }

  /// `bytes` bytes of what is allocated have bounds of their own, and this name, where fusewire-sim looks; ranks say it
  /// of every rank's memory alike. Replaces names that it overlaps. Requires: nobody uses the memory before all ranks
  /// have named it.
  void name_part(bool in_signal, std::uint64_t offset, std::size_t bytes, std::string const& name) const {
    auto const& sim = detail::simulator::get();
    if (!sim.there()) return;
    for (int r = 0; r < view_.size; ++r)
      sim.name_part((in_signal ? view_.signal[r] : view_.bulk[r]) + offset, bytes, name.c_str());
  }
  /// This rank's memory at the offset, named before, is one launch's at a time, and each block of it does one atomic on
  /// the word `ticket` bytes into it, by `call`.
  void name_ticket(std::uint64_t offset, std::size_t ticket, char const* call) const {
    auto const& sim = detail::simulator::get();
    std::byte const* const at = view_.bulk[view_.rank] + offset;
    if (sim.there()) sim.name_ticket(at, at + ticket, call);
  }

  /// What this heap's flags and launches are called when a check fails. Operators say it of theirs.
  name_table& names() { return names_; }

  std::size_t allocations() const { return bulk_.allocations() + signal_.allocations(); }

  /// Says on standard error that a launch failed, if it did and check() has not said so: for what ends with the names
  /// that the sentence needs.
  /// Requires: what was launched is over.
  void tell_if_nobody_asked() {
    watch seen;
    if (told_) return;
    hipError_t const e = hipMemcpy(&seen, view_.signal[view_.rank], sizeof seen, hipMemcpyDeviceToHost);
    ignore_hip(e);
    if (e != hipSuccess)
      std::fprintf(stderr,
                   "fusewire: hipMemcpy(watch): %s; whether a launch failed that nobody asked for is not known\n",
                   hipGetErrorName(e));
    if (e != hipSuccess) return;
    std::string const why = own_fault(seen), what = !why.empty()                      ? why
                                                    : seen.complete && !seen.released ? sentence(view_.rank, seen)
                                                                                      : "";
    if (what.empty()) return;
    told_ = true;
    std::fprintf(stderr, "fusewire: a launch failed, and nobody called world::check() afterwards: %s\n", what.c_str());
  }

  /// Clears what an abandoned launch left behind, in all of this heap's channels. Collective; waits for the device.
  void reset() {
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
    world_.exchange().barrier();
    arm_watch();
    told_ = false;
    world_.exchange().barrier();
    for (auto const& r : resets_) r.second();
  }
  /// For memory that reset() should make anew, in the order in which it was added; returns a key for remove_reset. Same
  /// order on all ranks.
  int add_reset(std::function<void()> f) {
    resets_.emplace_back(++last_reset_, std::move(f));
    return last_reset_;
  }
  void remove_reset(int key) {
    std::erase_if(resets_, [&](auto const& r) { return r.first == key; });
  }

  /// A value that all ranks must pass alike, and what it is called.
  struct named {
    char const* name;
    std::uint64_t value;
  };
  /// Collective. Fails: rank_mismatch, naming the first value that differs; if `alarmed` on some rank, there as
  /// world::look(), and launch_abandoned on the others.
  template <std::size_t N>
  void agree(char const* call, std::array<named, N> const& values, std::source_location where, bool alarmed = false) {
    std::array<std::uint64_t, N + 1> mine{};
    std::ranges::transform(values, mine.begin(), &named::value);
    mine[N] = alarmed;
    auto const all = world_.exchange().all_gather(mine);
    if (alarmed) throw_if_alarmed();
    for (int r = 0; r < world_.size(); ++r)
      require<launch_abandoned>(all[static_cast<std::size_t>(r)][N] == 0, where, call, ": a launch of rank ", r,
                                " has failed, and its error says why");
    for (int r = 0; r < world_.size(); ++r)
      for (std::size_t i = 0; i < N; ++i) {
        std::uint64_t const first = all[0][i], theirs = all[static_cast<std::size_t>(r)][i];
        require<rank_mismatch>(theirs == first, where, call, ": ranks disagree in ", values[i].name, ": rank 0 has ",
                               first, ", rank ", r, " has ", theirs);
      }
  }

 private:
  /// Bytes behind an allocation that belong to nobody, where the simulator sees that it is too small. Large ones may
  /// fill a segment to the last byte.
  static constexpr std::size_t gap_behind(std::size_t bytes) { return bytes < 1_MiB; }
  static constexpr std::size_t max_alignment = 4096;  // the segments themselves begin at a page

  void enable_peer_access(std::source_location where) const {
    for (int r = 0; r < world_.size(); ++r) {
      int const peer = world_.device_of(r);
      // A device that this process does not see is reached by its handle alone
      if (peer == world_.device() || peer < 0) continue;
      int can = 0;
      check_hip(hipDeviceCanAccessPeer(&can, world_.device(), peer), "hipDeviceCanAccessPeer", where);
      require<runtime_failure>(can, where, "heap: device ", world_.device(), " (rank ", world_.rank(),
                               ") cannot access the memory of device ", peer, " (rank ", r,
                               "); expected devices linked by xGMI or NVLink");
      hipError_t const e = hipDeviceEnablePeerAccess(peer, 0);
      if (e == hipErrorPeerAccessAlreadyEnabled) (void)hipGetLastError();
      else check_hip(e, "hipDeviceEnablePeerAccess", where);
    }
  }

  void arm_watch() {
    watch fresh{};
    fresh.limit_ns = static_cast<std::uint64_t>(options_.wait_limit.count());
    fresh.alarm = alarm_->word();
    alarm_->lower();
    check_hip(hipMemcpy(view_.signal[view_.rank], &fresh, sizeof fresh, hipMemcpyHostToDevice), "hipMemcpy(watch)");
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  }

  void forget_parts(bool in_signal, std::uint64_t offset) const {
    auto const& sim = detail::simulator::get();
    if (!sim.there()) return;
    std::size_t const bytes = (in_signal ? signal_ : bulk_).size_at(offset);
    for (int r = 0; r < view_.size; ++r)
      sim.forget_parts((in_signal ? view_.signal[r] : view_.bulk[r]) + offset, bytes);
  }

  void name_flags(sym<flag> x) {
    names_.add_flags(x.offset, x.count, [n = x.count](std::uint64_t i) { return text("flag ", i, " of ", n); });
  }
  void name_flags(sym<barrier_state> x) {
    names_.add_flags(x.offset, x.count * sizeof(barrier_state) / sizeof(flag), [](std::uint64_t i) {
      std::uint64_t const in_state = i % (sizeof(barrier_state) / sizeof(flag));
      return text("barrier ", i / (sizeof(barrier_state) / sizeof(flag)), ", flag of rank ", in_state % max_ranks);
    });
  }
  template <class T>
  void name_flags(sym<T>) {}

  watch watch_of(int rank, hipStream_t stream) const {
    watch seen;
    check_hip(hipMemcpyAsync(&seen, view_.signal[rank], sizeof seen, hipMemcpyDeviceToHost, stream),
              "hipMemcpyAsync(watch)");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    return seen;
  }

  /// What this rank's kernels noted, as it concerns this rank alone: a disagreement, a misuse. Empty when there is
  /// none.
  std::string own_fault(watch const& seen) const {
    if (seen.disagreed)
      return text("ranks launched different things: ", names_.header(world_.rank(), seen.ours), ", ",
                  names_.header(int(seen.disagreed) - 1, seen.theirs));
    if (!seen.wrong) return "";
    auto const what = static_cast<misuse>(seen.wrong);
    std::string const who = text("rank ", world_.rank(), ", block ", seen.wrong_block, ": ");
    if (what == misuse::begin_again)
      return who + text("channel_epoch::begin() for the second time in launch ", seen.wrong_value,
                        ", or the launch before did not end");
    if (what == misuse::end_again)
      return who + text("channel_epoch::end() for the second time in launch ", seen.wrong_value);
    if (what == misuse::page)
      return who + text("flash_decode: entry ", seen.wrong_at, " of the block table is page ", seen.wrong_value,
                        "; expected 0 to ", seen.accepted - 1);
    char const* const call = what == misuse::inbox_rank ? "inbox()"
                             : what == misuse::signal_rank || what == misuse::signal_flag
                                 ? "signal() or to()"
                                 : "wait(), arrived() or from()";
    bool const flags = what == misuse::signal_flag || what == misuse::wait_flag;
    return who + text("channel_epoch::", call, ": ", flags ? "flag " : "rank ", seen.wrong_value, "; expected 0 to ",
                      seen.accepted - 1, flags ? " (channel_options::flags_per_source)" : "");
  }

  std::string sentence(int rank, watch const& seen) const {
    wait_report const& w = seen.report;
    return text("rank ", rank, ", block ", w.block, w.launch[0] ? " of " + names_.launch(w.launch) : "",
                seen.released ? text(" waited, until rank ", int(seen.abandoned) - 1, " gave up,")
                              : text(" waited longer than ", seen.limit_ns / 1000000, " ms"),
                " for a flag", w.from < 0 ? "" : text(" from rank ", w.from), " (", names_.flag_at(w.flag_offset),
                ", signal segment + ", w.flag_offset, "): epoch ", w.found, " found, ", w.wanted, " wanted");
  }

  /// What the rank has noted, once it is complete. A rank that is released says so when its block next looks, so 50 ms
  /// from `asked` on are given to whoever has said nothing. Whoever is at it is given longer: it ends with a store,
  /// unless its process has died.
  watch settled_watch_of(int rank, hipStream_t stream, std::chrono::steady_clock::time_point asked) const {
    for (watch seen = watch_of(rank, stream);; seen = watch_of(rank, stream)) {
      // That copy may have begun before the word was written, this one has not
      if (seen.complete) return watch_of(rank, stream);
      if (std::chrono::steady_clock::now() - asked > std::chrono::milliseconds(seen.reported ? 1000 : 50)) return seen;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  /// What all ranks waited for, the cause first: waits of the earliest launch, and of these what expired before what
  /// was released. Flags that are no channel's have no launch to go by and come last.
  std::vector<std::string> waits_of_all(watch const& mine, hipStream_t stream) const {
    std::vector<std::pair<int, watch>> seen{{view_.rank, mine}};
    auto const now = std::chrono::steady_clock::now();
    for (int r = 0; r < view_.size; ++r)
      if (r != view_.rank) seen.emplace_back(r, settled_watch_of(r, stream, now));
    std::erase_if(seen, [](auto const& s) { return !s.second.complete; });
    std::ranges::stable_sort(seen, {}, [](auto const& s) {
      watch const& w = s.second;
      return std::tuple(w.report.launch[0] ? w.report.wanted : ~epoch_t(0), w.released, s.first);
    });
    std::vector<std::string> all;
    for (auto const& [rank, w] : seen) all.push_back(sentence(rank, w));
    return all;
  }

  static constexpr char const* until_reset = "; results are invalid until reset()";

  bool alarmed() const { return !told_ && alarm_->raised(); }
  void throw_if_alarmed() {
    if (!alarmed()) return;
    hipStreamCaptureStatus capture;
    check_hip(hipStreamIsCapturing(world_.stream(), &capture), "hipStreamIsCapturing");
    if (capture != hipStreamCaptureStatusNone)
      throw wait_timeout(
          text("rank ", view_.rank,
               ": a launch before this capture has failed, and world::check(), which cannot be captured, says why",
               until_reset));
    ignore_hip(hipDeviceSynchronize());  // what the kernel says is complete when it has ended
    throw_if_abandoned(world_.stream());
  }

  void throw_if_abandoned(hipStream_t stream) {
    watch const seen = watch_of(view_.rank, stream);
    if (std::string const why = own_fault(seen); !why.empty()) {
      told_ = true;
      if (seen.disagreed) throw rank_mismatch(why + until_reset);
      throw bad_argument(why + until_reset);
    }
    if (!seen.abandoned && !seen.complete) return;
    told_ = true;
    auto const waits = waits_of_all(seen, stream);
    std::string others;
    for (std::size_t i = 1; i < waits.size(); ++i) others += "\n  after that, " + waits[i];
    std::string const cause = waits.empty() ? "" : waits[0];
    if (seen.complete && !seen.released) throw wait_timeout(cause + until_reset + others);
    throw launch_abandoned(text("rank ", world_.rank(), ": the launch was abandoned because rank ", seen.abandoned - 1,
                                " gave up", waits.empty() ? "; its error says why" : ": ", cause, until_reset, others));
  }

  fusewire::world& world_;
  heap_options options_;
  offset_allocator bulk_, signal_;
  std::optional<shared_segments> segments_;  // bulk, signal
  world_view view_;
  name_table names_;
  int check_key_ = 0;
  std::vector<std::pair<int, std::function<void()>>> resets_;
  int last_reset_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  std::optional<detail::alarm> alarm_;
  bool told_ = false;  // check() or look() has thrown since the latest reset()
};

}  // namespace fusewire
