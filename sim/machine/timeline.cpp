#include "machine/timeline.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "machine/report.hpp"

namespace fusewire::sim {
namespace {

constexpr u64 never = ~u64{0};
constexpr u64 between_looks = 400'000;  // cycles, at whether every wave waits ...
constexpr u64 between_jumps = 8'000;    // ... and once they do
constexpr u32 polls_that_count = 64;    // repeats after which a wave counts as waiting for another
constexpr int ops_ahead = 6;            // of a wave, whose registers the host fetches when its turn begins
constexpr u64 first_jump = 21'000, longest_wait = 2'100'000'000'000;  // cycles: 10 us, 1000 s

void fetch(void const* from, std::size_t bytes) {
  for (auto p = static_cast<u8 const*>(from), end = p + bytes; p < end; p += 64) __builtin_prefetch(p);
}

}  // namespace

timeline::timeline(node& n, scheduler& s) : node_(n), scheduler_(s), t_(n.settings.rates) {
  auto const gpus = static_cast<std::size_t>(n.settings.gpus), cus = static_cast<std::size_t>(n.settings.cus);
  shared_.resize(gpus * ((cus + 2 * max_xcds - 1) / (2 * max_xcds)) * max_xcds);
  std::size_t const of_gpu = shared_.size() / gpus;
  for (std::size_t g = 0; g < gpus; ++g)
    for (std::size_t c = 0; c < cus; ++c) {
      compute_unit_clock& cu = cus_.emplace_back();
      auto const xcds = static_cast<std::size_t>(n.xcds());
      cu.gpu = static_cast<int>(g), cu.cu = static_cast<int>(c), cu.xcd = static_cast<int>(c % xcds);
      cu.shared = &shared_[g * of_gpu + c / xcds / 2 * max_xcds + c % xcds];
    }
  dispatcher_free_.resize(gpus);
}
timeline::~timeline() = default;

std::unique_ptr<node_memory> timeline::make_memory() {
  auto m = std::make_unique<timed_memory>(node_, t_, events_);
  memory_ = m.get();
  if (!node_.settings.trace.empty()) trace_ = std::make_unique<trace_log>(), memory_->paths.trace = trace_.get();
  return m;
}

timeline::notice& timeline::note(timed_event::kind k) {
  if (spare_notices_.empty()) {
    notices_.push_back(std::make_unique<notice>(k));
    return *notices_.back();
  }
  notice& n = *spare_notices_.back();
  spare_notices_.pop_back();
  n.what = k;
  return n;
}

void timeline::announce(std::shared_ptr<kernel_launch> l) {
  notice& n = note(timed_event::kind::launch);
  n.launch = std::move(l);
  events_.put(n, n.launch->begin);
}

/// A workgroup has been placed. Its waves begin when the XCD's dispatcher comes to them.
void timeline::placed(resident_group& g) {
  kernel_launch& l = *g.from;
  compute_unit_clock& c = cu_of(l.gpu, g.cu);
  double& free = dispatcher_free_[static_cast<std::size_t>(l.gpu)][static_cast<std::size_t>(g.xcd)];
  free = std::max(free, static_cast<double>(node_.cycles));
  ++l.profile.workgroups;
  g.begin_time = static_cast<u64>(free);
  if (trace_)
    g.trace_place = static_cast<u32>(std::countr_one(c.trace_places)) & 31, c.trace_places |= 1u << g.trace_place;
  hot_spots& hot = hot_[l.kernel->code];
  if (hot.waited.empty())
    hot.waited.resize(op_count(*l.kernel->code)), hot.executed.resize(hot.waited.size()),
        hot.banks.resize(hot.waited.size()), hot.of = keep(*l.kernel->code);
  for (wave* w : g.waves) {
    free += t_.dispatch;
    if (spare_clocks_.empty()) {
      clocks_.push_back(std::make_unique<wave_clock>());
      spare_clocks_.push_back(clocks_.back().get());
    }
    wave_clock& k = *spare_clocks_.back();
    spare_clocks_.pop_back();
    k = {};
    k.of = w, k.cu = &c, k.times = times_of(*w->code), k.profile = &l.profile, k.hot = &hot;
    k.simd = g.simds[w->index];
    k.code_base = image_base(*w->code) / line_bytes;
    k.began = k.time = k.since = static_cast<u64>(free + t_.wave_start);
    w->pending->clock = &k;
    w->pending->serial = ++serial_;
    ++l.profile.waves;
    c.waves.push_back(&k);
  }
  wake(c);
}

/// The CU's next turn begins when its first wave can go on.
void timeline::wake(compute_unit_clock& c) {
  wave_clock const* next = nullptr;
  for (wave_clock const* k : c.waves)
    if (!k->parked && (!next || k->time < next->time)) next = k;
  u64 const first = !next ? never : next->gate > node_.cycles ? next->gate : next->time;
  if (first == never || first >= c.wake_at) {
    if (first == never) c.wake_at = never;
    if (first == never || first == c.wake_at) return;
  }
  c.wake_at = first;
  notice& n = note(timed_event::kind::compute_unit);
  n.cu = &c;
  events_.put(n, first);
}

void timeline::announce_next() const {
  auto const [next, second] = events_.upcoming();
  if (second) fetch(second, sizeof(timed_operation) - sizeof(timed_operation::data) - sizeof(timed_operation::compare));
  if (!next) return;
  if (next->what == timed_event::kind::operation) {
    memory_->announce(static_cast<timed_operation const&>(*next));
  } else if (next->what == timed_event::kind::compute_unit) {
    compute_unit_clock const& c = *static_cast<notice const&>(*next).cu;
    for (wave_clock const* k : c.waves) fetch(k, 128);
    fetch(&c.port_free, sizeof c.port_free + sizeof c.matrix_free);
  }
}

void timeline::announce_turn(compute_unit_clock const& c, u64 until) const {
  for (wave_clock const* k : c.waves)
    if (!k->parked && k->time < until) {
      fetch(k->of->s, sizeof k->of->s + 64);
      fetch(k->vm, 64);
      fetch(&k->lgkm, sizeof k->lgkm + 64);
    }
  for (wave_clock const* k : c.waves)
    if (!k->parked && k->time < until)
      for (op_time const *o = k->times + k->of->pc, *const end = o + ops_ahead; o < end && o->on != unit::end; ++o)
        for (int s = 0; s < 3; ++s) fetch(k->of->v[o->source[s] & 511], o->rows[s] * sizeof k->of->v[0]);
}

/// A turn of the CU, in which its waves run in the exact order of their times. It ends before a wave would go on with a
/// value that has not been taken yet. Of waves that can go on at the same time, the one with the highest priority goes
/// first, then the one that has waited longest.
void timeline::run(compute_unit_clock& c, u64 from) {
  u64 const until = from + static_cast<u64>(t_.turn);
  auto const before = [](wave_clock const& a, wave_clock const& b) {
    return a.time != b.time ? a.time < b.time : a.priority != b.priority ? a.priority > b.priority : a.since < b.since;
  };
  announce_turn(c, until);
  for (;;) {
    wave_clock* first = nullptr;
    u64 second = until;
    for (wave_clock* k : c.waves) {
      if (k->parked) continue;
      if (!first || before(*k, *first)) {
        if (first) second = std::min(second, first->time);
        first = k;
      } else {
        second = std::min(second, k->time);
      }
    }
    if (!first || first->time >= until || first->gate > from) break;
    released_ = false;
    do issue(c, *first);
    while (!released_ && !first->parked && first->time < second && first->gate <= from);
  }
  c.wake_at = never;
  wake(c);
}

void timeline::drain(kernel_launch& l) {
  notice& n = note(timed_event::kind::kernel_end);
  for (auto const& p : scheduler_.launches_)
    if (p.get() == &l) n.launch = p;
  u64 const end = std::max(node_.cycles, l.end);  // the last workgroup's, and the last write's
  l.end = static_cast<u64>(std::ceil(memory_->paths.kernel_ends(l.gpu, static_cast<double>(end), l.profile.bytes)));
  events_.put(n, l.end);
}

void timeline::handle(timed_event& e) {
  if (e.what == timed_event::kind::operation) return memory_->perform(static_cast<timed_operation&>(e));
  if (e.what == timed_event::kind::outside) {
    std::unique_ptr<outside_call> const c(static_cast<outside_call*>(&e));
    --outside_calls_, ++node_.changes;
    return c->call(c->context);
  }
  auto& n = static_cast<notice&>(e);
  switch (e.what) {
    case timed_event::kind::compute_unit:
      if (n.cu->wake_at == e.time) run(*n.cu, e.time);
      break;
    case timed_event::kind::launch: {
      kernel_launch& l = *n.launch;
      l.begin = e.time;
      l.profile.name = l.kernel->demangled, l.profile.gpu = l.gpu, l.profile.launches = 1;
      auto const cus = static_cast<std::size_t>(node_.settings.cus);
      for (std::size_t c = 0; c < cus; ++c) {
        compute_unit_clock& cu = cus_[static_cast<std::size_t>(l.gpu) * cus + c];
        cu.path.invalidate(), cu.shared->scalar.clear();
      }
      scheduler_.admit(std::move(n.launch));
      scheduler_.place_waiting();
      something_ended_ = true;
      break;
    }
    case timed_event::kind::group_end: {
      resident_group& g = *n.group;
      compute_unit_clock& c = cu_of(g.from->gpu, g.cu);
      if (trace_) {
        trace_->workgroup(c.gpu, c.cu, g.trace_place, g.from->profile.name, g.begin_time, g.end_time);
        c.trace_places &= ~(1u << g.trace_place);
      }
      for (wave* w : g.waves) {
        std::erase(c.waves, w->pending->clock);
        spare_clocks_.push_back(w->pending->clock);
      }
      std::erase(scheduler_.live_, &g);
      scheduler_.end_group(g);
      delete &g;
      while (scheduler_.room_) scheduler_.place_waiting();
      break;
    }
    case timed_event::kind::kernel_end: {
      kernel_launch& l = *n.launch;
      l.profile.cycles = l.end - l.begin;
      if (trace_) trace_->kernel(l.gpu, l.profile.name, l.begin, l.end);
      profiles_[{l.gpu, l.kernel->demangled}].add(l.profile);
      scheduler_.finish(l);
      something_ended_ = true;
      break;
    }
    default: break;
  }
  n.launch.reset();
  spare_notices_.push_back(&n);
}

void timeline::call_at(u64 time, void (*f)(void*), void* context) {
  events_.put(*new outside_call{timed_event(timed_event::kind::outside), f, context}, time);
  ++outside_calls_;
}

scheduler::outcome timeline::step(u64 limit) {
  if (events_.empty()) return scheduler::outcome::idle;
  something_ended_ = false;
  for (int turns = 0; turns < 4096 && !events_.empty() && !something_ended_; ++turns) {
    if (limit != never && events_.head() > limit) return turns ? scheduler::outcome::worked : scheduler::outcome::idle;
    timed_event& e = *events_.take();
    node_.cycles = e.time;
    memory_->paths.now = static_cast<double>(e.time);
    announce_next();
    handle(e);
  }
  if (node_.cycles >= looked_at_ + (jumped_ ? between_jumps : between_looks) && all_wait())
    return scheduler::outcome::stalled;
  return scheduler::outcome::worked;
}

/// Whether no memory has changed for a long time while every wave polls. Waves that poll keep using time here, as they
/// do on the machine.
bool timeline::all_wait() {
  looked_at_ = node_.cycles;
  bool const changed = std::exchange(changes_at_look_, node_.changes) != node_.changes;
  if (changed || outside_calls_ || scheduler_.live_.empty()) {
    jumped_ = 0, reads_at_look_ = node_.clock_reads;
    return false;
  }
  return std::ranges::all_of(scheduler_.live_, [](resident_group* g) {
    return std::ranges::all_of(g->waves, [](wave* w) {
      return w->state == wave_state::at_barrier || w->state == wave_state::ended ||
             w->pending->polls.repeats >= polls_that_count;
    });
  });
}

/// Waves that watch the clock see it jump ahead.
void timeline::resolve_stall() {
  if (std::exchange(reads_at_look_, node_.clock_reads) == node_.clock_reads || jumped_ >= longest_wait)
    report_deadlock(node_, scheduler_);
  u64 const jump = std::max(first_jump, jumped_ / 4);
  memory_->jumped += jump, jumped_ += jump;
}

}  // namespace fusewire::sim
