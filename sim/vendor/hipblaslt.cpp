// A stand-in for libhipblaslt.so.1, as rccl.cpp is one for RCCL: hipBLASLt's kernels are files that it looks for where
// ROCm is installed.
#define FAILS(name) \
  extern "C" int name() { return 7; }  // HIPBLAS_STATUS_NOT_SUPPORTED

FAILS(hipblasLtCreate)
FAILS(hipblasLtDestroy)
FAILS(hipblasLtGetVersion)
FAILS(hipblasLtMatmul)
FAILS(hipblasLtMatmulAlgoGetHeuristic)
FAILS(hipblasLtMatmulDescCreate)
FAILS(hipblasLtMatmulDescDestroy)
FAILS(hipblasLtMatmulDescSetAttribute)
FAILS(hipblasLtMatmulPreferenceCreate)
FAILS(hipblasLtMatmulPreferenceDestroy)
FAILS(hipblasLtMatmulPreferenceSetAttribute)
FAILS(hipblasLtMatrixLayoutCreate)
FAILS(hipblasLtMatrixLayoutDestroy)
