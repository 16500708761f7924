// The only place that asks who the vendor is.
#pragma once
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/platform/nvidia.hpp>
#else
#include <fusewire/platform/amd.hpp>
#endif

namespace fusewire {
using namespace hip;
}
