// What check.py looks at: the kernels as a program would instantiate them.
#include <fusewire/ops/detail/ag_gemm_kernel.hpp>
#include <fusewire/ops/detail/all_reduce_kernel.hpp>
#include <fusewire/ops/detail/dispatch_gemm_kernel.hpp>
#include <fusewire/ops/detail/flash_decode_kernel.hpp>
#include <fusewire/ops/detail/gemm_all_scatter_kernel.hpp>
#include <fusewire/ops/detail/gemm_ar_kernel.hpp>
#include <fusewire/ops/detail/gemm_kernel.hpp>
#include <fusewire/ops/detail/gemm_rs_kernel.hpp>
#include <fusewire/ops/detail/gemm_combine_kernel.hpp>
#include <fusewire/ops/detail/grouped_gemm_kernel.hpp>
#include <fusewire/ops/detail/moe_combine_kernel.hpp>
#include <fusewire/ops/detail/moe_dispatch_kernel.hpp>
#include <fusewire/ops/detail/reduce_scatter_kernel.hpp>
#include <fusewire/ops/detail/slice_kernel.hpp>
#include <fusewire/gemm/mainloop_dispatch.hpp>

using namespace fusewire;

template <class T, class Tile>
using loop = block_mainloop<T, Tile>;
using rows_16 = small_m_gfx942<bf16, 16, 16, layout::column_major>;
using rows_64 = small_m_gfx942<bf16, 64, 32, layout::column_major>;
using rows_64_of_rows = small_m_gfx942<f16, 64, 64, layout::row_major>;
using rows_128_of_96 = ping_pong_gfx942<bf16, 128, 96, layout::column_major>;
using rows_128_of_112 = ping_pong_gfx942<bf16, 128, 112, layout::column_major>;
using rows_128 = ping_pong_gfx942<bf16, 128, 128, layout::column_major>;
using rows_256 = ping_pong_gfx942<bf16, 256, 192, layout::column_major>;
using rows_256_of_rows = ping_pong_gfx942<f16, 256, 128, layout::row_major>;
template <class T, class Tile, int Buffers>
using operands = typename loop<T, Tile>::template operands<Buffers>;

template __global__ void fusewire::ag_gemm_kernel<bf16, loop<bf16, small_tile>, identity>(
    channel_view const, ag_gemm_arguments<bf16> const, operands<bf16, small_tile, 3> const, identity);
template __global__ void fusewire::ag_gemm_kernel<bf16, loop<bf16, large_tile>, identity>(
    channel_view const, ag_gemm_arguments<bf16> const, operands<bf16, large_tile, 3> const, identity);
template __global__ void fusewire::ag_gemm_kernel<f16, loop<f16, large_tile>, identity>(
    channel_view const, ag_gemm_arguments<f16> const, operands<f16, large_tile, 3> const, identity);
template __global__ void fusewire::gemm_kernel<bf16, loop<bf16, large_tile>, identity>(
    gemm_arguments<bf16>, operands<bf16, large_tile, 1> const, identity);
template __global__ void fusewire::gemm_all_scatter_kernel<bf16, loop<bf16, large_tile>, identity>(
    channel_view const, sum_arguments<bf16> const, operands<bf16, large_tile, 1> const, identity);
template __global__ void fusewire::gemm_ar_one_shot<bf16, loop<bf16, small_tile>, identity>(
    channel_view const, sum_arguments<bf16> const, operands<bf16, small_tile, 1> const, identity);
template __global__ void fusewire::gemm_ar_two_shot<bf16, loop<bf16, large_tile>, identity>(
    channel_view const, sum_arguments<bf16> const, operands<bf16, large_tile, 1> const, identity);
template __global__ void fusewire::gemm_rs_kernel<bf16, loop<bf16, small_tile>, identity>(
    channel_view const, sum_arguments<bf16> const, operands<bf16, small_tile, 1> const, identity);
template __global__ void fusewire::gemm_rs_kernel<bf16, loop<bf16, large_tile>, identity>(
    channel_view const, sum_arguments<bf16> const, operands<bf16, large_tile, 1> const, identity);
template __global__ void fusewire::all_reduce_one_shot<bf16, flag_rows, 2, store_rows<bf16>>(
    channel_view const, all_reduce_arguments<bf16> const, store_rows<bf16> const);
template __global__ void fusewire::all_reduce_one_shot<bf16, ll_rows, 1, store_rows<bf16>>(
    channel_view const, all_reduce_arguments<bf16> const, store_rows<bf16> const);
template __global__ void fusewire::all_reduce_two_shot<bf16, flag_rows, 1, rms_norm<bf16>>(
    channel_view const, all_reduce_arguments<bf16> const, rms_norm<bf16> const);
template __global__ void fusewire::all_reduce_two_shot<bf16, ll_rows, 1, rms_norm<bf16, fp8_e4m3fnuz>>(
    channel_view const, all_reduce_arguments<bf16> const, rms_norm<bf16, fp8_e4m3fnuz> const);
