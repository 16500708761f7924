// Lookup in an embedding table whose rows are spread over the ranks: row i lies on rank i % W. Each rank adds up the
// rows of its bags, straight from the memory of their owners. No list of ids and no row makes a detour through a
// buffer.
//
//   rank r, block                                  rank p, the owner of some of the rows
//   begin_readable                                 its stream has stored the table
//   wait_begun(p), for each p
//   sums[bag] += table of p, row id / W  <-------- (loads by r's threads)
//   acknowledge(p) ------------------------------> wait_acknowledged: the next kernel may update the table
//
// Deadlock: launch() accepts only grids whose blocks are all resident. Headers are sent before anything is waited for,
// and block 0's last waits come after its own bags.
// Reuse of the table: an owner's launch ends only after every rank has acknowledged, so what follows on its stream may
// overwrite rows.
#pragma once
#include <fusewire/fusewire.hpp>

namespace embedding {

using namespace fusewire;

/// Four neighbours of a row.
struct alignas(16) quad {
  float x[4];
};

/// What one launch looks up. All ranks pass the same extents.
struct shape {
  int rows = 0, dim = 0;  // of the whole table; dim a multiple of 4
  int bags = 0, ids = 0;  // of one rank; ids in each bag
  int rows_of(int rank, int ranks) const { return (rows - rank + ranks - 1) / ranks; }
};

/// sums[bag] = the sum of table rows ids[bag][...], in the order of ids: the same bits in every run.
/// table: [rows_of(rank), dim]; ids: [bags, ids], each 0 to rows - 1; sums: [bags, dim]. A thread sums up a quad.
/// Requires: at least world::dispatch_parts() blocks, as begin_readable() does.
/// Abandonment: where a rank has not begun, nothing of its memory is read, and sums are invalid.
__global__ void __launch_bounds__(256)
    sum_bags(channel_view ch, shape g, sym<quad> table, std::int32_t const* ids, quad* sums) {
  block const b;
  channel_epoch const e = ch.begin_readable(b);
  world_view const& w = ch.world;
  bool all_begun = true;
  for (int i = 0; i < w.size; ++i) all_begun &= e.pull().wait_begun(b, w.next(i));
  int const quads = g.dim / 4;
  if (all_begun)
    for (int at = b.index() * b.size() + b.rank(); at < g.bags * quads; at += b.count() * b.size()) {
      int const bag = at / quads, column = at % quads;
      quad sum{};
#pragma unroll 4
      for (int i = 0; i < g.ids; ++i) {
        int const id = ids[bag * g.ids + i];
        quad const row = load(w.on(id % w.size, table) + std::int64_t(id / w.size) * quads + column);
        for (int j = 0; j < 4; ++j) sum.x[j] += row.x[j];
      }
      sums[at] = sum;
    }
  for (int i = 0; i < w.size; ++i) e.pull().acknowledge(b, w.next(i), unsigned(b.count()));
  if (b.index() == 0) e.pull().wait_acknowledged(b);
  e.end(b);
}

}  // namespace embedding
