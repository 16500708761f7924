// Flash Decode over a KV cache that is sharded over the ranks by tokens: attention of one query token per sequence, one
// kernel. The operator is in flash_decode.hpp.
//
//   splits    this rank's KV --attention--> (o, m, l) per wave --LDS--> per split
//   share     of an item that blocks share, in each of them: all splits' parts --split_kv_workspace--> sum
//   push      (o, m, l) --words with the epoch--> inbox of every rank, or with two shots of the item's owner
//   combine   by the block that has pushed it:
//             poll the inbox --softmax_sums--> out, lse
//             with two shots the owner's block does that, and
//             the sum --words with the epoch--> inbox of the others --poll--> out, lse
//
// An item is a sequence and a KV head; kv_schedule.hpp says how items become splits, split_kv_workspace.hpp how the
// blocks of an item exchange their parts. The query heads of a KV head are worked on together, so the KV is read once.
// Everything between scores and out is fp32. A single rank pushes nothing: out is written at once.
//
// Deadlock: splits wait for nothing, and a block asks for others' parts when it has stored its own. All blocks are
// resident (launch() checks), so every item is pushed without waiting for another rank. Sums over the ranks wait for
// pushes only, and a thread waits for others' sums when it has sent its own.
// Reuse: the inbox is one of stamped words (stamped_inbox_view.hpp), a record for each item and source. Each source
// writes records of its own (an owner its sum where its part would be), which only this launch's combine reads.
// Early: the launch may start while what the stream did before still runs. Before begin() nothing is written, and read
// are only parameters and, where the caller says that they are constant, lengths, table and K of splits without their
// shard's last token.
// Same bits on every rank and in every run: the plan depends on lengths and grid; waves are summed in order, splits and
// sources each in one that their number decides.
#pragma once
#include <fusewire/device/channel_launch.hpp>
#include <fusewire/device/stamped_inbox_view.hpp>
#include <fusewire/attention/kv_schedule.hpp>
#include <fusewire/attention/split_kv_workspace.hpp>
#include <fusewire/attention/wave_attention.hpp>

namespace fusewire {

/// Threads of a block, for a head of d.
__host__ __device__ constexpr int decode_threads(int d) { return attention_waves(d) * platform::wave_size; }

/// What a launch of flash_decode_kernel works on.
template <class T>
struct decode_arguments {
  T const *q, *k, *v;         // [batch, q heads, d], [pages, page size, kv heads, d] twice
  std::int32_t const* pages;  // [batch, max_pages]
  T* out;                     // [batch, q heads, d]
  float* lse;                 // [batch, q heads], or null
  /// Tokens, and how they are dealt to blocks. Lengths are checked where lengths.max_tokens is more than the pages hold
  decode_lengths lengths;
  int max_pages, page_shift, group;  // group: query heads per KV head
  bool two_shot;                     // item i is summed up by rank i % W alone
  bool kv_is_ready;          // of what is read, what the stream does just before writes at most q and the last tokens
  float scale;               // of the scores, in units of log 2
  stamped_inbox_view inbox;  // a record for each item that the operator has room for
  split_kv_view parts;       // of items that blocks share
  divisor quads;             // of an item: fours of neighbouring elements of o
  int pages_to_check = 0;    // of the caches; 0: page numbers are not looked at
};

/// LDS of a block: a few words, Q, an address for each rank, each wave's (m, l) and o.
__host__ __device__ constexpr int decode_shared_bytes(int heads, int d) {
  return 32 + 16 * d * 2 + max_ranks * 8 + attention_waves(d) * heads * (8 + 132 * 4);
}

namespace detail {

template <class T, int D>
class decode_block {
  using attention = wave_attention<T, D>;

 public:
  __device__ decode_block(channel_view const& ch, decode_arguments<T> const& g, bytes16* shared)
      : ch_(ch), launch_(ch), g_(g), words_(reinterpret_cast<int*>(shared)), q_(shared + 2),
        peers_(reinterpret_cast<stamped**>(q_ + attention::q_bytes / 16)),
        scales_(reinterpret_cast<softmax_scale*>(peers_ + max_ranks)), record_{platform::no_hoist(g.group), D},
        o_(reinterpret_cast<float*>(scales_ + waves * record_.heads)) {}

