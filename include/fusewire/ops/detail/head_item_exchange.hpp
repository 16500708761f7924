// Flash Decode's exchange between ranks: partial results (o, m, l) of head items go to the ranks that reduce them, and
// become outputs. flash_decode_kernel.hpp has the figure and the arguments.
#pragma once
#include <fusewire/device/channel_launch.hpp>
#include <fusewire/ops/detail/flash_decode_arguments.hpp>

namespace fusewire::detail {

/// One block's exchange in one launch.
template <class T, int D>
class head_item_exchange {
 public:
  using view = channel_view;              // what the kernel gets
  using launch = channel_launch;          // what it makes of it
  using arguments = decode_arguments<T>;  // of the kernel
  /// The epoch among the ranks that share a heap.
  __device__ static channel_epoch const& near(channel_epoch const& e) { return e; }

  /// A vec4 of a head item.
  struct vec4_at {
    int item, i;  // the head item's number, the vec4's
  };

  /// peers: room for an address of each rank in LDS.
  __device__ head_item_exchange(channel_view const& ch, channel_epoch const& e, decode_arguments<T> const& g,
                                decode_record record, ll_word<>** peers)
      : ch_(ch), e_(e), g_(g), record_(record), peers_(peers) {}

  /// Stores the address of this rank's records on the peer with this signal segment, which is b.rank() places after it.
  /// Called by: every thread of the block, before push(), with a barrier in between.
  __device__ void find_peer(block b, std::byte* signal) const {
    if (b.rank() < ch_.world.size()) peers_[b.rank()] = later_slot().to(signal);
  }

  /// The word that a failed wait of this rank's own splits of a head item names.
  __device__ ll_reader::awaited local_word(int head_item) const {
    int const item = ch_.world.size() > 1 ? platform::no_hoist_lane(head_item) : 0;
    return {slot().place(slot().from(ch_.world.rank()), item, 0), ch_.world.rank()};
  }

  /// Called by: `of` threads with the same partial, number n of them each; they take the peers round-robin.
  __device__ void push(vec4_at at, softmax_partial const& partial, int n, int of) const {
    int const size = later(ch_.world).size();
    if (size == 1) return n > 0 ? void() : write(at, partial);
    if (later(g_).scattered) return n > 0 ? void() : send(places_to(head_owner(at)), at, partial);
    if (g_.two_shot) {
      return n > 0 ? void() : send(places_to(owner(at.item)), at, partial);
    }
#pragma unroll 1
    for (int p = n; p < size; p += of) send(p + 1 < size ? p + 1 : 0, at, partial);
  }

  /// The output of what this block has pushed: vec4s [from, to) of all head items.
  /// Called by: every thread of the block.
  __device__ void combine(block b, int from, int to, int*) const {
    world_view const& w = ch_.world;
    if (w.size() == 1) return;
    int const first_vec4 = platform::uniform(from), last_vec4 = platform::uniform(to), vec4s = record_.vec4s();
    for (int item = first_vec4 / g_.vec4s; item * vec4s < last_vec4; ++item) {
      if (g_.two_shot && owner(item) != w.rank()) continue;
      int const first = item * vec4s;
      index_range const own = own_vec4s(item);
      int const begin = max(first_vec4 - first, own.begin), end = min(last_vec4 - first, own.end);
      reduce_partials<policy>(
          e_, w, begin, end, w.size(), log_readers(w.size()),
          [&](int source, int i) { return load_words(source, {item, i}); },
          [&](ll_reader const& read, int a, int b, int i) { return missing(read, a, b, {item, i}); },
          [&](int i, softmax_partial const& sum, int n, int of) {
            if (n == 0) write({item, i}, sum);
            if (!g_.two_shot) return;
#pragma unroll 1
            for (int p = 1 + n; p < w.size(); p += of) send(p, {item, i}, sum);
          });
    }
    if (!g_.two_shot) return;
    for (int n = from + b.rank(); n < to; n += decode_threads(D)) {
      vec4_at const at{n / g_.vec4s, n % g_.vec4s};
      if (int const source = owner(at.item); source != w.rank()) take(source, at);
    }
  }

  /// See ll_slot::refresh(). Called by: every thread of one block.
  __device__ void refresh(block b) const {
    if (ch_.world.size() == 1) return;
    slot().refresh(b, [&](int source, int item) {
      return item < g_.lengths.batch * g_.lengths.kv_heads &&
             (!g_.two_shot || owner(item) == ch_.world.rank() || owner(item) == source) && own_vec4s(item).size() > 0;
    });
  }

 protected:
  static constexpr decode_policy policy = decode_policy_for(D);
  static constexpr int log_rank_readers = std::countr_zero(unsigned(policy.rank_readers));
  /// As l it makes an output and its lse NaN: their partials have not arrived.
  static constexpr float not_a_number = __builtin_nanf("");
  static constexpr std::uint64_t grace_ns = 250'000'000;  // of a wait for a result: its owner may itself be waiting

