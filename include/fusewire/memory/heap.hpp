// The symmetric heap: the same offset means the same array on every rank.
//
//   bulk segment    hipMalloc                               data
//   signal segment  uncached on gfx942                      watch | flags, barriers, all that kernels poll
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstdio>
#include <exception>
#include <vector>

#include <fusewire/device/barrier.hpp>
#include <fusewire/memory/alarm.hpp>
#include <fusewire/memory/exchange.hpp>
#include <fusewire/memory/offset_allocator.hpp>
#include <fusewire/memory/requirements.hpp>
#include <fusewire/memory/report.hpp>
#include <fusewire/memory/simulator.hpp>
#include <fusewire/memory/try_flags.hpp>
#include <fusewire/runtime/log.hpp>
#include <fusewire/runtime/names.hpp>

namespace fusewire {

inline namespace literals {
/// KiB as a literal: 64_KiB.
constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
/// MiB as a literal: 64_MiB.
constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
/// GiB as a literal: 1_GiB.
constexpr std::size_t operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

/// Options of a heap; the same on every rank.
struct heap_options {
  std::size_t bulk = 256_MiB;  // bytes per rank
  std::size_t signal = 8_MiB;  // bytes per rank
  /// Limit of one wait inside a kernel: longer than a rank may be late. Waits for two-shot results get a quarter of a
  /// second more
  std::chrono::nanoseconds wait_limit = std::chrono::minutes(5);
  sharing share = sharing::handle;  // how processes map each other's memory

  /// A heap that holds all of r, and what it keeps for itself.
  static heap_options of(requirements const& r) {
    return {.bulk = std::max(1_MiB, r.bulk()), .signal = std::max(64_KiB, detail::added(own_signal_bytes, r.signal()))};
  }
  /// What a heap keeps of the signal segment: what its launches report.
  static constexpr std::size_t own_signal_bytes = round_up(sizeof(watch), detail::heap_unit);
};

/// Symmetric memory of a world. All ranks make the collective calls in the same order and with the same arguments. If
/// they differ, an error says which rank asked for what. Not movable: channels and operators keep a reference.
class heap {
 public:
  /// Collective.
  /// Requires: peer access between all devices of the world.
  /// Fails: runtime_failure that names the two ranks, if flags of one rank do not arrive at another. This is tried
  /// on AMD GPUs only, where it depends on memory types.
  heap(world& w, heap_options const& options, std::source_location where = std::source_location::current())
      : world_(w), options_(options), bulk_(0, options.bulk, detail::heap_unit),
        signal_(heap_options::own_signal_bytes, options.signal, detail::heap_unit) {
    require(options.bulk >= 1_MiB, where, "heap: bulk segment of ", options.bulk, " bytes; expected at least ", 1_MiB);
    require(options.signal >= 64_KiB, where, "heap: signal segment of ", options.signal, " bytes; expected at least ",
            64_KiB);
    for (std::size_t const bytes : {options.bulk, options.signal})
      require<out_of_space>(bytes <= SIZE_MAX / 4, where, "heap: a segment of ", bytes, " bytes; at most ",
                            SIZE_MAX / 4, " have addresses");
    require(options.wait_limit.count() > 0, where, "heap: wait_limit of ", options.wait_limit.count(),
            " ns; expected more than 0");
    detail::current_device const device(w.device(), where);
    detail::outside_captures const allocating;
    detail::require_no_capture(w.stream(), "heap", where);
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
    w.fill(view_.signal[w.rank()], 0, options.signal, "heap: signal segment", where);
    alarm_.emplace(where);
    arm_watch(where);
    using trial = detail::flag_trial<platform::tries_flags>;
    trial::load(where);
    w.exchange().barrier();  // no peer may touch the segment before it is zero
    if (w.size() > 1) {
      using namespace std::chrono_literals;
      trial::run(w, view_, heap_options::own_signal_bytes,
                 std::clamp<std::chrono::nanoseconds>(options.wait_limit, 2s, 10s), where);
    }
    name_part(false, 0, 0, "");
    name_part(true, 0, sizeof(watch), text("what the heap at ", detail::short_place(where), " notes of its launches"));
    detail::log(w.rank(), [&] {
      return text("heap of ", detail::in_bytes(options.bulk), " for data and ", detail::in_bytes(options.signal),
                  " for flags; ", w.ranks_in_words());
    });
    check_key_ =
        w.add_check([this](hipStream_t stream) { throw_if_abandoned(stream); }, [this] { throw_if_alarmed(); });
  }
  /// The same from what is to lie on it. Otherwise as above.
  template <std::same_as<requirements> R>
  heap(fusewire::world& w, R const& r, std::source_location where = std::source_location::current())
      : heap(w, heap_options::of(r), where) {}
  heap(heap const&) = delete;
  /// Collective. Frees the memory when no rank's kernels can touch it any more. A rank that leaves by an exception does
  /// not wait for the others. In that case, and when a device cannot tell that it is done, the memory stays until all
  /// ranks are gone.
  ~heap() {
    world_.remove_check(check_key_);
    detail::current_device const device(world_.device(), std::nothrow);
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
    } catch (rank_mismatch const&) {  // another rank has failed, and run() reports it
      segments_->abandon();
    }
  }

  /// The ranks that share the heap. The world outlives the heap.
  fusewire::world& world() const { return world_; }
  /// The view of the world that kernels take by value.
  world_view const& view() const { return view_; }

  /// Collective. Allocates `count` elements of T on every rank, at the same offset, in the segment where T belongs.
  /// Signal memory starts as zeros.
  /// Fails: out_of_space; rank_mismatch when ranks ask for different sizes. If world::look() would throw on a rank, the
  /// call fails on all ranks and allocates nothing.
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
    if (in_signal) detail::require_no_capture(world_.stream(), "heap::allocate of signal memory", where);
    agree("heap::allocate",
          std::array{named{"bytes", count * sizeof(T)}, named{"alignment", alignment},
                     named{"signal segment", in_signal}},
          where, alarmed());
    auto& segment = in_signal ? signal_ : bulk_;
    std::size_t const bytes = count * sizeof(T);
    auto const offset = segment.allocate(bytes + detail::gap_behind(bytes), alignment);
    std::size_t const has = in_signal ? options_.signal : options_.bulk,
                      enough = detail::added(has & ~(detail::heap_unit - 1), detail::bytes_on_heap(bytes, alignment)) -
                               segment.free_at_end();
    require<out_of_space>(offset.has_value(), where, "heap::allocate: ", bytes, " bytes wanted in the ",
                          in_signal ? "signal" : "bulk", " segment, ", segment.largest_free(),
                          " bytes free in one piece; heap_options::", in_signal ? "signal" : "bulk", " is ", has,
                          ", and ", enough, " is enough for this; a heap made from requirements has enough for all");
    sym<T> const x{*offset, count};
    if (detail::simulator::get().there())
      name_part(in_signal, x.offset, count * sizeof(T),
                text("heap::allocate<", detail::type_name<T>(), ">(", count, ") at ", detail::short_place(where)));
    if (in_signal) {
      name_flags(x);
      try {
        world_.fill(view_.here(x), 0, count * sizeof(T), "heap::allocate", where);
        world_.exchange().barrier();  // no peer may signal before it is zero
      } catch (...) {
        forget(x);
        throw;
      }
    }
    return x;
  }