  /// All splits of this block; what they complete is on its way to the inboxes.
  __device__ void run_splits() {
    if (!g_.kv_is_ready) platform::wait_prior_grid();
    if constexpr (!platform::has_pdl) launch_.begin();
    kv_schedule run(b_, g_.lengths, words_, number());
    if (run.has_last_token()) platform::wait_prior_grid();
    int const next = b_.rank() < ch_.world.size() ? ch_.world.next(b_.rank()) : 0;
    std::byte* const signal = ch_.world.signal[next];  // ahead of K, behind which it would be waited for
    // While K is on its way
    auto const prepare = [&] {
      if (b_.rank() < ch_.world.size()) peers_[b_.rank()] = later_slot().to(signal);
      parts().renew(b_, number(), b_.count());
    };
    for (bool first = true;; run.next(), first = false) {
      if constexpr (!platform::has_pdl)
        if (run.done()) {  // open() would wait for what is on its way to others
          if (first) prepare();
          break;
        }
      attention a = open(run);
      if constexpr (platform::has_pdl)
        if (first) launch_.begin();
      if (first) prepare();
      if constexpr (platform::has_pdl)
        if (run.done()) break;
      item_share const early = platform::has_pdl ? item_share{} : share_of(run);  // while K is on its way
      attend(a, run);
      leave(run, platform::has_pdl ? share_of(run) : early);
    }
  }

  /// While others' parts are awaited, the leader's ticket is on its way.
  __device__ void depart() {
    launch_.settle();
    b_.sync();  // all have the epoch
    if (b_.leader()) departed_ = launch_.depart();
  }

  /// Called by: every thread of the block, last of all.
  __device__ void end() const {
    if (number() == b_.count() - 1 && ch_.world.size() > 1)
      slot().renew(b_, [&](int source, int item) {
        return item < g_.lengths.batch * g_.lengths.kv_heads &&
               (!g_.two_shot || owner(item) == ch_.world.rank() || owner(item) == source);
      });
    if (b_.index() == 0) launch_.collect(b_);
    b_.sync();
    if (b_.leader()) launch_.leave(b_, departed_);
  }

  /// This block's shares of the items that it has not attended to alone, to the inboxes.
  __device__ void sum_shares() {
#pragma unroll 1
    for (int s = 0; s < 2; ++s) {
      item_share const x = s == 0 ? continued_.uniform() : begun_.uniform();
      parts().sum(
          x,
          [&] {  // a failed wait names this rank's own result of the item
            int const item = ch_.world.size() > 1 ? platform::no_hoist_lane(x.item) : 0;
            return stamped_reader::awaited{slot().place(slot().from(ch_.world.rank()), item, 0), ch_.world.rank()};
          },
          [&](int i, softmax_part const& sum, int n, int of) { push({x.item, i}, sum, n, of); });
    }
  }

  /// The output of what this block has pushed.
  __device__ void combine_sources() {
    world_view const& w = ch_.world;
    if (w.size() == 1) return;
    int const from = platform::uniform(from_), to = platform::uniform(to_), quads = record_.quads();
    for (int item = from / g_.quads; item * quads < to; ++item) {
      if (g_.two_shot && owner(item) != w.rank()) continue;
      int const first = item * quads, begin = from < first ? 0 : from - first, end = to - first;
      sum_parts<waves>(
          epoch(), w, begin, end < quads ? end : quads, w.size(), log_rank_readers(w.size()),
          [&](int source, int i) { return ask(source, {item, i}); },
          [&](stamped_reader const& read, int a, int b, int i) { return missing(read, a, b, {item, i}); },
          [&](int i, softmax_part const& sum, int n, int of) {
            if (n == 0) write({item, i}, sum);
            if (!g_.two_shot) return;
#pragma unroll 1
            for (int p = 1 + n; p < w.size(); p += of) send(p, {item, i}, sum);
          });
    }
    if (!g_.two_shot) return;
    for (int n = from_ + b_.rank(); n < to_; n += threads) {
      quad_at const at = quad_number(n);
      int const source = owner(at.item);
      if (source == w.rank()) continue;
      stamped_reader read(epoch(), w, grace_ns);
      quad_words words;
      do {
        words = ask(source, at);
        platform::sched_barrier();
        words.look(read);
      } while (read.again([&] { return missing(read, source, source + 1, at); }));
      softmax_part sum{words.o(), words.scale()};
      if (read.gave_up()) sum.s.l = not_a_number;
      write(at, sum);
    }
  }

 private:
  /// Of this block's run. Where blocks are spared, one of them is block 0, which sends headers and waits for them.
  __device__ int number() const { return platform::has_pdl ? b_.index() : b_.count() - 1 - b_.index(); }
  /// As l it makes an output and its lse NaN: their parts have not come
  static constexpr float not_a_number = __builtin_nanf("");
  static constexpr int waves = attention_waves(D), threads = decode_threads(D);
  static constexpr std::uint64_t grace_ns = 250'000'000;  // of a wait for a sum: its owner may itself be waiting

