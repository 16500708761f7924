// Reduce-scatter in one kernel. The operator is in reduce_scatter.hpp.
//
//   slice p --put--> rank p
//   rank p: wait for all ranks' slices --> add up in the order of ranks --> epilogue
//
// This is the first half of a two-shot all-reduce, and sums are as there; all_reduce_kernel.hpp has the argument why
// blocks do not wait for ever. A rank sends what other ranks own, and reads what it owns itself in the block that
// stores the sum of it, so a sum may lie where its summands are.
#pragma once
#include <fusewire/ops/detail/early_ticket.hpp>
#include <fusewire/ops/detail/row_reduction.hpp>

namespace fusewire {

/// What the kernel gets.
template <class T>
struct reduce_scatter_arguments : row_arguments {
  row_view<T const> in;  // what rank 0 owns
  std::int64_t slice;    // elements from what a rank owns to what the next one owns
  int rows;              // that each rank owns
};

/// epilogue(the sum over ranks of a row) for the rows that this rank owns. Called by: reduce_scatter, on every rank.
template <class T, template <class> class Exchange, int Vectors, class Epilogue>
__global__ void __launch_bounds__(row_plan::array_threads)
    reduce_scatter_kernel(__grid_constant__ channel_view const ch,
                          __grid_constant__ reduce_scatter_arguments<T> const g,
                          __grid_constant__ Epilogue const epilogue) {
  __shared__ float shared[block_reduce_words];
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::early_ticket const ticket(b, e);
  Exchange<T> const exchange(e, ch.world, g.sections);
  detail::row_reduction<T, Exchange<T>, Vectors> const rows{b, ch.world, g, exchange};
  auto const owned_by = [&](int rank) {
    return row_view<T const>{g.in.data + rank * g.slice, g.in.count, g.in.cols, g.in.ld};
  };
  detail::for_chunks(b, g.first, g.senders, g.sections.chunks, [&](int chunk) {
    for (int p = 1; p < ch.world.size(); ++p) rows.send(owned_by(ch.world.next(p)), g.rows, chunk, p, p);
    exchange.sent(b, 0, chunk);
  });
  row_view<T const> const mine = owned_by(ch.world.rank());
  detail::for_chunks(b, g.first + g.senders, g.reducers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 0, chunk);
    rows.for_rows(g.rows, chunk, [&](int r) {
      epilogue(b, shared, r, mine.cols_of(r), rows.sum([&](auto& sum) { rows.reduce(sum, mine, r); }));
    });
  });
  if (b.index() == 0) exchange.refresh(b, 1);
  ticket.end(b);
}

}  // namespace fusewire
