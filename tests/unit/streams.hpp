// Streams of a test's own, and an order between two of them.
#pragma once
#include "support.hpp"

namespace support {

struct destroy_stream {
  void operator()(hipStream_t s) const { (void)hipStreamDestroy(s); }
};
using own_stream = std::unique_ptr<std::remove_pointer_t<hipStream_t>, destroy_stream>;
inline own_stream make_stream() {
  hipStream_t s = nullptr;
  check_hip(hipStreamCreateWithFlags(&s, hipStreamNonBlocking), "hipStreamCreateWithFlags");
  return own_stream(s);
}

/// `to` waits for what is on `from` now.
inline void put_behind(hipStream_t from, hipStream_t to) {
  hipEvent_t e = nullptr;
  check_hip(hipEventCreateWithFlags(&e, hipEventDisableTiming), "hipEventCreateWithFlags");
  hipError_t failed = hipEventRecord(e, from);
  if (failed == hipSuccess) failed = hipStreamWaitEvent(to, e, 0);
  (void)hipEventDestroy(e);
  check_hip(failed, "hipEventRecord, hipStreamWaitEvent");
}

}  // namespace support
