// hipBLASLt and RCCL behind the names that the benchmarks use. Mirrors vendor_nvidia.hpp line by line. The version is
// that of the headers, in the format of hipblasLtGetVersion, which is not called because it needs a handle.
#pragma once
#include <hipblaslt/hipblaslt-ext.hpp>
#include <hipblaslt/hipblaslt.h>
#include <rccl/rccl.h>

#include <vector>

namespace fusewire::bench::vendor {

inline constexpr char const *blas_name = "hipBLASLt", *collectives_name = "RCCL", *no_multicast = "NCCL_NVLS_ENABLE";

using blas_handle = hipblasLtHandle_t;
using blas_operation = hipblasLtMatmulDesc_t;
using blas_layout = hipblasLtMatrixLayout_t;
using blas_preference = hipblasLtMatmulPreference_t;
using blas_choice = hipblasLtMatmulHeuristicResult_t;
using blas_type = hipDataType;
inline constexpr auto blas_success = HIPBLAS_STATUS_SUCCESS;
inline constexpr auto blas_f32 = HIP_R_32F, blas_bf16 = HIP_R_16BF, blas_f16 = HIP_R_16F;
inline constexpr auto blas_compute_f32 = HIPBLAS_COMPUTE_32F;
inline constexpr auto blas_transposed = HIPBLAS_OP_T;
inline constexpr auto blas_transpose_a = HIPBLASLT_MATMUL_DESC_TRANSA;
inline constexpr auto blas_max_workspace = HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
inline constexpr auto* blas_create = &hipblasLtCreate;
inline constexpr auto* blas_destroy = &hipblasLtDestroy;
inline constexpr auto* blas_operation_create = &hipblasLtMatmulDescCreate;
inline constexpr auto* blas_operation_destroy = &hipblasLtMatmulDescDestroy;
inline constexpr auto* blas_operation_set = &hipblasLtMatmulDescSetAttribute;
inline constexpr auto* blas_layout_create = &hipblasLtMatrixLayoutCreate;
inline constexpr auto* blas_layout_destroy = &hipblasLtMatrixLayoutDestroy;
inline constexpr auto* blas_preference_create = &hipblasLtMatmulPreferenceCreate;
inline constexpr auto* blas_preference_destroy = &hipblasLtMatmulPreferenceDestroy;
inline constexpr auto* blas_preference_set = &hipblasLtMatmulPreferenceSetAttribute;
inline constexpr auto* blas_heuristics = &hipblasLtMatmulAlgoGetHeuristic;
inline constexpr auto* blas_matmul = &hipblasLtMatmul;
/// Calls add(choice) with every algorithm of the library that can run the product; the heuristics know some of them.
template <class Add>
void other_choices(blas_handle handle, blas_operation operation, bool transposed, blas_type type, blas_layout b,
                   blas_layout a, blas_layout c, float beta, std::size_t workspace, Add add) {
  std::vector<blas_choice> all;
  auto const first = transposed ? HIPBLAS_OP_T : HIPBLAS_OP_N;
  if (hipblaslt_ext::getAllAlgos(handle, hipblaslt_ext::GemmType::HIPBLASLT_GEMM, first, HIPBLAS_OP_N, type, type, type,
                                 type, blas_compute_f32, all) != blas_success)
    return;
  float const alpha = 1;
  for (blas_choice& choice : all) {
    std::size_t needed = 0;
    if (hipblaslt_ext::matmulIsAlgoSupported(handle, operation, &alpha, b, a, &beta, c, c, choice.algo, needed) ==
            blas_success &&
        needed <= workspace)
      add(choice);
  }
}
inline int blas_version() {
  return HIPBLASLT_VERSION_MAJOR * 100000 + HIPBLASLT_VERSION_MINOR * 100 + HIPBLASLT_VERSION_PATCH;
}

}  // namespace fusewire::bench::vendor