  __device__ channel_epoch const& epoch() const { return launch_.epoch(); }
  __device__ stamped_slot slot() const { return {g_.inbox, ch_.world, epoch().number()}; }
  /// Arguments of what follows a split: it is not worked out ahead of the loop over splits, where it would hold up the
  /// first K.
  template <class X>
  __device__ static X const& later(X const& x) {
    return (&x)[platform::no_hoist(0)];
  }
  __device__ stamped_slot later_slot() const { return {later(g_.inbox), later(ch_.world), epoch().number()}; }

  /// The i-th quad of an item.
  struct quad_at {
    int item, i;
  };
  /// The n-th quad of all items.
  __device__ quad_at quad_number(int n) const { return {n / g_.quads, n % g_.quads}; }
  __device__ item_share share_of(kv_schedule const& run) const {
    int const first = run.first_block();
    return item_share::of(run.item(), first, run.last_block() - first + 1, number() - first, record_);
  }
  __device__ int owner(int item) const {
    return int(unsigned(item) % unsigned(platform::no_hoist_lane(ch_.world.size())));
  }

  __device__ quad_words ask(int source, quad_at at) const {
    stamped_slot const s = slot();
    stamped const* const records = s.from(source);
    return quad_words::asked([&](int j) {
      return platform::atomic_load<order::relaxed, scope::system>(
          &s.place(records, at.item, record_.word(at.i, j))->word);
    });
  }
  /// The first word that has not come from the sources [first, last), for the report of a failed wait.
  __device__ stamped_reader::awaited missing(stamped_reader const& read, int first, int last, quad_at at) const {
    stamped_slot const s = slot();
    for (int n = quad_words::count * first;; ++n) {
      int const source = n / quad_words::count;
      stamped const* const word = s.place(s.from(source), at.item, record_.word(at.i, n % quad_words::count));
      if (n == quad_words::count * last - 1 || !read.is_there(read.ask(word))) return {word, source};
    }
  }
  /// To the rank `next` places after this one.
  __device__ void send(int next, quad_at at, softmax_part const& part) const {
    stamped_slot const s = later_slot();
    stamped* const records = platform::to_memory(peers_[next]);
    auto const put = [&](int j, float x) {
      store_stamped(s.place(records, at.item, record_.word(at.i, j)), x, epoch().number());
    };
#pragma unroll
    for (int j = 0; j < 4; ++j) put(j, part.o.x[j]);
    if (!record_.begins_head(at.i)) return;
    put(4, part.s.m);
    put(5, part.s.l);
  }

  /// Whether the split may be read, as far as anybody looks: the length of its sequence is one that the table has room
  /// for, and its pages are in the caches. What is wrong is noted. Every wave looks at all of it.
  __device__ bool exists(kv_schedule const& run) const {
    if (run.done()) return true;
    int const room = g_.max_pages << g_.page_shift;
    if (run.tokens() > room) {
      note_misuse(ch_.world, misuse::length, g_.lengths.tokens[run.sequence()], room + 1, run.sequence());
      return false;
    }
    if (g_.pages_to_check == 0) return true;
    wave const w;
    int const last = (run.end() - 1) >> g_.page_shift;
    int missing = 0;
#pragma unroll 1
    for (int i = (run.begin() >> g_.page_shift) + w.rank(); i <= last; i += w.size()) {
      int const entry = run.sequence() * g_.max_pages + i, page = g_.pages[entry];
      if (page >= 0 && page < g_.pages_to_check) continue;
      note_misuse(ch_.world, misuse::page, page, g_.pages_to_check, entry);
      missing = 1;
    }
#pragma unroll 1
    for (int mask = 1; mask < wave::width; mask *= 2) missing |= platform::shuffle_xor(missing, mask);
    return missing == 0;
  }

  /// Asks for the split's first K. Where the stream's past is over, Q is in LDS before: its loads and those of the page
  /// table are waited for together.
  __device__ attention open(kv_schedule const& run) {
    // The heads are wanted in every step: by themselves, not with the arguments that were loaded beside them
    paged_kv<T> const kv{g_.k,          g_.v,
                         g_.pages,      unsigned(run.sequence()) * unsigned(g_.max_pages),
                         g_.page_shift, platform::no_hoist(g_.lengths.kv_heads),
                         run.head()};
    bool const empty = platform::uniform(run.done() || !exists(run));
    int const begin = empty ? 0 : run.begin(), end = empty ? 0 : run.end();
    platform::native16 query{};
    if constexpr (!platform::has_pdl)
      if (!run.done()) query = load_query(run);
    attention a(kv, begin + platform::uniform(wave{}.index()) * attention::step, end, waves * attention::step);
    if constexpr (!platform::has_pdl) {
      std::uint64_t some;
      memcpy(&some, &query, sizeof some);
      platform::settle(some);  // in all threads, whatever follows
      attention::store_query(b_, query, q_);
    }
    a.start();
    return a;
  }

