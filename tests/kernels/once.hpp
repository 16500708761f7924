// The kernels that the GEMM operators launch on gfx942 for calls without an epilogue, and on one rank with the epilogue
// of tests: compiled once and not for each program, in builds with FUSEWIRE_SHARE_KERNELS, whose compiler reads this
// file before every source that includes an operator. A mainloop that is missing here is compiled for each program, as
// without this file.
#pragma once
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/gemm.hpp>
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>

#include "../unit/counted.hpp"

static_assert(std::size(fusewire::tuned_tiles) == 12, "FUSEWIRE_EACH_MAINLOOP lists what tuned_tiles lists");
#define FUSEWIRE_EACH_MAINLOOP(kernel, prefix, T)                         \
  kernel(prefix, T, block_mainloop<T, small_tile>);                       \
  kernel(prefix, T, block_mainloop<T, large_tile>);                       \
  kernel(prefix, T, small_m_gfx942<T, 16, 16, layout::column_major>);     \
  kernel(prefix, T, small_m_gfx942<T, 32, 32, layout::column_major>);     \
  kernel(prefix, T, small_m_gfx942<T, 64, 32, layout::column_major>);     \
  kernel(prefix, T, small_m_gfx942<T, 16, 64, layout::row_major>);        \
  kernel(prefix, T, small_m_gfx942<T, 64, 64, layout::row_major>);        \
  kernel(prefix, T, ping_pong_gfx942<T, 128, 96, layout::column_major>);  \
  kernel(prefix, T, ping_pong_gfx942<T, 128, 112, layout::column_major>); \
  kernel(prefix, T, ping_pong_gfx942<T, 128, 128, layout::column_major>); \
  kernel(prefix, T, ping_pong_gfx942<T, 256, 128, layout::column_major>); \
  kernel(prefix, T, ping_pong_gfx942<T, 256, 192, layout::column_major>); \
  kernel(prefix, T, ping_pong_gfx942<T, 128, 128, layout::row_major>);    \
  kernel(prefix, T, ping_pong_gfx942<T, 256, 128, layout::row_major>)

// prefix: `extern`, or nothing where the kernels are to be compiled
#define FUSEWIRE_GEMM_KERNEL(prefix, T, ...)                                               \
  prefix template __global__ void gemm_kernel<T, __VA_ARGS__, identity>(gemm_arguments<T>, \
                                                                        __VA_ARGS__::operands<1> const, identity)
#define FUSEWIRE_COUNTED_GEMM_KERNEL(prefix, T, ...)                             \
  prefix template __global__ void gemm_kernel<T, __VA_ARGS__, support::counted>( \
      gemm_arguments<T>, __VA_ARGS__::operands<1> const, support::counted)
#define FUSEWIRE_AG_GEMM_KERNEL(prefix, T, ...)                             \
  prefix template __global__ void ag_gemm_kernel<T, __VA_ARGS__, identity>( \
      channel_view const, ag_gemm_arguments<T> const, __VA_ARGS__::operands<gathered_buffers> const, identity)
#define FUSEWIRE_SUM_KERNEL(prefix, name, T, ...)                                                            \
  prefix template __global__ void name<T, __VA_ARGS__, identity>(channel_view const, sum_arguments<T> const, \
                                                                 __VA_ARGS__::operands<1> const, identity)
#define FUSEWIRE_GEMM_RS_KERNEL(prefix, ...) FUSEWIRE_SUM_KERNEL(prefix, gemm_rs_kernel, __VA_ARGS__)
#define FUSEWIRE_GEMM_AR_ONE_SHOT(prefix, ...) FUSEWIRE_SUM_KERNEL(prefix, gemm_ar_one_shot, __VA_ARGS__)
#define FUSEWIRE_GEMM_AR_TWO_SHOT(prefix, ...) FUSEWIRE_SUM_KERNEL(prefix, gemm_ar_two_shot, __VA_ARGS__)
#define FUSEWIRE_GEMM_ALL_SCATTER_KERNEL(prefix, ...) FUSEWIRE_SUM_KERNEL(prefix, gemm_all_scatter_kernel, __VA_ARGS__)

#define FUSEWIRE_ELSEWHERE(kernel)              \
  FUSEWIRE_EACH_MAINLOOP(kernel, extern, bf16); \
  FUSEWIRE_EACH_MAINLOOP(kernel, extern, f16)

namespace fusewire {
FUSEWIRE_ELSEWHERE(FUSEWIRE_GEMM_KERNEL);
FUSEWIRE_EACH_MAINLOOP(FUSEWIRE_COUNTED_GEMM_KERNEL, extern, bf16);
FUSEWIRE_ELSEWHERE(FUSEWIRE_AG_GEMM_KERNEL);
FUSEWIRE_ELSEWHERE(FUSEWIRE_GEMM_RS_KERNEL);
FUSEWIRE_ELSEWHERE(FUSEWIRE_GEMM_AR_ONE_SHOT);
FUSEWIRE_ELSEWHERE(FUSEWIRE_GEMM_AR_TWO_SHOT);
FUSEWIRE_ELSEWHERE(FUSEWIRE_GEMM_ALL_SCATTER_KERNEL);
}  // namespace fusewire
