// What an architecture decides about an all-reduce: all_reduce_policy_here.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/comm/sm90/all_reduce_policy.hpp>
#else
#include <fusewire/comm/gfx942/all_reduce_policy.hpp>
#endif
