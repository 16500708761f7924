#pragma once
#include "hip/runtime.hpp"

namespace fusewire::sim {

/// Prepares the work of launching `f` on a stream's device, with the arguments packed. Returns why it cannot be
/// launched.
hipError_t prepare(runtime&, function const& f, int device, dim3 grid, dim3 block, void** arguments, void** extra,
                   u64 lds, kernel_work& out);
hipError_t submit(runtime&, ihipStream_t&, kernel_work);
/// Appends to the stream, or to the capture it is in.
hipError_t submit(runtime&, ihipStream_t&, hipGraphNodeType, work);

}  // namespace fusewire::sim
