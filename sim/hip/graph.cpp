#include "hip/graph.hpp"

#include <algorithm>
#include <unordered_map>

#include "hip/launch.hpp"

using namespace fusewire::sim;

hipGraphNode* ihipGraph::add(hipGraphNodeType type, work what, std::vector<hipGraphNode_t> after) {
  nodes.push_back(std::make_unique<hipGraphNode>());
  hipGraphNode& n = *nodes.back();
  n.type = type, n.what = std::move(what), n.after = std::move(after), n.owner = this;
  return &n;
}

std::shared_ptr<work_list> ihipGraph::flatten(std::vector<hipGraphNode*>* order) const {
  auto list = std::make_shared<work_list>();
  std::unordered_map<hipGraphNode*, u32> place;
  while (place.size() < nodes.size()) {
    bool any = false;
    for (auto const& n : nodes) {
      if (place.contains(n.get()) || !std::ranges::all_of(n->after, [&](hipGraphNode* d) { return place.contains(d); }))
        continue;
      work_node w{n->what, {}};
      for (hipGraphNode* d : n->after) w.after.push_back(place[d]);
      place.emplace(n.get(), static_cast<u32>(list->size()));
      list->push_back(std::move(w));
      if (order) order->push_back(n.get());
      any = true;
    }
    if (!any) return nullptr;
  }
  return list;
}

namespace {

bool unsafe_for(capture const& c) {
  return this_thread().capture_mode != hipStreamCaptureModeRelaxed && c.mode == hipStreamCaptureModeGlobal;
}

hipError_t copy_out(std::vector<hipGraphNode_t> const& from, hipGraphNode_t* to, size_t* n) {
  if (!n) return remember(hipErrorInvalidValue);
  if (to) std::copy_n(from.begin(), std::min(*n, from.size()), to);
  if (!to || *n > from.size()) *n = from.size();
  return hipSuccess;
}

hipError_t instantiate(hipGraphExec_t* out, hipGraph_t graph, char const* call = __builtin_FUNCTION()) {
  return unlocked_api(
      [&] {
        if (!out || !graph) return hipErrorInvalidValue;
        auto exec = std::make_unique<hipGraphExec>();
        exec->nodes = graph->flatten(&exec->order);
        if (!exec->nodes) return hipErrorInvalidValue;
        for (hipGraphNode const* n : exec->order) exec->types.push_back(n->type);
        *out = exec.release();
        hold(*out, std::string(call) + ": an executable graph");
        return hipSuccess;
      },
      call);
}

hipError_t add_node(hipGraphNode_t* out, hipGraph_t graph, hipGraphNode_t const* after, size_t n, hipGraphNodeType type,
                    work w) {
  if (!out || !graph || (n && !after)) return remember(hipErrorInvalidValue);
  *out = graph->add(type, std::move(w), {after, after + n});
  return hipSuccess;
}

hipError_t kernel_from(hipKernelNodeParams const& p, kernel_work& out) {
  return api([&](runtime& r, lock&) {
    function const* f = r.modules().find_function(p.func);
    if (!f) return hipErrorInvalidDeviceFunction;
    return prepare(r, *f, this_thread().device, p.gridDim, p.blockDim, p.kernelParams, p.extra, p.sharedMemBytes, out);
  });
}

}  // namespace

namespace fusewire::sim {

bool capture_work(ihipStream_t& s, hipGraphNodeType type, work const& w) {
  if (!s.capturing) return false;
  s.tail = {s.capturing->graph->add(type, w, s.tail)};
  return true;
}

hipError_t join_capture(runtime&, ihipStream_t& s, ihipEvent_t const& e) {
  capture* c = e.captured_in;
  if (s.capturing && s.capturing != c) {
    s.capturing->invalid = c->invalid = true;
    return hipErrorStreamCaptureMerge;
  }
  if (!s.capturing) {
    s.capturing = c;
    s.tail.clear();
    c->members.push_back(&s);
  }
  for (hipGraphNode_t n : e.captured_after)
    if (std::ranges::find(s.tail, n) == s.tail.end()) s.tail.push_back(n);
  return hipSuccess;
}

hipError_t unsafe_call(runtime& r) {
  bool found = false;
  for (capture* c : r.captures())
    if (unsafe_for(*c)) c->invalid = found = true;
  return found ? hipErrorStreamCaptureUnsupported : hipSuccess;
}

hipError_t implicit_capture(runtime& r, ihipStream_t const& s) {
  if (!s.null) return hipSuccess;
  bool found = false;
  for (capture* c : r.captures())
    for (ihipStream_t const* m : c->members)
      if (m->device == s.device && m->blocking() && c->mode != hipStreamCaptureModeRelaxed) c->invalid = found = true;
  return found ? hipErrorStreamCaptureImplicit : hipSuccess;
}

}  // namespace fusewire::sim

