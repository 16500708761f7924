// Flash Decode over a KV cache that is sharded over the ranks by tokens: attention of one query token per sequence, one kernel. The
// operator is in flash_decode.hpp.
//
//   splits    this rank's KV --attention--> (o, m, l) per wave --LDS--> per split --workspace, ticket--> per item, by the last to arrive
//   push      (o, m, l) of the item --> inbox of every rank; when the block's splits are done: flags of all its items, one release
//   combine   wait for every source's flag of the item --> inbox --sources in order--> out, lse
//
// An item is a sequence and a KV head; decode_plan.hpp says how items become splits. The query heads of a KV head are worked on
// together, so the KV is read once. Everything between scores and out is fp32.
//
// Deadlock: splits wait for nothing, and a block combines only after its splits. All blocks are resident (launch() checks), so every
// item's flags are raised on every rank without waiting for anybody: by the block that had all of the item, or by the last to arrive.
// Reuse: the inbox by the channel's argument: each source writes a place of its own, which only this launch's combine reads. A place
// in the workspace belongs to one block, which writes it once in a launch; it is read by the last to arrive of the same launch, after
// its ticket. A ticket is back at 0 when the last has arrived.
// Same bits on every rank and in every run: the plan depends on lengths and grid; waves, splits and sources are each summed in order.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/kernels/decode_plan.hpp>
#include <fusewire/tile/attention.hpp>

namespace fusewire {

inline constexpr int decode_waves = 4;
inline constexpr int decode_threads = decode_waves * platform::wave_size;

/// Where the partial results of one item lie in a record: o [heads][d], then (m, l) [heads].
struct decode_record {
  int heads, d;  // query heads that share a KV head

  __host__ __device__ constexpr int floats() const { return (heads * (d + 2) + 3) / 4 * 4; }
  __host__ __device__ constexpr int quads() const { return heads * d / 4; }
  __device__ quad& o(float* record, int i) const { return reinterpret_cast<quad*>(record)[i]; }
  __device__ softmax_scale& scale(float* record, int head) const { return reinterpret_cast<softmax_scale*>(record + heads * d)[head]; }
};

template <class T>
struct decode_arguments {
  T const *q, *k, *v;        // [batch, q heads, d], [pages, page size, kv heads, d] twice
  std::int32_t const* pages; // [batch, max_pages]
  T* out;                    // [batch, q heads, d]
  float* lse;                // [batch, q heads], or null
  decode_lengths lengths;
  int max_pages, page_shift, group;  // group: query heads per KV head
  int max_items;             // capacity: records per source in the inbox
  float scale;               // of the scores, in units of log 2
  float* workspace;          // [blocks][2] records
  unsigned* tickets;         // [max_items], 0 between launches
};

/// LDS of a block: a few words, Q, each wave's (m, l) and o.
__host__ __device__ constexpr int decode_shared_bytes(int heads, int d) { return 32 + 16 * d * 2 + decode_waves * heads * (8 + 132 * 4); }

namespace detail {

template <class T, int D>
class decode_block {
 public:
  __device__ decode_block(channel_epoch const& e, channel_view const& ch, decode_arguments<T> const& g, bytes16* shared)
      : e_(e), ch_(ch), g_(g), words_(reinterpret_cast<int*>(shared)), q_(shared + 2), scales_(reinterpret_cast<softmax_scale*>(q_ + attention::q_bytes / 16)),
        o_(reinterpret_cast<float*>(scales_ + decode_waves * g.group)), record_{g.group, D} {}

  /// All splits of this block; what they complete is in every inbox, and its flags are raised.
  __device__ void run_splits() {
    int first = 0, count = 0;  // items that are complete: neighbours
    for (decode_run run(b_, g_.lengths, words_); !run.done(); run.next()) {
      attend(run);
      if (!complete(run)) continue;
      if (count++ == 0) first = run.item();
    }
    if (count > 0)
      signal_all(b_, count * ch_.world.size, [&](int i) { return e_.to(ch_.world.next(i % ch_.world.size), first + i / ch_.world.size); }, e_.number());
  }

  /// This block's share of the output: whole heads.
  __device__ void combine_sources() {
    std::int64_t const heads = std::int64_t(g_.lengths.batch) * g_.lengths.kv_heads * g_.group;
    int const first = int(heads * b_.index() / b_.count()), last = int(heads * (b_.index() + 1) / b_.count());
    if (first == last) return;
    int const sources = ch_.world.size, item0 = first / g_.group, items = (last - 1) / g_.group - item0 + 1;
    wait_all(b_, ch_.world, items * sources, [&](int i) { return e_.from(i % sources, item0 + i / sources); }, e_.number(), [&](int i) { return i % sources; });
    for (int i = b_.rank(); i < (last - first) * (D / 4); i += b_.size()) {
      int const head = first + i / (D / 4), item = head / g_.group, in_item = head % g_.group, four = i % (D / 4);
      auto const record = [&](int source) { return inbox(ch_.world.rank, source, item); };
      write(head, four, combine_parts<8>(sources, [&](int r) { return record_.scale(record(r), in_item); }, [&](int r) { return record_.o(record(r), in_item * (D / 4) + four); }));
    }
  }

