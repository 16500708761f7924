// All-reduce's policy on Hopper; docs/decisions/reductions.md has the figures.
#pragma once
#include <fusewire/comm/all_reduce_limits.hpp>

namespace fusewire {

/// Two ranks as measured on two H200s; more ranks as others publish of H100s.
inline constexpr all_reduce_policy all_reduce_policy_here{
    .one_shot_words = 160 << 10, .two_shot_words = 1 << 20, .one_shot_flags = 64 << 10, .target_chunks = 1024};

}  // namespace fusewire
