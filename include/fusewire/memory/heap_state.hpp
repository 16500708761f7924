// What a heap consists of. The heap, channels, inboxes and operators share it, and the last of them on a rank gives it
// up; ranks/ledger.hpp says when the memory is freed.
#pragma once
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <fusewire/device/barrier.hpp>
#include <fusewire/memory/alarm.hpp>
#include <fusewire/ranks/ledger.hpp>
#include <fusewire/memory/shared_segments.hpp>
#include <fusewire/memory/heap_options.hpp>
#include <fusewire/memory/offset_allocator.hpp>
#include <fusewire/memory/launch_report.hpp>
#include <fusewire/memory/simulator.hpp>
#include <fusewire/memory/try_flags.hpp>
#include <fusewire/ranks/log.hpp>
#include <fusewire/memory/name_table.hpp>

namespace fusewire::detail {

/// The segments, what is allocated in them, and what messages need. It names the world, which may end first: from then
/// on only its destructor and retire() are called.
class heap_state final : public shared_memory {
 public:
  /// Collective. See heap.
  static std::shared_ptr<heap_state> make(world& w, heap_options const& o, std::source_location where) {
    auto const& ledger = w.memory_ledger();
    std::shared_ptr<heap_state> const s(new heap_state(w, o, where), [ledger](heap_state* gone) {
      gone->last_user_went();
      std::unique_ptr<shared_memory> memory(gone);
      if (gone->number_ != 0) ledger->retire(gone->number_, std::move(memory));
    });
    s->begin(where);
    return s;
  }

  fusewire::world& world() const { return world_; }
  heap_options const& options() const { return options_; }
  world_view const& view() const { return view_; }
  name_table& names() { return names_; }
  std::size_t allocations() const { return bulk_.allocations() + signal_.allocations() - half_freed(); }
  std::size_t half_freed() const { return freed_[0].size() + freed_[1].size(); }
  std::shared_ptr<alarm> const& launch_alarm() const { return alarm_; }
  bool alarmed() const { return !reported_ && alarm_ && alarm_->raised(); }

  /// Collective, with the same arguments. See heap::allocate().
  std::uint64_t allocate(bool in_signal, std::size_t bytes, std::size_t alignment, std::source_location where) {
    auto& segment = in_signal ? signal_ : bulk_;
    auto const offset = segment.allocate(bytes + gap_behind(bytes), alignment);
    std::size_t const has = in_signal ? options_.signal : options_.bulk, waiting = freed_[in_signal].size(),
                      enough = added(has & ~(heap_unit - 1), bytes_on_heap(bytes, alignment)) - segment.free_at_end();
    require<out_of_space>(offset.has_value(), where, "heap::allocate: ", bytes, " bytes wanted in the ",
                          in_signal ? "signal" : "bulk", " segment, ", segment.largest_free(),
                          " contiguous bytes free; heap_options::", in_signal ? "signal" : "bulk", " is ", has,
                          ", and ", enough, " is enough for this; a heap made from requirements has enough for all",
                          waiting ? text("; arrays that this rank has freed and other ranks have not: ", waiting) : "");
    return *offset;
  }
  /// See heap::free(). Returns false when nothing is allocated there, or when this rank has freed it.
  bool retire(bool in_signal, std::uint64_t offset) {
    if ((in_signal ? signal_ : bulk_).size_at(offset) == 0 || !freed_[in_signal].insert(offset).second) return false;
    ledger_->retire(number_, array_at(in_signal, offset));
    return true;
  }
  void release(std::uint64_t array) override {
    bool const in_signal = array % 2;
    std::uint64_t const offset = array / 2;
    forget_regions(in_signal, offset);
    (in_signal ? signal_ : bulk_).release(offset);
    freed_[in_signal].erase(offset);
    if (in_signal) names_.remove_flags(offset);
  }

  /// See heap::annotate().
  void annotate(bool in_signal, std::uint64_t offset, std::size_t bytes, std::string const& name) const {
    auto const& sim = simulator::get();
    if (!sim.there()) return;
    for (int r = 0; r < view_.size(); ++r)
      sim.annotate((in_signal ? view_.signal[r] : view_.bulk[r]) + offset, bytes, name.c_str());
  }

