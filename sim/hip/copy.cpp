#include "hip/launch.hpp"

using namespace fusewire::sim;

namespace {

/// A range in memory of the simulated node must lie in one allocation; any other address is ordinary host memory.
bool in_bounds(runtime& r, void const* p, u64 bytes) {
  allocation const* a = r.machine().memory.find(reinterpret_cast<u64>(p));
  return !a || (a->live && a->covers(reinterpret_cast<u64>(p), bytes));
}
bool pageable(runtime& r, void const* p) { return !r.machine().memory.find(reinterpret_cast<u64>(p)); }

u64 extent(u64 pitch, u64 width, u64 height) { return height ? pitch * (height - 1) + width : 0; }

/// later_uncaptured: a call that HIP runs at once where it should be captured (hipMemcpyPeerAsync).
enum class when { now, now_on_stream, later, later_uncaptured };

/// A call that returns when its work is done, for which HIP asks other captures and other threads' before all else.
hipError_t refuse_now(runtime& r, when w) {
  return w == when::now ? refuse_in_capture(r, call_kind::copies) : hipSuccess;
}

hipError_t copy(copy_work c, hipMemcpyKind kind, hipStream_t stream, when w, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock& l) {
        if (hipError_t const e = refuse_now(r, w); e != hipSuccess) return e;
        ihipStream_t* s = r.stream_of(stream, this_thread().device);
        if (!s) return hipErrorInvalidHandle;
        if (w == when::now_on_stream)
          if (hipError_t const e = refuse_waiting(r, *s); e != hipSuccess) return e;
        if (w == when::later_uncaptured)
          if (hipError_t const e = refuse_captured(*s); e != hipSuccess) return e;
        bool const waits = w == when::now || w == when::now_on_stream;
        if (!c.width || !c.height) return hipSuccess;
        if (!c.to || !c.from || c.to_pitch < c.width || c.from_pitch < c.width) return hipErrorInvalidValue;
        if (!in_bounds(r, c.to, extent(c.to_pitch, c.width, c.height)) ||
            !in_bounds(r, c.from, extent(c.from_pitch, c.width, c.height)))
          return hipErrorInvalidValue;
        if (static_cast<unsigned>(kind) > hipMemcpyDefault && kind != hipMemcpyDeviceToDeviceNoCU)
          return hipErrorInvalidMemcpyDirection;
        bool const to_pageable = pageable(r, c.to);
        if (to_pageable && pageable(r, c.from) && kind != hipMemcpyHostToHost && kind != hipMemcpyDefault)
          return hipErrorInvalidValue;
        if (!s->capturing && !waits && pageable(r, c.from)) {  // the caller may reuse pageable memory at once
          auto const* p = static_cast<u8 const*>(c.from);
          c.staged = std::make_shared<std::vector<u8>>(p, p + extent(c.from_pitch, c.width, c.height));
          c.from = c.staged->data();
        }
        bool const capturing = s->capturing;
        if (hipError_t const e = submit(r, *s, hipGraphNodeTypeMemcpy, std::move(c)); e != hipSuccess) return e;
        if (!capturing && (waits || to_pageable)) {
          u64 const upto = r.last_sequence();
          r.wait(l, [&] { return s->queue.empty() || s->queue.front().sequence > upto; });
          r.host_reaches(s->time);
        }
        return hipSuccess;
      },
      call);
}

hipError_t copy(void* to, void const* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream, when w,
                char const* call = __builtin_FUNCTION()) {
  return copy(copy_work{to, from, bytes, bytes, bytes, 1, nullptr}, kind, stream, w, call);
}

hipError_t fill(void* to, u64 pitch, u32 value, u32 element, u64 width, u64 height, hipStream_t stream, when w,
                char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock& l) {
        if (hipError_t const e = refuse_now(r, w); e != hipSuccess) return e;
        ihipStream_t* s = r.stream_of(stream, this_thread().device);
        if (!s) return hipErrorInvalidHandle;
        if (!width || !height) return hipSuccess;
        allocation const* a = to ? r.machine().memory.find(reinterpret_cast<u64>(to)) : nullptr;
        if (!a || !in_bounds(r, to, extent(pitch, width * element, height))) return hipErrorInvalidValue;
        bool const host = a->gpu < 0, capturing = s->capturing;
        if (hipError_t const e =
                submit(r, *s, hipGraphNodeTypeMemset, fill_work{to, pitch, width, height, value, element});
            e != hipSuccess)
          return e;
        if (w == when::now && host && !capturing) {
          u64 const upto = r.last_sequence();
          r.wait(l, [&] { return s->queue.empty() || s->queue.front().sequence > upto; });
          r.host_reaches(s->time);
        }
        return hipSuccess;
      },
      call);
}

std::optional<module_registry::address> symbol(void const* p, size_t bytes, size_t offset) {
  runtime& r = runtime::get();
  lock l = r.enter();
  if (this_thread().device < 0) return std::nullopt;
  auto v = r.modules().variable(p, this_thread().device);
  if (!v || offset + bytes > v->size) return std::nullopt;
  v->at += offset;
  return v;
}

hipError_t to_symbol(void const* p, void const* from, size_t bytes, size_t offset, hipMemcpyKind k, hipStream_t s,
                     when w, char const* call = __builtin_FUNCTION()) {
  auto const v = symbol(p, bytes, offset);
  return v ? copy(reinterpret_cast<void*>(v->at), from, bytes, k, s, w, call) : remember(hipErrorInvalidSymbol);
}
hipError_t from_symbol(void* to, void const* p, size_t bytes, size_t offset, hipMemcpyKind k, hipStream_t s, when w,
                       char const* call = __builtin_FUNCTION()) {
  auto const v = symbol(p, bytes, offset);
  return v ? copy(to, reinterpret_cast<void const*>(v->at), bytes, k, s, w, call) : remember(hipErrorInvalidSymbol);
}

