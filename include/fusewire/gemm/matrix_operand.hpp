// What operators ask of the matrices that they are passed.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/launch/operands.hpp>

namespace fusewire {

namespace detail {

inline constexpr int max_extent = 1 << 30;  // of any extent of an operator's: sums of two fit an int

/// Matrix `what` of a call of `name`. `extent`: elements from the start of a line, of which ld is the pitch, to its
/// end. `multiple`: of ld, 8 or 1; with 8, lines are read in whole 16 bytes. Fails: bad_argument, beginning with
/// `name`.
template <class T>
void check_matrix(char const* name, char const* what, T const* data, std::int64_t ld, int extent, int multiple,
                  std::source_location where) {
  constexpr std::int64_t max_ld = std::int64_t(1) << 31;  // bytes of a matrix fit 64 bits
  require(data != nullptr, where, name, ": ", what, ".data is null");
  require(reinterpret_cast<std::uintptr_t>(data) % (multiple == 8 ? 16 : sizeof(T)) == 0, where, name, ": ", what,
          ".data = ", static_cast<void const*>(data), "; expected an address that is a multiple of ",
          multiple == 8 ? 16 : sizeof(T));
  require(ld >= extent && ld <= max_ld && ld % multiple == 0, where, name, ": ", what, ".ld = ", ld, "; expected ",
          extent, " to ", max_ld, multiple == 8 ? " and a multiple of 8" : "");
}

/// b [k, n] of a call: its shape, and where it lies. Fails: bad_argument, beginning with `name`.
template <class T>
void check_b(char const* name, matrix<T> const& b, layout order, int k, int n, std::source_location where) {
  require(b.rows == k && b.cols == n, where, name, ": b is [", b.rows, ", ", b.cols, "]; expected [", k, ", ", n, "]");
  require(order == layout::row_major || order == layout::column_major, where, name, ": b_layout = ", int(order),
          "; expected a value of fusewire::layout");
  if (order == layout::column_major) check_matrix(name, "b (column-major)", b.data, b.ld, k, 8, where);
  else check_matrix(name, "b (row-major)", b.data, b.ld, n, 1, where);
}

/// What a matrix [rows, cols] covers, in lines as its layout says.
template <class T>
operand operand_of(char const* name, matrix<T> m, layout order = layout::row_major) {
  bool const by_column = order == layout::column_major;
  return {name, m.data, std::uint64_t(by_column ? m.cols : m.rows),
          sizeof(T) * std::uint64_t(by_column ? m.rows : m.cols), sizeof(T) * std::uint64_t(m.ld)};
}

/// a [.., k], b [k, n] and c of a call: where they lie, and that c overlaps neither. Fails: bad_argument, beginning
/// with `name`.
template <class Call>
void check_gemm(char const* name, Call const& call, int k, int n, std::source_location where) {
  check_b(name, call.b, call.b_layout, k, n, where);
  if (call.a.rows > 0) check_matrix(name, "a", call.a.data, call.a.ld, call.a.cols, 8, where);
  if (call.c.rows > 0) check_matrix(name, "c", call.c.data, call.c.ld, call.c.cols, 1, where);
  operand const read[] = {operand_of("a", call.a), operand_of("b", call.b, call.b_layout)},
                written[] = {operand_of("c", call.c)};
  check_operands(name, written, read, where);
}

}  // namespace detail

}  // namespace fusewire
