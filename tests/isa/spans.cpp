// What check_spans.py looks at: one kernel three times, with its spans on, with them off, and without any.
#include <fusewire/device/trace_span.hpp>

namespace {

template <bool On>
__device__ void marked(float* x) {
  fusewire::trace_span<On> const all("scales and adds");
  {
    fusewire::trace_span<On> const first("scales");
    x[threadIdx.x] *= 3;
  }
  fusewire::trace_span<On> const second("adds");
  x[threadIdx.x + blockDim.x] += 1;
}

}  // namespace

__global__ void spans_on(float* x) { marked<true>(x); }
__global__ void spans_off(float* x) { marked<false>(x); }
__global__ void spans_none(float* x) {
  x[threadIdx.x] *= 3;
  x[threadIdx.x + blockDim.x] += 1;
}
