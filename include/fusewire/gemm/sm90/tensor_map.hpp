// Host side of TMA: makes the tensor maps that a kernel takes as `__grid_constant__ CUtensorMap const`.
#pragma once
#include <cuda.h>

#include <cstdint>

#include <fusewire/core/matrix.hpp>
#include <fusewire/ranks/error.hpp>
#include <fusewire/arch/sm90/tma.hpp>

namespace fusewire {

/// Matrices of one shape, one behind the other.
struct matrix_groups {
  int count = 0;            // 0: one matrix, and a map without groups
  std::int64_t stride = 0;  // elements from one to the next
};

/// A map of boxes of box_rows x 64 elements (128 bytes, swizzled by 128 bytes) of a row-major matrix, or of each of
/// `groups` of them. The part of a box beyond its matrix is zero.
/// Requires: is_row_aligned<16>(x), box_rows <= 256.
/// Fails: runtime_failure without a driver that has TMA; bad_argument when it refuses the map.
template <class T>
  requires is_16_bit_float<T>
CUtensorMap make_tensor_map(matrix<T const> x, int box_rows, matrix_groups groups = {},
                            std::source_location where = std::source_location::current()) {
  static auto const encode = [&] {  // looked up once: every launch makes maps
    decltype(&cuTensorMapEncodeTiled) f = nullptr;
    check_hip(platform::detail::encode_tiled.find(f), "cuTensorMapEncodeTiled", where);
    return f;
  }();
  CUtensorMap map;
  cuuint64_t const extent[3] = {cuuint64_t(x.cols), cuuint64_t(x.rows), cuuint64_t(groups.count)},
                   pitch[2] = {cuuint64_t(x.ld) * sizeof(T),  // bytes; of one group any
                               cuuint64_t(groups.count > 1 ? groups.stride : x.ld) * sizeof(T)};
  cuuint32_t const box[3] = {64, cuuint32_t(box_rows), 1}, step[3] = {1, 1, 1};
  CUresult const r =
      encode(&map, std::is_same_v<T, bf16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             groups.count > 0 ? 3 : 2, const_cast<T*>(x.data), extent, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(r == CUDA_SUCCESS, where, "tensor map: [", x.rows, ", ", x.cols, "], ld ", x.ld, " at ",
          static_cast<void const*>(x.data), ", boxes of ", box_rows, " rows, is refused (", int(r),
          "); expected an address and a pitch that are multiples of 16 bytes and at most 256 rows");
  return map;
}

/// Maps for tiles of `rows` rows of x, of which the last tile has `last` rows. As make_tensor_map().
template <class T>
box_maps make_box_maps(matrix<T const> x, int rows, int last, matrix_groups groups = {},
                       std::source_location where = std::source_location::current()) {
  CUtensorMap const whole = make_tensor_map(x, rows, groups, where);
  return {whole, last == rows ? whole : make_tensor_map(x, last, groups, where)};
}

}  // namespace fusewire
