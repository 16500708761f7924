// cuBLASLt and NCCL behind the names that the benchmarks use. Mirrors vendor_amd.hpp line by line.
#pragma once
#include <cublasLt.h>
#include <nccl.h>

namespace fusewire::bench::vendor {

inline constexpr char const *blas_name = "cuBLASLt", *collectives_name = "NCCL", *no_multicast = "NCCL_NVLS_ENABLE";

using blas_handle = cublasLtHandle_t;
using blas_operation = cublasLtMatmulDesc_t;
using blas_layout = cublasLtMatrixLayout_t;
using blas_preference = cublasLtMatmulPreference_t;
using blas_choice = cublasLtMatmulHeuristicResult_t;
using blas_type = cudaDataType_t;
inline constexpr auto blas_success = CUBLAS_STATUS_SUCCESS;
inline constexpr auto blas_f32 = CUDA_R_32F, blas_bf16 = CUDA_R_16BF, blas_f16 = CUDA_R_16F;
inline constexpr auto blas_compute_f32 = CUBLAS_COMPUTE_32F;
inline constexpr auto blas_transposed = CUBLAS_OP_T;
inline constexpr auto blas_transpose_a = CUBLASLT_MATMUL_DESC_TRANSA;
inline constexpr auto blas_max_workspace = CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
inline constexpr auto* blas_create = &cublasLtCreate;
inline constexpr auto* blas_destroy = &cublasLtDestroy;
inline constexpr auto* blas_operation_create = &cublasLtMatmulDescCreate;
inline constexpr auto* blas_operation_destroy = &cublasLtMatmulDescDestroy;
inline constexpr auto* blas_operation_set = &cublasLtMatmulDescSetAttribute;
inline constexpr auto* blas_layout_create = &cublasLtMatrixLayoutCreate;
inline constexpr auto* blas_layout_destroy = &cublasLtMatrixLayoutDestroy;
inline constexpr auto* blas_preference_create = &cublasLtMatmulPreferenceCreate;
inline constexpr auto* blas_preference_destroy = &cublasLtMatmulPreferenceDestroy;
inline constexpr auto* blas_preference_set = &cublasLtMatmulPreferenceSetAttribute;
inline constexpr auto* blas_heuristics = &cublasLtMatmulAlgoGetHeuristic;
inline constexpr auto* blas_matmul = &cublasLtMatmul;
/// cuBLASLt has no list of all algorithms of a product.
template <class Add>
void other_choices(blas_handle, blas_operation, bool, blas_type, blas_layout, blas_layout, blas_layout, float,
                   std::size_t, Add) {}
inline int blas_version() { return int(cublasLtGetVersion()); }

}  // namespace fusewire::bench::vendor