template __global__ void fusewire::reduce_scatter_kernel<bf16, flag_rows, 2, store_rows<bf16>>(
    channel_view const, reduce_scatter_arguments<bf16> const, store_rows<bf16> const);
template __global__ void fusewire::reduce_scatter_kernel<bf16, ll_rows, 1, store_rows<bf16>>(
    channel_view const, reduce_scatter_arguments<bf16> const, store_rows<bf16> const);
template __global__ void fusewire::exchange_slices<flag_rows, 2, equal_slices>(channel_view const, row_arguments const,
                                                                               equal_slices const);
template __global__ void fusewire::exchange_slices<ll_rows, 1, equal_slices>(channel_view const, row_arguments const,
                                                                             equal_slices const);
template __global__ void fusewire::exchange_slices<flag_rows, 2, counted_slices>(channel_view const,
                                                                                 row_arguments const,
                                                                                 counted_slices const);
template __global__ void fusewire::moe_dispatch_kernel<>(channel_view const, moe_dispatch_arguments const);
template __global__ void fusewire::moe_combine_kernel<bf16>(channel_view const, moe_combine_arguments<bf16> const);
template __global__ void fusewire::flash_decode_kernel<f16, 64>(channel_view, decode_arguments<f16>);
template __global__ void fusewire::flash_decode_kernel<f16, 128>(channel_view, decode_arguments<f16>);
template __global__ void fusewire::flash_decode_kernel<bf16, 128>(channel_view, decode_arguments<bf16>);
template __global__ void fusewire::flash_decode_kernel<bf16, 96>(channel_view, decode_arguments<bf16>);
template __global__ void fusewire::flash_decode_kernel<bf16, 256>(channel_view, decode_arguments<bf16>);
template __global__ void fusewire::gemm_kernel<bf16, rows_16, identity>(gemm_arguments<bf16>,
                                                                        rows_16::operands<1> const, identity);
template __global__ void fusewire::gemm_kernel<bf16, rows_64, identity>(gemm_arguments<bf16>,
                                                                        rows_64::operands<1> const, identity);
template __global__ void fusewire::gemm_kernel<f16, rows_64_of_rows, identity>(gemm_arguments<f16>,
                                                                               rows_64_of_rows::operands<1> const,
                                                                               identity);
template __global__ void fusewire::gemm_kernel<bf16, rows_128_of_96, identity>(gemm_arguments<bf16>,
                                                                               rows_128_of_96::operands<1> const,
                                                                               identity);
template __global__ void fusewire::gemm_kernel<bf16, rows_128_of_112, identity>(gemm_arguments<bf16>,
                                                                                rows_128_of_112::operands<1> const,
                                                                                identity);
template __global__ void fusewire::gemm_kernel<bf16, rows_128, identity>(gemm_arguments<bf16>,
                                                                         rows_128::operands<1> const, identity);
template __global__ void fusewire::gemm_kernel<bf16, rows_256, identity>(gemm_arguments<bf16>,
                                                                         rows_256::operands<1> const, identity);
template __global__ void fusewire::gemm_kernel<f16, rows_256_of_rows, identity>(gemm_arguments<f16>,
                                                                                rows_256_of_rows::operands<1> const,
                                                                                identity);
template __global__ void fusewire::ag_gemm_kernel<bf16, rows_16, identity>(channel_view const,
                                                                           ag_gemm_arguments<bf16> const,
                                                                           rows_16::operands<3> const, identity);
template __global__ void fusewire::ag_gemm_kernel<bf16, rows_128_of_96, identity>(channel_view const,
                                                                                  ag_gemm_arguments<bf16> const,
                                                                                  rows_128_of_96::operands<3> const,
                                                                                  identity);
template __global__ void fusewire::ag_gemm_kernel<bf16, rows_128_of_112, identity>(channel_view const,
                                                                                   ag_gemm_arguments<bf16> const,
                                                                                   rows_128_of_112::operands<3> const,
                                                                                   identity);
template __global__ void fusewire::ag_gemm_kernel<bf16, rows_128, identity>(channel_view const,
                                                                            ag_gemm_arguments<bf16> const,
                                                                            rows_128::operands<3> const, identity);
template __global__ void fusewire::ag_gemm_kernel<bf16, rows_256, identity>(channel_view const,
                                                                            ag_gemm_arguments<bf16> const,
                                                                            rows_256::operands<3> const, identity);
template __global__ void fusewire::gemm_rs_kernel<bf16, rows_64, identity>(channel_view const,
                                                                           sum_arguments<bf16> const,
                                                                           rows_64::operands<1> const, identity);
template __global__ void fusewire::gemm_rs_kernel<bf16, rows_256, identity>(channel_view const,
                                                                            sum_arguments<bf16> const,
                                                                            rows_256::operands<1> const, identity);
template __global__ void fusewire::gemm_kernel<bf16, rows_16, swiglu>(gemm_arguments<bf16>, rows_16::operands<1> const,
                                                                      swiglu);