  /// See heap::require_equal_on_ranks().
  void require_equal_on_ranks(char const* call, std::span<agreed_value const> values, std::source_location where,
                              bool alarmed) {
    std::size_t const n = values.size();
    std::vector<std::uint64_t> mine(n + 2);
    std::ranges::transform(values, mine.begin(), &agreed_value::value);
    mine[n] = alarmed;
    mine[n + 1] = ledger_->to_tell(world_.stream(), where);
    auto const all = gather_words(world_.exchange(), mine, mine.size());
    std::uint64_t most = 0;
    for (auto const& theirs : all) most = std::max(most, theirs[n + 1]);
    ledger_->release_agreed(most, where);
    if (alarmed) throw_if_alarmed();
    for (std::size_t r = 0; r < all.size(); ++r)
      require<launch_abandoned>(all[r][n] == 0, where, call, ": a launch of rank ", r,
                                " has failed, and its error says why");
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t i = 0; i < n; ++i)
        require<rank_mismatch>(all[r][i] == all[0][i], where, call, ": ranks disagree in ", values[i].name,
                               ": rank 0 has ", all[0][i], ", rank ", r, " has ", all[r][i]);
  }

  /// See heap::reset().
  void reset(std::source_location where) {
    current_device const device(world_.device(), where);
    require_no_capture(world_.stream(), "reset", where);
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize", where);
    for (auto const& r : resets_) r.quiesce();
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize", where);
    world_.exchange().barrier();
    arm_watch(where), reported_ = false;
    // Some ranks may have ended a channel that others have yet to end
    std::vector<std::uint64_t> mine;
    for (auto const& r : resets_) mine.push_back(r.memory);
    auto const counts = world_.exchange().all_gather(std::uint64_t(mine.size()));
    auto const all = gather_words(world_.exchange(), mine, *std::ranges::max_element(counts));
    for (auto const& r : resets_)
      if (std::ranges::all_of(all, [&](auto const& theirs) { return std::ranges::count(theirs, r.memory) != 0; }))
        r.renew();
  }
  /// Adds memory, with its offset, that reset() renews while the result lives: in the order of the calls, which all
  /// ranks make in one order. `quiesce` comes before all that is renewed, when no kernel runs.
  [[nodiscard]] registration add_reset(
      std::uint64_t memory, std::function<void()> renew, std::function<void()> quiesce = [] {}) {
    return resets_.add({memory, std::move(renew), std::move(quiesce)});
  }
  void throw_if_alarmed() {
    if (!alarmed()) return;
    current_device const device(world_.device());
    hipStreamCaptureStatus capture;
    check_hip(hipStreamIsCapturing(world_.stream(), &capture), "hipStreamIsCapturing");
    if (capture != hipStreamCaptureStatusNone)
      throw wait_timeout(
          text("rank ", view_.rank(),
               ": a launch before this capture has failed, and world::check(), which cannot be captured, says why",
               launch_report::until_reset));
    ignore_hip(hipDeviceSynchronize());  // what the kernel reports is complete when it has ended
    throw_if_abandoned(world_.stream());
  }

  void let_go_of_peers() override {
    if (segments_) report_unobserved_error();
    if (alarm_) alarm_->detach();
    if (segments_) segments_->unmap_peers();
  }
  std::vector<std::shared_ptr<void>> local() override {
    return segments_ ? segments_->local() : std::vector<std::shared_ptr<void>>();
  }

 private:
  heap_state(fusewire::world& w, heap_options const& options, std::source_location where)
      : world_(w), ledger_(w.memory_ledger()), options_(options), bulk_(0, options.bulk, heap_unit),
        signal_(heap_options::reserved_signal_bytes, options.signal, heap_unit) {
    check(options, w.size(), where);
  }