  /// Collective. Allocates `count` elements on this rank; every rank passes its own number. 0 is allowed, but not on
  /// all ranks. Every rank reserves as many as the largest, so that offsets are the same everywhere. Otherwise as
  /// allocate().
  template <class T>
  ragged<T> allocate_ragged(std::size_t count, std::size_t alignment = alignof(T) < 256 ? 256 : alignof(T),
                            std::source_location where = std::source_location::current()) {
    auto const all = world_.exchange().all_gather(std::uint64_t(count));
    std::uint64_t const largest = *std::ranges::max_element(all);
    require(largest > 0, where, "heap::allocate_ragged: 0 elements on every rank; expected at least 1 on some rank");
    ragged<T> x{allocate<T>(largest, alignment, where)};
    std::ranges::copy(all, x.counts);
    return x;
  }

  /// This rank's own array.
  template <class T>
  T* here(sym<T> x) const {
    return view_.here(x);
  }

  /// Copies values to the first elements of this rank's array. The copy waits for earlier work on the world's stream,
  /// and is over when the call returns.
  /// Fails: bad_argument when there are more values than elements.
  template <class T>
  void upload(sym<T> to, std::vector<T> const& from, std::source_location where = std::source_location::current()) {
    require(from.size() <= to.count, where, "heap::upload: ", from.size(), " values; expected at most the ", to.count,
            " elements of the array");
    world_.copy(here(to), from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice, "heap::upload", where);
  }
  /// Returns this rank's elements. Waits for earlier work on the world's stream. Fails: runtime_failure.
  template <class T>
  std::vector<T> download(sym<T> from, std::source_location where = std::source_location::current()) {
    std::vector<T> to(from.count);
    world_.copy(to.data(), here(from), to.size() * sizeof(T), hipMemcpyDeviceToHost, "heap::download", where);
    return to;
  }
  /// This rank's own elements.
  template <class T>
  std::vector<T> download(ragged<T> const& from, std::source_location where = std::source_location::current()) {
    sym<T> mine = from;
    mine.count = from.counts[view_.rank];
    return download(mine, where);
  }

