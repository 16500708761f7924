// Checks of what the epilogues of all_reduce read and store, before a launch.
#pragma once
#include <array>
#include <vector>

#include <fusewire/comm/row_epilogue.hpp>
#include <fusewire/launch/operands.hpp>

namespace fusewire {

namespace detail {

/// A matrix as an operand; empty without data.
template <class T>
operand matrix_operand_of(char const* name, matrix<T> const& x) {
  return {name, x.data, std::uint64_t(x.rows), std::uint64_t(x.cols) * sizeof(T), std::uint64_t(x.ld) * sizeof(T)};
}

/// The shapes of what an epilogue reads and stores for the rows of `in`, and that no outputs overlap, nor an output an
/// input in whose place it is not. Fails: bad_argument. Of an epilogue that is not known nothing is checked.
template <class T, class Epilogue>
void check_row_epilogue(Epilogue const&, matrix<T const> const&, std::source_location) {}
template <class T>
void check_row_epilogue(store_rows<T> const& e, matrix<T const> const& in, std::source_location where) {
  std::int64_t const count = std::int64_t(in.rows) * in.cols;
  require(e.out.data != nullptr && e.out.cols == in.cols && e.out.count == count && e.out.ld >= in.cols, where,
          "all_reduce: store_rows: out has ", e.out.count, " elements in rows of ", e.out.cols, ", ld = ", e.out.ld,
          "; expected ", count, " in rows of ", in.cols);
}
template <class T, class Quantised>
void check_row_epilogue(rms_norm<T, Quantised> const& e, matrix<T const> const& in, std::source_location where) {
  auto const shape = [&](char const* name, auto const& x) {
    require(x.data == nullptr || (x.rows == in.rows && x.cols == in.cols && x.ld >= in.cols), where,
            "all_reduce: rms_norm: ", name, " is [", x.rows, ", ", x.cols, "] with ld = ", x.ld, "; expected [",
            in.rows, ", ", in.cols, "]");
    return matrix_operand_of(name, x);
  };
  require(e.gamma != nullptr, where, "all_reduce: rms_norm: gamma is null");
  operand const read[] = {
      shape("in", in), shape("residual", e.residual), {"gamma", e.gamma, std::uint64_t(in.cols), sizeof(T), sizeof(T)}};
  std::array<operand, 3> written{shape("residual_out", e.residual_out), shape("norm_out", e.norm_out)};
  if constexpr (!std::is_same_v<Quantised, not_quantised>) {
    require(e.quantised_out.data != nullptr, where, "all_reduce: rms_norm: quantised_out is null");
    require((e.scale == nullptr) != (e.row_scales == nullptr), where,
            "all_reduce: rms_norm: expected one of scale and row_scales");
    written[2] = shape("quantised_out", e.quantised_out);
  } else {
    require(e.norm_out.data != nullptr, where, "all_reduce: rms_norm: norm_out is null");
  }
  for (operand const& w : written) {  // a row's outputs may lie where its inputs do
    std::vector<operand> others;
    for (operand const& x : read)
      if (x.data != w.data || x.pitch != w.pitch) others.push_back(x);
    for (operand const& x : written)
      if (&x != &w) others.push_back(x);
    check_operands("all_reduce: rms_norm", std::span(&w, 1), others, where);
  }
}

}  // namespace detail

}  // namespace fusewire