  void begin(std::source_location where) {
    fusewire::world& w = world_;
    current_device const device(w.device(), where);
    outside_captures const allocating;
    require_no_capture(w.stream(), "heap", where);
    require_equal_on_ranks(
        "heap",
        std::array{agreed_value{"bulk bytes", options_.bulk}, agreed_value{"signal bytes", options_.signal},
                   agreed_value{"bulk_at, given or not", bool(options_.bulk_at)}},
        where, false);
    number_ = ledger_->open(*this);
    std::vector<shared_segments::request> own{{options_.signal, true, "signal"}};
    if (!options_.bulk_at) own.push_back({options_.bulk, false, "bulk"});
    segments_.emplace(w, own, options_.share, where);
    view_ = world_view(w.rank(), w.size());
    view_.bulk_bytes = options_.bulk;
    for (int r = 0; r < w.size(); ++r) {
      view_.signal[r] = segments_->of(0, r);
      view_.bulk[r] = options_.bulk_at ? options_.bulk_at.of[r] : segments_->of(1, r);
    }
    w.fill(view_.signal[w.rank()], 0, options_.signal, "heap: signal segment", where);
    alarm_ = std::make_shared<alarm>(reinterpret_cast<watch*>(view_.signal[w.rank()]), w.device(), where);
    arm_watch(where);
    w.exchange().listen(alarm_);
    using trial = flag_trial<platform::tries_flags>;
    trial::load(where);
    w.exchange().barrier();  // no peer may touch the segment before it is zero
    if (w.size() > 1) {
      using namespace std::chrono_literals;
      trial::run(w, view_, heap_options::reserved_signal_bytes,
                 std::clamp<std::chrono::nanoseconds>(options_.wait_limit, 2s, 10s), where);
    }
    annotate(false, 0, 0, "");
    annotate(true, 0, sizeof(watch), text("what the heap at ", short_place(where), " notes of its launches"));
    log(w.rank(), [&] {
      return text("heap of ", in_bytes(options_.bulk), " for data and ", in_bytes(options_.signal), " for flags; ",
                  w.ranks_in_words());
    });
    check_ = w.add_check([this](hipStream_t stream) { throw_if_abandoned(stream); }, [this] { throw_if_alarmed(); });
  }

  /// No object of this rank uses the heap any more. An exception that unwinds the stack is its own report.
  void last_user_went() {
    check_.reset();
    if (std::uncaught_exceptions() > 0) reported_ = true;
  }

  /// Reports a failed launch on standard error, if check() has not reported it.
  void report_unobserved_error() {
    if (!alarmed()) return;
    watch seen;
    hipError_t const e = hipMemcpy(&seen, view_.signal[view_.rank()], sizeof seen, hipMemcpyDeviceToHost);
    ignore_hip(e);
    reported_ = true;
    if (e != hipSuccess) {
      std::fprintf(stderr, "fusewire: hipMemcpy(watch): %s; a launch failed, and it is not known why\n",
                   hipGetErrorName(e));
      return;
    }
    std::string const what = report().local_failure(seen);
    if (what.empty()) return;
    std::fprintf(stderr, "fusewire: a launch failed, and nobody called world::check() afterwards: %s\n", what.c_str());
  }

  static std::uint64_t array_at(bool in_signal, std::uint64_t offset) { return 2 * offset + in_signal; }

  void arm_watch(std::source_location where) {
    watch fresh{};
    fresh.limit_ns = static_cast<std::uint64_t>(options_.wait_limit.count());
    fresh.alarm = alarm_->word();
    alarm_->lower();
    world_.copy(view_.signal[view_.rank()], &fresh, sizeof fresh, hipMemcpyHostToDevice, "heap: watch", where);
  }

  void forget_regions(bool in_signal, std::uint64_t offset) const {
    auto const& sim = simulator::get();
    if (!sim.there()) return;
    std::size_t const bytes = (in_signal ? signal_ : bulk_).size_at(offset);
    for (int r = 0; r < view_.size(); ++r)
      sim.forget_regions((in_signal ? view_.signal[r] : view_.bulk[r]) + offset, bytes);
  }

  void throw_if_abandoned(hipStream_t stream) {
    launch_report const r = report();
    watch const seen = r.watch_of(view_.rank(), stream);
    if (!r.failed(seen)) return;
    reported_ = true;
    r.raise(seen, stream, alarm_->failure());
  }
  launch_report report() const {
    return {view_, names_, [this](int rank) { return world_.exchange().has_left(rank); }};
  }

  struct renewed {
    std::uint64_t memory;
    std::function<void()> renew, quiesce;
  };
  fusewire::world& world_;
  std::shared_ptr<detail::ledger> ledger_;
  std::uint64_t number_ = 0;  // in the ledger; 0: not yet
  heap_options options_;
  offset_allocator bulk_, signal_;
  std::set<std::uint64_t> freed_[2];         // by this rank, not by all; bulk, signal
  std::optional<shared_segments> segments_;  // signal, bulk
  world_view view_;
  name_table names_;
  registry<renewed> resets_;
  std::shared_ptr<alarm> alarm_;
  bool reported_ = false;  // check() or poll_errors() has thrown since the latest reset()
  registration check_;
};

}  // namespace fusewire::detail
