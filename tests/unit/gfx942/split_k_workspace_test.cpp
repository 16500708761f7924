// Sums of blocks that share a small tile, as words in memory.
#include "../support.hpp"

#include <bit>
#include <cmath>

#include <fusewire/gemm/gfx942/split_k_workspace.hpp>

using namespace support;

namespace {

constexpr int splits = 6, groups = 3, of_block = groups * wave::width * 4;  // floats

/// Each block of one wave has sums for all groups. Block 0 adds them up.
__global__ void reduce(float const* sums, std::uint64_t* words, float* result) {
  block const b;
  tile_words const all{words, groups * wave::width * 2};
  float4 mine[groups];
  for (int i = 0; i < groups; ++i)
    mine[i] = reinterpret_cast<float4 const*>(sums)[(b.index() * groups + i) * wave::width + b.rank()];
  if (b.index() > 0) {
    for (int i = 0; i < groups; ++i) all.store(b.index(), i, mine[i]);
    return;
  }
  all.consume(mine, 0, 1, groups - 1, splits);  // the last group is not loaded
  for (int i = 0; i < groups; ++i) reinterpret_cast<float4*>(result)[i * wave::width + b.rank()] = mine[i];
}

}  // namespace

TEST_CASE(
    "split_k_workspace: blocks are added in order, launch after launch, and a NaN with all bits set stays a NaN") {
  on_ranks(1, [&](rank_of_test& r) {
    auto const sums = r.heap.allocate<float>(splits * of_block), result = r.heap.allocate<float>(of_block);
    auto const words = r.heap.allocate<std::uint64_t>(splits * of_block / 2);
    r.fill(words, 0xff);
    for (std::size_t launch = 0; launch < 3; ++launch) {
      // Of different size, so that their order shows
      std::vector<float> all(splits * of_block);
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = float(i * 2654435761u % 1000 + 1) * std::exp2f(float((i / of_block * 7 + i + launch) % 40));
      all[2 * of_block + 5] = std::bit_cast<float>(~0u);
      r.upload(all, sums);
      r.launch({splits, wave::width}, reduce, r.here(sums), r.here(words), r.here(result));
      auto const got = r.download(result);
      for (std::size_t i = 0; i < of_block; ++i) {
        float expected = all[i];
        if (i < of_block / groups * (groups - 1))
          for (std::size_t s = 1; s < splits; ++s) expected += all[s * of_block + i];
        bool const right = std::isnan(expected) ? std::isnan(got[i]) : got[i] == expected;
        r.found.expect(right, "launch ", launch, ", sum ", i, ": ", got[i], ", expected ", expected);
      }
    }
  });
}
