// The launch of a GEMM without communication, of a world of one rank or of gemm.
#pragma once
#include <fusewire/ops/detail/gemm_kernel.hpp>
#include <fusewire/gemm/compiled_epilogue.hpp>
#include <fusewire/gemm/gemm_launcher.hpp>

namespace fusewire::detail {

/// operator()<M>() is the kernel with mainloop M.
template <class T, class Epilogue>
struct gemm_kernels {
  static constexpr char const* name = "gemm_kernel";
  template <class M>
  auto operator()() const {
    return &gemm_kernel<T, M, Epilogue>;
  }
};

/// What a call multiplies, of which the rows are cut into as many shards.
template <class Call>
auto problem_of(Call const& call, int rows, int shards = 1, int k_shards = 1) {
  using element = std::remove_const_t<std::remove_pointer_t<decltype(call.b.data)>>;
  return gemm_problem<element>{rows, call.b, call.b_layout, call.a.ld, call.b_is_constant, shards, k_shards};
}

/// C [M, N] = epilogue(A * B) on this rank alone. The launch comes after earlier ones that use `of_channel`, on
/// whichever stream they are; null: there are none.
template <class T, class Call, class Epilogue>
void start_gemm(gemm_launcher<T> const& launcher, hipStream_t stream, Call const& call, gemm_plan const& plan,
                Epilogue const& epilogue, void const* of_channel, std::source_location where) {
  int const m = call.c.rows;
  gemm_arguments<T> const g{
      call.c, {ceil_div(m, plan.tile_m), ceil_div(call.b.cols, plan.tile_n), 0, plan.group_m}, call.b.rows, of_channel};
  matrix<T const> const a[1] = {call.a};
  gemm_kernels<T, planned_epilogue<Epilogue>> const kernels;
  launcher.launch(stream, kernels_to_launch(kernels, epilogue), problem_of(call, m), plan, a,
                  {.tiles = g.tiles.count(), .where = where}, epilogue_to_launch(epilogue), g);
}

}  // namespace fusewire::detail