 private:
  using attention = wave_attention<T, D>;

  __device__ float* inbox(int peer, int source, int item) const {
    return e_.template inbox<float>(peer) + (std::int64_t(source) * g_.max_items + item) * record_.floats();
  }
  __device__ float* place_of(int block, bool starts) const { return g_.workspace + (std::int64_t(block) * 2 + starts) * record_.floats(); }

  /// This rank's attention over the split, each wave's part of it into LDS.
  __device__ void attend(decode_run const& run) {
    b_.sync();  // the last split has been read
    wave const w;
    paged_kv<T> const kv{g_.k, g_.v, g_.pages, unsigned(run.sequence()) * unsigned(g_.max_pages), g_.page_shift, g_.lengths.kv_heads, run.head()};
    attention a(kv, run.begin() + platform::uniform(w.index()) * attention::step, run.end(), decode_waves * attention::step);
    attention::stage(b_, g_.q + std::int64_t(run.item()) * g_.group * D, g_.group, q_);
    b_.sync();
    a.run(q_, g_.scale);
    a.finish(o_ + w.index() * g_.group * attention::pitch, scales_ + w.index() * g_.group, g_.group);
    b_.sync();
  }

  /// Takes the sum over the waves to where it belongs: every rank's inbox if the split is all of its item, else the workspace, and
  /// then the last of the item to arrive takes the sum over the splits to every inbox. Returns whether the item is complete.
  __device__ bool complete(decode_run const& run) const {
    bool const whole = run.whole();
    float* const place = place_of(b_.index(), run.starts());
    for (int i = b_.rank(); i < record_.quads(); i += b_.size()) {
      int const head = i / (D / 4), four = i % (D / 4);
      softmax_part const part = combine_parts<decode_waves>(decode_waves, [&](int w) { return scales_[w * g_.group + head]; },
                                                            [&](int w) { return *reinterpret_cast<quad const*>(o_ + (w * g_.group + head) * attention::pitch + four * 4); });
      if (whole) push(run.item(), i, part);
      else put(place, i, part);
    }
    if (whole) return true;
    int const first = run.first_block(), splits = run.last_block() - first + 1;
    if (!last_to_arrive(run.item(), splits)) return false;
    auto const record = [&](int n) { return place_of(first + n, n == 0); };
    static_assert(decode_lengths::most_splits * sizeof(softmax_scale) <= decode_waves * attention::pitch * sizeof(float));
    auto* const scales = reinterpret_cast<softmax_scale*>(o_);
    for (int i = b_.rank(); i < splits * g_.group; i += b_.size()) scales[i] = record_.scale(record(i / g_.group), i % g_.group);
    b_.sync();
    for (int i = b_.rank(); i < record_.quads(); i += b_.size()) {
      int const head = i / (D / 4);
      push(run.item(), i, combine_parts<8>(splits, [&](int n) { return scales[n * g_.group + head]; }, [&](int n) { return record_.o(record(n), i); }));
    }
    return true;
  }

  __device__ void put(float* record, int i, softmax_part const& part) const {
    record_.o(record, i) = part.o;
    if (i % (D / 4) == 0) record_.scale(record, i / (D / 4)) = part.s;
  }
  __device__ void push(int item, int i, softmax_part const& part) const {
    for (int p = 0; p < ch_.world.size; ++p) put(inbox(ch_.world.next(p), ch_.world.rank, item), i, part);
  }

  /// Publishes what the block has put into the workspace, and tells whether it is the last of `splits` to do so.
  __device__ bool last_to_arrive(int item, int splits) const {
    platform::drain_stores();
    b_.sync();
    if (b_.leader()) {
      unsigned* const ticket = g_.tickets + item;
      words_[4] = int(platform::atomic_fetch_add<order::acq_rel, scope::device>(ticket, 1u)) + 1 == splits;
      if (words_[4]) platform::atomic_store<order::relaxed, scope::device>(ticket, 0u);
    }
    b_.sync();
    return platform::uniform(words_[4]);
  }

  __device__ void write(int head, int four, softmax_part const& x) const {
    struct alignas(8) { T value[4]; } out;
#pragma unroll
    for (int j = 0; j < 4; ++j) out.value[j] = T(x.s.l > 0 ? x.o.x[j] / x.s.l : x.s.l == 0 ? 0.0f : x.s.l);
    *reinterpret_cast<decltype(out)*>(g_.out + std::int64_t(head) * D + four * 4) = out;
    if (g_.lse && four == 0) g_.lse[head] = (x.s.m + platform::log2(x.s.l)) * ln_of_2;
  }

  block b_;
  channel_epoch const& e_;
  channel_view const& ch_;
  decode_arguments<T> const& g_;
  int* words_;
  bytes16* q_;
  softmax_scale* scales_;  // [waves][group]
  float* o_;               // [waves][group][pitch]
  decode_record record_;
};

}  // namespace detail

template <class T, int D>
__global__ void __launch_bounds__(decode_threads, 2) flash_decode_kernel(channel_view ch, decode_arguments<T> g) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::decode_block<T, D> work(e, ch, g, shared);
  work.run_splits();
  work.combine_sources();
  e.end(b);
}

}  // namespace fusewire
