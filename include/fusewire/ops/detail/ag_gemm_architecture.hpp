// What of AG+GEMM differs per architecture: the plan, and on gfx942 a sender whose groups of waves alternate.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/ops/detail/ag_gemm_plan_sm90.hpp>
#else
#include <fusewire/comm/all_gather/gfx942/pusher.hpp>
#include <fusewire/ops/detail/ag_gemm_plan_gfx942.hpp>
#endif
