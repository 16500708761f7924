// All-reduce over nodes in one kernel. The operator is in nodes_all_reduce.hpp.
//
//   ranks of a node   summands of segment p --put--> place p of the node
//                     it: wait for all of the node --> add up in the order of ranks
//   rails             the node's sum, fp32 --window, put--> place p of every other node
//                     they: wait for all nodes --> add up in the order of nodes --> round
//   ranks of a node   the sum --put--> all of the node
//                     they: wait for place p --> store
//
// A segment is what a place of a node owns: 1/ranks-per-node of the array. It is cut into chunks. A block takes some
// chunks of every segment through all steps. Only the second step crosses the network: a put per chunk and other node.
// On one node it does nothing, and with one rank per node the others do nothing.
//
// Deadlock: all blocks are resident (launch() checks). In each step a block first sends all its chunks, which waits for
// nothing but room in the ring of puts, and then waits for chunks that blocks of other ranks send in that step or in
// the one before.
//
// Order: a flag publishes a chunk. A rank's summands of a segment have been read when the owner's sum has come, so it
// may overwrite them. Those of its own segment are read and overwritten by the same thread.
//
// Reuse: near inboxes by the channel's argument. Every put is waited for in its launch.
//
// Abandonment: what a timed-out wait leaves is NaN if the channel poisons.
//
// Same bits on every rank, in every run, whatever the network does: all places with the same segment add up the same
// fp32 sums in the order of nodes. A sum is rounded to T once.
#pragma once
#include <fusewire/comm/byte_slice.hpp>
#include <fusewire/nodes/nodes_view.hpp>
#include <fusewire/ops/detail/for_chunks.hpp>
#include <fusewire/ops/detail/nodes_all_reduce_plan.hpp>

namespace fusewire {

/// What the kernel gets.
template <class T>
struct nodes_all_reduce_arguments {
  T const* in;         // [count]: this rank's summands
  T* out;              // [count]; may be `in`
  std::int64_t count;  // elements
  /// How it is cut.
  nodes_all_reduce_plan plan;
};

namespace detail {

/// What a block does with chunks.
template <class T>
struct nodes_sum {
  using vector = vec16<T>;
  /// Sums of a vector's elements.
  struct alignas(16) sums {
    float x[per_16_bytes<T>];
  };

  block b;
  world_view const& w;  // of this node
  nodes_epoch const& e;
  nodes_all_reduce_arguments<T> const& g;

  /// Bytes of `data` that are place k's.
  template <class Byte>
  __device__ __forceinline__ byte_slice<Byte> segment_of(Byte* data, int k) const {
    std::int64_t const segment = std::int64_t(g.plan.segment()) * 16, begin = k * segment;
    return {data + begin, clamp(g.count * std::int64_t(sizeof(T)) - begin, std::int64_t(0), segment)};
  }
  __device__ __forceinline__ auto summands(int k) const {
    return segment_of(reinterpret_cast<std::byte const*>(g.in), k);
  }
  __device__ __forceinline__ auto results(int k) const { return segment_of(reinterpret_cast<std::byte*>(g.out), k); }

  /// Calls visit(v, its first byte) for this thread's vectors of a chunk of a segment of so many bytes.
  template <class Visit>
  __device__ __forceinline__ void for_vectors(int chunk, std::int64_t bytes, Visit const& visit) const {
    int const begin = chunk * g.plan.chunk, end = begin + g.plan.chunk;
#pragma unroll 1
    for (int v = begin + b.rank(); v < end && v * std::int64_t(16) < bytes; v += b.size())
      visit(v, v * std::int64_t(16));
  }

  /// Vector v in the near inbox of `place`. Section 0: summands from `other`; 1: the results of `other`.
  __device__ __forceinline__ platform::native16* near_vector(int place, int section, int other, int v) const {
    return e.near().template inbox<platform::native16>(place) +
           (std::int64_t(section) * w.size() + other) * g.plan.segment() + v;
  }
  /// Where the sums of a node are in an inbox of far ranks, or in a window onto one.
  __device__ __forceinline__ sums* node_sums(std::byte* inbox, int node) const {
    return reinterpret_cast<sums*>(inbox + g.plan.first_rail_byte(w.size()) + node * g.plan.rail_bytes(sizeof(T)));
  }
  /// Raises flag i of all ranks of this node.
  __device__ __forceinline__ void sent_near(int i) const {
    signal_all(b, w.size(), [&](int p) { return e.near().to(w.next(p), i); }, e.number());
  }

