#include "machine/scheduler.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "machine/report.hpp"
#include "machine/timeline.hpp"

namespace fusewire::sim {
namespace {

constexpr u32 polls_that_count = 64;                // repeats after which a wave counts as waiting for another
constexpr u32 rounds_that_count = 256;              // in which nothing changed
constexpr u64 instructions_that_count = 1'000'000;  // of a wave that polls, before it is called a deadlock ...
constexpr u64 most_instructions = 20'000'000;       // ... but no more than this of all waves together
// Instructions of a wave that touches no global memory: it polls LDS
constexpr u64 silence_that_counts = 4'000'000;
constexpr u64 longest_jump = core_mhz * 100'000;             // cycles: 0.1 s
constexpr u64 longest_wait = core_mhz * u64{1'000'000'000};  // cycles: 1000 s

bool waits(wave const& w) {
  return w.state == wave_state::at_barrier || w.state == wave_state::ended ||
         w.pending->polls.repeats >= polls_that_count || w.executed - w.pending->active_at > silence_that_counts;
}

}  // namespace

scheduler::scheduler(node& n) : node_(n), gpus_(static_cast<std::size_t>(n.settings.gpus)) {
  if (n.settings.time) {
    timeline_ = std::make_unique<timeline>(n, *this);
    memory_ = timeline_->make_memory();
  } else if (n.settings.weak) {
    auto weak = std::make_unique<weak_memory>(n);
    weak_ = weak.get();
    memory_ = std::move(weak);
  } else {
    memory_ = std::make_unique<strong_memory>(n);
  }
  if (!timeline_) {
    window_ = std::array{1u, 4u, 64u}[n.chance.below(3)];
    pause_one_in_ = std::array{0u, 2u, 16u}[n.chance.below(3)];
  }
  for (auto& gpu : gpus_)
    for (int cu = 0; cu < n.settings.cus; ++cu) gpu[static_cast<std::size_t>(cu % n.xcds())].cus.emplace_back();
}

scheduler::~scheduler() = default;

void scheduler::start(std::shared_ptr<kernel_launch> l) {
  if (timeline_) timeline_->announce(std::move(l));
  else admit(std::move(l));
}

void scheduler::admit(std::shared_ptr<kernel_launch> l) {
  l->total = u64{l->grid[0]} * l->grid[1] * l->grid[2];
  // Round robin over the XCDs, starting with any of them.
  u32 const xcds = static_cast<u32>(node_.xcds()), first = timeline_ ? 0 : node_.chance.below(xcds);
  for (u32 x = 0; x < xcds; ++x) l->next[x] = (x + xcds - first) % xcds;
  l->takes = footprint_of(*l->kernel, l->block[0] * l->block[1] * l->block[2], static_cast<u32>(l->lds));
  ++node_.stats.launches;
  ++node_.changes;
  memory_->kernel_begins(l->gpu);
  if (node_.races) node_.races->begins(*l);
  for (xcd_state& x : gpus_[static_cast<std::size_t>(l->gpu)]) x.room = true;
  room_ = true;
  launches_.push_back(std::move(l));
}

wave* scheduler::take_wave() {
  if (spare_waves_.empty()) {
    constexpr std::size_t batch = 16, size = (sizeof(wave) + 4095) & ~std::size_t{4095};
    void* p = mmap(nullptr, batch * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      std::perror("fusewire-sim: no memory for the registers of a wave");
      std::_Exit(exit_code_of_a_report);
    }
    for (std::size_t i = batch; i-- > 0;)
      spare_waves_.push_back(reinterpret_cast<wave*>(static_cast<u8*>(p) + i * size));
  }
  wave* w = spare_waves_.back();
  spare_waves_.pop_back();
  return w;
}

/// A workgroup of the launch that this XCD may start next; no source promises an order. Null when all have been placed.
u64* scheduler::choose(kernel_launch& l, int xcd) {
  auto& choice = l.choice[static_cast<std::size_t>(xcd)];
  u64& next = l.next[static_cast<std::size_t>(xcd)];
  for (; choice.size() < window_ && next < l.total; next += static_cast<u64>(node_.xcds())) choice.push_back(next);
  if (choice.empty()) return nullptr;
  std::swap(choice.back(), choice[node_.chance.below(static_cast<u32>(choice.size()))]);
  return &choice.back();
}

/// Starts the next workgroup of the launch for this XCD; false when there is none, or no CU has room.
bool scheduler::place(kernel_launch& l, int xcd) {
  u64 const* const chosen = choose(l, xcd);
  if (!chosen) return false;
  u64 const next = *chosen;
  xcd_state& x = gpus_[static_cast<std::size_t>(l.gpu)][static_cast<std::size_t>(xcd)];
  compute_unit::simds simds;
  auto const cus = static_cast<u32>(x.cus.size());
  u32 tried = 0;
  auto const number = [&] { return static_cast<u32>(xcd) + x.next_cu * static_cast<u32>(node_.xcds()); };
  while (tried < cus && !(l.cus[number()] && x.cus[x.next_cu].place(l.takes, simds)))
    x.next_cu = (x.next_cu + 1) % cus, ++tried;
  if (tried == cus) return false;
  l.choice[static_cast<std::size_t>(xcd)].pop_back();
  ++l.started;
  auto* g = new resident_group;
  g->from = &l;
  g->launch = &l;
  g->id[0] = static_cast<u32>(next % l.grid[0]), g->id[1] = static_cast<u32>(next / l.grid[0] % l.grid[1]),
  g->id[2] = static_cast<u32>(next / l.grid[0] / l.grid[1]);
  g->xcd = xcd;
  g->cu = static_cast<int>(number());
  g->simds = simds;
  g->lds.assign(static_cast<std::size_t>(l.lds), 0xcd);
  x.next_cu = (x.next_cu + 1) % cus;

  g->memory.gpu = l.gpu, g->memory.xcd = xcd, g->memory.cu = g->cu;
  if (weak_) g->memory.l1 = &weak_->l1(l.gpu, g->cu), g->memory.l2 = &weak_->l2(l.gpu, xcd);
  g->memory.kernarg = {
      reinterpret_cast<u64>(l.kernarg.data()), l.kernarg.size(), 0, -1, memory_kind::kernarg, 0, true, 0};
  auto const scratch = static_cast<u32>(l.kernel->scratch + (l.kernel->dynamic_stack ? 16384 : 0));
  for (u32 i = 0; i < l.takes.waves; ++i) {
    wave* w = take_wave();
    w->index = i;
    w->state = wave_state::running;
    w->code = l.kernel->code;
    w->group = g;
    w->memory = memory_.get();
    w->pending = new wave_memory;
    w->pending->group = &g->memory;
    w->scratch_bytes = scratch;
    w->scratch = scratch ? static_cast<u8*>(std::malloc(std::size_t{scratch} * lanes)) : nullptr;
    if (scratch) std::memset(w->scratch, 0xcd, std::size_t{scratch} * lanes);
    w->executed = 0;
    w->faulted = false;
    w->fault_text = new std::string;
    g->waves.push_back(w);
    sim::start(*w, l, *g, i);
  }
  g->running = static_cast<int>(l.takes.waves);
  live_waves_ += l.takes.waves;
  ++node_.stats.workgroups;
  executed_ = 0, said_at_ = node_.settings.livelock;
  ++node_.changes;
  live_.push_back(g);
  if (node_.races) node_.races->begins(*g, next);
  if (timeline_) timeline_->placed(*g);
  return true;
}

void scheduler::place_waiting() {
  room_ = false;
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    for (int xcd = 0; xcd < node_.xcds(); ++xcd) {
      xcd_state& x = gpus_[gpu][static_cast<std::size_t>(xcd)];
      if (!x.room) continue;
      x.room = false;
      for (auto const& l : launches_)
        if (l->gpu == static_cast<int>(gpu))
          while (!x.room && place(*l, xcd)) x.room = pause_one_in_ && node_.chance.one_in(pause_one_in_);
      room_ |= x.room;  // the other workgroups come later
    }
}

scheduler::outcome scheduler::step() {
  if (timeline_) return timeline_->step(~u64{0});
  if (room_) place_waiting();
  if (at_ == round_.size()) {
    if (live_.empty()) return outcome::idle;
    end_round();
    if (live_.empty()) return outcome::worked;
    if (stuck_rounds_ >= rounds_that_count) return outcome::stalled;
    round_ = live_;
    for (std::size_t i = round_.size(); i > 1; --i)
      std::swap(round_[i - 1], round_[node_.chance.below(static_cast<u32>(i))]);
    at_ = 0;
  }
  resident_group& g = *round_[at_++];
  if (!g.ended) run(g);
  return outcome::worked;
}

/// Runs the waves of one workgroup in small random turns. Most workgroups get a few hundred instructions, some get
/// none, and some run far ahead of all others: races need that.
void scheduler::run(resident_group& g) {
  random_source& chance = node_.chance;
  u32 const dice = chance.below(32);
  if (dice == 0 && live_.size() > 1) return;
  u64 budget = dice < 6 ? chance.between(16, 256) : dice < 30 ? chance.between(512, 4096) : chance.between(8192, 65536);
  u32 const turn =
      weak_ ? std::array{16u, 128u, 1024u}[chance.below(3)] : std::array{64u, 1024u, 4096u}[chance.below(3)];
  std::array<wave*, 16> ready;
  for (wave* w : g.waves)
    if (w->state == wave_state::sleeping) w->state = wave_state::running;
  wave* const left_out =
      g.running > 1 && chance.one_in(4) ? g.waves[chance.below(static_cast<u32>(g.waves.size()))] : nullptr;
  u32 resting = 0;  // waves that poll without success rest for the rest of the turn
  while (budget) {
    u32 n = 0;
    for (wave* w : g.waves)
      if (w->state == wave_state::running && w != left_out && !(resting >> w->index & 1)) ready[n++] = w;
    if (!n) break;
    wave& w = *ready[chance.below(n)];
    u64 const slice = w.pending->polls.repeats > 4 ? 64 : 1 + chance.below(turn);
    u64 const before = w.executed;
    node_.published = false;
    run_wave(g, w, std::min(slice, budget));
    u64 const done = w.executed - before;
    budget -= std::min(budget, std::max<u64>(done, 1));
    if (g.ended) return;
    if (w.pending->polls.repeats > 4) resting |= 1u << w.index;
    // Other workgroups get to see it while this workgroup's stores are still in flight
    if (node_.published && chance.one_in(2)) break;
    if (weak_ && !g.memory.quiet()) memory_->tick(g.memory);
    for (wave* other : g.waves)
      if (waits_for_lds(*other) && chance.one_in(4)) let_one_arrive(*other);
  }
  if (weak_) memory_->tick(g.memory);
}

void scheduler::run_wave(resident_group& g, wave& w, u64 budget) {
  u64 const done = execute(w, budget);
  if (std::exchange(w.pending->issued_before, w.pending->issued) != w.pending->issued)
    w.pending->active_at = w.executed;
  node_.stats.instructions += done;
  executed_ += done;
  cycle_parts_ += 4 * (done + (w.state == wave_state::sleeping ? 16 : 0));  // a wave issues about every fourth cycle
  node_.cycles += cycle_parts_ / live_waves_;
  cycle_parts_ %= live_waves_;
  if (w.faulted) report_fault(g, w);
  if (w.state == wave_state::ended) {
    --g.running;
    --live_waves_;
    if (!live_waves_) cycle_parts_ = 0, live_waves_ = 0;
    ++node_.changes;
    if (!g.running) {
      end_group(g);
      return;
    }
    check_barrier(g);
  } else if (w.state == wave_state::at_barrier) {
    ++g.at_barrier;
    check_barrier(g);
  }
}

void scheduler::check_barrier(resident_group& g) {
  if (!g.at_barrier || g.at_barrier < g.running) return;
  if (g.running < static_cast<int>(g.waves.size())) report_broken_barrier(g);
  for (wave* w : g.waves)
    if (w->state == wave_state::at_barrier) w->state = wave_state::running;
  g.at_barrier = 0;
  ++node_.changes;
}

void scheduler::end_group(resident_group& g) {
  g.ended = true;
  executed_ = 0, said_at_ = node_.settings.livelock;
  memory_->group_ends(g.memory);
  if (node_.races) node_.races->ends(g);
  kernel_launch& l = *g.from;
  xcd_state& x = gpus_[static_cast<std::size_t>(l.gpu)][static_cast<std::size_t>(g.xcd)];
  x.cus[static_cast<std::size_t>(g.cu / node_.xcds())].release(l.takes, g.simds);
  x.room = room_ = true;
  for (wave* w : g.waves) {
    std::free(w->scratch);
    forget(*w);
    delete std::exchange(w->pending, nullptr);
    delete w->fault_text;
    spare_waves_.push_back(w);
  }
  g.waves.clear();
  if (++l.finished < l.total) return;
  if (timeline_) timeline_->drain(l);
  else finish(l);
}

void scheduler::finish(kernel_launch& l) {
  l.ended = true;
  if (std::string const why = memory_->ended_wrong(l, l.total); !why.empty()) report_launch(l, why);
  memory_->kernel_ends(l.gpu);
  std::erase_if(launches_, [&](auto const& p) { return p.get() == &l; });
}

void scheduler::end_round() {
  std::erase_if(live_, [](resident_group* g) {
    bool const ended = g->ended;
    if (ended) delete g;
    return ended;
  });
  round_.clear();
  at_ = 0;
  if (!live_.empty() && executed_ >= said_at_) {
    report_livelock(node_, *this, executed_);
    said_at_ *= 4;
  }
  bool const stuck = node_.changes == changes_before_ && std::ranges::all_of(live_, [](resident_group* g) {
                       return std::ranges::all_of(g->waves, [](wave* w) { return waits(*w); });
                     });
  changes_before_ = node_.changes;
  if (stuck) ++stuck_rounds_;
  else host_did_something();
  if (stuck_rounds_ == 1) clock_reads_before_ = node_.clock_reads, instructions_before_ = node_.stats.instructions;
}

void scheduler::keep_waiting(u64 cycles) {
  if (timeline_) return;
  node_.cycles += cycles;
  stuck_rounds_ = rounds_that_count - 8;
}

void scheduler::resolve_stall() {
  if (timeline_) return timeline_->resolve_stall();
  if (node_.clock_reads == clock_reads_before_) {
    if (node_.stats.instructions - instructions_before_ >=
        std::min(live_waves_ * instructions_that_count, most_instructions))
      report_deadlock(node_, *this);
    return keep_waiting(0);
  }
  if (jumped_ >= longest_wait) report_deadlock(node_, *this);
  node_.cycles += jump_;
  jumped_ += jump_;
  jump_ = std::min(jump_ * 2, longest_jump);
  stuck_rounds_ = rounds_that_count - 8;
}

}  // namespace fusewire::sim
