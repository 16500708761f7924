#include "hip/runtime.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <utility>

#include "machine/report.hpp"
#include "machine/timeline.hpp"

namespace fusewire::sim {
namespace {

using clock_type = std::chrono::steady_clock;
constexpr auto idle_before_background = std::chrono::milliseconds(50);
constexpr auto between_looks = std::chrono::milliseconds(10);  // at what other threads or processes do
constexpr auto patience_together = std::chrono::seconds(10);

std::atomic<pid_t> background_thread{0};

/// When the process got SIGINT, or 0: whoever runs the machine then says where it stands, and ends the process as
/// SIGINT does.
std::atomic<std::time_t> interrupted{0};
std::atomic<bool> machine_runs{false};

void end_by_interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

/// While nobody runs the machine, or seconds after the first time, SIGINT does what it does without us. One Ctrl-C can
/// arrive twice: from the terminal, and from a launcher that passes it on, as timeout(1) does.
void on_interrupt(int) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::time_t first = 0;
  if (!machine_runs || (!interrupted.compare_exchange_strong(first, now.tv_sec + 1) && now.tv_sec + 1 > first + 1))
    end_by_interrupt();
}

/// A program that wants SIGINT for itself keeps it.
void watch_interrupt() {
  struct sigaction before{};
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_DFL && !(before.sa_flags & SA_SIGINFO))
    std::signal(SIGINT, on_interrupt);
}

/// Of the program: ThreadSanitizer has one of its own, at the latest since start_background().
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

thread_state& this_thread() {
  thread_local thread_state state;
  return state;
}

hipError_t remember(hipError_t e) {
  if (e != hipSuccess && e != hipErrorNotReady) this_thread().error = e;
  return e;
}

runtime& runtime::get() {
  static runtime* const one = new runtime;  // never destroyed: programs call HIP from destructors
  return *one;
}

runtime::runtime()
    : node_(config::from_environment()), scheduler_(node_), modules_(node_), services_(node_),
      last_activity_(clock_type::now()) {
  for (int d = 0; d < gpus(); ++d) {
    null_streams_.push_back(create_stream(d, 0, 0));
    null_streams_.back()->null = true;
  }
  watch_interrupt();
}

/// Threads of this process that compute at the moment, besides this one, ours, and those that only wait for the
/// machine, however often they look. They may be about to call HIP.
bool runtime::others_compute() const {
  std::vector<int> but = waiters_;
  but.insert(but.end(), {gettid(), background_thread});
  return computes(getpid(), but);
}

void runtime::set_running(bool on) { machine_runs = running_ = on; }

lock runtime::enter() {
  ++entering_;
  ++entries_;
  lock l(mutex_);
  --entering_;
  last_activity_ = clock_type::now();
  if (node_.settings.time) this_thread().now += node_.settings.rates.from_us(node_.settings.rates.host_call_us);
  return l;
}

cu_mask runtime::cus_of(ihipStream_t const& s) const {
  config const& c = node_.settings;
  cu_mask const all = c.mask.any() ? c.mask : ~cu_mask() >> static_cast<std::size_t>(max_cus - c.cus),
                both = all & s.mask;
  return both.any() ? both : all;
}

ihipStream_t* runtime::create_stream(int device, unsigned flags, int priority) {
  auto s = std::make_unique<ihipStream_t>();
  s->device = device, s->flags = flags, s->priority = priority;
  streams_.push_back(std::move(s));
  return streams_.back().get();
}

ihipStream_t* runtime::stream_of(hipStream_t handle, int device) {
  if (handle == nullptr || handle == hipStreamLegacy) return null_streams_[static_cast<std::size_t>(device)];
  if (handle == hipStreamPerThread) {
    auto& own = this_thread().own_streams;
    own.resize(static_cast<std::size_t>(gpus()));
    ihipStream_t*& s = own[static_cast<std::size_t>(device)];
    if (!s) s = create_stream(device, 0, 0);
    return s;
  }
  for (auto const& s : streams_)
    if (s.get() == handle && !s->destroyed) return s.get();
  return nullptr;
}

void runtime::destroy_stream(ihipStream_t& s) {
  s.destroyed = true;
  if (s.queue.empty()) std::erase_if(streams_, [&](auto const& p) { return p.get() == &s; });
}

void runtime::enqueue(ihipStream_t& s, work w) {
  auto list = std::make_shared<work_list>();
  list->push_back({std::move(w), {}});
  enqueue(s, std::move(list));
}

void runtime::enqueue(ihipStream_t& s, std::shared_ptr<work_list const> nodes, bool graph) {
  task t;
  timing const& rates = node_.settings.rates;
  if (node_.settings.time) t.issued = this_thread().now += rates.from_us(rates.host_launch_us);
  t.graph = graph;
  t.ends.resize(nodes->size());
  t.sequence = ++sequence_;
  t.left = static_cast<u32>(nodes->size());
  t.done.resize(nodes->size());
  t.launches.resize(nodes->size());
  t.nodes = std::move(nodes);
  s.queue.push_back(std::move(t));
  attention_ = true;
  scheduler_.host_did_something();
  start_background();
}

