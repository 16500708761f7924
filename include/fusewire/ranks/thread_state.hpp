// What the HIP runtime keeps for each host thread, and calls of this library leave as they found it: the current
// device and the capture mode. error.hpp does the same for the last error.
#pragma once
#include <new>
#include <type_traits>

#include <fusewire/ranks/error.hpp>

namespace fusewire::detail {

/// While it lives, `device` is the calling thread's current device.
class current_device {
 public:
  /// Fails: runtime_failure.
  explicit current_device(int device, std::source_location where = std::source_location::current()) {
    check_hip(hipGetDevice(&before_), "hipGetDevice", where);
    changed_ = before_ != device;
    if (changed_) check_hip(hipSetDevice(device), "hipSetDevice", where);
  }
  /// For destructors: where HIP fails, the device stays as it is.
  current_device(int device, std::nothrow_t) noexcept {
    hipError_t e = hipGetDevice(&before_);
    changed_ = e == hipSuccess && before_ != device;
    if (changed_) e = hipSetDevice(device);
    ignore_hip(e);
  }
  current_device(current_device const&) = delete;
  ~current_device() {
    if (changed_) ignore_hip(hipSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// While it lives, calls of this thread that allocate memory, or wait for a stream that is not captured, end no
/// capture.
class outside_captures {
 public:
  outside_captures() { ignore_hip(hipThreadExchangeStreamCaptureMode(&mode_)); }
  outside_captures(outside_captures const&) = delete;
  ~outside_captures() { ignore_hip(hipThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
};

/// A number that the capture in progress on the stream has for itself; 0 if there is none.
/// Fails: bad_argument for the null stream, if another capture forbids to use it. `call` begins the message.
inline unsigned long long capture_of(hipStream_t stream, char const* call, std::source_location where) {
  hipStreamCaptureStatus status;
  hipError_t const e = hipStreamIsCapturing(stream, &status);
  if (e == hipErrorStreamCaptureImplicit) ignore_hip(e);
  require(e != hipErrorStreamCaptureImplicit, where, call,
          ": the null stream, while a stream that waits for it is captured; expected another stream, or a capture on a "
          "stream of hipStreamCreateWithFlags(hipStreamNonBlocking)");
  check_hip(e, "hipStreamIsCapturing", where);
  if (status == hipStreamCaptureStatusNone) return 0;
  unsigned long long id = 0;
  check_hip(hipStreamGetCaptureInfo(stream, &status, &id), "hipStreamGetCaptureInfo", where);
  return id ? id : 1;
}

/// Refuses a call that synchronises the stream while that is captured: the call would end the capture.
/// Fails: bad_argument.
inline void require_no_capture(hipStream_t stream, char const* call, std::source_location where) {
  require(capture_of(stream, call, where) == 0, where, call,
          ": the stream is being captured, and this call waits for it, which would end the capture; expected this call "
          "before the capture begins or after it has ended");
}

/// Launches a kernel. The result is of this launch alone.
template <class... P>
hipError_t start_kernel(void (*kernel)(P...), int blocks, int threads, int shared_bytes, hipStream_t stream,
                        std::type_identity_t<P> const&... arguments) {
  void* at[] = {const_cast<void*>(static_cast<void const*>(&arguments))..., nullptr};
  return hipLaunchKernel(reinterpret_cast<void const*>(kernel), dim3(unsigned(blocks)), dim3(unsigned(threads)), at,
                         std::size_t(shared_bytes), stream);
}

}  // namespace fusewire::detail
