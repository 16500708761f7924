#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Gives what the calling wave does a name in the file that fusewire-sim --trace writes, from the construction of this
/// object to the end of its scope. Spans of a wave may be nested.
///
///   trace_span<Traced> const s("waits for A");
///
/// Called by: every lane of a wave together. The first wave of each block is shown.
/// Order: none; it is no fence.
/// Requires: `name` is a string literal.
/// Costs: nothing when On is false, and nothing on NVIDIA, where no tool records spans; else about ten scalar
/// instructions.
template <bool On>
class trace_span {
 public:
  /// Begins the span.
  __device__ explicit trace_span(char const* name) {
    if constexpr (On) platform::begin_span(name);
  }
  /// Ends the span.
  __device__ ~trace_span() {
    if constexpr (On) platform::end_span();
  }
  trace_span(trace_span const&) = delete;
  trace_span& operator=(trace_span const&) = delete;
};

}  // namespace fusewire
