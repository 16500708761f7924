// Up to how many bytes an all-reduce takes which way.
#pragma once
#include <cstddef>

namespace fusewire {

/// Bytes. `sent`: what a rank sends in all with one shot, W - 1 times the array.
struct all_reduce_policy {
  std::size_t one_shot_words;  // of `sent`: one shot by LL words up to here
  std::size_t two_shot_words;  // of the array: two shots by LL words up to here; for more than two ranks
  std::size_t one_shot_flags;  // of `sent`: one shot by flags up to here; two ranks take it at every size
  int target_chunks;           // chunks of a section that keep all links and blocks busy
};

}  // namespace fusewire
