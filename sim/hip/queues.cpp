// How streams handle the work that is enqueued in them: when it may start, and what happens when it is over.
#include <algorithm>
#include <cstring>
#include <utility>

#include "hip/runtime.hpp"

namespace fusewire::sim {

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
  t.host = host_;
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

/// The legacy default stream waits for what was enqueued before in the device's blocking streams, and these wait for
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

/// Starts and completes whatever can start or complete. Returns whether there was anything.
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
        if (node_.races) t.launches[i]->stream = s.number, t.launches[i]->before = before(s, t);
        scheduler_.start(t.launches[i]);
        any = true;
      }
      if (t.launches[i]->done()) {
        services_.ended(*t.launches[i]);
        s.kernel_end = t.launches[i]->end;
        join(s.known, t.launches[i]->after);
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
      for (u64 have = 0; have < bytes.size();) {  // twice as much in each step
        u64 const more = have ? std::min(have, bytes.size() - have) : f->element;
        std::memcpy(&bytes[have], have ? bytes.data() : reinterpret_cast<u8 const*>(&f->value), more);
        have += more;
      }
      for (u64 row = 0; row < f->height; ++row)
        scheduler_.memory().fill(s.device, static_cast<u8*>(f->to) + row * f->pitch, bytes.data(), bytes.size());
      complete(i, earliest(s, t, i, true) + static_cast<u64>(static_cast<double>(bytes.size() * f->height) /
                                                             rates.bytes_per_cycle(rates.copy_local_gbs)));
      s.kernel_end = s.time;
    } else if (auto const* h = std::get_if<host_work>(&w)) {
      t.done[i] = true;  // before the lock is released
      auto const keep = t.nodes;
      join(host_, before(s, t));
      system_scope(s.device);
      l.unlock();
      h->call();
      l.lock();
      --t.left, any = true;
      t.ends[i] = s.time = earliest(s, t, i, false);
    } else if (auto const* r = std::get_if<record_work>(&w)) {
      r->state->done = true, r->state->device = s.device,
      r->state->cycles = timed ? earliest(s, t, i, false) : node_.cycles;
      if (node_.races) r->state->known = before(s, t);
      complete(i, r->state->cycles);
    } else if (auto const* e = std::get_if<wait_work>(&w)) {
      if (e->state->done) waited_for(*e->state, s), complete(i, std::max(e->state->cycles, earliest(s, t, i, false)));
    } else {
      complete(i, s.time);
    }
  }
  return any;
}

/// With --races: what comes before a node of the task, of all that has ended. Nodes of a graph count as if they ran one
/// after the other.
order runtime::before(ihipStream_t const& s, task const& t) const {
  order known = s.known;
  join(known, t.host);
  for (auto const& o : streams_)
    if (o->device == s.device && ((s.null && o->blocking()) || (o->null && s.blocking()))) join(known, o->known);
  return known;
}

/// With --races: the host has waited, or has looked how far streams are. What has ended by now comes before what it
/// enqueues next.
void runtime::host_waited() {
  if (node_.races)
    for (auto const& s : streams_)
      if (s->known && std::exchange(s->host_knows, s->known->serial) != s->known->serial) join(host_, s->known);
}

/// When a node of the task may begin: the nodes before it are done, and the packet has come from the host.
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

void runtime::system_scope(int device) {
  for (int d = 0; d < gpus(); ++d)
    if (device < 0 || d == device) {
      scheduler_.memory().system_scope(d);
      if (!node_.races) continue;
      node_.races->publish(host_, d);
      for (auto const& s : streams_) node_.races->publish(s->known, d);
    }
}

/// A stream of another device has waited for the event, so system scope applies. Within a device, kernels begin and end
/// at agent scope.
void runtime::waited_for(event_state const& e, ihipStream_t& s) {
  join(s.known, e.known);
  if (e.device == s.device) return;
  system_scope(e.device);
  system_scope(s.device);
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

}  // namespace fusewire::sim
