// The vendor: here, and in architecture.hpp and architecture_kernels.hpp for what tiles and kernels have of their own, is the only place that asks.
#pragma once
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/platform/nvidia.hpp>
#else
#include <fusewire/platform/amd.hpp>
#endif

namespace fusewire {
using namespace hip;
}
