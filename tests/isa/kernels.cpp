// What check.py looks at: the kernels as a program would instantiate them.
#include <fusewire/kernels/ag_gemm_kernels.hpp>

using namespace fusewire;

template __global__ void fusewire::ag_gemm_push<bf16, small_tile, identity>(channel_view, ag_gemm_arguments<bf16>, identity);
template __global__ void fusewire::ag_gemm_push<bf16, large_tile, identity>(channel_view, ag_gemm_arguments<bf16>, identity);
template __global__ void fusewire::ag_gemm_pull<bf16, small_tile, identity>(channel_view, ag_gemm_arguments<bf16>, identity);
template __global__ void fusewire::ag_gemm_pull<bf16, large_tile, identity>(channel_view, ag_gemm_arguments<bf16>, identity);
template __global__ void fusewire::ag_gemm_push<f16, large_tile, identity>(channel_view, ag_gemm_arguments<f16>, identity);
