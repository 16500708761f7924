// All-reduce of rows in one kernel, with an epilogue that sees whole rows. The operator is in all_reduce.hpp.
//
//   one-shot   row --put--> every rank
//              every rank: wait for all ranks' rows --> add up in the order of ranks --> epilogue
//   two-shot   row --put--> the rank that owns it (section 0)
//              the owner: wait for all ranks' rows --> add up --put--> every rank (section 1), epilogue
//              the others: wait for the sum --> epilogue
//
// Rows are cut into chunks. With flags some blocks send, some reduce and some take, so that links stay busy while sums
// are computed. With LL words every block does all three, one after the other: a few rows travel soonest so.
// row_exchange.hpp has the two ways to send rows.
//
// For each element a rank sends W - 1 elements with one shot, 2 (W - 1) / W with two. With two ranks both send the
// same, so one shot is never slower.
//
// Deadlock: all blocks are resident (launch() checks). Blocks send without waiting, reduce what was sent, and take what
// was reduced. A block that does several of these does them in this order.
//
// Order: flags publish a chunk's vectors; LL words carry their launch. A rank raises a chunk's flag on itself, too:
// then its summands have been read, and the epilogue may overwrite them. With LL words, and in the rows that two-shot
// sums up or takes, they have been read by the same block or sent before the sum could come.
//
// Reuse: the inbox and the LL buffer by the channel's argument.
//
// Abandonment: what a timed-out wait leaves is NaN with LL words, and with flags if the channel poisons.
//
// Same bits on every rank, in every run, with both algorithms and whatever the number of rows: a sum is added up in
// fp32 in the order of ranks, and rounded to T once.
#pragma once
#include <fusewire/ops/detail/early_ticket.hpp>
#include <fusewire/ops/detail/row_reduction.hpp>

namespace fusewire {

/// What the kernels get. One-shot: a section has the rows of all; two-shot: those of an owner.
template <class T>
struct all_reduce_arguments : row_arguments {
  row_view<T const> in;  // this rank's summands
  int rows;              // of `in`
};

/// epilogue(the sum over ranks of a row), on every rank, which adds up all rows. Called by: all_reduce, on every rank.
template <class T, template <class> class Exchange, int Vectors, class Epilogue>
__global__ void __launch_bounds__(row_plan::max_threads, Exchange<T>::blocks_per_cu)
    all_reduce_one_shot(__grid_constant__ channel_view const ch, __grid_constant__ all_reduce_arguments<T> const g,
                        __grid_constant__ Epilogue const epilogue) {
  __shared__ float shared[block_reduce_words];
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::early_ticket const ticket(b, e);
  Exchange<T> const exchange(e, ch.world, g.sections);
  detail::row_reduction<T, Exchange<T>, Vectors> const rows{b, ch.world, g, exchange};
  detail::for_chunks(b, g.first, g.senders, g.sections.chunks, [&](int chunk) {
    rows.send(g.in, g.rows, chunk, 1, ch.world.size() - 1);
    exchange.sent(b, 0, chunk);
  });
  detail::for_chunks(b, g.first + g.senders, g.reducers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 0, chunk);
    rows.for_rows(g.rows, chunk, [&](int r) {
      epilogue(b, shared, r, g.in.cols_of(r), rows.sum([&](auto& sum) { rows.reduce(sum, g.in, r); }));
    });
  });
  if (b.index() == 0) exchange.refresh(b, 1);
  ticket.end(b);
}

/// The same, but the owner of a row adds up and sends the sum to all ranks. Called by: all_reduce, on every rank.
template <class T, template <class> class Exchange, int Vectors, class Epilogue>
__global__ void __launch_bounds__(row_plan::max_threads, Exchange<T>::blocks_per_cu)
    all_reduce_two_shot(__grid_constant__ channel_view const ch, __grid_constant__ all_reduce_arguments<T> const g,
                        __grid_constant__ Epilogue const epilogue) {
  __shared__ float shared[block_reduce_words];
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::early_ticket const ticket(b, e);
  Exchange<T> const exchange(e, ch.world, g.sections);
  detail::row_reduction<T, Exchange<T>, Vectors> const rows{b, ch.world, g, exchange};
  int const ranks = ch.world.size(), owned = g.sections.rows, mine = ch.world.rank() * owned;
  detail::for_chunks(b, g.first, g.senders, g.sections.chunks, [&](int chunk) {
    for (int p = 1; p < ranks; ++p) {
      int const theirs = ch.world.next(p) * owned;
      rows.send(g.in.from(theirs), g.rows - theirs, chunk, p, p);
    }
    exchange.sent(b, 0, chunk);
  });
  detail::for_chunks(b, g.first + g.senders, g.reducers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 0, chunk);
    rows.for_rows(g.rows - mine, chunk, [&](int r) {
      int const cols = g.in.cols_of(mine + r);
      epilogue(b, shared, mine + r, cols, rows.sum([&](auto& sum) {
        rows.reduce(sum, g.in.from(mine), r);
        rows.send_sum(sum, r, cols);
      }));
    });
    exchange.sent(b, 1, chunk);
  });
  detail::for_chunks(b, g.first + g.senders + g.reducers, g.takers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 1, chunk);
    for (int p = 1; p < ranks; ++p) {
      int const owner = ch.world.next(p), theirs = owner * owned;
      rows.for_rows(g.rows - theirs, chunk, [&](int r) {
        int const cols = g.in.cols_of(theirs + r);
        epilogue(b, shared, theirs + r, cols, rows.sum([&](auto& sum) { rows.take(sum, owner, r, cols); }));
      });
    }
  });
  if (b.index() == 0) exchange.refresh(b, 2);
  ticket.end(b);
}

}  // namespace fusewire