  /// Collective. Frees the array on every rank. Fails: bad_argument when x is not allocated, or already freed.
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

  /// Frees on this rank alone, for a collective call that fails half way: it fails on the other ranks, too, so the
  /// ranks do not meet any more.
  template <class T>
  void forget(sym<T> x) {
    if (x.count == 0) return;
    forget_parts(lives_in_signal_segment<T>, x.offset);
    (lives_in_signal_segment<T> ? signal_ : bulk_).release(x.offset);
    if (lives_in_signal_segment<T>) names_.remove_flags(x.offset);
  }

  /// The offset of p in this rank's bulk segment, in bytes. Fails: bad_argument when [p, p + bytes) is not inside it.
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

  /// Tells fusewire-sim that `bytes` bytes of an allocation have bounds of their own, and this name. The call names the
  /// memory of every rank; every rank makes it. It replaces names that it overlaps.
  /// Requires: no rank uses the memory before all ranks have named it.
  void name_part(bool in_signal, std::uint64_t offset, std::size_t bytes, std::string const& name) const {
    auto const& sim = detail::simulator::get();
    if (!sim.there()) return;
    for (int r = 0; r < view_.size; ++r)
      sim.name_part((in_signal ? view_.signal[r] : view_.bulk[r]) + offset, bytes, name.c_str());
  }
  /// The same of rows that have bounds of their own. In the name, {0} to {2} stand for a row's numbers.
  void name_rows(bool in_signal, std::uint64_t offset, detail::simulator_rows const& rows,
                 std::string const& name) const {
    auto const& sim = detail::simulator::get();
    if (!sim.name_rows) return;
    for (int r = 0; r < view_.size; ++r)
      sim.name_rows((in_signal ? view_.signal[r] : view_.bulk[r]) + offset, &rows, name.c_str());
  }
  /// Tells fusewire-sim that this rank's memory at the offset, which has a name, belongs to one launch at a time. Each
  /// block of that launch does one atomic, by `call`, on the word that is `ticket` bytes into it.
  void name_ticket(std::uint64_t offset, std::size_t ticket, char const* call) const {
    auto const& sim = detail::simulator::get();
    std::byte const* const at = view_.bulk[view_.rank] + offset;
    if (sim.there()) sim.name_ticket(at, at + ticket, call);
  }

  /// The names of this heap's flags and launches in error messages. Operators add those of theirs.
  name_table& names() { return names_; }

  /// Arrays that have not been freed, of both segments.
  std::size_t allocations() const { return bulk_.allocations() + signal_.allocations(); }

  /// Reports a failed launch on standard error, if check() has not reported it. An object whose names the message needs
  /// calls this before it ends.
  /// Requires: all launches are over.
  void tell_if_nobody_asked() {
    watch seen;
    if (told_) return;
    detail::current_device const device(world_.device(), std::nothrow);
    hipError_t e = hipMemcpyAsync(&seen, view_.signal[view_.rank], sizeof seen, hipMemcpyDeviceToHost, world_.stream());
    char const* const call = e == hipSuccess ? "hipStreamSynchronize" : "hipMemcpyAsync";
    if (e == hipSuccess) e = hipStreamSynchronize(world_.stream());
    ignore_hip(e);
    if (e != hipSuccess)
      std::fprintf(stderr, "fusewire: %s(watch): %s; it is not known whether a launch failed without a report\n", call,
                   hipGetErrorName(e));
    if (e != hipSuccess) return;
    std::string const what = detail::launch_report(view_, names_).own_failure(seen);
    if (what.empty()) return;
    told_ = true;
    std::fprintf(stderr, "fusewire: a launch failed, and nobody called world::check() afterwards: %s\n", what.c_str());
  }

