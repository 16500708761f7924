// Flash Decode over a KV cache that is sharded over the ranks by tokens: attention of one query token per sequence, one
// kernel. The operator is in flash_decode.hpp.
//
//   splits    this rank's KV --attention--> (o, m, l) per wave --LDS--> per split
//             --workspace, ticket--> per item, by the last to arrive
//   push      (o, m, l) of the item --words with the epoch--> inbox of every rank, or with two shots of the item's
//   owner combine   by the block that has pushed the item, when its splits are done:
//             poll the inbox --sources in order--> out, lse
//             with two shots the owner's block does that, and
//             the sum --words with the epoch--> inbox of the others --poll--> out, lse
//
// An item is a sequence and a KV head; decode_plan.hpp says how items become splits. The query heads of a KV head are
// worked on together, so the KV is read once. Everything between scores and out is fp32. A single rank pushes nothing:
// out is written at once.
//
// Deadlock: splits wait for nothing, and a block combines only after its splits. All blocks are resident (launch()
// checks), so every item is pushed without waiting for anybody: by the block that had all of the item, or by the last
// to arrive. Sums wait for pushes only, and a thread waits for others' sums when it has sent its own.
// Reuse: the inbox is the operator's own, in two slots by parity of the epoch, and is safe by the channel's argument:
// each source writes a place of its own (an owner its sum where its part would be), which only this launch's combine
// reads. A word says which launch it is from (stamped.hpp). A place in the workspace belongs to one block, which writes
// it once in a launch; it is read by the last to arrive of the same launch, after its ticket. A ticket is back at 0
// when the last has arrived.
// Early: the launch may start while what the stream did before still runs. Before begin() nothing is written, and read
// are only parameters and, where the caller says that they are constant, lengths, table and K of splits without their
// shard's last token.
// Same bits on every rank and in every run: the plan depends on lengths and grid; waves, splits and sources are each
// summed in order.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/device/stamped.hpp>
#include <fusewire/kernels/decode_plan.hpp>
#include <fusewire/tile/attention.hpp>

namespace fusewire {

__host__ __device__ constexpr int decode_threads(int d) { return attention_waves(d) * platform::wave_size; }

/// Where the partial results of one item lie in a record: o [heads][d], then (m, l) [heads].
struct decode_record {
  int heads, d;  // query heads that share a KV head

  __host__ __device__ constexpr int floats() const { return (heads * (d + 2) + 3) / 4 * 4; }
  // In an inbox, stamped: o by component, then (m, l)
  __host__ __device__ constexpr int words() const { return (heads * (d + 2) + 15) / 16 * 16; }
  __host__ __device__ constexpr int quads() const { return heads * d / 4; }
  __device__ quad& o(float* record, int i) const { return reinterpret_cast<quad*>(record)[i]; }
  __device__ quad const& o(float const* record, int i) const { return reinterpret_cast<quad const*>(record)[i]; }
  __device__ softmax_scale& scale(float* record, int head) const {
    return reinterpret_cast<softmax_scale*>(record + heads * d)[head];
  }
  __device__ softmax_scale const& scale(float const* record, int head) const {
    return reinterpret_cast<softmax_scale const*>(record + heads * d)[head];
  }
};

template <class T>
struct decode_arguments {
  T const *q, *k, *v;         // [batch, q heads, d], [pages, page size, kv heads, d] twice
  std::int32_t const* pages;  // [batch, max_pages]
  T* out;                     // [batch, q heads, d]
  float* lse;                 // [batch, q heads], or null
  decode_lengths lengths;
  int max_pages, page_shift, group;  // group: query heads per KV head
  int max_items;                     // capacity: records per source in a slot of the inbox
  bool two_shot;                     // item i is summed up by rank i % W alone
  bool kv_is_ready;        // of what is read, what the stream does just before writes at most q and the last tokens
  float scale;             // of the scores, in units of log 2
  sym<stamped> inbox;      // 2 slots of [W][max_items] records
  float* workspace;        // [blocks + max_items] records
  unsigned* tickets;       // [max_items], 0 between launches; then a counter for each slot
  int pages_to_check = 0;  // of the caches; 0: page numbers are not looked at
};

/// LDS of a block: a few words, Q, each wave's (m, l) and o.
__host__ __device__ constexpr int decode_shared_bytes(int heads, int d) {
  return 32 + 16 * d * 2 + attention_waves(d) * heads * (8 + 132 * 4);
}

namespace detail {

template <class T, int D>
class decode_block {
  using attention = wave_attention<T, D>;

