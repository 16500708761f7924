// What is genuinely different per architecture among the kernels: tuned_ag_gemm<T>, for shapes and addresses that it accepts.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/kernels/ag_gemm_launch_sm90.hpp>
#else
#include <fusewire/kernels/ag_gemm_launch_gfx942.hpp>
#endif