hipError_t peer_copy(void* to, int to_device, void const* from, int from_device, size_t n, hipStream_t s, when w,
                     char const* call = __builtin_FUNCTION()) {
  runtime& r = runtime::get();
  if (r.gpu_of(to_device) < 0 || r.gpu_of(from_device) < 0) return remember(hipErrorInvalidDevice);
  return copy(to, from, n, hipMemcpyDeviceToDevice, s, w, call);
}

}  // namespace

extern "C" {

hipError_t hipMemcpy(void* to, void const* from, size_t n, hipMemcpyKind k) {
  return copy(to, from, n, k, nullptr, when::now);
}
hipError_t hipMemcpyAsync(void* to, void const* from, size_t n, hipMemcpyKind k, hipStream_t s) {
  return copy(to, from, n, k, s, when::later);
}
hipError_t hipMemcpyWithStream(void* to, void const* from, size_t n, hipMemcpyKind k, hipStream_t s) {
  return copy(to, from, n, k, s, when::now_on_stream);
}
hipError_t hipMemcpyPeer(void* to, int a, void const* from, int b, size_t n) {
  return peer_copy(to, a, from, b, n, nullptr, when::now);
}
hipError_t hipMemcpyPeerAsync(void* to, int a, void const* from, int b, size_t n, hipStream_t s) {
  return peer_copy(to, a, from, b, n, s, when::later_uncaptured);
}
hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void const* from, size_t n) {
  return copy(to, from, n, hipMemcpyHostToDevice, nullptr, when::now);
}
hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t n) {
  return copy(to, from, n, hipMemcpyDeviceToHost, nullptr, when::now);
}
hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t n) {
  return copy(to, from, n, hipMemcpyDeviceToDevice, nullptr, when::now);
}
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void const* from, size_t n, hipStream_t s) {
  return copy(to, from, n, hipMemcpyHostToDevice, s, when::later);
}
hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t n, hipStream_t s) {
  return copy(to, from, n, hipMemcpyDeviceToHost, s, when::later);
}
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t n, hipStream_t s) {
  return copy(to, from, n, hipMemcpyDeviceToDevice, s, when::later);
}

hipError_t hipMemcpy2D(void* to, size_t to_pitch, void const* from, size_t from_pitch, size_t width, size_t height,
                       hipMemcpyKind k) {
  return copy(copy_work{to, from, to_pitch, from_pitch, width, height, nullptr}, k, nullptr, when::now);
}
hipError_t hipMemcpy2DAsync(void* to, size_t to_pitch, void const* from, size_t from_pitch, size_t width, size_t height,
                            hipMemcpyKind k, hipStream_t s) {
  return copy(copy_work{to, from, to_pitch, from_pitch, width, height, nullptr}, k, s, when::later);
}

hipError_t hipMemset(void* to, int value, size_t n) {
  return fill(to, n, static_cast<u32>(value), 1, n, 1, nullptr, when::now);
}
hipError_t hipMemsetAsync(void* to, int value, size_t n, hipStream_t s) {
  return fill(to, n, static_cast<u32>(value), 1, n, 1, s, when::later);
}
hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t n) {
  return fill(to, n, value, 1, n, 1, nullptr, when::now);
}
hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t n, hipStream_t s) {
  return fill(to, n, value, 1, n, 1, s, when::later);
}
hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t n) {
  return fill(to, 2 * n, value, 2, n, 1, nullptr, when::now);
}
hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t n, hipStream_t s) {
  return fill(to, 2 * n, value, 2, n, 1, s, when::later);
}
hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t n) {
  return fill(to, 4 * n, static_cast<u32>(value), 4, n, 1, nullptr, when::now);
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t n, hipStream_t s) {
  return fill(to, 4 * n, static_cast<u32>(value), 4, n, 1, s, when::later);
}
hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return fill(to, pitch, static_cast<u32>(value), 1, width, height, nullptr, when::now);
}
hipError_t hipMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, hipStream_t s) {
  return fill(to, pitch, static_cast<u32>(value), 1, width, height, s, when::later);
}

hipError_t hipMemcpyToSymbol(void const* p, void const* from, size_t n, size_t offset, hipMemcpyKind k) {
  return to_symbol(p, from, n, offset, k, nullptr, when::now);
}
hipError_t hipMemcpyToSymbolAsync(void const* p, void const* from, size_t n, size_t offset, hipMemcpyKind k,
                                  hipStream_t s) {
  return to_symbol(p, from, n, offset, k, s, when::later);
}
hipError_t hipMemcpyFromSymbol(void* to, void const* p, size_t n, size_t offset, hipMemcpyKind k) {
  return from_symbol(to, p, n, offset, k, nullptr, when::now);
}
hipError_t hipMemcpyFromSymbolAsync(void* to, void const* p, size_t n, size_t offset, hipMemcpyKind k, hipStream_t s) {
  return from_symbol(to, p, n, offset, k, s, when::later);
}

hipError_t hipGetSymbolAddress(void** address, void const* p) {
  auto const v = symbol(p, 0, 0);
  if (!address || !v) return remember(hipErrorInvalidSymbol);
  *address = reinterpret_cast<void*>(v->at);
  return hipSuccess;
}

hipError_t hipGetSymbolSize(size_t* size, void const* p) {
  auto const v = symbol(p, 0, 0);
  if (!size || !v) return remember(hipErrorInvalidSymbol);
  *size = v->size;
  return hipSuccess;
}

}  // extern "C"
