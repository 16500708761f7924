// From a plan to a mainloop, and to what it multiplies.
#pragma once
#include <fusewire/gemm/tuned_mainloops.hpp>
#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/launch/launch.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// Calls f.operator()<M>() with the mainloop of the plan.
template <class T, class F>
auto with_mainloop(gemm_plan const& p, layout b, F f) {
  if constexpr (tuned_mainloops<T>::any)
    if (p.tuned) return tuned_mainloops<T>::with(p, b, f);
  if (p.tile_m == small_tile::config.block_m) return f.template operator()<block_mainloop<T, small_tile>>();
  return f.template operator()<block_mainloop<T, large_tile>>();
}

/// Why a call cannot take a tuned mainloop; null if it can.
template <class T>
char const* why_not_tuned(gemm_tile const& tile, std::int64_t a_ld, b_operand<T> const& b, int k) {
  return !tuned_mainloops<T>::any ? "this architecture has no tuned mainloop"
         : tile.generic           ? "the options name a generic tile"
         : !tuned_mainloops<T>::accepts(a_ld, b, k)
             ? "b's address is no multiple of 16, or its ld none of 8, or rows lie too far from each other"
             : nullptr;
}

/// A plan in words: mainloop, tile, and why it is not a tuned one.
template <class T>
std::string in_words(gemm_plan const& p, layout b) {
  char const* const name = with_mainloop<T>(p, b, [&]<class M>() { return M::traits.name; });
  return text(name, ", tiles of ", p.tile_m, " x ", p.tile_n, p.split_k > 1 ? text(", split-k ", p.split_k) : "",
              p.why_not_tuned ? text(" (not a tuned mainloop: ", p.why_not_tuned, ")") : "");
}

/// What a caller names, in words.
inline std::string in_words(gemm_tile const& t) {
  auto const number = [](int x) { return x == 0 ? std::string("any") : text(x); };
  return text(number(t.m), " x ", number(t.n), ", split-k ", number(t.split_k), t.fixed_order ? ", fixed order" : "");
}

/// Tiles of tuned mainloops that read a B that lies so, in words.
template <class T>
std::string tuned_tiles_in_words(layout b) {
  std::string all;
  for (auto const& tile : tuned_mainloops<T>::tiles)
    if (tile.suits(b)) all += text(all.empty() ? "" : ", ", tile.block_m, " x ", tile.block_n);
  return all;
}

/// Calls f.operator()<M>() with every mainloop that calls with this option may take.
template <class T, class F>
void for_each_mainloop(gemm_tile const& tile, F f) {
  f.template operator()<block_mainloop<T, small_tile>>();
  f.template operator()<block_mainloop<T, large_tile>>();
  if constexpr (tuned_mainloops<T>::any)
    if (!tile.generic) tuned_mainloops<T>::for_each(f);
}

/// How many groups of `split_k` blocks that share a tile are resident together: clusters, if the mainloop has them.
template <class Mainloop, class... P>
int resident_groups(world const& w, void (*kernel)(P...), int split_k, int reserved_cus, std::source_location where) {
  int const cluster = Mainloop::traits.clusters ? split_k : 1;
  return resident_clusters(w, kernel, cluster, Mainloop::traits.threads, Mainloop::shared_bytes(), reserved_cus,
                           where) *
         cluster / split_k;
}

/// What a launch passes to its mainloop: buffers of A, and B [k, n]. `rows`: of the tallest tile, `last_rows` of those
/// that have no more.
template <class Mainloop, class T, int Buffers>
typename Mainloop::template operands<Buffers> make_operands(matrix<T const> const (&a)[Buffers], b_operand<T> const& b,
                                                            int k, bool b_is_constant, gemm_plan const& plan, int rows,
                                                            int last_rows,
                                                            typename tuned_mainloops<T>::memory const& memory,
                                                            std::source_location where) {
  if constexpr (Mainloop::traits.comm == comm_placement::leading_blocks) {
    typename Mainloop::template operands<Buffers> x{};
    x.x.b = b;
    for (int i = 0; i < Buffers; ++i) x.x.a[i] = a[i];
    if constexpr (requires { x.split; })
      x.split = {k, plan.split_k, 1, divisor(plan.split_k * Mainloop::traits.source_groups), memory.sums()};
    return x;
  } else {
    return tuned_mainloops<T>::template operands<Mainloop>(a, b, k, b_is_constant, plan, rows, last_rows, where);
  }
}

/// Sets how many leading blocks communicate, and the launch's tiles. Requires: a mainloop with
/// comm_placement::leading_blocks.
template <class Operands>
void set_blocks(Operands& x, int comm_blocks, int tiles) {
  x.comm_blocks = comm_blocks;
  if constexpr (requires { x.split; }) x.split.tiles = tiles;
}

}  // namespace fusewire
