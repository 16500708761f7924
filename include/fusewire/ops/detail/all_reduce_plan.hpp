// Which algorithm and which transport an all-reduce takes, and how its rows are cut into chunks.
#pragma once
#include <algorithm>
#include <cstddef>

#include <fusewire/comm/all_reduce_policy.hpp>
#include <fusewire/comm/row_exchange.hpp>
#include <fusewire/ops/reduce_algorithm.hpp>

namespace fusewire {

/// How rows travel: as LL words, or as whole vectors with flags; see row_exchange.hpp.
enum class row_transport { automatic, ll_words, flags };

/// The plan of a call. A pure function of its shape.
struct all_reduce_plan {
  static constexpr int whole_waves = 64;      // threads of a block are whole waves of any architecture
  static constexpr int max_threads = 1024;    // of a block
  static constexpr int max_vectors = 2;       // of a thread, in one row
  static constexpr int array_threads = 256;   // of a block of an array
  static constexpr int min_chunk = 8 << 10;   // bytes that a flag publishes, if rows are small
  static constexpr int max_chunk = 64 << 10;  // likewise
  static constexpr int max_chunks = 2048;     // of a section
  static constexpr int target_chunks = 1024;  // of a section, if rows are small: all blocks have some

  bool words = false;           // LL words, else flags
  bool two_shot = false;        // else one-shot
  int threads = array_threads;  // of a block
  int vectors = 1;              // of a thread, in one row, at most
  int rows = 0, cols = 0;       // cols elements each
  int rows_per_chunk = 1;       // what one flag publishes
  row_sections sections;        // what the kernels get of it

  /// Rows of a array of `count` elements. Requires: count > 0.
  template <class T>
  static all_reduce_plan of_array(std::int64_t count, int ranks, reduce_algorithm shots, row_transport transport) {
    all_reduce_plan p = chosen(std::size_t(count) * sizeof(T), ranks, shots, transport);
    p.vectors = p.words ? 1 : max_vectors;
    p.cols = p.threads * p.vectors * per_16_bytes<T>;
    p.rows = int((count + p.cols - 1) / p.cols);
    return p.cut<T>(ranks);
  }
  /// Rows that an epilogue sees. Requires: rows, cols > 0; cols <= max_cols<T>.
  template <class T>
  static all_reduce_plan of_rows(int rows, int cols, int ranks, reduce_algorithm shots, row_transport transport) {
    int const row = ceil_div(cols, per_16_bytes<T>);
    all_reduce_plan p = chosen(std::size_t(rows) * std::size_t(row) * 16, ranks, shots, transport);
    p.vectors = row <= max_threads ? 1 : max_vectors;
    p.threads = int(round_up(std::size_t(ceil_div(row, p.vectors)), whole_waves));
    p.rows = rows, p.cols = cols;
    return p.cut<T>(ranks);
  }
  /// Columns of the longest row that a block holds.
  template <class T>
  static constexpr int max_cols = max_threads * max_vectors * per_16_bytes<T>;

  /// What the blocks of a launch do; no senders: each of them does all.
  struct roles {
    int blocks;    // of the grid
    int senders;   // blocks that send
    int reducers;  // blocks that reduce
    int takers;    // blocks that take, with two shots
  };
  /// The roles if `fit` blocks are resident. With flags a chunk has a block for each, if they fit. Reducing moves about
  /// three times the bytes of sending or taking.
  roles roles_of(int fit) const {
    int const kinds = two_shot ? 3 : 2;
    if (words || fit < kinds) return {std::min(fit, sections.chunks), 0, 0, 0};
    int const each = std::min(sections.chunks, std::max(1, fit / (two_shot ? 5 : 4)));
    int const reducers = std::min(sections.chunks, fit - (kinds - 1) * each);
    return {(kinds - 1) * each + reducers, each, reducers, two_shot ? each : 0};
  }

 private:
  static all_reduce_plan chosen(std::size_t bytes, int ranks, reduce_algorithm shots, row_transport transport) {
    constexpr all_reduce_policy policy = all_reduce_policy::of(compiled_for);
    std::size_t const sent = bytes * std::size_t(std::max(1, ranks - 1));
    bool const one_fits = sent <= policy.one_shot_words, two_fits = bytes <= policy.two_shot_words,
               fits = shots == reduce_algorithm::one_shot   ? one_fits
                      : shots == reduce_algorithm::two_shot ? two_fits
                                                            : one_fits || (ranks > 2 && two_fits);
    all_reduce_plan p;
    p.words = transport == row_transport::ll_words || (transport == row_transport::automatic && fits);
    p.two_shot = shots == reduce_algorithm::automatic
                     ? ranks > 2 && sent > (p.words ? policy.one_shot_words : policy.one_shot_flags)
                     : shots == reduce_algorithm::two_shot;
    return p;
  }
  template <class T>
  all_reduce_plan cut(int ranks) const {
    all_reduce_plan p = *this;
    int const section = two_shot ? ceil_div(rows, ranks) : rows;
    p.sections.vectors = ceil_div(cols, per_16_bytes<T>);
    if (!words) {
      std::int64_t const row = p.sections.vectors * 16,
                         bytes = std::clamp<std::int64_t>(section * row / target_chunks, min_chunk, max_chunk);
      p.rows_per_chunk = std::max({1, int(bytes / row), ceil_div(section, max_chunks)});
    }
    p.sections.chunks = ceil_div(section, p.rows_per_chunk);
    p.sections.rows = p.sections.chunks * p.rows_per_chunk;
    return p;
  }
};

}  // namespace fusewire
