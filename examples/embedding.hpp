// Lookup in an embedding table whose rows are spread over the ranks: row i lies on rank i % W. Each rank wants the sums
// of the rows of its bags. In one launch, ids travel to all ranks, each rank sums up what it owns, and sums travel
// back.
//
//   rank r, its bags                              every rank p
//   ids of a chunk of bags --- data, flag ------> wait; sum of p's own rows, for each bag of the chunk
//   wait for all ranks, add up <--- data, flag -- sums
//
// Chunks of bags are in flight while others are summed up: no rank waits for all ids, nor for all sums.
//
// Deadlock: launch() accepts only grids whose blocks are all resident. A block sends all its ids before it waits. Sums
// wait for ids alone, and the last step for sums alone, which each block sends before its own last step.
// Reuse of the inbox: by the channel's argument. The table and the ids are read by this rank's launch alone.
// Sums are added in the order of ranks: the same bits in every run.
#pragma once
#include <fusewire/fusewire.hpp>

namespace embedding {

using namespace fusewire;

/// Four neighbours of a row.
struct alignas(16) vec4 {
  float x[4];
  __device__ void add(vec4 const& y) {
    for (int j = 0; j < 4; ++j) x[j] += y.x[j];
  }
};

/// What one launch looks up. All ranks pass the same.
struct shape {
  int rows = 0, dim = 0;  // of the whole table; dim a multiple of 4
  int bags = 0, ids = 0;  // of one rank; ids in each bag
  int chunk = 32;         // bags that travel together

  __host__ __device__ int rows_of(int rank, int ranks) const { return (rows - rank + ranks - 1) / ranks; }
  __host__ __device__ int chunks() const { return ceil_div(bags, chunk); }
  /// Of the inbox: ids [ranks][bags][ids], then sums [ranks][bags][dim].
  __host__ __device__ std::size_t bytes_of_ids(int ranks) const {
    return round_up(std::size_t(ranks) * std::size_t(bags) * std::size_t(ids) * sizeof(std::int32_t), 16);
  }
  channel_options needs(int ranks) const {
    return {.max_bytes = bytes_of_ids(ranks) + std::size_t(ranks) * std::size_t(bags) * std::size_t(dim) * 4,
            .flags_per_source = 2 * chunks()};
  }
};

/// table: [rows_of(rank), dim]; ids: [bags, ids], each 0 to rows - 1; sums: [bags, dim]. A thread sums up a vec4.
__global__ void __launch_bounds__(256)
    sum_bags(channel_view ch, shape g, vec4 const* table, std::int32_t const* ids, vec4* sums) {
  block const b;
  channel_epoch const e = ch.begin(b);
  int const ranks = ch.world.size(), rank = ch.world.rank(), vec4s = g.dim / 4, chunks = g.chunks();
  auto const ids_of = [&](int at, int source, int bag) {
    return e.inbox<std::int32_t>(at) + (std::int64_t(source) * g.bags + bag) * g.ids;
  };
  auto const sums_of = [&](int at, int source, int bag) {
    return reinterpret_cast<vec4*>(e.inbox<std::byte>(at) + g.bytes_of_ids(ranks)) +
           (std::int64_t(source) * g.bags + bag) * vec4s;
  };
  auto const bags_in = [&](int chunk) {
    return g.bags - chunk * g.chunk < g.chunk ? g.bags - chunk * g.chunk : g.chunk;
  };

  for (int i = b.index(); i < chunks * ranks; i += b.count()) {
    int const peer = ch.world.next(i % ranks), chunk = i / ranks, bag = chunk * g.chunk;
    copy(b, ids + std::int64_t(bag) * g.ids, ids_of(peer, rank, bag), bags_in(chunk) * g.ids);
    e.signal(b, peer, chunk);
  }
  for (int i = b.index(); i < chunks * ranks; i += b.count()) {
    int const source = ch.world.next(i % ranks), chunk = i / ranks, bag = chunk * g.chunk;
    e.wait(b, source, chunk);
    std::int32_t const* const wanted = ids_of(rank, source, bag);
    vec4* const to = sums_of(source, rank, bag);
    for (int at = b.rank(); at < bags_in(chunk) * vec4s; at += b.size()) {
      vec4 sum{};
#pragma unroll 4
      for (int j = 0; j < g.ids; ++j) {
        int const id = wanted[at / vec4s * g.ids + j];
        if (id % ranks == rank) sum.add(table[std::int64_t(id / ranks) * vec4s + at % vec4s]);
      }
      to[at] = sum;
    }
    e.signal(b, source, chunks + chunk);
  }
  for (int chunk = b.index(); chunk < chunks; chunk += b.count()) {
    e.wait(b, 0, ranks - 1, chunks + chunk);
    for (int at = b.rank(), bag = chunk * g.chunk; at < bags_in(chunk) * vec4s; at += b.size()) {
      vec4 sum{};
      for (int source = 0; source < ranks; ++source) sum.add(sums_of(rank, source, bag)[at]);
      sums[std::int64_t(bag) * vec4s + at] = sum;
    }
  }
  e.end(b);
}

}  // namespace embedding