 public:
  __device__ decode_block(channel_view const& ch, decode_arguments<T> const& g, bytes16* shared)
      : ch_(ch), g_(g), words_(reinterpret_cast<int*>(shared)), q_(shared + 2),
        scales_(reinterpret_cast<softmax_scale*>(q_ + attention::q_bytes / 16)),
        o_(reinterpret_cast<float*>(scales_ + waves * g.group)), record_{g.group, D} {}

  /// All splits of this block; what they complete is on its way to the inboxes.
  __device__ void run_splits() {
    if (!g_.kv_is_ready) platform::wait_for_stream();
    decode_run run(b_, g_.lengths, words_);
    if (run.has_last_token()) platform::wait_for_stream();
    for (;; run.next()) {
      attention a = open(run);
      if (number_ == 0) begin();
      if (run.done()) break;
      attend(a, run);
      if (complete(run) && items_++ == 0) first_ = run.item();  // what a block completes are neighbours
    }
  }

  /// While others' parts are awaited, the leader's ticket is on its way.
  __device__ void depart() {
    platform::settle(number_);
    b_.sync();  // all have the epoch
    if (b_.leader()) departed_ = epoch().depart();
  }

  /// Called by: every thread of the block, last of all.
  __device__ void end() const {
    unsigned* const turn = g_.tickets + g_.max_items + (number_ & 1);
    bool const renews = b_.index() == b_.count() - 1 && ch_.world.size > 1;
    int const item = renews ? int(*turn) : 0;
    if (renews) renew(item);
    if (b_.index() == 0) epoch().collect_credit(b_);
    b_.sync();  // all have read whose turn it is
    if (!b_.leader()) return;
    epoch().leave(b_, departed_);
    if (renews) *turn = unsigned(item + 1 < g_.max_items ? item + 1 : 0);
  }

  /// The output of the items that this block has completed.
  __device__ void combine_sources() {
    world_view const& w = ch_.world;
    if (w.size == 1) return;
    channel_epoch const e = epoch();
    for (int n = b_.rank(); n < items_ * record_.quads(); n += b_.size()) {
      quad_at const at = completed(n);
      if (g_.two_shot && owner(at.item) != w.rank) continue;
      stamped_reader read(e, w);
      softmax_part sum;
      do {
        sum = combine_parts<4>(
            w.size, [&](int r) { return read_scale(read, r, at); }, [&](int r) { return read_o(read, r, at); });
      } while (read.again());
      if (read.gave_up()) sum.s.l = not_a_number;
      else if (g_.two_shot) {
#pragma unroll 1
        for (int p = 1; p < w.size; ++p) send(w.next(p), at, sum);
      }
      write(at, sum);
    }
    if (!g_.two_shot) return;
    for (int n = b_.rank(); n < items_ * record_.quads(); n += b_.size()) {
      quad_at const at = completed(n);
      int const source = owner(at.item);
      if (source == w.rank) continue;
      stamped_reader read(e, w, grace_ns);
      softmax_part sum;
      do {
        sum = {read_o(read, source, at), read_scale(read, source, at)};
      } while (read.again());
      if (read.gave_up()) sum.s.l = not_a_number;
      write(at, sum);
    }
  }

 private:
  /// As l it makes an output and its lse NaN: their parts have not come
  static constexpr float not_a_number = __builtin_nanf("");
  static constexpr int waves = attention_waves(D);
  static constexpr std::uint64_t grace_ns = 250'000'000;  // of a wait for a sum: its owner may itself be waiting
  /// As many as one sequence of 12 KV heads has on 132 units: read in one latency
  static constexpr int splits_at_once = 12;

  __device__ stamped* inbox(int peer, int source, int item) const {
    return ch_.world.on(peer, g_.inbox) +
           ((std::int64_t(number_ & 1) * ch_.world.size + source) * g_.max_items + item) * record_.words();
  }

