// Flash Decode's exchange between ranks of several nodes. nodes_flash_decode_kernel.hpp has the figure and the
// arguments.
#pragma once
#include <fusewire/nodes/nodes_launch.hpp>
#include <fusewire/ops/detail/head_item_exchange.hpp>
#include <fusewire/ops/detail/nodes_decode_plan.hpp>

namespace fusewire {

/// What a launch of nodes_flash_decode_kernel works on.
template <class T>
struct nodes_decode_arguments : decode_arguments<T> {
  divisor group_size;  // query heads per KV head
  /// How results are divided.
  nodes_decode_plan plan;
};

namespace detail {

/// One block's exchange in one launch over nodes. Query heads are owned by places of a node (decode_arguments::owners).
template <class T, int D>
class nodes_head_item_exchange : head_item_exchange<T, D> {
  using base = head_item_exchange<T, D>;
  using base::ch_, base::record_, base::policy, base::not_a_number, base::head_owner;

 public:
  using view = nodes_view;
  using launch = nodes_launch;
  using arguments = nodes_decode_arguments<T>;
  using typename base::vec4_at;
  __device__ static channel_epoch const& near(nodes_epoch const& e) { return e.near(); }

  __device__ nodes_head_item_exchange(nodes_view const& ch, nodes_epoch const& e, arguments const& g,
                                      decode_record record, ll_word<>** peers)
      : base(ch, e.near(), g, record, peers), e_(e), g_(g) {}

  using base::find_peer;

  /// As head_item_exchange's; a node of one rank has words of its own partials, too.
  __device__ ll_reader::awaited local_word(int head_item) const {
    ll_slot const s = base::slot();
    return {s.place(s.from(ch_.world.rank()), head_item, 0), ch_.world.rank()};
  }

  /// To the place that owns the head. Called by: `of` threads with the same partial, number n of them each.
  __device__ void push(vec4_at at, softmax_partial const& partial, int n, int) const {
    if (n == 0) base::send(base::places_to(head_owner(at)), at, partial);
  }

  /// The output of all ranks' partials. [from, to): the vec4s of all head items that this block has pushed.
  /// Called by: every thread of the block; `word` is one word of its shared memory.
  __device__ void combine(block b, int from, int to, int* word) const {
    int const others = e_.nodes() - 1;
    if (others == 0)
      for (int unit = b.index(); unit < g_.plan.units; unit += b.count())
        reduce_node(unit, [&](int i, softmax_partial const& sum) { result(unit, i, sum); });
    else {
      for (int unit = b.index(); unit < g_.plan.units; unit += b.count()) {
        int const rows = g_.plan.of_unit(unit).size();
        reduce_node(unit, [&](int i, softmax_partial const& sum) {
#pragma unroll 1
          for (int k = 0; k < others; ++k) store(window(k, unit), rows, i, sum);
        });
        for (int k = 0; k < others; ++k)
          e_.signal(b, rail(k), unit, window(k, unit), std::int64_t(rows) * g_.plan.words_of_row(D));
      }
      for (int unit = b.index(); unit < g_.plan.units; unit += b.count()) {
        bool all_came = true;
        for (int k = 0; k < others; ++k) all_came = e_.try_wait(b, rail(k), unit, word) && all_came;
        int const rows = g_.plan.of_unit(unit).size();
#pragma unroll 1
        for (int i = b.rank(); i < rows * (D / 4); i += b.size()) {
          softmax_partial sum = sum_of_nodes(unit, rows, i);
          if (!all_came) sum.s.l = not_a_number;
          result(unit, i, sum);
        }
      }
    }
    for (int n = from + b.rank(); n < to; n += decode_threads(D)) {
      vec4_at const at{n / g_.vec4s, n % g_.vec4s};
      if (int const owner = head_owner(at); owner != ch_.world.rank()) base::take(owner, at);
    }
  }

  /// See ll_slot::refresh(). Of a record that a launch has, words of heads that neither rank owns are never written.
  /// Called by: every thread of one block.
  __device__ void refresh(block b) const {
    base::slot().refresh(b, [&](int, int item) { return item < g_.lengths.batch * g_.lengths.kv_heads; });
  }

 private:
  /// The k-th other rank with this rank's place.
  __device__ int rail(int k) const { return e_.rail(k < e_.node() ? k : k + 1); }
  /// A node's results of a unit of this place, in an inbox of far ranks or a window onto one: o [rows][D], then (m, l)
  /// [rows].
  template <class Word>
  __device__ Word* results(Word* inbox, int node, int unit) const {
    return inbox + node * g_.plan.words() + std::int64_t(unit) * g_.plan.unit_words;
  }
  /// This node's, for the k-th other rank with this rank's place.
  __device__ float* window(int k, int unit) const { return results(e_.inbox<float>(rail(k)), e_.node(), unit); }
  __device__ static void store(float* to, int rows, int i, softmax_partial const& x) {
    *reinterpret_cast<vec4*>(to + i * 4) = x.o;
    if (i % (D / 4) == 0) *reinterpret_cast<softmax_scale*>(to + rows * D + i / (D / 4) * 2) = x.s;
  }

  /// Where vec4 i of a unit is.
  __device__ vec4_at place(int unit, int i) const {
    int const row = g_.plan.of_unit(unit).begin + i / (D / 4), sequence = row / g_.plan.heads,
              head = g_.plan.first_head + row % g_.plan.heads, kv_head = head / g_.group_size;
    return {sequence * g_.lengths.kv_heads + kv_head, head % g_.group_size * (D / 4) + i % (D / 4)};
  }
  /// Waits for the partials of this node's ranks and reduces them: calls consume(i, sum) for vec4 i of the unit, in
  /// one lane: the last bit of a sum may be another in each lane that has it, as multiplications are fused differently.
  template <class Consume>
  __device__ void reduce_node(int unit, Consume const& consume) const {
    int const ranks = ch_.world.size();
    reduce_partials<policy>(
        near(e_), ch_.world, 0, g_.plan.of_unit(unit).size() * (D / 4), ranks, base::log_readers(ranks),
        [&](int source, int i) { return base::load_words(source, place(unit, i)); },
        [&](ll_reader const& read, int a, int b, int i) { return base::missing(read, a, b, place(unit, i)); },
        [&](int i, softmax_partial const& sum, int n, int) { return n == 0 ? consume(i, sum) : void(); });
  }
  /// Combines the nodes' results of vec4 i of a unit, in the order of nodes. This node's is what it has put: were it
  /// computed again, in other code, its last bit might be another.
  __device__ softmax_partial sum_of_nodes(int unit, int rows, int i) const {
    auto const of = [&](int k) -> float const* {
      return k == e_.node() ? window(0, unit) : results(e_.inbox_from<float const>(e_.rail(k)), k, unit);
    };
    return combine_partials<1>(
        e_.nodes(), [&](int k) { return *reinterpret_cast<softmax_scale const*>(of(k) + rows * D + i / (D / 4) * 2); },
        [&](int k) { return *reinterpret_cast<vec4 const*>(of(k) + i * 4); });
  }
  /// To `out`, and to the other ranks of this node.
  __device__ void result(int unit, int i, softmax_partial const& sum) const {
    vec4_at const at = place(unit, i);
    base::write(at, sum);
#pragma unroll 1
    for (int p = 1; p < ch_.world.size(); ++p) base::send(p, at, sum);
  }

  nodes_epoch const& e_;
  arguments const& g_;
};

}  // namespace detail

}  // namespace fusewire
