#include "hip/launch.hpp"

#include <algorithm>
#include <bit>

using namespace fusewire::sim;

namespace {

ihipStream_t* find(runtime& r, hipStream_t s) { return r.stream_of(s, this_thread().device); }

hipError_t create(hipStream_t* out, unsigned flags, int priority, cu_mask mask = {},
                  char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!out || (flags & ~static_cast<unsigned>(hipStreamNonBlocking))) return hipErrorInvalidValue;
        *out = r.create_stream(this_thread().device, flags, std::clamp(priority, -1, 1));
        (*out)->mask = mask;
        hold(*out, std::string(call) + ": a stream of GPU " + std::to_string(this_thread().device));
        return hipSuccess;
      },
      call);
}

}  // namespace

extern "C" {

hipError_t hipStreamCreate(hipStream_t* s) { return create(s, 0, 0); }
hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned flags) { return create(s, flags, 0); }
hipError_t hipStreamCreateWithPriority(hipStream_t* s, unsigned flags, int priority) {
  return create(s, flags, priority);
}

hipError_t hipExtStreamCreateWithCUMask(hipStream_t* s, uint32_t words, uint32_t const* mask) {
  if (!words || !mask) return remember(hipErrorInvalidValue);
  cu_mask cus;
  for (size_t i = 0; i < std::min<size_t>(cus.size(), size_t{32} * words); ++i) cus[i] = mask[i / 32] >> i % 32 & 1;
  return create(s, 0, 0, cus);
}

/// As ROCclr does: for a stream without a mask it writes nothing where ROC_GLOBAL_CU_MASK is set.
hipError_t hipExtStreamGetCUMask(hipStream_t handle, uint32_t words, uint32_t* mask) {
  return api([&](runtime& r, lock&) {
    config const& c = r.machine().settings;
    ihipStream_t* s = find(r, handle);
    if (!s) return hipErrorContextIsDestroyed;
    int const counted = c.mask.any() ? static_cast<int>(c.mask.count()) : c.cus;
    if (!mask || words < static_cast<uint32_t>(counted + 31) / 32) return hipErrorInvalidValue;
    if (c.mask.any() && handle && handle != hipStreamPerThread && s->mask.none()) return hipSuccess;
    cu_mask const cus = r.cus_of(*s);
    for (uint32_t i = 0; i < std::min<uint32_t>(words, (max_cus + 31) / 32); ++i)
      mask[i] = static_cast<uint32_t>((cus >> 32 * i & cu_mask(~uint32_t{0})).to_ulong());
    return hipSuccess;
  });
}

hipError_t hipStreamDestroy(hipStream_t handle) {
  return api([&](runtime& r, lock& l) {
    if (!handle || handle == hipStreamPerThread || handle == hipStreamLegacy) return hipErrorInvalidResourceHandle;
    ihipStream_t* s = find(r, handle);
    if (!s) return hipErrorContextIsDestroyed;
    abandon_capture(r, *s);
    r.wait(l, [&] { return s->queue.empty(); });
    let_go(s);
    r.destroy_stream(*s);
    return hipSuccess;
  });
}

hipError_t hipStreamSynchronize(hipStream_t handle) {
  return api([&](runtime& r, lock& l) {
    ihipStream_t* s = find(r, handle);
    if (!s) return hipErrorContextIsDestroyed;
    if (hipError_t const e = refuse_waiting(r, *s); e != hipSuccess) return e;
    if (s->null) {
      u64 const upto = r.last_sequence();
      r.wait(l, [&] { return r.reached(s->device, upto, false); });
    } else {
      u64 const upto = r.last_sequence();
      r.wait(l, [&] { return s->queue.empty() || s->queue.front().sequence > upto; });
    }
    r.host_reaches(s->time);
    r.system_scope(s->device);
    return hipSuccess;
  });
}

hipError_t hipStreamQuery(hipStream_t handle) {
  return api([&](runtime& r, lock& l) {
    ihipStream_t* s = find(r, handle);
    if (!s) return hipErrorContextIsDestroyed;
    if (hipError_t const e = refuse_waiting(r, *s); e != hipSuccess) return e;
    if (!s->queue.empty()) r.poll(l);
    r.host_waited();
    return s->queue.empty() ? hipSuccess : hipErrorNotReady;
  });
}

hipError_t hipDeviceSynchronize() {
  return api([&](runtime& r, lock& l) {
    if (hipError_t const e = refuse_in_capture(r, call_kind::waits_for_device); e != hipSuccess) return e;
    int const device = this_thread().device;
    u64 const upto = r.last_sequence();
    r.wait(l, [&] { return r.reached(device, upto, true); });
    r.host_reaches(r.device_time(device));
    r.system_scope(device);
    return hipSuccess;
  });
}

hipError_t hipStreamWaitEvent(hipStream_t handle, hipEvent_t event, unsigned flags) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!s) return hipErrorContextIsDestroyed;
    if (!r.known(event)) return hipErrorInvalidHandle;
    if (flags != hipEventWaitDefault && flags != hipEventWaitExternal) return hipErrorInvalidValue;
    if (flags == hipEventWaitExternal) return s->capturing ? hipErrorNotSupported : hipErrorInvalidHandle;
    if (event->captured_in) return join_capture(*s, *event);
    if (hipError_t const e = refuse_isolated(r, *s, *event); e != hipSuccess) return e;
    if (!event->state) return hipSuccess;
    if (event->state->done) {
      r.waited_for(*event->state, *s);
      return hipSuccess;
    }
    return submit(r, *s, hipGraphNodeTypeWaitEvent, wait_work{event->state});
  });
}

hipError_t hipStreamGetFlags(hipStream_t handle, unsigned* flags) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!s || !handle || !flags) return hipErrorInvalidValue;
    *flags = s->flags;
    return hipSuccess;
  });
}

