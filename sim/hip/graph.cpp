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

hipError_t copy_out(std::vector<hipGraphNode_t> const& from, hipGraphNode_t* to, size_t* n) {
  if (!n) return hipErrorInvalidValue;
  if (to) std::copy_n(from.begin(), std::min(*n, from.size()), to);
  if (!to || *n > from.size()) *n = from.size();
  return hipSuccess;
}

hipError_t instantiate(hipGraphExec_t* out, hipGraph_t graph, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!out || !r.known(graph)) return hipErrorInvalidValue;
        auto exec = std::make_unique<hipGraphExec>();
        exec->nodes = graph->flatten(&exec->order);
        if (!exec->nodes) return hipErrorInvalidValue;
        for (hipGraphNode const* n : exec->order) exec->types.push_back(n->type);
        *out = exec.release();
        r.execs().insert(*out);
        hold(*out, std::string(call) + ": an executable graph");
        return hipSuccess;
      },
      call);
}

/// The nodes that come first must be of the same graph, each once.
hipError_t add_node(hipGraphNode_t* out, hipGraph_t graph, hipGraphNode_t const* after, size_t n, hipGraphNodeType type,
                    work w, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!out || !r.known(graph) || (n && !after)) return hipErrorInvalidValue;
        std::set<hipGraphNode_t> seen;
        for (size_t i = 0; i < n; ++i)
          if (!r.known(after[i]) || after[i]->owner != graph || !seen.insert(after[i]).second)
            return hipErrorInvalidValue;
        *out = graph->add(type, std::move(w), {after, after + n});
        return hipSuccess;
      },
      call);
}

hipError_t kernel_from(hipKernelNodeParams const& p, kernel_work& out) {
  return api([&](runtime& r, lock&) {
    function const* f = r.modules().find_function(p.func);
    if (!f) return hipErrorInvalidDeviceFunction;
    return prepare(r, *f, this_thread().device, p.gridDim, p.blockDim, p.kernelParams, p.extra, p.sharedMemBytes, out);
  });
}

}  // namespace

extern "C" {

hipError_t hipGraphCreate(hipGraph_t* out, unsigned flags) {
  return api([&](runtime& r, lock&) {
    if (!out || flags) return hipErrorInvalidValue;
    *out = new ihipGraph;
    r.graphs().insert(*out);
    hold(*out, "hipGraphCreate: a graph");
    return hipSuccess;
  });
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
  return api([&](runtime& r, lock&) {
    if (!graph) return hipErrorInvalidValue;
    if (!r.graphs().erase(graph)) return hipErrorIllegalState;  // destroyed before, or a capture's
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
  return api([&](runtime& r, lock&) {
    if (!exec || !r.execs().erase(exec)) return hipErrorInvalidValue;
    let_go(exec);
    delete exec;
    return hipSuccess;
  });
}

hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t) {
  return api([&](runtime& r, lock&) { return r.execs().contains(exec) ? hipSuccess : hipErrorInvalidValue; });
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t handle) {
  return api([&](runtime& r, lock&) {
    if (!r.execs().contains(exec)) return hipErrorInvalidValue;
    ihipStream_t* s = r.stream_of(handle, this_thread().device);
    if (!s) return hipErrorContextIsDestroyed;
    if (hipError_t const e = implicit_capture(r, *s); e != hipSuccess) return e;
    if (hipError_t const e = refuse_captured(*s); e != hipSuccess) return e;
    if (!exec->nodes->empty()) r.enqueue(*s, std::shared_ptr<work_list const>(exec->nodes), true);
    return hipSuccess;
  });
}

hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t* where,
                              hipGraphExecUpdateResult* result) {
  return api([&](runtime& r, lock&) {
    if (!r.execs().contains(exec) || !r.known(graph) || !result) return hipErrorInvalidValue;
    std::vector<hipGraphNode*> order;
    auto nodes = graph->flatten(&order);
    if (where) *where = nullptr;
    bool same = nodes && nodes->size() == exec->nodes->size();
    for (size_t i = 0; same && i < order.size(); ++i)
      same = order[i]->type == exec->types[i] && (*nodes)[i].after == (*exec->nodes)[i].after;
    *result = same ? hipGraphExecUpdateSuccess : hipGraphExecUpdateErrorTopologyChanged;
    if (!same) return hipErrorGraphExecUpdateFailure;
    exec->nodes = std::move(nodes), exec->order = std::move(order);
    return hipSuccess;
  });
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* n) {
  return api([&](runtime& r, lock&) {
    if (!r.known(graph)) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> all;
    for (auto const& p : graph->nodes) all.push_back(p.get());
    return copy_out(all, nodes, n);
  });
}

hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* n) {
  return api([&](runtime& r, lock&) {
    if (!r.known(graph)) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> roots;
    for (auto const& p : graph->nodes)
      if (p->after.empty()) roots.push_back(p.get());
    return copy_out(roots, nodes, n);
  });
}

hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to, size_t* n) {
  return api([&](runtime& r, lock&) {
    if (!r.known(graph) || !n) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> a, b;
    for (auto const& p : graph->nodes)
      for (hipGraphNode_t d : p->after) a.push_back(d), b.push_back(p.get());
    size_t m = *n;
    (void)copy_out(a, from, &m);
    return copy_out(b, to, n);
  });
}

hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* n) {
  return api([&](runtime& r, lock&) { return r.known(node) ? copy_out(node->after, nodes, n) : hipErrorInvalidValue; });
}

hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  return api([&](runtime& r, lock&) {
    if (!r.known(node) || !type) return hipErrorInvalidValue;
    *type = node->type;
    return hipSuccess;
  });
}

hipError_t hipGraphAddDependencies(hipGraph_t graph, hipGraphNode_t const* from, hipGraphNode_t const* to, size_t n) {
  return api([&](runtime& r, lock&) {
    if (!r.known(graph) || (n && (!from || !to))) return hipErrorInvalidValue;
    for (size_t i = 0; i < n; ++i)
      if (!r.known(from[i]) || !r.known(to[i]) || from[i]->owner != graph || to[i]->owner != graph)
        return hipErrorInvalidValue;
    for (size_t i = 0; i < n; ++i) to[i]->after.push_back(from[i]);
    return hipSuccess;
  });
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
  kernel_work w;
  if (!p) return remember(hipErrorInvalidValue);
  if (hipError_t const e = kernel_from(*p, w); e != hipSuccess) return e;
  return api([&](runtime& r, lock&) {
    if (!r.execs().contains(exec) || !r.known(node)) return hipErrorInvalidValue;
    auto const at = std::ranges::find(exec->order, node);
    if (at == exec->order.end() || node->type != hipGraphNodeTypeKernel) return hipErrorInvalidValue;
    exec->nodes = std::make_shared<work_list>(*exec->nodes);  // launches in flight keep the old one
    (*exec->nodes)[static_cast<size_t>(at - exec->order.begin())].what = std::move(w);
    return hipSuccess;
  });
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