  /// Clears what an abandoned launch left behind, in all of this heap's channels. Collective; waits for the device.
  /// Requires: no stream of the device is being captured. Fails: bad_argument where the world's stream is.
  void reset(std::source_location where = std::source_location::current()) {
    detail::current_device const device(world_.device(), where);
    detail::require_no_capture(world_.stream(), "reset", where);
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize", where);
    world_.exchange().barrier();
    arm_watch(where);
    told_ = false;
    world_.exchange().barrier();
    for (auto const& r : resets_) r.second();
  }
  /// Adds memory that reset() renews, in the order in which it was added; the same order on all ranks. Returns a key
  /// for remove_reset().
  int add_reset(std::function<void()> f) {
    resets_.emplace_back(++last_reset_, std::move(f));
    return last_reset_;
  }
  /// The key is that of add_reset().
  void remove_reset(int key) {
    std::erase_if(resets_, [&](auto const& r) { return r.first == key; });
  }

  /// A value that must be equal on all ranks, and its name.
  struct named {
    char const* name;     // for the message
    std::uint64_t value;  // to compare
  };
  /// Collective. Fails: rank_mismatch that names the first value that differs. If `alarmed` is true on a rank, that
  /// rank throws what world::look() would, and the others throw launch_abandoned.
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
  static constexpr std::size_t max_alignment = 4096;  // the segments themselves begin at a page

  void enable_peer_access(std::source_location where) const {
    for (int r = 0; r < world_.size(); ++r) {
      int const peer = world_.device_of(r);
      // A device that this process does not see is reached through its handle
      if (peer == world_.device() || peer < 0) continue;
      int can = 0;
      check_hip(hipDeviceCanAccessPeer(&can, world_.device(), peer), "hipDeviceCanAccessPeer", where);
      require<runtime_failure>(can, where, "heap: device ", world_.device(), " (rank ", world_.rank(),
                               ") cannot access the memory of device ", peer, " (rank ", r,
                               "); expected devices linked by xGMI or NVLink");
      hipError_t const e = hipDeviceEnablePeerAccess(peer, 0);
      if (e == hipErrorPeerAccessAlreadyEnabled) ignore_hip(e);
      else check_hip(e, "hipDeviceEnablePeerAccess", where);
    }
  }

  void arm_watch(std::source_location where) {
    watch fresh{};
    fresh.limit_ns = static_cast<std::uint64_t>(options_.wait_limit.count());
    fresh.alarm = alarm_->word();
    alarm_->lower();
    world_.copy(view_.signal[view_.rank], &fresh, sizeof fresh, hipMemcpyHostToDevice, "heap: watch", where);
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
  void name_flags(sym<grid_barrier_state> x) {
    names_.add_flags(x.offset, x.count * sizeof(grid_barrier_state) / sizeof(flag), [](std::uint64_t i) {
      std::uint64_t const in_state = i % (sizeof(grid_barrier_state) / sizeof(flag));
      return text("barrier ", i / (sizeof(grid_barrier_state) / sizeof(flag)), " over all blocks, flag of rank ",
                  in_state % max_ranks);
    });
  }
  template <class T>
  void name_flags(sym<T>) {}

  bool alarmed() const { return !told_ && alarm_->raised(); }
  void throw_if_alarmed() {
    if (!alarmed()) return;
    detail::current_device const device(world_.device());
    hipStreamCaptureStatus capture;
    check_hip(hipStreamIsCapturing(world_.stream(), &capture), "hipStreamIsCapturing");
    if (capture != hipStreamCaptureStatusNone)
      throw wait_timeout(
          text("rank ", view_.rank,
               ": a launch before this capture has failed, and world::check(), which cannot be captured, says why",
               detail::launch_report::until_reset));
    ignore_hip(hipDeviceSynchronize());  // what the kernel reports is complete when it has ended
    throw_if_abandoned(world_.stream());
  }

  void throw_if_abandoned(hipStream_t stream) {
    detail::launch_report const report(view_, names_);
    watch const seen = report.watch_of(view_.rank, stream);
    if (!report.failed(seen)) return;
    told_ = true;
    report.raise(seen, stream);
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