extern "C" {

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = r.stream_of(handle, this_thread().device);
    if (!s || mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) return hipErrorInvalidValue;
    if (s->null) return hipErrorStreamCaptureUnsupported;
    if (s->capturing) return hipErrorIllegalState;
    static u64 ids = 0;
    auto* c = new capture{++ids, mode, s, {s}, std::make_unique<ihipGraph>(), false};
    s->capturing = c;
    s->tail.clear();
    r.captures().insert(c);
    return hipSuccess;
  });
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* out) {
  runtime& r = runtime::get();
  lock const l = r.enter();
  return remember([&] {
    ihipStream_t* s = r.stream_of(handle, this_thread().device);
    if (!s || !out) return hipErrorInvalidValue;
    *out = nullptr;
    capture* c = s->capturing;
    if (!c) return hipErrorIllegalState;
    if (c->origin != s) return hipErrorStreamCaptureUnmatched;
    bool unjoined = false;  // a joined stream's last work must come before the origin's
    for (ihipStream_t* m : c->members) {
      for (hipGraphNode_t n : m->tail) {
        std::vector<hipGraphNode_t> reach = s->tail;
        for (size_t i = 0; i < reach.size(); ++i)
          reach.insert(reach.end(), reach[i]->after.begin(), reach[i]->after.end());
        unjoined |= std::ranges::find(reach, n) == reach.end();
      }
    }
    if (planted_failure("hipStreamEndCapture") != hipSuccess) c->invalid = true;  // the capture ends nevertheless
    for (ihipStream_t* m : c->members) m->capturing = nullptr, m->tail.clear();
    for (hipEvent_t e : r.events())
      if (e->captured_in == c) e->captured_in = nullptr, e->captured_after.clear();
    r.captures().erase(c);
    std::unique_ptr<capture> const gone(c);
    if (c->invalid) return hipErrorStreamCaptureInvalidated;
    if (unjoined) return hipErrorStreamCaptureUnjoined;
    *out = c->graph.release();
    hold(*out, "hipStreamEndCapture: a graph");
    return hipSuccess;
  }());
}

static hipError_t capture_info(hipStream_t handle, hipStreamCaptureStatus* status, unsigned long long* id,
                               hipGraph_t* graph, hipGraphNode_t const** after, size_t* count,
                               char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        ihipStream_t* s = r.stream_of(handle, this_thread().device);
        if (!s || !status) return hipErrorInvalidValue;
        capture const* c = s->capturing;
        *status = !c           ? hipStreamCaptureStatusNone
                  : c->invalid ? hipStreamCaptureStatusInvalidated
                               : hipStreamCaptureStatusActive;
        if (!c) return hipSuccess;
        if (id) *id = c->id;
        if (graph) *graph = c->graph.get();
        if (after) *after = s->tail.data();
        if (count) *count = s->tail.size();
        return hipSuccess;
      },
      call);
}

hipError_t hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus* status) {
  return capture_info(handle, status, nullptr, nullptr, nullptr, nullptr);
}

hipError_t hipStreamGetCaptureInfo(hipStream_t handle, hipStreamCaptureStatus* status, unsigned long long* id) {
  return capture_info(handle, status, id, nullptr, nullptr, nullptr);
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t handle, hipStreamCaptureStatus* status, unsigned long long* id,
                                      hipGraph_t* graph, hipGraphNode_t const** after, size_t* count) {
  return capture_info(handle, status, id, graph, after, count);
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  if (!mode) return remember(hipErrorInvalidValue);
  std::swap(*mode, this_thread().capture_mode);
  return hipSuccess;
}

hipError_t hipGraphCreate(hipGraph_t* out, unsigned flags) {
  return unlocked_api([&] {
    if (!out || flags) return hipErrorInvalidValue;
    *out = new ihipGraph;
    hold(*out, "hipGraphCreate: a graph");
    return hipSuccess;
  });
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
  return unlocked_api([&] {
    if (!graph) return hipErrorInvalidValue;
    let_go(graph);
    delete graph;
    return hipSuccess;
  });
}

hipError_t hipGraphInstantiate(hipGraphExec_t* out, hipGraph_t graph, hipGraphNode_t*, char*, size_t) {
  return instantiate(out, graph);
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* out, hipGraph_t graph, unsigned long long) {
  return instantiate(out, graph);
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
  return unlocked_api([&] {
    if (!exec) return hipErrorInvalidValue;
    let_go(exec);
    delete exec;
    return hipSuccess;
  });
}

hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t) {
  return unlocked_api([&] { return exec ? hipSuccess : hipErrorInvalidValue; });
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t handle) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = r.stream_of(handle, this_thread().device);
    if (!exec || !s) return hipErrorInvalidValue;
    if (hipError_t const e = implicit_capture(r, *s); e != hipSuccess) return e;
    if (s->capturing) return s->capturing->invalid = true, hipErrorStreamCaptureUnsupported;
    if (!exec->nodes->empty()) r.enqueue(*s, std::shared_ptr<work_list const>(exec->nodes), true);
    return hipSuccess;
  });
}

hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t* where,
                              hipGraphExecUpdateResult* result) {
  if (!exec || !graph || !result) return remember(hipErrorInvalidValue);
  std::vector<hipGraphNode*> order;
  auto nodes = graph->flatten(&order);
  if (where) *where = nullptr;
  bool same = nodes && nodes->size() == exec->nodes->size();
  for (size_t i = 0; same && i < order.size(); ++i)
    same = order[i]->type == exec->types[i] && (*nodes)[i].after == (*exec->nodes)[i].after;
  *result = same ? hipGraphExecUpdateSuccess : hipGraphExecUpdateErrorTopologyChanged;
  if (!same) return remember(hipErrorGraphExecUpdateFailure);
  exec->nodes = std::move(nodes), exec->order = std::move(order);
  return hipSuccess;
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* n) {
  return unlocked_api([&] {
    if (!graph) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> all;
    for (auto const& p : graph->nodes) all.push_back(p.get());
    return copy_out(all, nodes, n);
  });
}

hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* n) {
  if (!graph) return remember(hipErrorInvalidValue);
  std::vector<hipGraphNode_t> roots;
  for (auto const& p : graph->nodes)
    if (p->after.empty()) roots.push_back(p.get());
  return copy_out(roots, nodes, n);
}

hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to, size_t* n) {
  if (!graph || !n) return remember(hipErrorInvalidValue);
  std::vector<hipGraphNode_t> a, b;
  for (auto const& p : graph->nodes)
    for (hipGraphNode_t d : p->after) a.push_back(d), b.push_back(p.get());
  size_t m = *n;
  (void)copy_out(a, from, &m);
  return copy_out(b, to, n);
}

hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* n) {
  return node ? copy_out(node->after, nodes, n) : remember(hipErrorInvalidValue);
}

hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  if (!node || !type) return remember(hipErrorInvalidValue);
  *type = node->type;
  return hipSuccess;
}

hipError_t hipGraphAddDependencies(hipGraph_t graph, hipGraphNode_t const* from, hipGraphNode_t const* to, size_t n) {
  if (!graph || (n && (!from || !to))) return remember(hipErrorInvalidValue);
  for (size_t i = 0; i < n; ++i) to[i]->after.push_back(from[i]);
  return hipSuccess;
}

hipError_t hipGraphAddEmptyNode(hipGraphNode_t* out, hipGraph_t g, hipGraphNode_t const* after, size_t n) {
  return add_node(out, g, after, n, hipGraphNodeTypeEmpty, std::monostate{});
}

hipError_t hipGraphAddKernelNode(hipGraphNode_t* out, hipGraph_t g, hipGraphNode_t const* after, size_t n,
                                 hipKernelNodeParams const* p) {
  kernel_work w;
  if (!p) return remember(hipErrorInvalidValue);
  if (hipError_t const e = kernel_from(*p, w); e != hipSuccess) return e;
  return add_node(out, g, after, n, hipGraphNodeTypeKernel, std::move(w));
}

hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, hipKernelNodeParams const* p) {
  if (!exec || !node || !p) return remember(hipErrorInvalidValue);
  auto const at = std::ranges::find(exec->order, node);
  kernel_work w;
  if (at == exec->order.end() || node->type != hipGraphNodeTypeKernel) return remember(hipErrorInvalidValue);
  if (hipError_t const e = kernel_from(*p, w); e != hipSuccess) return e;
  exec->nodes = std::make_shared<work_list>(*exec->nodes);  // launches in flight keep the old one
  (*exec->nodes)[static_cast<size_t>(at - exec->order.begin())].what = std::move(w);
  return hipSuccess;
}

hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* out, hipGraph_t g, hipGraphNode_t const* after, size_t n, void* to,
                                   void const* from, size_t bytes, hipMemcpyKind) {
  return add_node(out, g, after, n, hipGraphNodeTypeMemcpy, copy_work{to, from, bytes, bytes, bytes, 1, nullptr});
}

hipError_t hipGraphAddMemsetNode(hipGraphNode_t* out, hipGraph_t g, hipGraphNode_t const* after, size_t n,
                                 hipMemsetParams const* p) {
  if (!p) return remember(hipErrorInvalidValue);
  return add_node(out, g, after, n, hipGraphNodeTypeMemset,
                  fill_work{p->dst, p->pitch, p->width, p->height, p->value, p->elementSize});
}

hipError_t hipGraphAddHostNode(hipGraphNode_t* out, hipGraph_t g, hipGraphNode_t const* after, size_t n,
                               hipHostNodeParams const* p) {
  if (!p || !p->fn) return remember(hipErrorInvalidValue);
  return add_node(out, g, after, n, hipGraphNodeTypeHost, host_work{[fn = p->fn, data = p->userData] { fn(data); }});
}

}  // extern "C"
