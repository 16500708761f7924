// The parts of the kernels that differ per architecture: tuned_mainloops<T>, and the plans that choose among them.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/kernels/ag_gemm_plan_sm90.hpp>
#include <fusewire/kernels/mainloops_sm90.hpp>
#else
#include <fusewire/kernels/ag_gemm_plan_gfx942.hpp>
#include <fusewire/kernels/mainloops_gfx942.hpp>
#include <fusewire/kernels/pushing_gfx942.hpp>
#endif
