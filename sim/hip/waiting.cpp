// Which thread runs the machine: the host thread that waits first, or a thread of the simulator for hosts that only
// poll memory. And what happens when all waves wait.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "hip/interrupt.hpp"
#include "hip/runtime.hpp"
#include "machine/report.hpp"
#include "machine/timeline.hpp"

namespace fusewire::sim {
namespace {

using clock_type = std::chrono::steady_clock;
constexpr auto idle_before_background = std::chrono::milliseconds(50);
constexpr auto between_looks = std::chrono::milliseconds(10);  // at what other threads or processes do
constexpr auto patience_together = std::chrono::seconds(10);

std::atomic<pid_t> background_thread{0};

/// Threads of the program, without the one of ThreadSanitizer, which starts with start_background() at the latest.
int thread_count() {
  DIR* tasks = opendir("/proc/self/task");
  int n = thread_sanitizer ? -1 : 0;
  if (!tasks) return 1;
  while (dirent const* entry = readdir(tasks))
    if (pid_t const id = std::atoi(entry->d_name); id && id != background_thread) ++n;
  closedir(tasks);
  return n;
}

}  // namespace

/// Whether threads of this process compute at the moment. It does not count this thread, the simulator's own, and
/// threads that only wait for the machine, however often they poll. Threads that compute may be about to call HIP.
bool runtime::others_compute() const {
  std::vector<int> but = waiters_;
  but.insert(but.end(), {gettid(), background_thread});
  return computes(getpid(), but);
}

void runtime::set_running(bool on) { machine_runs(running_ = on); }

void runtime::host_reaches(u64 time) {
  timing const& rates = node_.settings.rates;
  u64& now = this_thread().now;
  now = std::max(now, time + rates.from_us(rates.host_wake_us));
}

/// With a clock, the machine runs on only while no host thread can still launch something for an earlier time: each of
/// them waits here for what has not happened, or sleeps in the system. A thread that computes for longer than the
/// patience is assumed to need nothing but time.
bool runtime::hosts_rest(lock& l) {
  bool const woken = std::ranges::any_of(until_, [](auto const* until) { return (*until)(); });
  auto const now = clock_type::now();
  if (!woken) {
    if (rest_entries_ == entries_) return true;
    // Must be seen twice: a thread may be about to be woken
    bool const quiet = entering_ == 0 && !others_compute(), rest = quiet && quiet_entries_ == entries_;
    quiet_entries_ = quiet ? static_cast<u64>(entries_) : 0;
    if (rest || now - unrest_since_ > std::chrono::milliseconds(node_.settings.patience)) {
      rest_entries_ = entries_;
      unrest_since_ = now;
      return true;
    }
  } else {
    changed_.notify_all();
  }
  u64 const entries = entries_;
  pausing_ = true;
  l.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  l.lock();
  pausing_ = false;
  if (entries != entries_ || woken) unrest_since_ = clock_type::now();
  return false;
}

/// Lets threads in that are about to call HIP.
void runtime::give_way(lock& l) {
  if (entering_.load(std::memory_order_relaxed) == 0) return;
  l.unlock();
  for (int i = 0; i < 1000 && entering_.load() != 0; ++i) std::this_thread::yield();
  l.lock();
}

bool runtime::turn(lock& l, bool patient) {
  if (interrupted()) {
    report_interrupt(node_, scheduler_);
    end_by_interrupt();
  }
  bool any = attention_ && advance(l);
  std::size_t const launches = scheduler_.launches().size();
  switch (scheduler_.step()) {
    case scheduler::outcome::worked:
      any = true;
      if (!scheduler_.stuck()) stalling_ = false, note(shared_node::doing::running);
      break;
    case scheduler::outcome::stalled:
      stalled(l, patient);
      any = true;
      break;
    case scheduler::outcome::idle: note(shared_node::doing::host_code); break;
  }
  if (services_.serve()) any = true;
  if (scheduler_.launches().size() != launches) attention_ = true;
  return any || attention_;
}

/// All waves wait. Before this is called a deadlock, other host threads get the time to change it. While a thread may
/// be woken from outside, simulated time passes with the wall's, and no wait ends early.
void runtime::stalled(lock& l, bool patient) {
  if (node_.shared) return stalled_together(l);
  auto const now = clock_type::now();
  if (!stalling_ || stall_entries_ != entries_) stalling_ = true, stall_since_ = now, stall_entries_ = entries_;
  if (!patient) {
    bool const alone = thread_count() <= waiting_;
    if (!alone && now - last_look_ >= between_looks && (last_look_ = now, outside_ > 0 || others_compute()))
      stall_since_ = now;
    if (alone || now - stall_since_ > std::chrono::milliseconds(node_.settings.patience))
      return scheduler_.resolve_stall();
  }
  l.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  l.lock();
  scheduler_.keep_waiting(core_mhz * 200);
}

/// All waves of this process wait, perhaps for another process. Simulated time passes with the wall's, but stands still
/// while other processes run waves or compute, however slowly; so a time-out on the device keeps its meaning. It is a
/// deadlock when every process stays stalled and no wave watches the clock.
void runtime::stalled_together(lock& l) {
  note(shared_node::doing::stalled);
  l.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  l.lock();
  auto const now = clock_type::now();
  auto const since_look = now - last_look_;
  if (since_look < between_looks) return scheduler_.keep_waiting(0);
  last_look_ = now;
  u64 const seen = node_.changes + node_.clock_reads;
  if (std::exchange(seen_at_look_, seen) != seen || since_look > std::chrono::seconds(1) ||
      !node_.shared->all_stalled())
    all_stalled_since_ = now;
  if (now - all_stalled_since_ > patience_together) report_deadlock(node_, scheduler_);
  if (since_look > 2 * between_looks || !node_.shared->others_rest()) return scheduler_.keep_waiting(0);
  scheduler_.keep_waiting(static_cast<u64>(std::chrono::duration_cast<std::chrono::microseconds>(since_look).count()) *
                          core_mhz);
}

void runtime::wait(lock& l, std::function<bool()> const& until) {
  ++waiting_;
  waiters_.push_back(gettid());
  until_.push_back(&until);
  bool const timed = node_.settings.time, waits = timed && !until();
  while (!until()) {
    if (running_) {
      changed_.wait_for(l, std::chrono::milliseconds(20));
      continue;
    }
    set_running(true);
    unrest_since_ = clock_type::now();
    while (!until()) {
      if (timed && !hosts_rest(l)) continue;
      if (!turn(l, false)) {
        changed_.notify_all();
        changed_.wait_for(l, std::chrono::milliseconds(1));
      }
      give_way(l);
    }
    set_running(false);
    note(shared_node::doing::host_code);
    changed_.notify_all();
  }
  --waiting_;
  waiters_.erase(std::ranges::find(waiters_, gettid()));
  until_.erase(std::ranges::find(until_, &until));
  if (timed) ++entries_;
  if (waits) host_reaches(node_.cycles);
  host_waited();
  last_activity_ = clock_type::now();
}

void runtime::poll(lock& l) {
  if (node_.settings.time) return poll_in_time(l);
  if (running_) return;
  set_running(true);
  for (int i = 0; i < 16; ++i)
    if (!turn(l, true)) break;
  host_waited();
  set_running(false);
  note(shared_node::doing::host_code);
  changed_.notify_all();
}

/// Runs the machine on to this thread's time.
void runtime::poll_in_time(lock& l) {
  if (running_ && !pausing_) return;
  bool const before = running_;
  set_running(true);
  for (;;) {
    if (attention_) advance(l);
    if (scheduler_.time()->step(this_thread().now) == scheduler::outcome::idle && !attention_) break;
    services_.serve();
    attention_ = true;
    if (node_.cycles >= this_thread().now) break;
  }
  advance(l);
  set_running(before);
  changed_.notify_all();
}

void runtime::start_background() {
  if (background_started_) return;
  background_started_ = true;
  std::thread([this] { background(); }).detach();
}

/// For hosts that poll memory: runs the machine when work is pending and no thread has called HIP for a while.
void runtime::background() {
  background_thread = gettid();
  for (;;) {
    std::this_thread::sleep_for(idle_before_background / 2);
    lock l(mutex_);
    u64 const entries = entries_;
    if (running_ || !pending() ||
        clock_type::now() - last_activity_ <
            (node_.settings.time ? std::chrono::milliseconds(node_.settings.patience) : idle_before_background))
      continue;
    set_running(true);
    while (entries_ == entries && waiting_ == 0 && turn(l, true)) give_way(l);
    set_running(false);
    note(shared_node::doing::host_code);
    changed_.notify_all();
  }
}

}  // namespace fusewire::sim

extern "C" void fusewireSimOutside(int more) { fusewire::sim::runtime::get().outside(more); }
