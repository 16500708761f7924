// Kernels that use a channel, for several test files.
#pragma once
#include "support.hpp"

namespace support {

/// How many words each rank owns in one launch: drawn from a seed, the same on every rank. Often none.
struct ownership {
  int count[8] = {};
  int before[9] = {};  // words of the ranks before
};

inline ownership draw_ownership(unsigned seed, int ranks, int most) {
  lcg random{seed * 2654435761u + 1};
  ownership o;
  int const kind = random.below(8);
  for (int r = 0; r < 8; ++r) {
    int n = r < ranks ? 1 + random.below(most) : 0;
    if (random.below(4) == 0 || kind == 0) n = 0;    // some own nothing; now and then nobody owns anything
    if (kind == 1 && r != int(seed) % ranks) n = 0;  // or one rank owns everything
    o.count[r] = n;
    o.before[r + 1] = o.before[r] + n;
  }
  return o;
}

inline constexpr int chunk = 96;  // words that one flag announces

__host__ __device__ inline int word_of(int rank, int i, epoch_t epoch, int salt) {
  return rank * 1000003 + i * 31 + int(epoch % 100'000) * 7 + salt;
}

/// Arguments of gather_words in addition to the channel.
struct gather_words_args {
  ownership own;
  int const* input = nullptr;  // [own.count[rank]]; null: words are derived from the epoch
  int* out = nullptr;          // [own.before[W]]; null: words are only compared
  unsigned* wrong = nullptr;
  std::uint64_t delay_ns = 0;  // before anything is sent
  int skip_signal_to = -1;     // planted: this rank's flag 0 never reaches that rank
};

/// Mistakes that the tests must notice.
enum class planted {
  nothing,
  no_drain,    // the leader raises the flag while stores of other waves are in flight
  no_acquire,  // what was cached before the flag came is taken for what it announced
  no_credit,   // a launch ends although a peer has not begun it
};

/// All-gather through a channel. A block pushes its chunks to every peer, then takes its share of the chunks that
/// arrive.
///   Deadlock: pushing waits for nothing, and every block pushes before it waits.
///   Reuse: the channel's argument; of a peer's memory a launch uses only the inbox.
template <planted Bug = planted::nothing>
__global__ void gather_words(channel_view ch, gather_words_args a) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  if (a.delay_ns)
    for (std::uint64_t const start = platform::clock_ns(); platform::clock_ns() - start < a.delay_ns;)
      platform::backoff();
  int const mine = a.own.count[w.rank()];
  for (int c = b.index(); c * chunk < mine; c += b.count()) {
    int const first = c * chunk, last = first + chunk < mine ? first + chunk : mine;
    for (int k = 0; k < w.size(); ++k) {
      int const peer = w.next(k);
      int* const inbox = e.inbox<int>(peer) + a.own.before[w.rank()];
      for (int i = first + b.rank(); i < last; i += b.size())
        inbox[i] = a.input ? a.input[i] : word_of(w.rank(), i, e.number(), 0);
      if (c == 0 && peer == a.skip_signal_to) continue;
      if constexpr (Bug == planted::no_drain) {
        if (b.leader()) platform::atomic_store<order::relaxed, scope::system>(&e.to(peer, c)->value, e.number());
      } else {
        e.signal(b, peer, c);
      }
    }
  }
  for (int k = 0; k < w.size(); ++k) {
    int const source = w.next(w.size() - k);
    int const* const inbox = e.inbox<int>() + a.own.before[source];
    for (int c = b.index(); c * chunk < a.own.count[source]; c += b.count()) {
      if constexpr (Bug == planted::no_acquire) {
        if (b.leader()) detail::spin(w, e.from(source, c), e.number(), source);
        b.sync();
      } else {
        e.wait(b, source, c);
      }
      for (int i = c * chunk + b.rank(); i < c * chunk + chunk && i < a.own.count[source]; i += b.size()) {
        int const word = inbox[i];
        if (a.out) a.out[a.own.before[source] + i] = word;
        if (!a.input && word != word_of(source, i, e.number(), 0))
          atomic_ref<unsigned, scope::device>(a.wrong).fetch_add(1u, order::relaxed);
      }
    }
  }
  if constexpr (Bug == planted::no_credit) {
    b.sync();
    channel_state* const s = w.here(ch.state);
    if (b.leader() &&
        platform::atomic_fetch_add<order::relaxed, scope::device>(&s->ticket, 1u) + 1 == unsigned(b.count())) {
      platform::atomic_store<order::relaxed, scope::device>(&s->ticket, 0u);
      platform::atomic_store<order::relaxed, scope::device>(&s->epoch, e.number());
    }
  } else {
    e.end(b);
  }
}

inline launch_header header_of(ownership const& o) {
  return make_header("gather", 1, std::uint64_t(o.before[8]), std::uint64_t(o.count[0]), std::uint64_t(o.count[1]),
                     std::uint64_t(o.count[2]));
}

inline channel_options gather_channel(int most) {
  return {.max_bytes = std::size_t(8 * most) * 4, .flags_per_source = most / chunk + 1};
}

}  // namespace support
