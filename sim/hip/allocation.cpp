#include <algorithm>

#include "hip/launch.hpp"
#include "machine/report.hpp"

using namespace fusewire::sim;

namespace {

allocation* allocation_at(runtime& r, void const* p) {
  allocation* a = r.machine().memory.find(reinterpret_cast<u64>(p));
  return a && a->live && a->kind != memory_kind::image ? a : nullptr;
}

hipError_t allocate(runtime& r, void** out, size_t bytes, int device, memory_kind kind, unsigned flags) {
  if (!out) return hipErrorInvalidValue;
  *out = nullptr;
  if (!bytes) return hipSuccess;
  allocation* a = r.machine().memory.allocate(device, bytes, kind, flags);
  if (!a) return hipErrorOutOfMemory;
  *out = reinterpret_cast<void*>(a->base);
  hold(*out, std::string(this_thread().call) + ": " + std::to_string(bytes) + " bytes" +
                 (device < 0 ? "" : " on GPU " + std::to_string(device)));
  return hipSuccess;
}

hipError_t allocate(void** out, size_t bytes, int device, memory_kind kind, unsigned flags,
                    char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (hipError_t const e = refuse_in_capture(r, call_kind::allocates); e != hipSuccess) return e;
        return allocate(r, out, bytes, device, kind, flags);
      },
      call);
}

/// Requires: all work on this process's GPUs that could use the memory has ended.
void release(runtime& r, allocation& a, char const* call) {
  if (shared_node const* node = r.machine().shared.get())
    if (int const p = node->opened_by(a.base); p >= 0)
      report_call(std::string("free of open memory: ") + call + " of allocation " + std::to_string(a.number) + " (" +
                  std::to_string(a.size) + " bytes on GPU " + std::to_string(a.gpu) + ") of process " +
                  std::to_string(node->process()) + ", which process " + std::to_string(p) +
                  " has open: hipIpcCloseMemHandle comes first");
  if (race_checker* const races = r.machine().races.get()) races->forget(a.base, a.size);
  r.machine().memory.release(a);
}

/// Frees the memory when all work in flight on every GPU that could use it has ended, as hipFree does.
hipError_t free_memory(void* p, bool host, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock& l) {
        if (hipError_t const e = refuse_in_capture(r, call_kind::allocates); e != hipSuccess) return e;
        if (!p) return hipSuccess;
        allocation* a = allocation_at(r, p);
        if (!a || a->base != reinterpret_cast<u64>(p) || (a->gpu < 0) != host || a->kind == memory_kind::registered ||
            a->imported)
          return hipErrorInvalidValue;
        int const device = a->gpu < 0 ? this_thread().device : a->gpu;
        u64 const upto = r.last_sequence();
        r.wait(l, [&] { return r.reached(device, upto, true); });
        r.system_scope(-1);
        if (a->live) release(r, *a, call);
        let_go(p);
        return hipSuccess;
      },
      call);
}

constexpr unsigned managed = 1u << 31;

/// The contents of a hipIpcMemHandle_t on a node that processes share.
struct shared_handle {
  static constexpr u64 right_mark = 0x6d69737265776966;
  u64 mark, node;
  u64 base, size, span;
  int gpu, process;
  unsigned flags;
  memory_kind kind;
};
static_assert(sizeof(shared_handle) <= sizeof(hipIpcMemHandle_t));

}  // namespace

extern "C" {

hipError_t hipMalloc(void** p, size_t n) { return allocate(p, n, this_thread().device, memory_kind::coarse, 0); }

hipError_t hipExtMallocWithFlags(void** p, size_t n, unsigned flags) {
  switch (flags) {
    case hipDeviceMallocDefault: return allocate(p, n, this_thread().device, memory_kind::coarse, flags);
    case hipDeviceMallocFinegrained: return allocate(p, n, this_thread().device, memory_kind::fine, flags);
    case hipDeviceMallocUncached: return allocate(p, n, this_thread().device, memory_kind::uncached, flags);
    default: return remember(hipErrorInvalidValue);
  }
}

hipError_t hipFree(void* p) { return free_memory(p, false); }

hipError_t hipMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  if (!pitch) return remember(hipErrorInvalidValue);
  *pitch = (width + 127) & ~size_t{127};
  return allocate(p, *pitch * height, this_thread().device, memory_kind::coarse, 0);
}