  static __device__ __forceinline__ void add(sums& sum, vector const& x) {
#pragma unroll
    for (int j = 0; j < per_16_bytes<T>; ++j) sum.x[j] += float(x.element[j]);
  }
  /// The sum of vector v of this rank's segment over the ranks of this node.
  __device__ __forceinline__ sums sum_of_node(int v, byte_slice<std::byte const> const& own, std::int64_t at) const {
    sums sum{};
    for (int k = 0; k < w.size(); ++k)
      add(sum, k == w.rank() ? __builtin_bit_cast(vector, load_of_slice(own, at))
                             : __builtin_bit_cast(vector, *near_vector(w.rank(), 0, k, v)));
    return sum;
  }
  static __device__ __forceinline__ vec16<std::byte> rounded(sums const& sum, bool failed) {
    vector y;
#pragma unroll
    for (int j = 0; j < per_16_bytes<T>; ++j) y.element[j] = T(failed ? __builtin_nanf("") : sum.x[j]);
    return __builtin_bit_cast(vec16<std::byte>, y);
  }
};

}  // namespace detail

/// Called by: nodes_all_reduce, on every rank.
template <class T>
__global__ void __launch_bounds__(nodes_all_reduce_plan::threads)
    nodes_all_reduce_kernel(__grid_constant__ nodes_view const ch,
                            __grid_constant__ nodes_all_reduce_arguments<T> const g) {
  block const b;
  nodes_epoch const e = ch.begin(b);
  detail::nodes_sum<T> const x{b, ch.world, e, g};
  int const near = ch.world.size(), place = ch.world.rank(), chunks = g.plan.chunks;
  auto const own = x.summands(place);
  bool const is_poisoned = e.near().control().fills_nan();
  auto const failed = [&] { return is_poisoned && e.near().control().should_fill_nan(); };

  detail::for_chunks(b, 0, 0, chunks, [&](int chunk) {
    for (int p = 1; p < near; ++p) {
      int const owner = ch.world.next(p);
      auto const from = x.summands(owner);
      x.for_vectors(chunk, from.bytes, [&](int v, std::int64_t at) {
        *x.near_vector(owner, 0, place, v) = __builtin_bit_cast(platform::native16, detail::load_of_slice(from, at));
      });
    }
    x.sent_near(chunk);
  });
  if (e.nodes() > 1)
    detail::for_chunks(b, 0, 0, chunks, [&](int chunk) {
      e.near().wait(b, 0, near - 1, chunk);
      x.for_vectors(chunk, own.bytes, [&](int v, std::int64_t at) {
        auto const sum = x.sum_of_node(v, own, at);
        for (int n = 0; n < e.nodes(); ++n)
          if (n != e.node()) x.node_sums(e.inbox<std::byte>(e.rail(n)), e.node())[v] = sum;
      });
      for (int n = 0; n < e.nodes(); ++n)
        if (n != e.node())
          e.signal(b, e.rail(n), chunk, x.node_sums(e.inbox<std::byte>(e.rail(n)), e.node()) + chunk * g.plan.chunk,
                   g.plan.chunk);
    });
  detail::for_chunks(b, 0, 0, chunks, [&](int chunk) {
    if (e.nodes() == 1) e.near().wait(b, 0, near - 1, chunk);
    for (int n = 0; n < e.nodes(); ++n)
      if (n != e.node()) e.wait(b, e.rail(n), chunk);
    bool const is_nan = failed();
    auto const to = x.results(place);
    x.for_vectors(chunk, own.bytes, [&](int v, std::int64_t at) {
      typename detail::nodes_sum<T>::sums sum{};
      for (int n = 0; n < e.nodes(); ++n) {
        auto const more =
            n == e.node() ? x.sum_of_node(v, own, at) : x.node_sums(e.inbox_from<std::byte>(e.rail(n)), n)[v];
#pragma unroll
        for (int j = 0; j < per_16_bytes<T>; ++j) sum.x[j] += more.x[j];
      }
      auto const y = x.rounded(sum, is_nan);
      for (int p = 1; p < near; ++p)
        *x.near_vector(ch.world.next(p), 1, place, v) = __builtin_bit_cast(platform::native16, y);
      detail::store_to_slice(to, at, y);
    });
    x.sent_near(chunks + chunk);
  });
  detail::for_chunks(b, 0, 0, chunks, [&](int chunk) {
    e.near().wait(b, 0, near - 1, chunks + chunk);
    bool const is_nan = failed();
    for (int p = near - 1; p > 0; --p) {
      int const owner = ch.world.next(p);
      auto const to = x.results(owner);
      x.for_vectors(chunk, to.bytes, [&](int v, std::int64_t at) {
        auto y = __builtin_bit_cast(detail::vec16<std::byte>, *x.near_vector(place, 1, owner, v));
        if (is_nan)
          for (std::byte& byte : y.element) byte = std::byte(0xff);
        detail::store_to_slice(to, at, y);
      });
    }
  });
  e.end(b);
}

}  // namespace fusewire
