// Up to how many bytes an all-reduce takes which way. docs/decisions/reductions.md has the figures.
#pragma once
#include <cstddef>

#include <fusewire/arch/architecture.hpp>

namespace fusewire {

/// Bytes. `sent`: what a rank sends in all with one shot, W - 1 times the array.
struct all_reduce_policy {
  std::size_t one_shot_words;  // of `sent`: one shot by LL words up to here
  std::size_t two_shot_words;  // of the array: two shots by LL words up to here; for more than two ranks
  std::size_t one_shot_flags;  // of the array: one shot by flags up to here; two ranks take it at every size

  /// sm90: two ranks as measured on two H200s, more ranks as others publish of H100s. gfx942: as projected, where flags
  /// arrive sooner than LL words at every size.
  static constexpr all_reduce_policy of(architecture a) {
    return a == architecture::sm90 ? all_reduce_policy{1 << 20, 1 << 20, 16 << 10} : all_reduce_policy{0, 0, 512 << 10};
  }
};

}  // namespace fusewire
