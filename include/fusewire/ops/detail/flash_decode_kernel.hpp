// Flash Decode over a KV cache that is sharded over the ranks by tokens: attention of one query token per sequence, one
// kernel. The operator is in flash_decode.hpp.
//
//   splits    this rank's KV --attention--> (o, m, l) per wave --LDS--> per split
//   slice     of a head item that blocks share, in each of them: all splits' partials --split_kv_workspace--> one
//   push      (o, m, l) --LL words--> inbox of every rank, or with two shots of the head item's owner
//   combine   by the block that has pushed it:
//             poll the inbox --softmax_reduce--> out, lse
//             with two shots the owner's block does that, and
//             the result --LL words--> inbox of the others --poll--> out, lse
//
// A head item is a sequence and a KV head. kv_schedule.hpp says how head items become splits, split_kv_workspace.hpp
// how the blocks of a head item exchange their partials, head_item_exchange.hpp how ranks do. The query heads of a KV
// head are processed together, so the KV is read once. Everything between scores and out is fp32. A single rank pushes
// nothing: it writes out directly.
//
// Deadlock: splits wait for nothing, and a block polls others' partials after it has stored its own. All blocks are
// resident (launch() checks), so every head item is pushed without waiting for another rank. Reductions over the ranks
// wait for pushes only, and a thread waits for others' results after it has sent its own.
// Order: LL words carry their launch, so a partial needs no flag and no fence. All threads have the epoch before the
// block's ticket is taken (arrive_exit).
// Reuse: the inbox is a buffer of LL words (ll_buffer_view.hpp), a record for each head item and source. Each source
// writes its own records (an owner its result in place of its partial), which only this launch's combine reads.
// Early: the launch may start while the prior grid on the stream still runs. Before begin() nothing is written. Only
// parameters are read and, if the caller says that they are constant, lengths, table, and K of splits without their
// shard's last token.
// Abandonment: a thread whose wait timed out makes l NaN, in what it stores and in what it sends on; see
// head_item_exchange.hpp.
// Same bits on every rank and in every run: the schedule depends on lengths and grid; waves are combined in order,
// splits and sources each in one that their number decides.
#pragma once
#include <fusewire/attention/kv_splits.hpp>
#include <fusewire/ops/detail/flash_decode_arguments.hpp>
#include <fusewire/ops/detail/head_item_exchange.hpp>

namespace fusewire {

namespace detail {

/// One block of a launch. Every thread calls run_splits, arrive_exit, reduce_slices, combine and end, in this order.
/// Exchange: how ranks combine their partials; nodes_head_item_exchange.hpp has that of several nodes.
template <class T, int D, decode_features Features = decode_features{}, class Exchange = head_item_exchange<T, D>>
class decode_block {
  using attention = wave_attention<T, D, Features.soft_cap>;
  using splits = kv_splits<Features.batch_invariant>;
  using query = query_fragments<T, D, decode_threads(D)>;

 public:
  /// shared: decode_shared::bytes() of LDS.
  __device__ decode_block(typename Exchange::view const& ch, typename Exchange::arguments const& g, bytes16* shared)
      : ch_(ch), launch_(ch), g_(g), words_(reinterpret_cast<int*>(shared)),
        q_(shared + decode_shared::q / sizeof(bytes16)), record_{platform::no_hoist(g.group), D},
        peers_(reinterpret_cast<ll_word<>**>(shared + decode_shared::peers(D) / sizeof(bytes16))),
        scales_(reinterpret_cast<softmax_scale*>(shared + decode_shared::scales(D) / sizeof(bytes16))),
        o_(reinterpret_cast<float*>(scales_ + policy.waves * record_.heads)) {}

  /// All splits of this block; what they complete is in flight to the inboxes.
  __device__ void run_splits() {
    if (!g_.kv_is_ready) platform::wait_prior_grid();
    if constexpr (!policy.overlaps_prior_grid) launch_.begin();
    splits run = splits_of_block();
    if (run.has_last_token()) platform::wait_prior_grid();
    int const next = b_.rank() < ch_.world.size() ? ch_.world.next(b_.rank()) : 0;
    std::byte* const signal = ch_.world.signal[next];  // issued before K, behind which it would be waited for
    // While K is in flight
    auto const prepare = [&] { exchange().find_peer(b_, signal); };
    for (bool first = true;; run.next(), first = false) {
      if constexpr (!policy.overlaps_prior_grid)
        if (run.done()) {  // open() would wait for what is in flight to others
          if (first) prepare();
          break;
        }
      attention a = open(run);
      if constexpr (policy.overlaps_prior_grid)
        if (first) launch_.begin();
      if (first) prepare();
      if constexpr (policy.overlaps_prior_grid)
        if (run.done()) break;
      head_item_slice const ahead = policy.computes_slice_ahead ? slice_of(run) : head_item_slice{};
      attend(a, run);
      hold_slice(run, policy.computes_slice_ahead ? ahead : slice_of(run));
    }
  }

