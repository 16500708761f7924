// Stream captures in progress, and what HIP refuses meanwhile.
#pragma once
#include <string>

#include "hip/graph.hpp"

namespace fusewire::sim {

/// A stream capture in progress.
struct capture {
  u64 id = 0;
  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  ihipStream_t* origin = nullptr;
  u64 thread = 0;                      // that began it
  std::string began;                   // for messages: that thread, and the GPU
  char const* last = nullptr;          // the latest call that was captured
  std::vector<ihipStream_t*> members;  // origin and the streams that joined
  std::unique_ptr<ihipGraph> graph;
  bool invalid = false;
  std::string culprit;  // why it is invalid
};

class runtime;

/// Kinds of calls that HIP refuses because of captures on other streams or other threads; captures.cpp has their rules.
enum class call_kind {
  allocates,         // hipMalloc, hipFree and their relatives
  copies,            // synchronous copies and fills
  waits_for_device,  // hipDeviceSynchronize
  waits_for_stream,  // hipStreamSynchronize, hipStreamQuery, hipEventSynchronize, hipEventQuery
  configures         // hipDeviceSetCacheConfig and its relatives
};

/// hipSuccess, or the error with which HIP refuses the API call that this thread is in. A line on standard error names
/// it and the captures that are invalid from then on.
hipError_t refuse_in_capture(runtime&, call_kind);
/// The same for a call that waits for this stream, or asks whether it has ended.
hipError_t refuse_waiting(runtime&, ihipStream_t&);
hipError_t refuse_waiting(runtime&, ihipEvent_t&);
/// The same for a call that a capturing stream cannot capture.
hipError_t refuse_captured(ihipStream_t&);
/// The same for a wait that would make a capture depend on work outside of it, or the other way round.
hipError_t refuse_isolated(runtime&, ihipStream_t&, ihipEvent_t const&);
/// The same for hipMallocAsync and hipFreeAsync.
hipError_t refuse_memory_node(runtime&, ihipStream_t&);
/// hipErrorStreamCaptureInvalidated where the stream's capture is invalid, or the last one failed.
hipError_t refuse_invalid(ihipStream_t const&);
/// Work on the default stream while a blocking stream of the device captures invalidates that capture.
hipError_t implicit_capture(runtime&, ihipStream_t const&);
/// Whether a stream that waits for the default stream captures.
bool blocking_capture(runtime&);

/// Appends to the stream's capture instead of its queue. Returns false when the stream does not capture.
bool capture_work(ihipStream_t&, hipGraphNodeType, work const&);
/// The stream waits for an event that was recorded in a capture, and so joins the capture.
hipError_t join_capture(ihipStream_t&, ihipEvent_t const&);
/// The stream is destroyed: it leaves the capture, or its capture ends without a graph.
void abandon_capture(runtime&, ihipStream_t&);

}  // namespace fusewire::sim
