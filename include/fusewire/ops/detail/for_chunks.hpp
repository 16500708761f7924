// How the blocks of a launch divide chunks.
#pragma once
#include <fusewire/core/group.hpp>

namespace fusewire::detail {

/// Calls visit(chunk) for the chunks of this block, if `blocks` blocks from number `first` on divide them; with 0 all
/// from there on do.
template <class Visit>
__device__ __forceinline__ void for_chunks(block b, int first, int blocks, int chunks, Visit const& visit) {
  if (blocks == 0) blocks = b.count() - first;
  int const i = b.index() - first;
  if (i < 0 || i >= blocks) return;
#pragma unroll 1
  for (int chunk = i; chunk < chunks; chunk += blocks) visit(chunk);
}

}  // namespace fusewire::detail