hipError_t hipStreamGetPriority(hipStream_t handle, int* priority) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!s || !priority) return hipErrorInvalidValue;
    *priority = s->priority;
    return hipSuccess;
  });
}

hipError_t hipStreamGetDevice(hipStream_t handle, hipDevice_t* device) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!device) return hipErrorInvalidValue;
    if (!s) return hipErrorContextIsDestroyed;
    *device = r.ordinal_of(s->device);
    return hipSuccess;
  });
}

hipError_t hipStreamGetId(hipStream_t handle, unsigned long long* id) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!s || !id) return hipErrorInvalidValue;
    *id = reinterpret_cast<u64>(s);
    return hipSuccess;
  });
}

hipError_t hipLaunchHostFunc(hipStream_t handle, hipHostFn_t function, void* data) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!s || !function) return hipErrorInvalidValue;
    return submit(r, *s, hipGraphNodeTypeHost, host_work{[=] { function(data); }});
  });
}

hipError_t hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t callback, void* data, unsigned flags) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = find(r, handle);
    if (!s || !callback || flags) return hipErrorInvalidValue;
    if (hipError_t const e = refuse_captured(*s); e != hipSuccess) return e;
    if (s->null && blocking_capture(r))
      if (hipError_t const e = refuse_in_capture(r, call_kind::copies); e != hipSuccess) return e;
    r.enqueue(*s, host_work{[=] { callback(handle, hipSuccess, data); }});
    return hipSuccess;
  });
}

static hipError_t create_event(hipEvent_t* out, unsigned flags, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        constexpr unsigned release = hipEventReleaseToDevice | hipEventReleaseToSystem | hipEventDisableSystemFence;
        constexpr unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | release;
        if (!out || flags & ~known || std::popcount(flags & release) > 1 ||
            (flags & hipEventInterprocess && !(flags & hipEventDisableTiming)))
          return hipErrorInvalidValue;
        *out = new ihipEvent_t{flags, this_thread().device, nullptr, nullptr, nullptr, {}};
        r.events().insert(*out);
        hold(*out, std::string(call) + ": an event");
        return hipSuccess;
      },
      call);
}
hipError_t hipEventCreate(hipEvent_t* e) { return create_event(e, 0); }
hipError_t hipEventCreateWithFlags(hipEvent_t* e, unsigned flags) { return create_event(e, flags); }

hipError_t hipEventDestroy(hipEvent_t e) {
  return api([&](runtime& r, lock&) {
    if (!e) return hipErrorInvalidHandle;
    if (!r.known(e)) return hipErrorContextIsDestroyed;
    r.events().erase(e);
    let_go(e);
    delete e;
    return hipSuccess;
  });
}

static hipError_t record(hipEvent_t e, hipStream_t handle, unsigned flags, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (flags != hipEventRecordDefault && flags != hipEventRecordExternal) return hipErrorInvalidValue;
        ihipStream_t* s = find(r, handle);
        if (!s) return hipErrorContextIsDestroyed;
        if (!r.known(e)) return hipErrorInvalidHandle;
        if (hipError_t const refused = refuse_invalid(*s); refused != hipSuccess) return refused;
        if (s->capturing) {
          if (flags == hipEventRecordExternal) return hipErrorNotSupported;
          e->captured_in = s->capturing, e->captured_after = s->tail, e->recorded_on = s;
          return hipSuccess;
        }
        if (e->device != s->device) return hipErrorInvalidHandle;
        e->captured_in = nullptr, e->captured_after.clear();
        e->recorded_on = s->null ? nullptr : s;
        auto const state = std::make_shared<event_state>();
        hipError_t const done = submit(r, *s, hipGraphNodeTypeEventRecord, record_work{state});
        if (done == hipSuccess) e->state = state;
        return done;
      },
      call);
}
hipError_t hipEventRecord(hipEvent_t e, hipStream_t s) { return record(e, s, hipEventRecordDefault); }
hipError_t hipEventRecordWithFlags(hipEvent_t e, hipStream_t s, unsigned flags) { return record(e, s, flags); }

hipError_t hipEventQuery(hipEvent_t e) {
  return api([&](runtime& r, lock& l) {
    if (!r.known(e)) return hipErrorInvalidHandle;
    if (hipError_t const refused = refuse_waiting(r, *e); refused != hipSuccess) return refused;
    if (e->state && !e->state->done) r.poll(l);
    r.host_waited();
    return !e->state || e->state->done ? hipSuccess : hipErrorNotReady;
  });
}

hipError_t hipEventSynchronize(hipEvent_t e) {
  return api([&](runtime& r, lock& l) {
    if (!r.known(e)) return hipErrorInvalidHandle;
    if (hipError_t const refused = refuse_waiting(r, *e); refused != hipSuccess) return refused;
    if (auto const state = e->state) {
      r.wait(l, [&] { return state->done; });
      r.host_reaches(state->cycles);
      r.system_scope(state->device);
    }
    return hipSuccess;
  });
}

hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  return api([&](runtime& r, lock&) {
    if (!ms) return hipErrorInvalidValue;
    if (!r.known(start) || !r.known(stop) || start->device != stop->device) return hipErrorInvalidHandle;
    if ((start->flags | stop->flags) & hipEventDisableTiming || !start->state || !stop->state)
      return hipErrorInvalidHandle;
    if (!start->state->done || !stop->state->done) return hipErrorNotReady;
    *ms = static_cast<float>(static_cast<double>(stop->state->cycles) - static_cast<double>(start->state->cycles)) /
          (static_cast<float>(r.machine().settings.rates.mhz) * 1e3f);
    return hipSuccess;
  });
}

}  // extern "C"
