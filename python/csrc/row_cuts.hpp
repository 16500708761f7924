// A call of more rows than one launch takes, cut into launches.
#pragma once
#include <algorithm>
#include <string>

#include <fusewire/core/math.hpp>
#include <fusewire/ranks/error.hpp>

#include "communicator.hpp"

namespace fusewire::binding {

inline constexpr std::int64_t element_bytes = 2;

inline matrix_of_torch rows_of(matrix_of_torch const& m, std::int64_t first, std::int64_t rows) {
  return {static_cast<std::byte*>(m.data) + first * m.ld * element_bytes, rows, m.cols, m.ld};
}
inline void copy_rows(void* stream, matrix_of_torch const& from, matrix_of_torch const& to) {
  check_hip(hipMemcpy2DAsync(to.data, std::size_t(to.ld * element_bytes), from.data,
                             std::size_t(from.ld * element_bytes), std::size_t(from.cols * element_bytes),
                             std::size_t(from.rows), hipMemcpyDeviceToDevice, static_cast<hipStream_t>(stream)),
            "hipMemcpy2DAsync");
}

/// A call of more than max_m rows as several launches. A launch of ag_gemm and gemm_rs takes the same rows of every
/// rank's part, which are not side by side in y and in x: they go through the scratch memory.
class row_cuts {
 public:
  /// Fails: bad_argument when x and y do not fit to each other, or max_m is too small to cut.
  row_cuts(product_kind kind, product_call const& c, int ranks, int max_m)
      : c_(c), ranks_(ranks), gathers_(kind == product_kind::ag_gemm), scatters_(kind == product_kind::gemm_rs),
        part_(gathers_ ? c.x.rows : c.y.rows), most_(gathers_ || scatters_ ? max_m / ranks : max_m) {
    if (!are_several()) return;
    std::int64_t const x = scatters_ ? part_ * ranks : part_, y = gathers_ ? part_ * ranks : part_;
    require(c.x.rows == x && c.y.rows == y, std::source_location::current(), "a call of ", c.x.rows, " rows in and ",
            c.y.rows, " rows out; expected ", x, " and ", y);
    require(most_ > 0, std::source_location::current(), "max_m = ", max_m, "; expected at least ", ranks,
            ", a row of each rank");
  }

  /// Whether one launch is too few.
  bool are_several() const { return part_ > most_; }
  std::size_t scratch_bytes() const {
    if (!are_several()) return 0;
    return std::size_t(gathers_    ? most_ * ranks_ * c_.y.cols
                       : scatters_ ? most_ * ranks_ * c_.x.cols
                                   : 0) *
           element_bytes;
  }
  /// Launches, in words.
  std::string count() const { return text(ceil_div(part_, most_), " launches, the first: "); }
  /// The first launch's call.
  product_call first() const { return are_several() ? call_of(0) : c_; }

  /// Calls `launch` with each launch's call, in order.
  template <class Launch>
  void run(Launch const& launch) const {
    if (!are_several()) return launch(c_);
    require(c_.scratch != nullptr || scratch_bytes() == 0, std::source_location::current(),
            "no scratch memory; expected ", scratch_bytes(), " bytes");
    for (std::int64_t at = 0; at < part_; at += most_) {
      product_call const c = call_of(at);
      std::int64_t const n = rows_at(at);
      for (int r = 0; scatters_ && r < ranks_; ++r)
        copy_rows(c.stream, rows_of(c_.x, r * part_ + at, n), rows_of(c.x, r * n, n));
      launch(c);
      for (int r = 0; gathers_ && r < ranks_; ++r)
        copy_rows(c.stream, rows_of(c.y, r * n, n), rows_of(c_.y, r * part_ + at, n));
    }
  }

 private:
  std::int64_t rows_at(std::int64_t at) const { return std::min(most_, part_ - at); }
  product_call call_of(std::int64_t at) const {
    std::int64_t const n = rows_at(at);
    product_call c = c_;
    c.x = scatters_ ? matrix_of_torch{c_.scratch, n * ranks_, c_.x.cols, c_.x.cols} : rows_of(c_.x, at, n);
    c.y = gathers_ ? matrix_of_torch{c_.scratch, n * ranks_, c_.y.cols, c_.y.cols} : rows_of(c_.y, at, n);
    if (c.gathered.data) c.gathered = rows_of(c_.gathered, at, (ranks_ - 1) * part_ + n);
    return c;
  }

  product_call const& c_;
  int ranks_;
  bool gathers_, scatters_;
  std::int64_t part_, most_;  // rows of a rank's part, or of all; how many of them a launch takes
};

}  // namespace fusewire::binding
