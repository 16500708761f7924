#pragma once
#include "hip/work.hpp"

struct hipGraphNode {
  hipGraphNodeType type = hipGraphNodeTypeEmpty;
  fusewire::sim::work what;
  std::vector<hipGraphNode_t> after;
  ihipGraph* owner = nullptr;
};

struct ihipGraph {
  std::vector<std::unique_ptr<hipGraphNode>> nodes;
  hipGraphNode* add(hipGraphNodeType, fusewire::sim::work, std::vector<hipGraphNode_t> after);
  /// In an order that respects the edges; null when they form a cycle.
  std::shared_ptr<fusewire::sim::work_list> flatten(std::vector<hipGraphNode*>* order = nullptr) const;
};

struct hipGraphExec {
  std::shared_ptr<fusewire::sim::work_list> nodes;
  std::vector<hipGraphNode*> order;  // the nodes of the graph it was made from
  std::vector<hipGraphNodeType> types;
};

namespace fusewire::sim {

/// A stream capture in progress.
struct capture {
  u64 id = 0;
  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  ihipStream_t* origin = nullptr;
  std::vector<ihipStream_t*> members;  // origin and the streams that joined
  std::unique_ptr<ihipGraph> graph;
  bool invalid = false;
};

class runtime;

/// Appends to the stream's capture instead of its queue. Returns false when the stream does not capture.
bool capture_work(ihipStream_t&, hipGraphNodeType, work const&);
/// Work on the default stream while a blocking stream of the device captures invalidates that capture.
hipError_t implicit_capture(runtime&, ihipStream_t const&);
/// The stream waits for an event that was recorded in a capture, and so joins the capture.
hipError_t join_capture(runtime&, ihipStream_t&, ihipEvent_t const&);
/// hipSuccess, or the error of a call that may not happen while a capture is in progress.
hipError_t unsafe_call(runtime&);

}  // namespace fusewire::sim