/// Legacy default stream: it waits for what was enqueued before it in the device's blocking streams, and they wait for
/// it.
bool runtime::may_start(ihipStream_t const& s, task const& t) const {
  auto const before = [&](ihipStream_t const& other) {
    return !other.queue.empty() && other.queue.front().sequence < t.sequence;
  };
  if (s.null)
    return std::ranges::none_of(streams_,
                                [&](auto const& o) { return o->device == s.device && o->blocking() && before(*o); });
  return !s.blocking() || !before(*null_streams_[static_cast<std::size_t>(s.device)]);
}

/// Starts and completes whatever can be. True when something did.
bool runtime::advance(lock& l) {
  attention_ = false;
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      ihipStream_t& s = *streams_[i];
      if (s.queue.empty()) continue;
      task& t = s.queue.front();
      if (!t.started && !may_start(s, t)) continue;
      t.started = true;
      if (progress(l, s, t)) again = true;
      if (t.left == 0) {
        s.queue.pop_front();
        again = true;
        if (s.destroyed && s.queue.empty()) {
          destroy_stream(s);
          break;
        }
      }
    }
    any |= again;
  }
  if (any) {
    ++node_.changes;
    changed_.notify_all();
  }
  return any;
}

bool runtime::progress(lock& l, ihipStream_t& s, task& t) {
  bool any = false;
  work_list const& nodes = *t.nodes;
  timing const& rates = node_.settings.rates;
  bool const timed = node_.settings.time;
  auto const complete = [&](std::size_t i, u64 end) {
    t.done[i] = true, --t.left, any = true;
    t.ends[i] = end;
    s.time = std::max(s.time, end);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (t.done[i] || !std::ranges::all_of(nodes[i].after, [&](u32 d) { return t.done[d]; })) continue;
    work const& w = nodes[i].what;
    if (auto const* k = std::get_if<kernel_work>(&w)) {
      if (!t.launches[i]) {
        t.launches[i] = launch(s, *k);
        t.launches[i]->begin = earliest(s, t, i, true);
        scheduler_.start(t.launches[i]);
        any = true;
      }
      if (t.launches[i]->done()) {
        services_.ended(*t.launches[i]);
        s.kernel_end = t.launches[i]->end;
        t.launches[i].reset();
        complete(i, s.kernel_end);
      }
    } else if (auto const* c = std::get_if<copy_work>(&w)) {
      system_scope(s.device);
      for (void const* const p : {static_cast<void const*>(c->to), c->from})
        if (allocation const* a = node_.memory.find(reinterpret_cast<u64>(p)); a && a->gpu >= 0 && a->gpu != s.device)
          system_scope(a->gpu);
      for (u64 row = 0; row < c->height; ++row)
        std::memmove(static_cast<u8*>(c->to) + row * c->to_pitch, static_cast<u8 const*>(c->from) + row * c->from_pitch,
                     c->width);
      if (!timed) node_.cycles += c->width * c->height * core_mhz / 50'000;  // 50 GB/s
      allocation const *const to = node_.memory.find(reinterpret_cast<u64>(c->to)), *const from = node_.memory.find(
                                                                                        reinterpret_cast<u64>(c->from));
      bool const local = to && from && to->gpu == s.device && from->gpu == s.device;
      complete(i, earliest(s, t, i, false) + rates.from_us(rates.copy_us) +
                      static_cast<u64>(static_cast<double>(c->width * c->height) /
                                       rates.bytes_per_cycle(local ? rates.copy_local_gbs : rates.copy_gbs)));
    } else if (auto const* f = std::get_if<fill_work>(&w)) {
      std::vector<u8> bytes(f->width * f->element);
      for (u64 e = 0; e < f->width; ++e) std::memcpy(&bytes[e * f->element], &f->value, f->element);
      for (u64 row = 0; row < f->height; ++row)
        scheduler_.memory().fill(s.device, static_cast<u8*>(f->to) + row * f->pitch, bytes.data(), bytes.size());
      complete(i, earliest(s, t, i, true) + static_cast<u64>(static_cast<double>(bytes.size() * f->height) /
                                                             rates.bytes_per_cycle(rates.copy_local_gbs)));
      s.kernel_end = s.time;
    } else if (auto const* h = std::get_if<host_work>(&w)) {
      t.done[i] = true;  // before the lock is released
      auto const keep = t.nodes;
      system_scope(s.device);
      l.unlock();
      h->call();
      l.lock();
      --t.left, any = true;
      t.ends[i] = s.time = earliest(s, t, i, false);
    } else if (auto const* r = std::get_if<record_work>(&w)) {
      r->state->done = true, r->state->device = s.device,
      r->state->cycles = timed ? earliest(s, t, i, false) : node_.cycles;
      complete(i, r->state->cycles);
    } else if (auto const* e = std::get_if<wait_work>(&w)) {
      if (e->state->done)
        waited_for(*e->state, s.device), complete(i, std::max(e->state->cycles, earliest(s, t, i, false)));
    } else {
      complete(i, s.time);
    }
  }
  return any;
}