  /// Lanes that read a vec4 of `ranks` ranks, as a number of bits.
  __device__ static int log_readers(int ranks) {
    int const wanted = ranks > 4 ? 3 : ranks > 2 ? 2 : 1;
    return wanted < log_rank_readers ? wanted : log_rank_readers;
  }
  __device__ ll_slot slot() const { return {g_.inbox, ch_.world, e_.number()}; }
  /// Arguments of what follows a split: they are not loaded ahead of the loop over splits, where they would delay the
  /// first K.
  template <class X>
  __device__ static X const& later(X const& x) {
    return (&x)[platform::no_hoist(0)];
  }
  __device__ ll_slot later_slot() const { return {later(g_.inbox), later(ch_.world), e_.number()}; }

  __device__ int owner(int item) const {
    return int(unsigned(item) % unsigned(platform::no_hoist_lane(ch_.world.size())));
  }

  /// The first query head of a head item.
  __device__ int first_head(int item) const { return item % later(g_).lengths.heads * record_.heads; }
  /// The rank that has the result of a vec4, if results are scattered.
  __device__ int head_owner(vec4_at at) const { return later(g_).owners.owner(first_head(at.item) + at.i / (D / 4)); }
  /// How many places after this rank a rank is.
  __device__ int places_to(int rank) const {
    int const next = rank - ch_.world.rank();
    return next < 0 ? next + ch_.world.size() : next;
  }
  /// Vec4s of a head item whose results this rank has.
  __device__ index_range own_vec4s(int item) const {
    if (!g_.scattered) return {0, record_.vec4s()};
    int const first = first_head(item);
    return {max(g_.own.begin - first, 0) * (D / 4), min(g_.own.end - first, record_.heads) * (D / 4)};
  }

  __device__ vec4_words load_words(int source, vec4_at at) const {
    ll_slot const s = slot();
    ll_word<> const* const records = s.from(source);
    return vec4_words::loaded([&](int j) { return ll_load(s.place(records, at.item, record_.word(at.i, j))); });
  }
  /// The first word that has not arrived from the sources [first, last), for the report of a failed wait.
  __device__ ll_reader::awaited missing(ll_reader const& read, int first, int last, vec4_at at) const {
    ll_slot const s = slot();
    for (int n = vec4_words::count * first;; ++n) {
      int const source = n / vec4_words::count;
      ll_word<> const* const word = s.place(s.from(source), at.item, record_.word(at.i, n % vec4_words::count));
      if (n == vec4_words::count * last - 1 || !read.has_arrived(ll_load(word))) return {word, source};
    }
  }
  /// Waits for the result of the rank that reduces this vec4, and writes it.
  __device__ void take(int source, vec4_at at) const {
    ll_reader read(e_, ch_.world, grace_ns);
    vec4_words words;
    do {
      words = load_words(source, at);
      platform::sched_barrier();
      words.check(read);
    } while (read.again([&] { return missing(read, source, source + 1, at); }));
    softmax_partial sum{words.o(), words.scale()};
    if (read.gave_up()) sum.s.l = not_a_number;
    write(at, sum);
  }
  /// To the rank `next` places after this one.
  __device__ void send(int next, vec4_at at, softmax_partial const& partial) const {
    ll_slot const s = later_slot();
    ll_word<>* const records = platform::to_memory(peers_[next]);
    auto const put = [&](int j, float x) {
      ll_store(s.place(records, at.item, record_.word(at.i, j)), x, e_.number());
    };
#pragma unroll
    for (int j = 0; j < 4; ++j) put(j, partial.o.x[j]);
    if (!record_.begins_head(at.i)) return;
    put(4, partial.s.m);
    put(5, partial.s.l);
  }

  __device__ void write(vec4_at at, softmax_partial const& x) const {
    decode_arguments<T> const& g = later(g_);
    struct alignas(8) {
      T value[4];
    } out;
    // A quotient, rounded once: o times 1 / l is rounded twice, and may be the neighbour of what T should get
#pragma unroll
    for (int j = 0; j < 4; ++j) out.value[j] = T(x.s.l == 0 ? 0.0f : x.o.x[j] / x.s.l);  // NaN if l is
    int head = at.item * g.group + at.i / (D / 4);
    if (g.scattered) {  // not counted: heads of other ranks
      int const sequence = platform::no_hoist_lane(at.item) / g.lengths.heads;
      head -= g.own.begin + sequence * (g.lengths.kv_heads * g.group - g.own.size());
    }
    int const four = at.i % (D / 4);
    *reinterpret_cast<decltype(out)*>(g.out + std::int64_t(head) * D + four * 4) = out;
    if (g.lse && four == 0) g.lse[head] = (x.s.m + platform::log2(x.s.l)) * g.lse_unit;
  }

  channel_view const& ch_;
  channel_epoch const& e_;
  decode_arguments<T> const& g_;
  decode_record record_;
  ll_word<>** peers_;  // [ranks], in LDS: ll_slot::to() of this rank, the next one, ...
};

}  // namespace fusewire::detail
