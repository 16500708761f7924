// What tests of Flash Decode attend to, and a reference in fp64. It stands in its own file, which is compiled with
// optimisation whatever the tests are.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

namespace support {

/// What is in q, K and V, and how many tokens each rank has of each sequence.
struct decode_problem {
  int batch;
  std::function<int(int rank, int sequence)> length;
  enum { random, equal_keys, one_dominant, large, ties } keys = random;
  unsigned seed = 1;
  int least = 0;  // ties: V is least to 2 x least - 1, of every second token one more

  std::function<int(int rank, int sequence)> window_begin = {};  // tokens of a rank that are left out; none if empty

  /// Tokens that are left out, at most all.
  int first(int rank, int s) const { return window_begin ? std::clamp(window_begin(rank, s), 0, length(rank, s)) : 0; }
  /// Whether sums and results are exact.
  bool exact() const { return keys == equal_keys || keys == ties; }

  static int eighths(unsigned a, unsigned b, unsigned c, unsigned d, unsigned range) {  // -range to range
    unsigned h = (a * 2654435761u) ^ (b * 2246822519u) ^ (c * 3266489917u) ^ (d * 668265263u);
    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    return int(h % (2 * range + 1)) - int(range);
  }
  float q(int s, int head, int j) const {
    if (keys == one_dominant) return j == 0 ? 8.0f : 0.0f;
    return float(eighths(seed, unsigned(s), unsigned(head), unsigned(j), 8)) / (keys == large ? 1 : 8);
  }
  float k(int r, int s, int t, int head, int j) const {
    if (exact()) return float(eighths(seed, 77, unsigned(head), unsigned(j), 8)) / 8;
    if (keys == one_dominant && j == 0) return t == length(r, s) / 2 && r == 0 ? 16 : -16;
    return float(eighths(seed + 1, unsigned(r * 64 + s), unsigned(t * 32 + head), unsigned(j), 8)) /
           (keys == large ? 1 : 8);
  }
  float v(int r, int s, int t, int head, int j) const {
    if (keys == ties)
      return float(least + (eighths(seed, 5, unsigned(head), unsigned(j), 4096) + 4096) % least + t % 2);
    float const x = float(eighths(seed + 2, unsigned(r * 64 + s), unsigned(t * 32 + head), unsigned(j), 8));
    return keys == equal_keys ? x : x / 8;
  }
};

/// The result of one head of a sequence.
struct attended {
  double m, l;        // the greatest score, and the sum of all weights relative to it
  double most, vmax;  // the greatest magnitudes: of a score, and of an element of V that counts
  double tokens;
  std::vector<double> o;  // the weighted sum of V, not divided by l
};

/// `group`: heads of q for each head of K and V; `scale`: of a score; `cap`: soft cap of a score, 0: none.
attended attend(decode_problem const& p, int ranks, int sequence, int head, int group, int d, double scale, double cap);

}  // namespace support
