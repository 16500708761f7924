// The host side of a GEMM without communication: the plan of a shape, and its launch.
#pragma once
#include <map>

#include <fusewire/kernels/gemm_kernel.hpp>
#include <fusewire/kernels/mainloops.hpp>
#include <fusewire/runtime/launch.hpp>

namespace fusewire::detail {

/// The tuned plan of a shape if the option and B allow it, else one for block_mainloop. kernel_of.operator()<M>() is
/// the kernel that the launch is for.
template <class T, class Kernel>
gemm_plan plan_gemm(world const& w, gemm_shape const& s, gemm_tile tile, std::int64_t a_ld, b_operand<T> const& b,
                    int reserved_cus, Kernel const& kernel_of, std::source_location where) {
  auto const clusters = [&](gemm_plan const& g) {
    return with_mainloop<T>(g, b.order, [&]<class M>() {
      return resident_groups<M>(w, kernel_of.template operator()<M>(), g.parts, reserved_cus, where);
    });
  };
  char const* const why_not = why_not_tuned(tile, a_ld, b, s.k);
  if (!why_not)
    if (auto const p = tuned_gemm_plan(s, clusters)) return *p;
  gemm_plan p = plain_gemm_plan(tile, s.rows);
  p.why_not_tuned = why_not;
  return p;
}

/// Launches `kernel`, whose mainloop is Mainloop and which has no more work than its tiles and what comes after each,
/// with as many blocks as fit and have something to do. `arguments`: its parameters. Fails: bad_argument, beginning
/// with `name`; as launch().
template <class Mainloop, class... P>
void launch_tiles(char const* name, world const& w, hipStream_t stream, gemm_plan const& plan, int tiles,
                  int reserved_cus, std::source_location where, void (*kernel)(P...),
                  std::type_identity_t<P> const&... arguments) {
  int const groups = resident_groups<Mainloop>(w, kernel, plan.parts, reserved_cus, where);
  require(groups >= 1, where, name, ": no block of ", Mainloop::threads, " threads and ", Mainloop::shared_bytes(),
          " bytes of shared memory fits on this rank's part of the device (", w.compute_units(), " units, ",
          reserved_cus, " reserved, ", w.ranks_on_device(), " ranks)");
  require(plan.parts == 1 || tiles <= groups, where, name, ": ", plan.parts, " blocks for each of ", tiles, " tiles; ",
          groups, " groups of them are resident at once");
  bool const early = !Mainloop::communicates_first &&
                     reserved_cus == 0;  // blocks that wait for their turn would take the reserved ones
  launch(w, stream,
         {.blocks = std::min(groups, tiles) * plan.parts,
          .threads = Mainloop::threads,
          .shared_bytes = Mainloop::shared_bytes(),
          .cluster = Mainloop::has_clusters ? plan.parts : 1,
          .early = early,
          .where = where},
         kernel, arguments...);
}

/// operator()<M>() is the kernel with mainloop M.
template <class T, class Epilogue>
struct gemm_kernels {
  template <class M>
  auto operator()() const {
    return &gemm_kernel<T, M, Epilogue>;
  }
};

/// C [M, N] = epilogue(A * B) on this rank alone.
template <class T, class Call, class Epilogue>
void start_gemm(world const& w, hipStream_t stream, Call const& call, gemm_plan const& plan,
                typename tuned_mainloops<T>::memory const& memory, int reserved_cus, Epilogue const& epilogue,
                std::source_location where) {
  with_mainloop<T>(plan, call.b_layout, [&]<class M>() {
    int const m = call.c.rows, n = call.c.cols, k = call.a.cols;
    matrix<T const> const a[1] = {call.a};
    auto x = make_operands<M>(a, b_operand<T>{call.b.data, call.b.ld, call.b_layout, n}, k, call.b_is_constant, plan, m,
                              last_tile_rows(m, M::tile_m), memory, where);
    gemm_arguments<T> const g{call.c, {ceil_div(m, M::tile_m), ceil_div(n, M::tile_n), 0, plan.band}, k};
    if constexpr (M::communicates_first) set_blocks(x, 0, g.tiles.count());
    launch_tiles<M>("gemm", w, stream, plan, g.tiles.count(), reserved_cus, where,
                    gemm_kernels<T, Epilogue>{}.template operator()<M>(), g, x, epilogue);
  });
}

}  // namespace fusewire::detail
