// Ranges in a profiler's timeline, by the vendor's library for them.
#pragma once
#include <fusewire/platform/platform.hpp>

#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/platform/nvidia/ranges.hpp>
#else
#include <fusewire/platform/amd/ranges.hpp>
#endif
