// What operators ask of the matrices that they are passed.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/runtime/operands.hpp>

namespace fusewire {

/// Tiles that are instantiated everywhere. small: few rows, many blocks. automatic: the tuned kernels of the architecture where there are any.
enum class gemm_tile { automatic, small, large };

namespace detail {

/// `extent`: elements from the start of a line, of which ld is the pitch, to its end. `multiple`: of ld, 8 or 1; with 8, lines are read in whole 16 bytes.
/// Fails: bad_argument, beginning with `name`.
template <class T>
void check_matrix(char const* name, T const* data, std::int64_t ld, int extent, int multiple, std::source_location where) {
  constexpr std::int64_t most_ld = std::int64_t(1) << 31;  // bytes of a matrix fit 64 bits
  require(data != nullptr, where, name, ".data is null");
  require(reinterpret_cast<std::uintptr_t>(data) % (multiple == 8 ? 16 : sizeof(T)) == 0, where, name, ".data = ", static_cast<void const*>(data), "; an address that is a multiple of ",
          multiple == 8 ? 16 : sizeof(T), " is accepted");
  require(ld >= extent && ld <= most_ld && ld % multiple == 0, where, name, ".ld = ", ld, "; ", extent, " to ", most_ld, multiple == 8 ? " and a multiple of 8" : "", " is accepted");
}

/// What a matrix [rows, cols] covers, in lines as its layout says.
template <class T>
operand operand_of(char const* name, matrix<T> m, layout order = layout::row_major) {
  bool const by_column = order == layout::column_major;
  return {name, m.data, std::uint64_t(by_column ? m.cols : m.rows), sizeof(T) * std::uint64_t(by_column ? m.rows : m.cols), sizeof(T) * std::uint64_t(m.ld)};
}

}  // namespace detail

}  // namespace fusewire