template __global__ void fusewire::gemm_kernel<bf16, rows_64, swiglu>(gemm_arguments<bf16>, rows_64::operands<1> const,
                                                                      swiglu);
template __global__ void fusewire::gemm_kernel<bf16, rows_128, swiglu>(gemm_arguments<bf16>,
                                                                       rows_128::operands<1> const, swiglu);
template __global__ void fusewire::gemm_kernel<bf16, rows_256, swiglu>(gemm_arguments<bf16>,
                                                                       rows_256::operands<1> const, swiglu);
template __global__ void fusewire::gemm_kernel<f16, rows_256_of_rows, swiglu>(gemm_arguments<f16>,
                                                                              rows_256_of_rows::operands<1> const,
                                                                              swiglu);
template __global__ void fusewire::gemm_kernel<bf16, loop<bf16, large_tile>, swiglu>(
    gemm_arguments<bf16>, operands<bf16, large_tile, 1> const, swiglu);
template __global__ void fusewire::grouped_gemm_kernel<bf16, rows_16, identity>(grouped_gemm_arguments<bf16> const,
                                                                                rows_16::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<bf16, rows_64, identity>(grouped_gemm_arguments<bf16> const,
                                                                                rows_64::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<f16, rows_64_of_rows, identity>(
    grouped_gemm_arguments<f16> const, rows_64_of_rows::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<bf16, rows_128_of_112, identity>(
    grouped_gemm_arguments<bf16> const, rows_128_of_112::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<bf16, rows_128, identity>(grouped_gemm_arguments<bf16> const,
                                                                                 rows_128::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<bf16, rows_256, identity>(grouped_gemm_arguments<bf16> const,
                                                                                 rows_256::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<f16, rows_256_of_rows, identity>(
    grouped_gemm_arguments<f16> const, rows_256_of_rows::operands<1> const, identity);
template __global__ void fusewire::grouped_gemm_kernel<bf16, rows_128, swiglu>(grouped_gemm_arguments<bf16> const,
                                                                               rows_128::operands<1> const, swiglu);
template __global__ void fusewire::grouped_gemm_kernel<bf16, loop<bf16, large_tile>, identity>(
    grouped_gemm_arguments<bf16> const, operands<bf16, large_tile, 1> const, identity);
template __global__ void fusewire::dispatch_gemm_kernel<bf16, rows_16, swiglu>(channel_view const,
                                                                               dispatch_gemm_arguments<bf16> const,
                                                                               rows_16::operands<1> const, swiglu);
template __global__ void fusewire::dispatch_gemm_kernel<bf16, rows_64, swiglu>(channel_view const,
                                                                               dispatch_gemm_arguments<bf16> const,
                                                                               rows_64::operands<1> const, swiglu);
template __global__ void fusewire::dispatch_gemm_kernel<bf16, rows_128, swiglu>(channel_view const,
                                                                                dispatch_gemm_arguments<bf16> const,
                                                                                rows_128::operands<1> const, swiglu);
template __global__ void fusewire::dispatch_gemm_kernel<bf16, rows_256, swiglu>(channel_view const,
                                                                                dispatch_gemm_arguments<bf16> const,
                                                                                rows_256::operands<1> const, swiglu);
template __global__ void fusewire::dispatch_gemm_kernel<f16, rows_256_of_rows, swiglu>(
    channel_view const, dispatch_gemm_arguments<f16> const, rows_256_of_rows::operands<1> const, swiglu);
template __global__ void fusewire::dispatch_gemm_kernel<bf16, loop<bf16, large_tile>, swiglu>(
    channel_view const, dispatch_gemm_arguments<bf16> const, operands<bf16, large_tile, 1> const, swiglu);
template __global__ void fusewire::gemm_combine_kernel<bf16, rows_16, identity>(channel_view const,
                                                                                gemm_combine_arguments<bf16> const,
                                                                                rows_16::operands<1> const, identity);
template __global__ void fusewire::gemm_combine_kernel<bf16, rows_64, identity>(channel_view const,
                                                                                gemm_combine_arguments<bf16> const,
                                                                                rows_64::operands<1> const, identity);
template __global__ void fusewire::gemm_combine_kernel<bf16, rows_128, identity>(channel_view const,
                                                                                 gemm_combine_arguments<bf16> const,
                                                                                 rows_128::operands<1> const, identity);
template __global__ void fusewire::gemm_combine_kernel<bf16, rows_256, identity>(channel_view const,
                                                                                 gemm_combine_arguments<bf16> const,
                                                                                 rows_256::operands<1> const, identity);
template __global__ void fusewire::gemm_combine_kernel<f16, rows_256_of_rows, identity>(
    channel_view const, gemm_combine_arguments<f16> const, rows_256_of_rows::operands<1> const, identity);
template __global__ void fusewire::gemm_combine_kernel<bf16, loop<bf16, large_tile>, identity>(
    channel_view const, gemm_combine_arguments<bf16> const, operands<bf16, large_tile, 1> const, identity);