hipError_t hipHostMalloc(void** p, size_t n, unsigned flags) { return allocate(p, n, -1, memory_kind::host, flags); }
hipError_t hipHostAlloc(void** p, size_t n, unsigned flags) { return allocate(p, n, -1, memory_kind::host, flags); }
hipError_t hipMallocHost(void** p, size_t n) { return allocate(p, n, -1, memory_kind::host, 0); }
hipError_t hipHostFree(void* p) { return free_memory(p, true); }
hipError_t hipFreeHost(void* p) { return free_memory(p, true); }
hipError_t hipMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n, -1, memory_kind::host, managed); }

hipError_t hipHostRegister(void* p, size_t n, unsigned flags) {
  return api([&](runtime& r, lock&) {
    if (hipError_t const e = refuse_in_capture(r, call_kind::allocates); e != hipSuccess) return e;
    if (!p || !n) return hipErrorInvalidValue;
    if (!r.machine().memory.adopt(reinterpret_cast<u64>(p), n, flags)) return hipErrorHostMemoryAlreadyRegistered;
    hold(p, "hipHostRegister: " + std::to_string(n) + " bytes");
    return hipSuccess;
  });
}

hipError_t hipHostUnregister(void* p) {
  return api([&](runtime& r, lock&) {
    if (hipError_t const e = refuse_in_capture(r, call_kind::allocates); e != hipSuccess) return e;
    allocation* a = allocation_at(r, p);
    if (!a || a->kind != memory_kind::registered || a->base != reinterpret_cast<u64>(p))
      return hipErrorHostMemoryNotRegistered;
    r.machine().memory.abandon(*a);
    let_go(p);
    return hipSuccess;
  });
}

hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned) {
  return api([&](runtime& r, lock&) {
    allocation* a = allocation_at(r, host);
    if (!device || !a || a->gpu >= 0) return hipErrorInvalidValue;
    *device = host;
    return hipSuccess;
  });
}

hipError_t hipHostGetFlags(unsigned* flags, void* host) {
  return api([&](runtime& r, lock&) {
    allocation* a = allocation_at(r, host);
    if (!flags || !a || a->gpu >= 0) return hipErrorInvalidValue;
    *flags = a->flags;
    return hipSuccess;
  });
}

hipError_t hipMallocAsync(void** p, size_t n, hipStream_t stream) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = r.stream_of(stream, this_thread().device);
    if (!s) return hipErrorInvalidHandle;
    if (hipError_t const e = refuse_memory_node(r, *s); e != hipSuccess) return e;
    return allocate(r, p, n, s->device, memory_kind::coarse, 0);
  });
}

hipError_t hipFreeAsync(void* p, hipStream_t stream) {
  return api([&](runtime& r, lock&) {
    ihipStream_t* s = r.stream_of(stream, this_thread().device);
    allocation* a = p ? allocation_at(r, p) : nullptr;
    if (!s) return hipErrorInvalidHandle;
    if (hipError_t const e = refuse_memory_node(r, *s); e != hipSuccess) return e;
    if (p && (!a || a->base != reinterpret_cast<u64>(p))) return hipErrorInvalidValue;
    let_go(p);
    if (a)
      r.enqueue(*s, host_work{[a] {
        runtime& later = runtime::get();
        lock l = later.enter();
        later.system_scope(-1);
        release(later, *a, "hipFreeAsync");
      }});
    return hipSuccess;
  });
}

hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  return api([&](runtime& r, lock&) {
    if (!free && !total) return hipErrorInvalidValue;
    if (total) *total = address_space::capacity;
    if (free) *free = address_space::capacity - r.machine().memory.used(this_thread().device);
    return hipSuccess;
  });
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* out, void const* p) {
  return api([&](runtime& r, lock&) {
    if (!out || !p) return hipErrorInvalidValue;
    *out = {};
    allocation const* a = allocation_at(r, p);
    out->device = a && a->gpu >= 0 ? r.ordinal_of(a->gpu) : a ? 0 : -2;
    out->type = !a                    ? hipMemoryTypeUnregistered
                : a->flags == managed ? hipMemoryTypeManaged
                : a->gpu >= 0         ? hipMemoryTypeDevice
                                      : hipMemoryTypeHost;
    if (!a) return hipSuccess;
    out->devicePointer = const_cast<void*>(p);
    if (a->gpu < 0) out->hostPointer = const_cast<void*>(p);
    out->isManaged = a->flags == managed;
    out->allocationFlags = a->flags == managed ? 0 : a->flags;
    return hipSuccess;
  });
}

