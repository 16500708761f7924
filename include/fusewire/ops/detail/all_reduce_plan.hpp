// Which algorithm and which transport an all-reduce takes, and how its rows are cut into chunks.
#pragma once
#include <fusewire/ops/detail/row_plan.hpp>
#include <fusewire/ops/reduce_algorithm.hpp>

namespace fusewire {

/// The plan of a call. A pure function of its shape.
struct all_reduce_plan : row_plan {
  bool two_shot = false;  // else one-shot
  int cols = 0;           // elements of a row

  /// Rows of a array of `count` elements. Requires: count > 0.
  template <class T>
  static all_reduce_plan of_array(std::int64_t count, int ranks, reduce_algorithm shots, row_transport transport) {
    std::int64_t const bytes = count * std::int64_t(sizeof(T));
    all_reduce_plan p = chosen(std::size_t(bytes), ranks, shots, transport);
    p.cut_array(bytes);
    p.cols = p.row_bytes() / int(sizeof(T));
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

  /// The roles if `fit` blocks are resident. Reducing moves about three times the bytes of sending or taking.
  roles roles_of(int fit) const { return row_plan::roles_of(fit, two_shot ? 5 : 4, two_shot); }

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
                     ? ranks > 2 && (p.words ? sent > policy.one_shot_words : bytes > policy.one_shot_flags)
                     : shots == reduce_algorithm::two_shot;
    return p;
  }
  /// Sections of whole chunks, so that each owner has as many rows.
  template <class T>
  all_reduce_plan cut(int ranks) const {
    all_reduce_plan p = *this;
    p.cut_section(two_shot ? ceil_div(rows, ranks) : rows, ceil_div(cols, per_16_bytes<T>) * std::int64_t(16));
    p.sections.rows = p.sections.chunks * p.rows_per_chunk;
    return p;
  }
};

}  // namespace fusewire