  /// While others' partials are awaited, the leader's ticket is in flight.
  __device__ void arrive_exit() {
    launch_.wait_epoch();
    b_.sync();  // all have the epoch
    if (b_.leader()) exits_before_ = launch_.arrive_exit();
  }

  /// This block's slices of the head items that it has not attended to alone, to the inboxes.
  __device__ void reduce_slices() {
    if constexpr (Features.batch_invariant) {
#pragma unroll 1
      for (splits run = splits_of_block(); !run.done();) {
        head_item_slice x = slice_of(run);
        for (run.next(); !run.done() && run.head_item() == x.item; run.next()) x.end = slice_of(run).end;
        if (x.splits > 1) reduce(x);
      }
    } else {
#pragma unroll 1
      for (int s = 0; s < 2; ++s) {
        head_item_slice const x = s == 0 ? continued_.uniform() : begun_.uniform();
        reduce(x);
      }
    }
  }

  /// The output of what this block has pushed.
  __device__ void combine() { exchange().combine(b_, from_, to_, words_); }

  /// Called by: every thread of the block, last of all.
  __device__ void end() const {
    if (number() == b_.count() - 1) {
      exchange().refresh(b_);
      if constexpr (Features.batch_invariant)
        workspace().refresh_piece(b_, [&](int record) { return has_piece(record); });
    }
    if constexpr (!Features.batch_invariant)
      workspace().refresh(b_, number(), b_.count(), continued_.splits > 0, begun_.splits > 0);
    if (b_.index() == 0) launch_.wait_peers(b_);
    b_.sync();
    if (b_.leader()) launch_.finish_exit(b_, exits_before_);
  }

 private:
  static constexpr decode_policy policy = decode_policy_for(D);

  __device__ decode_lengths lengths() const {
    decode_lengths l = g_.lengths;
    if constexpr (!Features.sliding_window) l.outside = nullptr;
    return l;
  }

  __device__ splits splits_of_block() const { return {b_, lengths(), words_, number(), policy.schedules_by_wave}; }

  /// Number of this block's range of units.
  __device__ int number() const { return policy.reversed_blocks ? b_.count() - 1 - b_.index() : b_.index(); }

  __device__ head_item_slice slice_of(splits const& run) const {
    if constexpr (Features.batch_invariant) {
      int const item = run.head_item();
      return head_item_slice::of(item, item * g_.lengths.pieces.value(), run.pieces(), run.piece(), record_);
    } else {
      int const first = run.first_block();
      return head_item_slice::of(run.head_item(), first, run.last_block() - first + 1, number() - first, record_);
    }
  }

  /// Whether a head item of this launch has the piece of a record, and others beside it.
  __device__ bool has_piece(int record) const {
    decode_lengths const l = lengths();
    int const item = record / l.pieces, piece = record % l.pieces;
    if (item >= l.batch * l.kv_heads) return false;
    int const units = l.units_at(item / l.heads), pieces = (units - 1) / l.piece_of(units) + 1;
    return pieces > 1 && piece < pieces;
  }

  __device__ void reduce(head_item_slice const& x) const {
    workspace().reduce(
        x, [&] { return exchange().local_word(x.item); },
        [&](int i, softmax_partial const& sum, int n, int of) { exchange().push({x.item, i}, sum, n, of); });
  }

