#include "hip/captures.hpp"

#include <algorithm>
#include <cstdio>

#include "hip/launch.hpp"

namespace fusewire::sim {
namespace {

/// What a kind of call does to captures. Sources: docs/simulator.md, "Host calls".
struct rule {
  hipError_t error;
  bool every;         // captures of every thread and mode count
  bool local_spares;  // a thread in mode ThreadLocal does not see other threads' captures, be they global
  bool relaxed_is_free;
  bool invalidates;
};

constexpr rule rule_of(call_kind kind) {
  switch (kind) {
    case call_kind::allocates: return {hipErrorStreamCaptureUnsupported, false, true, true, true};
    case call_kind::copies: return {hipErrorStreamCaptureImplicit, true, false, false, true};
    case call_kind::waits_for_device: return {hipErrorStreamCaptureUnsupported, true, false, false, true};
    case call_kind::waits_for_stream: return {hipErrorStreamCaptureUnsupported, false, false, true, true};
    case call_kind::configures: return {hipErrorStreamCaptureUnsupported, false, false, false, false};
  }
  return {};
}

std::string me() {
  thread_state const& t = this_thread();
  return "thread " + std::to_string(t.number) + " (GPU " + std::to_string(t.device) + ")";
}

char const* name_of(hipStreamCaptureMode m) {
  return m == hipStreamCaptureModeGlobal ? "global" : m == hipStreamCaptureModeThreadLocal ? "thread-local" : "relaxed";
}

/// A capture as messages name it.
std::string text_of(capture const& c) {
  return std::string("the ") + name_of(c.mode) + " capture that hipStreamBeginCapture of " + c.began +
         " began (captured last: " + (c.last ? c.last : "nothing") + ")";
}

void invalidate(capture& c) {
  if (c.invalid) return;
  c.invalid = true;
  c.culprit = std::string(this_thread().call) + " of " + me();
}

hipError_t refused(hipError_t error, std::string const& why) {
  std::fprintf(stderr, "fusewire-sim: %s of %s: %s: %s\n", this_thread().call, me().c_str(), hipGetErrorName(error),
               why.c_str());
  return error;
}

hipError_t refused(hipError_t error, capture& c) {
  bool const before = c.invalid;
  invalidate(c);
  return refused(error, text_of(c) + (before ? " is invalid since " + c.culprit : " is invalid now"));
}

bool own(capture const& c) { return c.thread == this_thread().number && c.mode != hipStreamCaptureModeRelaxed; }
bool global(capture const& c) { return c.mode == hipStreamCaptureModeGlobal; }

void leave(runtime& r, capture& c) {
  for (ihipStream_t* m : c.members) m->capturing = nullptr, m->tail.clear();
  for (hipEvent_t e : r.events())
    if (e->captured_in == &c) e->captured_in = nullptr, e->captured_after.clear(), e->recorded_on = nullptr;
  r.captures().erase(&c);
}

/// Whether everything that was captured comes before the origin's end.
bool joined(capture const& c) {
  std::vector<hipGraphNode_t> reach = c.origin->tail;
  for (size_t i = 0; i < reach.size(); ++i)
    for (hipGraphNode_t n : reach[i]->after)
      if (std::ranges::find(reach, n) == reach.end()) reach.push_back(n);
  return std::ranges::all_of(c.graph->nodes,
                             [&](auto const& n) { return std::ranges::find(reach, n.get()) != reach.end(); });
}

}  // namespace

hipError_t refuse_in_capture(runtime& r, call_kind kind) {
  rule const x = rule_of(kind);
  thread_state const& t = this_thread();
  if (x.relaxed_is_free && t.capture_mode == hipStreamCaptureModeRelaxed) return hipSuccess;
  std::vector<capture*> met;
  auto const look_for = [&](auto const& which) {
    if (met.empty()) std::ranges::copy_if(r.captures(), std::back_inserter(met), [&](capture* c) { return which(*c); });
  };
  if (x.every) look_for([](capture const&) { return true; });
  else look_for(own);
  if (!x.local_spares || t.capture_mode == hipStreamCaptureModeGlobal) look_for(global);
  if (met.empty()) return hipSuccess;
  if (!x.invalidates) return refused(x.error, text_of(*met.front()) + " is in progress");
  for (capture* c : met) (void)refused(x.error, *c);
  return x.error;
}

hipError_t refuse_waiting(runtime& r, ihipStream_t& s) {
  if (s.capturing) return refused(hipErrorStreamCaptureUnsupported, *s.capturing);
  if (s.spoiled) return refused(hipErrorStreamCaptureUnsupported, "the stream's last capture failed");
  return refuse_in_capture(r, call_kind::waits_for_stream);
}

hipError_t refuse_waiting(runtime& r, ihipEvent_t& e) {
  if (e.captured_in) return refused(hipErrorCapturedEvent, *e.captured_in);
  return e.recorded_on ? refuse_in_capture(r, call_kind::waits_for_stream) : hipSuccess;
}

hipError_t refuse_captured(ihipStream_t& s) {
  if (s.capturing) return refused(hipErrorStreamCaptureUnsupported, *s.capturing);
  return refuse_invalid(s);
}

hipError_t refuse_isolated(runtime& r, ihipStream_t& s, ihipEvent_t const& e) {
  if (s.capturing) return refused(hipErrorStreamCaptureIsolation, *s.capturing);
  ihipStream_t const* const on = e.recorded_on;
  if (!on || !r.has(on) || !on->capturing || on->capturing->invalid) return refuse_invalid(s);
  return refused(hipErrorStreamCaptureIsolation,
                 "the event was recorded before " + text_of(*on->capturing) + " took in its stream");
}

hipError_t refuse_memory_node(runtime& r, ihipStream_t& s) {
  if (hipError_t const e = refuse_captured(s); e != hipSuccess) return e;
  for (capture const* c : r.captures())
    for (ihipStream_t const* m : c->members)
      if (m->device == s.device && m->blocking())
        return refused(hipErrorStreamCaptureUnsupported, text_of(*c) + " is in progress on the same GPU");
  return hipSuccess;
}

hipError_t refuse_invalid(ihipStream_t const& s) {
  if (s.capturing && s.capturing->invalid)
    return refused(hipErrorStreamCaptureInvalidated,
                   text_of(*s.capturing) + " is invalid since " + s.capturing->culprit);
  if (s.spoiled)
    return refused(hipErrorStreamCaptureInvalidated,
                   "the stream's last capture failed: begin and end another one, or destroy the stream");
  return hipSuccess;
}

hipError_t implicit_capture(runtime& r, ihipStream_t const& s) {
  if (!s.null) return hipSuccess;
  bool found = false;
  for (capture* c : r.captures())
    if (c->mode != hipStreamCaptureModeRelaxed && std::ranges::any_of(c->members, [&](ihipStream_t const* m) {
          return m->device == s.device && m->blocking();
        })) {
      (void)refused(hipErrorStreamCaptureImplicit, *c);
      found = true;
    }
  return found ? hipErrorStreamCaptureImplicit : hipSuccess;
}

bool blocking_capture(runtime& r) {
  return std::ranges::any_of(r.captures(), [](capture const* c) {
    return !c->invalid && std::ranges::any_of(c->members, [](ihipStream_t const* m) { return m->blocking(); });
  });
}

bool capture_work(ihipStream_t& s, hipGraphNodeType type, work const& w) {
  if (!s.capturing) return false;
  s.tail = {s.capturing->graph->add(type, w, s.tail)};
  s.capturing->last = this_thread().call;
  return true;
}

hipError_t join_capture(ihipStream_t& s, ihipEvent_t const& e) {
  capture* c = e.captured_in;
  if (s.null) return hipErrorInvalidHandle;
  if (s.capturing && s.capturing != c) {
    (void)refused(hipErrorStreamCaptureMerge, *s.capturing);
    return refused(hipErrorStreamCaptureMerge, *c);
  }
  if (c->invalid) return refused(hipErrorStreamCaptureInvalidated, *c);
  if (!s.capturing) {
    s.capturing = c;
    s.spoiled = false;
    s.tail.clear();
    c->members.push_back(&s);
  }
  for (hipGraphNode_t n : e.captured_after)
    if (std::ranges::find(s.tail, n) == s.tail.end()) s.tail.push_back(n);
  return hipSuccess;
}

void abandon_capture(runtime& r, ihipStream_t& s) {
  capture* const c = s.capturing;
  if (!c) return;
  std::fprintf(stderr, "fusewire-sim: %s of %s: %s %s\n", this_thread().call, me().c_str(), text_of(*c).c_str(),
               c->origin == &s ? "ends without a graph" : "loses this stream");
  if (c->origin == &s) {
    leave(r, *c);
    delete c;
    return;
  }
  std::erase(c->members, &s);
  for (hipEvent_t e : r.events())
    if (e->captured_in == c && e->recorded_on == &s) e->captured_in = nullptr, e->captured_after.clear();
  s.capturing = nullptr, s.tail.clear();
}

}  // namespace fusewire::sim

