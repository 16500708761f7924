// Selects the vendor's API. Beside this file and ranges.hpp only arch/ and the selectors attention/attention_atom.hpp,
// gemm/tuned_mainloops.hpp and ops/detail/ag_gemm_architecture.hpp test for the vendor.
#pragma once
#if !defined(__HIP__) && !defined(__CUDACC__) && !defined(FUSEWIRE_PLATFORM_NVIDIA)
#error \
    "fusewire is compiled as HIP or CUDA: name the source .hip or .cu, or set_source_files_properties(... LANGUAGE \
HIP or CUDA); by hand -x hip or -x cu"
#elif __cplusplus < 201709L  // GCC 10's C++20
#error "fusewire needs C++20: link with fusewire::fusewire, found after project(... LANGUAGES HIP or CUDA) has \
enabled the language; by hand -std=c++20"
#endif

#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/platform/nvidia/atomics.hpp>
#include <fusewire/platform/nvidia/compiler.hpp>
#include <fusewire/platform/nvidia/device.hpp>
#include <fusewire/platform/nvidia/element.hpp>
#include <fusewire/platform/nvidia/execution.hpp>
#include <fusewire/platform/nvidia/kernel_launch.hpp>
#include <fusewire/platform/nvidia/lanes.hpp>
#include <fusewire/platform/nvidia/order.hpp>
#else
#include <fusewire/platform/amd/atomics.hpp>
#include <fusewire/platform/amd/compiler.hpp>
#include <fusewire/platform/amd/device.hpp>
#include <fusewire/platform/amd/element.hpp>
#include <fusewire/platform/amd/execution.hpp>
#include <fusewire/platform/amd/kernel_launch.hpp>
#include <fusewire/platform/amd/lanes.hpp>
#include <fusewire/platform/amd/order.hpp>
#endif

namespace fusewire {
using namespace hip;
}