  /// The i-th quad of an item.
  struct quad_at {
    int item, i;
  };
  /// Of the items that this block has completed, the n-th.
  __device__ quad_at completed(int n) const { return {first_ + n / record_.quads(), n % record_.quads()}; }
  __device__ int owner(int item) const { return int(unsigned(item) % unsigned(ch_.world.size)); }

  __device__ softmax_scale read_scale(stamped_reader& read, int source, quad_at at) const {
    stamped const* const scale = inbox(ch_.world.rank, source, at.item) + 4 * record_.quads() + at.i / (D / 4) * 2;
    return {read(scale, source), read(scale + 1, source)};
  }
  __device__ quad read_o(stamped_reader& read, int source, quad_at at) const {
    quad o;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      o.x[j] = read(inbox(ch_.world.rank, source, at.item) + j * record_.quads() + at.i, source);
    return o;
  }
  __device__ void send(int peer, quad_at at, softmax_part const& part) const {
    stamped *const to = inbox(peer, ch_.world.rank, at.item), *const scale =
                                                                  to + 4 * record_.quads() + at.i / (D / 4) * 2;
#pragma unroll
    for (int j = 0; j < 4; ++j) store_stamped(to + j * record_.quads() + at.i, part.o.x[j], number_);
    if (at.i % (D / 4) > 0) return;
    store_stamped(scale, part.s.m, number_);
    store_stamped(scale + 1, part.s.l, number_);
  }

  /// From one split to the next, in order, block or item grows; so the sum numbers them, and an item's splits are
  /// neighbours.
  __device__ float* place_of(int block, int item) const {
    return g_.workspace + (std::int64_t(block) + item) * record_.floats();
  }

  __device__ channel_epoch epoch() const { return {ch_, number_}; }

  /// Gives the records of an item that this launch leaves unused a new stamp. Items take turns: none is looked at when
  /// it is 2^32 launches old, unless fewer than max_items launches of this operator are in epochs of its slot's parity.
  __device__ void renew(int item) const {
    world_view const& w = ch_.world;
    for (int i = b_.rank(); i < w.size * record_.words(); i += b_.size()) {
      int const source = i / record_.words();
      bool const used = item < g_.lengths.batch * g_.lengths.kv_heads &&
                        (!g_.two_shot || owner(item) == w.rank || owner(item) == source);
      if (!used) store_stamped(inbox(w.rank, source, item) + i % record_.words(), 0, number_);
    }
  }
  /// From here on the stream's past is over.
  __device__ void begin() {
    platform::wait_for_stream();
    number_ = ch_.begin(b_).number();
    platform::release_stream();
  }