using namespace fusewire::sim;

extern "C" {

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = r.stream_of(handle, this_thread().device);
    if (!s) return hipErrorContextIsDestroyed;
    if (s->null) return hipErrorStreamCaptureUnsupported;
    if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) return hipErrorInvalidValue;
    if (s->capturing) return hipErrorIllegalState;
    static u64 ids = 0;
    auto* c = new capture;
    c->id = ++ids, c->mode = mode, c->origin = s, c->thread = this_thread().number, c->began = me();
    c->members = {s}, c->graph = std::make_unique<ihipGraph>();
    s->capturing = c;
    s->spoiled = false;
    s->tail.clear();
    r.captures().insert(c);
    return hipSuccess;
  });
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* out) {
  runtime& r = runtime::get();
  lock const l = r.enter();
  thread_state& t = this_thread();
  t.call = "hipStreamEndCapture";
  return remember([&] {
    if (out) *out = nullptr;
    ihipStream_t* s = r.stream_of(handle, t.device);
    if (!out) return hipErrorInvalidValue;
    if (!s) return hipErrorContextIsDestroyed;
    capture* c = s->capturing;
    if (!c) return hipErrorIllegalState;
    if (c->origin != s) return hipErrorStreamCaptureUnmatched;
    if (c->mode != hipStreamCaptureModeRelaxed && c->thread != t.number)
      return refused(hipErrorStreamCaptureWrongThread, text_of(*c) + " goes on: end it on the thread that began it");
    bool const planted = planted_failure("hipStreamEndCapture") != hipSuccess;  // the capture ends nevertheless
    hipError_t const e = c->invalid    ? refused(hipErrorStreamCaptureInvalidated, *c)
                         : planted     ? hipErrorStreamCaptureInvalidated
                         : !joined(*c) ? refused(hipErrorStreamCaptureUnjoined,
                                                 text_of(*c) + " has work on a forked stream that was not joined")
                                       : hipSuccess;
    for (ihipStream_t* m : c->members) m->spoiled = e != hipSuccess && !planted;
    leave(r, *c);
    std::unique_ptr<capture> const gone(c);
    if (e != hipSuccess) return e;
    *out = c->graph.release();
    r.graphs().insert(*out);
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
        if (!status) return hipErrorInvalidValue;
        if (!s) return hipErrorContextIsDestroyed;
        if (s->null && blocking_capture(r)) return hipErrorStreamCaptureImplicit;
        capture const* c = s->capturing;
        *status = s->spoiled || (c && c->invalid) ? hipStreamCaptureStatusInvalidated
                  : c                             ? hipStreamCaptureStatusActive
                                                  : hipStreamCaptureStatusNone;
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
  if (!mode || *mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed)
    return remember(hipErrorInvalidValue);
  std::swap(*mode, this_thread().capture_mode);
  return hipSuccess;
}

}  // extern "C"
