// The GEMM of an architecture: tuned_mainloops<T>, and the plan that chooses among them.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/gemm/sm90/gemm_plan.hpp>
#include <fusewire/gemm/sm90/tuned_mainloops.hpp>
#else
#include <fusewire/gemm/gfx942/gemm_plan.hpp>
#include <fusewire/gemm/gfx942/tuned_mainloops.hpp>
#endif
