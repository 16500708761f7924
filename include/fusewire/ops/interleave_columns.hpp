// interleave_columns: the weights of a gate and of what it gates, as one B for a pair epilogue.
#pragma once
#include <algorithm>
#include <array>

#include <fusewire/gemm/matrix_operand.hpp>
#include <fusewire/launch/launch.hpp>
#include <fusewire/ops/detail/interleave_columns_kernel.hpp>

namespace fusewire {

/// Columns 2 j and 2 j + 1 of `to` [K, 2 N] become column j of `even` [K, N] and of `odd` [K, N]; all three lie as
/// `order` says. For swiglu and geglu `even` is the gate. A model does it once, when it loads its weights.
/// Fails: bad_argument; as launch().
template <class T>
void interleave_columns(world const& w, hipStream_t stream, matrix<T const> even, matrix<T const> odd, matrix<T> to,
                        layout order, std::source_location where = std::source_location::current()) {
  constexpr char const* name = "interleave_columns";
  constexpr int most = detail::max_extent / 2;
  int const k = even.rows, n = even.cols, threads = detail::interleave_columns_threads;
  require(order == layout::row_major || order == layout::column_major, where, name, ": order = ", int(order),
          "; expected a value of fusewire::layout");
  require(k >= 1 && n >= 1 && k <= most && n <= most, where, name, ": even is [", k, ", ", n, "]; expected 1 to ", most,
          " of each");
  require(odd.rows == k && odd.cols == n, where, name, ": odd is [", odd.rows, ", ", odd.cols, "]; expected [", k, ", ",
          n, "]");
  require(to.rows == k && to.cols == 2 * n, where, name, ": to is [", to.rows, ", ", to.cols, "]; expected [", k, ", ",
          2 * n, "]");
  bool const by_row = order == layout::row_major;
  detail::check_matrix(name, "even", even.data, even.ld, by_row ? n : k, 1, where);
  detail::check_matrix(name, "odd", odd.data, odd.ld, by_row ? n : k, 1, where);
  detail::check_matrix(name, "to", to.data, to.ld, by_row ? 2 * n : k, 1, where);
  detail::operand const read[] = {detail::operand_of("even", even, order), detail::operand_of("odd", odd, order)},
                        written[] = {detail::operand_of("to", to, order)};
  detail::check_operands(name, written, read, where);
  auto const kernel = &detail::interleave_columns_kernel<T>;
  std::int64_t const wanted = (std::int64_t(k) * n + threads - 1) / threads;
  int const fit = resident_blocks(w, kernel, threads, 0, 0, where);
  launch(w, stream, {.blocks = int(std::min<std::int64_t>(fit, wanted)), .threads = threads, .where = where}, kernel,
         even, odd, to, order);
}

}  // namespace fusewire