/// When a node of the task may begin: what it comes behind is done, and the packet has come from the host.
u64 runtime::earliest(ihipStream_t const& s, task const& t, std::size_t node, bool is_kernel) const {
  timing const& rates = node_.settings.rates;
  u64 time = t.issued + rates.from_us(t.graph ? rates.graph_launch_us : rates.launch_us);
  auto const behind = [&](ihipStream_t const& o) {
    time = std::max({time, o.time, is_kernel && o.kernel_end ? o.kernel_end + rates.from_us(rates.kernel_gap_us) : 0});
  };
  std::vector<u32> const& after = (*t.nodes)[node].after;
  for (u32 const d : after) time = std::max(time, t.ends[d] + (is_kernel ? rates.from_us(rates.graph_gap_us) : 0));
  if (!after.empty()) return time;
  behind(s);
  for (auto const& o : streams_)
    if (o->device == s.device && ((s.null && o->blocking()) || (o->null && s.blocking()))) behind(*o);
  return time;
}

u64 runtime::device_time(int device) const {
  u64 time = 0;
  for (auto const& s : streams_)
    if (s->device == device) time = std::max(time, s->time);
  return time;
}

void runtime::host_reaches(u64 time) {
  timing const& rates = node_.settings.rates;
  u64& now = this_thread().now;
  now = std::max(now, time + rates.from_us(rates.host_wake_us));
}

/// With a clock, the machine goes on only while no host thread could still launch something for an earlier time: each
/// waits here for what has not happened, or sleeps in the system. A thread that computes for longer than the patience
/// is taken to need nothing but time.
bool runtime::hosts_rest(lock& l) {
  bool const woken = std::ranges::any_of(until_, [](auto const* until) { return (*until)(); });
  auto const now = clock_type::now();
  if (!woken) {
    if (rest_entries_ == entries_) return true;
    // Seen twice: a thread may be about to be woken
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

void runtime::system_scope(int device) {
  for (int d = 0; d < gpus(); ++d)
    if (device < 0 || d == device) scheduler_.memory().system_scope(d);
}

/// A stream of another device has waited for the event. Within a device kernels begin and end at agent scope.
void runtime::waited_for(event_state const& e, int device) {
  if (e.device == device) return;
  system_scope(e.device);
  system_scope(device);
}

bool runtime::reached(int device, u64 sequence, bool all_streams) const {
  return std::ranges::all_of(streams_, [&](auto const& s) {
    return s->device != device || s->queue.empty() || s->queue.front().sequence > sequence ||
           !(all_streams || s->null || s->blocking());
  });
}

bool runtime::pending() const {
  return std::ranges::any_of(streams_, [](auto const& s) { return !s->queue.empty(); });
}

/// Lets threads in that want to call HIP.
void runtime::give_way(lock& l) {
  if (entering_.load(std::memory_order_relaxed) == 0) return;
  l.unlock();
  for (int i = 0; i < 1000 && entering_.load() != 0; ++i) std::this_thread::yield();
  l.lock();
}

bool runtime::turn(lock& l, bool patient) {
  if (interrupted != 0) {
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

/// All waves wait. Before that is called a deadlock, other host threads get the time to do something about it.
void runtime::stalled(lock& l, bool patient) {
  if (node_.shared) return stalled_together(l);
  auto const now = clock_type::now();
  if (!stalling_ || stall_entries_ != entries_) stalling_ = true, stall_since_ = now, stall_entries_ = entries_;
  if (!patient) {
    bool const alone = thread_count() <= waiting_;
    if (!alone && now - last_look_ >= between_looks && (last_look_ = now, others_compute())) stall_since_ = now;
    if (alone || now - stall_since_ > std::chrono::milliseconds(node_.settings.patience))
      return scheduler_.resolve_stall();
  }
  l.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  l.lock();
  scheduler_.keep_waiting(core_mhz * 200);
}

/// All waves of this process wait, perhaps for another process. Time passes as it does on the wall, but stands still
/// while others run waves or compute, however slowly: a time-out on the device then means what it says. It is a
/// deadlock when every process is stalled, nobody watches the clock, and that stays so.
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
  last_activity_ = clock_type::now();
}

void runtime::poll(lock& l) {
  if (node_.settings.time) return poll_in_time(l);
  if (running_) return;
  set_running(true);
  for (int i = 0; i < 16; ++i)
    if (!turn(l, true)) break;
  set_running(false);
  note(shared_node::doing::host_code);
  changed_.notify_all();
}

/// The machine goes on to this thread's time.
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