  /// Whether the split's pages are in the caches, as far as anybody looks; one that is not is noted. Every wave looks
  /// at all of them.
  __device__ bool pages_exist(decode_run const& run) const {
    if (g_.pages_to_check == 0 || run.done()) return true;
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

  /// Asks for the split's first K.
  __device__ attention open(decode_run const& run) const {
    paged_kv<T> const kv{g_.k,          g_.v,
                         g_.pages,      unsigned(run.sequence()) * unsigned(g_.max_pages),
                         g_.page_shift, g_.lengths.kv_heads,
                         run.head()};
    bool const empty = run.done() || !pages_exist(run);
    int const begin = empty ? 0 : run.begin(), end = empty ? 0 : run.end();
    return {kv, begin + platform::uniform(wave{}.index()) * attention::step, end, waves * attention::step};
  }

  /// This rank's attention over the split, each wave's part of it into LDS.
  __device__ void attend(attention& a, decode_run const& run) {
    b_.sync();  // the last split has been read
    wave const w;
    static_assert(attention::q_fragments <= decode_threads(D));
    auto const query = attention::load_query(b_, g_.q + std::int64_t(run.item()) * g_.group * D, g_.group);
    attention::store_query(b_, query, q_);
    b_.sync();
    a.run(q_, g_.scale);
    a.finish(o_ + w.index() * g_.group * attention::pitch, scales_ + w.index() * g_.group, g_.group);
    b_.sync();
  }

  /// Takes the sum over the waves to the inboxes if the split is all of its item, else to the workspace; then the last
  /// of the item to arrive takes the sum over the splits to the inboxes. Returns whether the item is complete.
  __device__ bool complete(decode_run const& run) const {
    bool const whole = run.whole();
    auto const over_waves = [&](int i) {
      int const head = i / (D / 4), four = i % (D / 4);
      return combine_parts<waves>(
          waves, [&](int w) { return scales_[w * g_.group + head]; },
          [&](int w) {
            return *reinterpret_cast<quad const*>(o_ + (w * g_.group + head) * attention::pitch + four * 4);
          });
    };
    int splits = 1;
    float const* first = nullptr;
    auto* const scales = reinterpret_cast<softmax_scale*>(o_);
    static_assert(decode_lengths::max_splits * sizeof(softmax_scale) <= waves * attention::pitch * sizeof(float));
    if (!whole) {
      float* const place = place_of(b_.index(), run.item());
      for (int i = b_.rank(); i < record_.quads(); i += b_.size()) put(place, i, over_waves(i));
      splits = run.last_block() - run.first_block() + 1;
      if (!last_to_arrive(run.item(), splits)) return false;
      first = place_of(run.first_block(), run.item());
      for (int i = b_.rank(); i < splits * g_.group; i += b_.size())
        scales[i] = record_.scale(first + i / g_.group * record_.floats(), i % g_.group);
      b_.sync();
    }
    for (int i = b_.rank(); i < record_.quads(); i += b_.size())
      push({run.item(), i}, whole ? over_waves(i)
                                  : combine_parts<splits_at_once>(
                                        splits, [&](int n) { return scales[n * g_.group + i / (D / 4)]; },
                                        [&](int n) { return record_.o(first + n * record_.floats(), i); }));
    return true;
  }

  __device__ void put(float* record, int i, softmax_part const& part) const {
    record_.o(record, i) = part.o;
    if (i % (D / 4) == 0) record_.scale(record, i / (D / 4)) = part.s;
  }
  __device__ void push(quad_at at, softmax_part const& part) const {
    if (ch_.world.size == 1) return write(at, part);
    if (g_.two_shot) return send(owner(at.item), at, part);
#pragma unroll 1
    for (int p = 0; p < ch_.world.size; ++p) send(ch_.world.next(1 + p), at, part);
  }

  /// Publishes what the block has put into the workspace, and tells whether it is the last of `splits` to do so.
  __device__ bool last_to_arrive(int item, int splits) const {
    platform::drain_stores();
    b_.sync();
    if (b_.leader()) {
      unsigned* const ticket = g_.tickets + item;
      words_[5] = int(platform::atomic_fetch_add<order::acq_rel, scope::device>(ticket, 1u)) + 1 == splits;
      if (words_[5]) platform::atomic_store<order::relaxed, scope::device>(ticket, 0u);
    }
    b_.sync();
    return platform::uniform(words_[5]);
  }

  __device__ void write(quad_at at, softmax_part const& x) const {
    struct alignas(8) {
      T value[4];
    } out;
#pragma unroll
    for (int j = 0; j < 4; ++j) out.value[j] = T(x.s.l > 0 ? x.o.x[j] / x.s.l : x.s.l == 0 ? 0.0f : x.s.l);
    std::int64_t const head = std::int64_t(at.item) * g_.group + at.i / (D / 4);
    int const four = at.i % (D / 4);
    *reinterpret_cast<decltype(out)*>(g_.out + head * D + four * 4) = out;
    if (g_.lse && four == 0) g_.lse[head] = (x.s.m + platform::log2(x.s.l)) * ln_of_2;
  }

  block b_;
  channel_view const& ch_;
  epoch_t number_ = 0;     // until begin()
  unsigned departed_ = 0;  // of the leader
  decode_arguments<T> const& g_;
  int* words_;
  bytes16* q_;
  softmax_scale* scales_;  // [waves][group]
  float* o_;               // [waves][group][pitch]
  decode_record record_;
  int first_ = 0, items_ = 0;  // complete by this block
};

}  // namespace detail

template <class T, int D>
__global__ void __launch_bounds__(decode_threads(D), attention_bound(D))
    flash_decode_kernel(channel_view ch, decode_arguments<T> g) {
  extern __shared__ bytes16 shared[];
  detail::decode_block<T, D> work(ch, g, shared);
  work.run_splits();
  work.depart();
  work.combine_sources();
  work.end();
}

}  // namespace fusewire
