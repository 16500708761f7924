// How results of Flash Decode are divided among the places of a node, and into puts to other nodes.
#pragma once
#include <cstddef>
#include <cstdint>

#include <fusewire/core/divisor.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// What a place of a node reduces for its node: some query heads of every sequence. A row is one of them: a sequence
/// and a head. Rows are cut into units, each of which is a put to every other node. A pure function of the shape; the
/// kernel gets it.
struct nodes_decode_plan {
  static constexpr int max_units = 64;       // of a place; each has a flag
  static constexpr int least_put = 4 << 10;  // bytes of a put, if the place has as many
  static constexpr int line = 32;            // words: units begin at lines of 128 bytes

  int first_head = 0;    // of the place's in a sequence
  divisor heads;         // of the place's in a sequence; 1 if it has none
  int rows = 0;          // of all sequences
  int rows_of_unit = 1;  // the last unit may have fewer
  int units = 0;         // puts to each other node
  int unit_words = 0;    // words of 4 bytes from a unit to the next

  /// own: the query heads of a place; d: elements of a head.
  static constexpr nodes_decode_plan of(index_range own, int batch, int d) {
    int const rows = batch * own.size();
    if (rows == 0) return {};
    int const wanted = ceil_div(least_put, words_of_row(d) * 4),
              each = max(ceil_div(rows, max_units), min(rows, wanted));
    return {own.begin, own.size(), rows, each, ceil_div(rows, each), ceil_div(each * words_of_row(d), line) * line};
  }

  /// Words of a row: o, m and l.
  __host__ __device__ static constexpr int words_of_row(int d) { return d + 2; }
  /// The rows of a unit.
  __host__ __device__ constexpr index_range of_unit(int unit) const { return fixed_slice(rows, rows_of_unit, unit); }
  /// Words of a node's results.
  __host__ __device__ constexpr std::int64_t words() const { return std::int64_t(units) * unit_words; }
  /// At least the words() of every plan of up to as many rows.
  static constexpr std::int64_t most_words(int rows, int d) {
    std::int64_t const each = max(ceil_div(rows, max_units), ceil_div(least_put, words_of_row(d) * 4));
    return (rows + each) * words_of_row(d) + std::int64_t(max_units) * line;
  }
};

}  // namespace fusewire