hipError_t hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t p) {
  return api([&](runtime& r, lock&) {
    allocation const* a = allocation_at(r, p);
    if (!data || !a) return hipErrorInvalidValue;
    switch (attribute) {
      case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(data) = a->gpu >= 0 ? hipMemoryTypeDevice : hipMemoryTypeHost;
        break;
      case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<void**>(data) = p; break;
      case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data) = a->gpu < 0 ? 0 : r.ordinal_of(a->gpu);
        break;
      case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<u64*>(data) = a->base; break;
      case HIP_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(data) = a->size; break;
      case HIP_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<u64*>(data) = a->number; break;
      case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS: *static_cast<unsigned*>(data) = 0; break;
      default: return hipErrorInvalidValue;
    }
    return hipSuccess;
  });
}

hipError_t hipPointerSetAttribute(void const*, hipPointer_attribute, hipDeviceptr_t) { return hipSuccess; }

hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t p) {
  return api([&](runtime& r, lock&) {
    allocation const* a = allocation_at(r, p);
    if (!a) return hipErrorNotFound;
    if (base) *base = reinterpret_cast<hipDeviceptr_t>(a->base);
    if (size) *size = a->size;
    return hipSuccess;
  });
}

hipError_t hipMemPtrGetInfo(void* p, size_t* size) {
  return api([&](runtime& r, lock&) {
    allocation const* a = allocation_at(r, p);
    if (!a || !size) return hipErrorInvalidValue;
    *size = a->size;
    return hipSuccess;
  });
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* out, void* p) {
  return api([&](runtime& r, lock&) {
    shared_node const* node = r.machine().shared.get();
    if (!node) return hipErrorNotSupported;  // all GPUs are in one process, so there is no other to share memory with
    allocation const* a = allocation_at(r, p);
    if (!out || !a || a->base != reinterpret_cast<u64>(p) || a->gpu < 0 || a->imported) return hipErrorInvalidValue;
    shared_handle const h{shared_handle::right_mark, node->id(), a->base, a->size, a->span, a->gpu,
                          node->process(),           a->flags,   a->kind};
    *out = {};
    std::memcpy(out, &h, sizeof h);
    return hipSuccess;
  });
}

hipError_t hipIpcOpenMemHandle(void** out, hipIpcMemHandle_t handle, unsigned flags) {
  return api([&](runtime& r, lock&) {
    shared_node* node = r.machine().shared.get();
    if (!node) return hipErrorNotSupported;
    shared_handle h;
    std::memcpy(&h, &handle, sizeof h);
    if (!out || flags != hipIpcMemLazyEnablePeerAccess || h.mark != shared_handle::right_mark || h.node != node->id())
      return hipErrorInvalidValue;
    if (h.process == node->process()) return hipErrorInvalidContext;  // its own: as on hardware
    allocation theirs;
    theirs.base = h.base, theirs.size = h.size, theirs.span = h.span, theirs.gpu = h.gpu, theirs.flags = h.flags,
    theirs.kind = h.kind;
    allocation* a = r.machine().memory.import(theirs);
    if (!a) return hipErrorAlreadyMapped;
    if (!node->note_open(a->base)) {
      r.machine().memory.abandon(*a);
      return hipErrorOutOfMemory;
    }
    if (int const d = this_thread().device; d != a->gpu) r.machine().peers[static_cast<std::size_t>(d)] |= 1u << a->gpu;
    *out = reinterpret_cast<void*>(a->base);
    hold(*out, "hipIpcOpenMemHandle: " + std::to_string(a->size) + " bytes on GPU " + std::to_string(a->gpu));
    return hipSuccess;
  });
}

hipError_t hipIpcCloseMemHandle(void* p) {
  return api([&](runtime& r, lock& l) {
    allocation* a = p ? allocation_at(r, p) : nullptr;
    if (!a || !a->imported || a->base != reinterpret_cast<u64>(p)) return hipErrorInvalidValue;
    u64 const upto = r.last_sequence();
    r.wait(l, [&] { return r.reached(this_thread().device, upto, true); });
    r.system_scope(-1);
    r.machine().shared->note_closed(a->base);
    r.machine().memory.abandon(*a);
    let_go(p);
    return hipSuccess;
  });
}

hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t*, hipEvent_t) { return remember(hipErrorNotSupported); }
hipError_t hipIpcOpenEventHandle(hipEvent_t*, hipIpcEventHandle_t) { return remember(hipErrorNotSupported); }

}  // extern "C"