  /// Whether the split may be read, as far as anybody looks: the length of its sequence is one that the table has room
  /// for, and its pages are in the caches. What is wrong is noted. Every wave looks at all of it.
  __device__ bool exists(splits const& run) const {
    if (run.done()) return true;
    int const room = g_.max_pages << g_.page_shift;
    if (run.tokens() > room) {
      note_misuse(ch_.world, misuse::length, g_.lengths.tokens[run.sequence()], room + 1, run.sequence());
      return false;
    }
    if (g_.pages_to_check == 0 || run.begin() >= run.end()) return true;
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

  /// Issues the split's first K. If the prior grid is over, Q is in LDS before: its loads and those of the page table
  /// are waited for together.
  __device__ attention open(splits const& run) {
    // Every step needs the number of heads: in its own register, not with the arguments loaded next to it
    paged_kv<T> const kv{g_.k,          g_.v,
                         g_.pages,      unsigned(run.sequence()) * unsigned(g_.max_pages),
                         g_.page_shift, platform::no_hoist(g_.lengths.kv_heads),
                         run.head()};
    bool const empty = platform::uniform(run.done() || !exists(run));
    int const begin = empty ? 0 : run.begin(), end = empty ? 0 : run.end();
    query fragments{};
    if constexpr (!policy.overlaps_prior_grid)
      if (!run.done()) fragments.load(query_of(run), record_.heads);
    attention a(kv, begin + platform::uniform(wave{}.index()) * attention::step, end, policy.waves * attention::step);
    if constexpr (!policy.overlaps_prior_grid) {
      std::uint64_t some;
      memcpy(&some, &fragments.fragment[query::count - 1], sizeof some);
      platform::wait_loaded(some);  // in all threads, whatever follows
      fragments.store(b_, q_);
    }
    a.start();
    return a;
  }

  __device__ T const* query_of(splits const& run) const {
    return g_.q + std::int64_t(run.head_item()) * record_.heads * D;
  }

  /// This rank's attention over the split, each wave's part of it into LDS.
  __device__ void attend(attention& a, splits const& run) {
    b_.sync();  // the last split has been read
    wave const w;
    if constexpr (policy.overlaps_prior_grid) {
      query fragments;
      fragments.load(query_of(run), record_.heads);
      fragments.store(b_, q_);
      b_.sync();
    }
    a.run(q_, g_.scores);
    a.finish(o_ + w.index() * record_.heads * wave_attention_pitch(D), scales_ + w.index() * record_.heads,
             record_.heads);
    // Waits for the K and V that run() issues last: whoever needs their registers would wait for later stores as well
    platform::drain_stores();
    b_.sync();
  }

  /// Takes the sum over the waves to the inboxes if the split is all of its head item, else to the block's place.
  __device__ void hold_slice(splits const& run, head_item_slice const& x) {
    int const rank = platform::no_hoist_lane(b_.rank()), group = platform::no_hoist(record_.heads);
    decode_record const record{group, D};
    bool const whole = platform::uniform(run.whole()), begins = run.starts();
    int const place = Features.batch_invariant ? x.first + run.piece() : workspace().of_block(number(), begins);
    if (to_ == 0) from_ = x.item * record.vec4s() + x.begin;
    to_ = x.item * record.vec4s() + x.end;  // slices and head items of a block are neighbours
    if (!whole && begins) begun_ = x;
    if (!whole && !begins) continued_ = x;
    for (int i = rank; i < record.vec4s(); i += decode_threads(D)) {
      int const head = i / (D / 4), four = i % (D / 4);
      softmax_partial const sum = combine_partials<policy.waves>(
          policy.waves, [&](int w) { return scales_[w * group + head]; },
          [&](int w) {
            return *reinterpret_cast<vec4 const*>(o_ + (w * group + head) * wave_attention_pitch(D) + four * 4);
          });
      if (whole) exchange().push({x.item, i}, sum, 0, 1);
      else workspace().store(place, i, sum);
    }
  }

  __device__ split_kv_workspace<policy, Features.batch_invariant> workspace() const {
    return {g_.workspace, record_, Exchange::near(launch_.epoch()), ch_.world};
  }

  __device__ Exchange exchange() const { return {ch_, launch_.epoch(), g_, record_, peers_}; }

  block b_;
  typename Exchange::view const& ch_;
  typename Exchange::launch launch_;
  unsigned exits_before_ = 0;  // of the leader
  typename Exchange::arguments const& g_;
  int* words_;  // of kv_splits, in LDS; combine() may use them after it
  bytes16* q_;  // Q, in LDS
  decode_record record_;
  ll_word<>** peers_;                  // of head_item_exchange, in LDS
  softmax_scale* scales_;              // [waves][group], in LDS
  float* o_;                           // [waves][group][wave_attention_pitch(D)], in LDS
  head_item_slice continued_, begun_;  // of the head items that the block's first and last split do not end, or begin
  int from_ = 0, to_ = 0;              // what the block pushes: vec4s of all head items
};

}  // namespace detail

/// Attention of one token per sequence over all ranks' KV. Called by: flash_decode, on every rank.
template <class T, int D, unsigned FeatureBits = 0>
__global__ void __launch_bounds__(decode_threads(D), decode_policy_for(D).launch_bound)
    flash_decode_kernel(channel_view ch, decode_arguments<T> g) {
  extern __shared__ bytes16 shared[];
  detail::decode_block<T, D, decode_features::of(FeatureBits)> work(ch, g, shared);
  work.run_splits();
  work.arrive_exit();
  work.reduce_slices();
  work.combine();
  work.end();
}

}  // namespace fusewire
