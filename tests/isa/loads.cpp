// What check_loads.py looks at: the kernels whose lanes start TMA loads.
#include <fusewire/ops/detail/ag_gemm_kernel.hpp>
#include <fusewire/ops/detail/gemm_rs_kernel.hpp>
#include <fusewire/gemm/sm90/gemm_sm90.hpp>

using namespace fusewire;

template <int M, int N, layout BOrder>
constexpr auto kernel = &ag_gemm_kernel<bf16, gemm_sm90<bf16, M, N, BOrder>, identity>;
template <int M, int N, layout BOrder>
constexpr auto sums = &gemm_rs_kernel<bf16, gemm_sm90<bf16, M, N, BOrder>, identity>;

void* kernels[] = {(void*)kernel<64, 128, layout::column_major>,  (void*)kernel<64, 128, layout::row_major>,
                   (void*)kernel<128, 128, layout::column_major>, (void*)kernel<128, 256, layout::row_major>,
                   (void*)kernel<64, 112, layout::column_major>,  (void*)kernel<128, 144, layout::column_major>,
                   (void*)kernel<128, 192, layout::row_major>,    (void*)kernel<160, 128, layout::column_major>,
                   (void*)sums<64, 128, layout::column_major>,    (void*)sums<128, 256, layout::row_major>,
                   (void*)sums<160, 128, layout::column_major>};
