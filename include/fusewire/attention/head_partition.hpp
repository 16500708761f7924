// Which rank owns a query head, where each rank gets the results of its own heads only.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// The query heads of a sequence in contiguous ranges, one for each rank: as even_slice() divides them. A rank has no
/// head if there are fewer heads than ranks.
class head_partition {
 public:
  /// heads: query heads. Requires: heads, ranks >= 1.
  constexpr head_partition(int heads, int ranks)
      : heads_(heads), ranks_(ranks), larger_(heads % ranks), of_larger_(heads / ranks + 1),
        of_others_(heads < ranks ? 1 : heads / ranks) {}

  /// The heads of a rank.
  __host__ __device__ constexpr index_range of(int rank) const { return even_slice(heads_, ranks_, rank); }
  /// The rank that owns a head. Requires: 0 <= head < heads.
  __host__ __device__ constexpr int owner(int head) const {
    int const behind = head - larger_ * of_larger_.value();
    return behind < 0 ? head / of_larger_ : larger_ + behind / of_others_;
  }

 private:
  int heads_, ranks_, larger_;     // larger_: ranks that have one head more than the others
  divisor of_larger_, of_others_;  // heads of a rank
};

}  // namespace fusewire
