// All-reduce's policy on gfx942; docs/decisions/reductions.md has the figures.
#pragma once
#include <fusewire/comm/all_reduce_limits.hpp>

namespace fusewire {

/// As projected: flags arrive sooner than LL words at every size.
inline constexpr all_reduce_policy all_reduce_policy_here{
    .one_shot_words = 0, .two_shot_words = 0, .one_shot_flags = 4 << 20, .target_chunks = 1024};

}  // namespace fusewire
