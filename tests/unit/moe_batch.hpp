// What the ranks of a layer of experts have in a test: everybody can say all of it.
#pragma once
#include <fusewire/ops/moe_routing.hpp>

#include <algorithm>
#include <vector>

#include "support.hpp"

namespace support {

enum class spread { even, skewed, one_expert, some_none, all_none, twice };

/// What the ranks of a call have.
struct batch {
  moe_options o;
  int ranks;
  std::vector<int> tokens;  // of each rank
  spread how = spread::even;
  unsigned seed = 1;
  bool weighted = true;

  int per_rank() const { return o.experts / ranks; }
  std::size_t entries(int rank) const { return std::size_t(tokens[std::size_t(rank)]) * std::size_t(o.top_k); }

  std::vector<int> table(int rank) const {
    std::vector<int> x;
    lcg random{seed * 7919u + unsigned(rank) * 104729u};
    for (int t = 0; t < tokens[std::size_t(rank)]; ++t) {
      std::vector<int> chosen;
      while (int(chosen.size()) < o.top_k) {
        int e = random.below(o.experts);
        if (how == spread::skewed && random.below(2)) e = std::min(e, 1);
        if (how == spread::one_expert) e = o.experts - 1;
        bool const none = how == spread::all_none || (how == spread::some_none && random.below(3) == 0) ||
                          (how != spread::twice && std::ranges::find(chosen, e) != chosen.end());
        chosen.push_back(none ? -1 : e);
      }
      x.insert(x.end(), chosen.begin(), chosen.end());
    }
    return x;
  }
  float weight(int rank, std::size_t entry) const {
    return weighted ? float((unsigned(entry) * 5u + unsigned(rank) + seed) % 4u) / 2 : 1;
  }
  /// Element c of a token's row: its source, itself and its column in small integers.
  static float element(int rank, int t, int c) { return float((rank * 37 + t * 11 + c) % 251) - 125; }
  /// Element c of what an expert makes of a token.
  float result(int expert, int rank, int t, int c) const {
    return float((unsigned(expert) * 3u + unsigned(rank) * 7u + unsigned(t) * 5u + unsigned(c) + seed) % 5u) - 2;
  }
};

/// Numbers of tokens of all ranks: one has none, one has all there is room for.
inline std::vector<int> uneven(int ranks, int max_tokens, unsigned seed) {
  std::vector<int> n;
  lcg random{seed};
  for (int r = 0; r < ranks; ++r) n.push_back(random.below(max_tokens + 1));
  n[seed % unsigned(ranks)] = max_tokens;
  if (ranks > 1) n[(seed + 1) % unsigned(ranks)] = 0;
  return n;
}

}  // namespace support