  __device__ platform::native16 load_query(kv_schedule const& run) const {
    return attention::load_query(b_, g_.q + std::int64_t(run.item()) * record_.heads * D, record_.heads);
  }

  /// This rank's attention over the split, each wave's part of it into LDS.
  __device__ void attend(attention& a, kv_schedule const& run) {
    b_.sync();  // the last split has been read
    wave const w;
    static_assert(attention::q_fragments <= threads);
    if constexpr (platform::has_pdl) {
      attention::store_query(b_, load_query(run), q_);
      b_.sync();
    }
    a.run(q_, g_.scale);
    a.finish(o_ + w.index() * record_.heads * attention::pitch, scales_ + w.index() * record_.heads, record_.heads);
    // Of the K and V that run() asks for last: who needs their registers would wait for later stores as well
    platform::drain_stores();
    b_.sync();
  }

  /// Takes the sum over the waves to the inboxes if the split is all of its item, else to the block's place.
  __device__ void leave(kv_schedule const& run, item_share const& x) {
    int const rank = platform::no_hoist_lane(b_.rank()), group = platform::no_hoist(record_.heads);
    decode_record const record{group, D};
    bool const whole = platform::uniform(run.whole()), begins = run.starts();
    if (to_ == 0) from_ = x.item * record.quads() + x.begin;
    to_ = x.item * record.quads() + x.end;  // shares and items of a block are neighbours
    if (!whole && begins) begun_ = x;
    if (!whole && !begins) continued_ = x;
    for (int i = rank; i < record.quads(); i += threads) {
      int const head = i / (D / 4), four = i % (D / 4);
      softmax_part const sum = combine_parts<waves>(
          waves, [&](int w) { return scales_[w * group + head]; },
          [&](int w) { return *reinterpret_cast<quad const*>(o_ + (w * group + head) * attention::pitch + four * 4); });
      if (whole) push({x.item, i}, sum, 0, 1);
      else parts().store(number(), begins, i, sum);
    }
  }

  __device__ split_kv_workspace<waves> parts() const { return {g_.parts, record_, epoch(), ch_.world}; }

  /// Called by: `of` threads with the same part, number n of them each; they take the peers in turns.
  __device__ void push(quad_at at, softmax_part const& part, int n, int of) const {
    int const size = later(ch_.world).size();
    if (size == 1) return n > 0 ? void() : write(at, part);
    if (g_.two_shot) {
      int const next = owner(at.item) - ch_.world.rank();
      return n > 0 ? void() : send(next < 0 ? next + size : next, at, part);
    }
#pragma unroll 1
    for (int p = n; p < size; p += of) send(p + 1 < size ? p + 1 : 0, at, part);
  }

  __device__ void write(quad_at at, softmax_part const& x) const {
    decode_arguments<T> const& g = later(g_);
    struct alignas(8) {
      T value[4];
    } out;
    // A quotient, rounded once: o times 1 / l is rounded twice, and may be the neighbour of what T should get
#pragma unroll
    for (int j = 0; j < 4; ++j) out.value[j] = T(x.s.l == 0 ? 0.0f : x.o.x[j] / x.s.l);  // NaN if l is
    std::int64_t const head = std::int64_t(at.item) * g.group + at.i / (D / 4);
    int const four = at.i % (D / 4);
    *reinterpret_cast<decltype(out)*>(g.out + head * D + four * 4) = out;
    if (g.lse && four == 0) g.lse[head] = (x.s.m + platform::log2(x.s.l)) * ln_of_2;
  }

  block b_;
  channel_view const& ch_;
  channel_launch launch_;
  unsigned departed_ = 0;  // of the leader
  decode_arguments<T> const& g_;
  int* words_;
  bytes16* q_;
  stamped** peers_;        // [ranks]: stamped_slot::to() of this rank, the next one, ...
  softmax_scale* scales_;  // [waves][group]
  decode_record record_;
  float* o_;                      // [waves][group][pitch]
  item_share continued_, begun_;  // of the items that the block's first and last split do not end, or begin
  int from_ = 0, to_ = 0;         // what the block pushes: quads of all items
};

}  // namespace detail

/// Attention of one token per sequence over all ranks' KV. Called by: flash_decode, on every rank.
template <class T, int D>
__global__ void __launch_bounds__(decode_threads(D), attention_bound(D))
    flash_decode_kernel(channel_view ch, decode_arguments<T> g) {
  extern __shared__ bytes16 shared[];
  detail::decode_block<T, D> work(ch, g, shared);
  work.run_splits();
  work.depart();
  work.sum_shares();
  work.combine_sources();
  work.end();
}

}  // namespace fusewire
