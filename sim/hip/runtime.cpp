#include "hip/runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "hip/interrupt.hpp"

namespace fusewire::sim {

thread_state& this_thread() {
  thread_local thread_state state = [] {
    static std::atomic<u64> threads{0};
    thread_state s;
    s.device = runtime::get().gpu_of(0);
    s.number = ++threads;
    s.call = "no call";
    return s;
  }();
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
      last_activity_(std::chrono::steady_clock::now()) {
  for (int d = 0; d < gpus(); ++d) {
    null_streams_.push_back(create_stream(d, 0, 0));
    null_streams_.back()->null = true;
  }
  if (!node_.settings.visible.note.empty())
    std::fprintf(stderr, "fusewire-sim: %s\n", node_.settings.visible.note.c_str());
  watch_interrupt();
}

int runtime::gpu_of(int ordinal) const {
  std::vector<int> const& seen = node_.settings.visible.gpus;
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < seen.size() ? seen[static_cast<std::size_t>(ordinal)] : -1;
}

int runtime::ordinal_of(int gpu) const {
  std::vector<int> const& seen = node_.settings.visible.gpus;
  auto const at = std::ranges::find(seen, gpu);
  return at == seen.end() ? -1 : static_cast<int>(at - seen.begin());
}

bool runtime::has(ihipStream_t const* stream) const {
  return std::ranges::any_of(streams_, [&](auto const& s) { return s.get() == stream && !s->destroyed; });
}

bool runtime::known(hipGraph_t g) const {
  return graphs_.contains(g) || std::ranges::any_of(captures_, [&](capture const* c) { return c->graph.get() == g; });
}

bool runtime::known(hipGraphNode_t node) const {
  auto const in = [&](ihipGraph const& g) {
    return std::ranges::any_of(g.nodes, [&](auto const& n) { return n.get() == node; });
  };
  return std::ranges::any_of(graphs_, [&](ihipGraph const* g) { return in(*g); }) ||
         std::ranges::any_of(captures_, [&](capture const* c) { return in(*c->graph); });
}

lock runtime::enter() {
  ++entering_;
  ++entries_;
  lock l(mutex_);
  --entering_;
  last_activity_ = std::chrono::steady_clock::now();
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
  if (node_.races) s->number = node_.races->new_stream(device), s->known = host_;
  // By device, whichever thread came first: kernels that begin at the same time begin in this order.
  auto const after = std::ranges::upper_bound(streams_, device, {}, [](auto const& other) { return other->device; });
  return streams_.insert(after, std::move(s))->get();
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
  if (s.queue.empty() && node_.races) node_.races->drop_stream(s.number);
  if (s.queue.empty()) std::erase_if(streams_, [&](auto const& p) { return p.get() == &s; });
}

}  // namespace fusewire::sim
