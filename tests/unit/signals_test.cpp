// Flags with more than one value or one waiter: steps, counts, any of several, waits that say whether they were met.
// Also joins and barriers of all blocks, a user's own words and fences, and a buffer of LL words.
#include "faults.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

constexpr int words = 96;

__host__ __device__ int word_of(int rank, int block, epoch_t step, int i) {
  return rank * 1000003 + block * 10007 + int(step % 1000) * 101 + i;
}
__device__ void count_wrong(unsigned* wrong, bool is_wrong) {
  if (is_wrong) atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
}

/// Calls f(r, wrong) on every rank; nothing may have been counted as wrong.
template <class F>
void count_on_ranks(int ranks, F f) {
  on_ranks(ranks, [&](rank_of_test& r) {
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.heap.upload(wrong, std::vector{0u});
    r.meet();
    f(r, r.here(wrong));
    r.world.check(r.stream);
    r.found.expect(r.heap.download(wrong)[0] == 0, r.heap.download(wrong)[0], " wrong");
    r.meet();
  });
}

constexpr int steps = 5;

/// Every block sends `steps` messages to the same block on the next rank, with one growing flag of its own. It takes
/// those of the previous rank, of which several may be there already.
///   Deadlock: sending waits for nothing.
///   Reuse: the messages lie in the channel's inbox, each in its own place.
__global__ void send_steps(channel_view ch, sym<flag> flags, unsigned* wrong) {
  __shared__ int word;
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  int const to = w.next(1), from = w.next(w.size() - 1);
  auto const place = [&](int rank, int step) { return e.inbox<int>(rank) + (b.index() * steps + step) * words; };
  auto const value = [&](int step) { return e.number() * steps + epoch_t(step); };
  for (int s = 0; s < steps; ++s) {
    for (int i = b.rank(); i < words; i += b.size()) place(to, s)[i] = word_of(w.rank(), b.index(), value(s), i);
    signal(b, w.on(to, flags) + b.index(), value(s));
  }
  for (int s = 0; s < steps; ++s) {
    flag const* const f = w.here(flags) + b.index();
    if (s % 3 == 0) wait<until::at_least>(b, w, f, value(s), from);
    else if (s % 3 == 1) count_wrong(wrong, !try_wait<until::at_least>(b, w, f, value(s), &word, from));
    else wait_all<until::at_least>(b, w, 1, [&](int) { return f; }, value(s), [&](int) { return from; });
    for (int i = b.rank(); i < words; i += b.size())
      count_wrong(wrong, place(w.rank(), s)[i] != word_of(from, b.index(), value(s), i));
  }
  e.end(b);
}

/// Every rank sends `messages` messages to every rank, each in its own place. Block 0 takes them as they arrive:
/// by flags that grow, and then by the channel's flags, each once.
__global__ void take_any(channel_view ch, sym<flag> flags, int messages, std::uint64_t delay_ns, unsigned* wrong) {
  __shared__ int word;
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  auto const place = [&](int rank, int source, int m) {
    return e.inbox<int>(rank) + (source * (messages + 1) + m) * words;
  };
  if (b.index() == 1) {
    for (std::uint64_t const start = platform::clock_ns(); platform::clock_ns() - start < delay_ns;)
      platform::backoff();
    for (int m = 0; m <= messages; ++m)
      for (int k = 1; k <= w.size(); ++k) {
        int const p = w.next(k);
        for (int i = b.rank(); i < words; i += b.size()) place(p, w.rank(), m)[i] = word_of(w.rank(), m, e.number(), i);
        if (m < messages) signal(b, w.on(p, flags) + w.rank(), e.number() * 100 + epoch_t(m));
        else e.signal(b, p, 0);
      }
  } else {
    // A look ahead: what a cache keeps of it must be gone when a message has been waited for
    for (int n = 0; n < w.size() * (messages + 1); ++n) {
      int const source = n / (messages + 1), m = n % (messages + 1);
      for (int i = b.rank(); i < words; i += b.size()) {
        int const found = place(w.rank(), source, m)[i];
        count_wrong(wrong, e.number() > 2 && found != word_of(source, m, e.number(), i) &&
                               found != word_of(source, m, e.number() - 2, i));
      }
    }
    int taken[8] = {};
    for (int n = 0; n < w.size() * messages; ++n) {
      int const source = wait_any<until::at_least>(
          b, w, w.size(),
          [&](int s) {
            return taken[s] == messages ? awaited{}
                                        : awaited{w.here(flags) + s, e.number() * 100 + epoch_t(taken[s]), s};
          },
          &word);
      count_wrong(wrong, source < 0 || source >= w.size());
      if (source < 0) break;
      for (int i = b.rank(); i < words; i += b.size())
        count_wrong(wrong, place(w.rank(), source, taken[source])[i] != word_of(source, taken[source], e.number(), i));
      ++taken[source];
    }
    unsigned seen = 0;
    for (int n = 0; n < w.size(); ++n) {
      int const source =
          wait_any(b, w, w.size(), [&](int s) { return seen >> s & 1 ? awaited{} : e.awaits(s, 0); }, &word);
      count_wrong(wrong, source < 0 || (seen >> source & 1));
      if (source < 0) break;
      seen |= 1u << source;
      for (int i = b.rank(); i < words; i += b.size())
        count_wrong(wrong, place(w.rank(), source, messages)[i] != word_of(source, messages, e.number(), i));
    }
    count_wrong(wrong, wait_any(b, w, w.size(), [](int) { return awaited{}; }, &word) != -1);
  }
  e.end(b);
}

/// Every block of every rank adds to one flag on every rank, chosen by the parity of the epoch. Then all blocks check
/// the words that all have stored.
__global__ void count_signals(channel_view ch, sym<flag> counts, unsigned* wrong) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  int const ranks = w.size(), all = ranks * b.count();
  for (int k = 0; k < ranks; ++k) {
    int const p = w.next(k);
    int* const place = e.inbox<int>(p) + (w.rank() * b.count() + b.index()) * words;
    for (int i = b.rank(); i < words; i += b.size()) place[i] = word_of(w.rank(), b.index(), e.number(), i);
    signal_add(b, w.on(p, counts) + (e.number() & 1), 2);
  }
  // Launches with an epoch of this parity, this one included, times what each adds
  wait<until::at_least>(b, w, w.here(counts) + (e.number() & 1), (e.number() + 1) / 2 * epoch_t(2 * all));
  for (int n = 0; n < all; ++n)
    for (int i = b.rank(); i < words; i += b.size())
      count_wrong(wrong, e.inbox<int>()[n * words + i] != word_of(n / b.count(), n % b.count(), e.number(), i));
  e.end(b);
}

/// The last of a rank's blocks to arrive, then the last of its waves, finds the words of all of them, in every launch.
__global__ void join_blocks(channel_view ch, int* parts, unsigned* ticket, unsigned* lasts, unsigned* wrong) {
  __shared__ int word;
  block const b;
  wave const v;
  channel_epoch const e = ch.begin(b);
  int const waves = b.size() / wave::width;
  auto const expect_parts = [&](auto g, int count, int kind) {
    for (int n = 0; n < count; ++n)
      for (int i = g.rank(); i < words; i += g.size())
        count_wrong(wrong, parts[(kind * 64 + n) * words + i] != word_of(kind, n, e.number(), i));
    if (g.leader()) atomic_ref<unsigned, scope::device>(lasts).fetch_add(1u, order::relaxed);
  };
  for (int i = b.rank(); i < words; i += b.size()) parts[b.index() * words + i] = word_of(0, b.index(), e.number(), i);
  if (e.last_block(b, &word)) expect_parts(b, b.count(), 0);
  int const mine = b.index() * waves + v.index();
  for (int i = v.rank(); i < words; i += v.size()) parts[(64 + mine) * words + i] = word_of(1, mine, e.number(), i);
  if (last_to_arrive(v, ticket, unsigned(b.count() * waves), nullptr)) expect_parts(v, b.count() * waves, 1);
  e.end(b);
}

/// Every block stores words on every rank. All blocks meet, every block reads the words of all, and all meet again
/// before words are overwritten. Block b of rank r has row r * 8 + b.
__global__ void meet_all_blocks(world_view w, sym<grid_barrier_state> barriers, sym<int> rows, int rounds, int blocks0,
                                unsigned* wrong) {
  block const b;
  for (int round = 0; round < rounds; ++round) {
    for (int p = 0; p < w.size(); ++p)
      for (int i = b.rank(); i < words; i += b.size())
        (w.on(p, rows) + (w.rank() * 8 + b.index()) * words)[i] = word_of(w.rank(), b.index(), epoch_t(round), i);
    barrier(b, w, barriers);
    for (int r = 0; r < w.size(); ++r)
      for (int n = 0; n < blocks0 + r % 2; ++n)
        for (int i = b.rank(); i < words; i += b.size())
          count_wrong(wrong, (w.here(rows) + (r * 8 + n) * words)[i] != word_of(r, n, epoch_t(round), i));
    barrier(b, w, barriers);
  }
}

/// A user's own words instead of flags: every wave of a block publishes, its leader stores, and blocks of the ranks
/// beside it observe. They read what was stored in their own memory, and in that of the rank before, of which caches
/// keep what they have read two rounds before. A rank that has stored the word of a round has read those before.
__global__ void look_until_it_comes_published(world_view w, sym<int> rows, sym<int> kept, sym<flag> own, epoch_t first,
                                              int rounds, unsigned* wrong) {
  block const b;
  int const to = w.next(1), from = w.next(w.size() - 1);
  for (epoch_t n = first; n < first + epoch_t(rounds); ++n) {
    int const slot = int(n & 1);
    for (int i = b.rank(); i < words; i += b.size()) {
      (w.on(to, rows) + slot * words)[i] = word_of(w.rank(), 0, n, i);
      (w.here(kept) + slot * words)[i] = word_of(w.rank(), 1, n, i);
    }
    publish(b);
    if (b.leader()) store(&w.on(to, own)->note[3], n), store(&w.on(from, own)->note[4], n);
    std::uint64_t const start = platform::clock_ns();
    if (b.leader())
      while ((load(&w.here(own)->note[3]) < n || load(&w.here(own)->note[4]) < n) &&
             platform::clock_ns() - start < 20'000'000'000)
        platform::backoff();
    observe(b);
    for (int i = b.rank(); i < words; i += b.size()) {
      count_wrong(wrong, (w.on(from, kept) + slot * words)[i] != word_of(from, 1, n, i));
      count_wrong(wrong, (w.here(rows) + slot * words)[i] != word_of(from, 0, n, i));
    }
  }
}

/// Draws from all counters of a launch, one after the other.
__global__ void take_work_of_all(channel_view ch, unsigned* taken, int pieces) {
  __shared__ int word;
  block const b;
  channel_epoch const e = ch.begin(b);
  auto const take = [&](int counter, int i) {
    if (b.leader()) atomic_ref<unsigned, scope::device>(taken + counter * pieces + i).fetch_add(1u, order::relaxed);
  };
  for (int i = e.next(b, &word); i < pieces; i = e.next(b, &word)) take(0, i);
  for (int i = e.next<2>(b, &word); i < pieces; i = e.next<2>(b, &word)) take(2, i);
  for (int i = e.next<1>(b, &word); i < pieces; i = e.next<1>(b, &word)) take(1, i);
  e.end(b);
}

struct pair_of_halves {
  std::int16_t low, high;
};

/// Every block sends records [block] of `width` words of three types to every rank, and takes those of all ranks. In a
/// launch whose epoch is a multiple of 3, only the first block does so.
__global__ void exchange_ll(channel_view ch, ll_buffer_view inbox, int width, unsigned* wrong) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  ll_slot const slot(inbox, w, e.number());
  int const records = e.number() % 3 == 0 ? 1 : b.count();
  if (b.index() < records) {
    for (int k = 1; k <= w.size(); ++k)
      for (int j = b.rank(); j < width; j += b.size()) {
        int const x = word_of(w.rank(), b.index(), e.number(), j), to = w.next(k);
        if (j % 3 == 0) slot.send(to, b.index(), j, x);
        else if (j % 3 == 1) slot.send(to, b.index(), j, float(x % 4096) / 2);
        else slot.send(to, b.index(), j, pair_of_halves{std::int16_t(x % 30000), std::int16_t(-j)});
      }
    for (int source = 0; source < w.size(); ++source)
      for (int j = b.rank(); j < width; j += b.size()) {
        int const x = word_of(source, b.index(), e.number(), j);
        ll_reader read(e, w);
        bool right = false;
        do {
          ll_word<> const* const p = slot.from(source, b.index()) + j;
          if (j % 3 == 0) right = read.as<int>(p, source) == x;
          else if (j % 3 == 1) right = read(p, source) == float(x % 4096) / 2;
          else {
            auto const two = read.as<pair_of_halves>(p, source);
            right = two.low == x % 30000 && two.high == -j;
          }
        } while (read.again());
        count_wrong(wrong, !right);
      }
  }
  if (b.index() == b.count() - 1 && wave{}.index() == 0) slot.refresh(wave{}, [&](int, int i) { return i < records; });
  e.end(b);
}

constexpr int refreshed_records = 3;

/// A launch that sends nothing, and calls record 1 of each source used.
__global__ void refresh_others(channel_view ch, ll_buffer_view buffer) {
  block const b;
  channel_epoch const e = ch.begin(b);
  ll_slot(buffer, ch.world, e.number()).refresh(b, [](int, int i) { return i == 1; });
  e.end(b);
}
/// Whether the words of each slot, source and record must be 0.
struct expected_words {
  static constexpr int ranks = 3;
  bool cleared[2 * ranks * refreshed_records];
};
__global__ void compare_words(world_view w, ll_buffer_view buffer, expected_words expected, unsigned* wrong) {
  for (int n = block{}.rank(); n < 2 * w.size() * refreshed_records * buffer.record_words; n += block{}.size()) {
    int const record = n / buffer.record_words, j = n % buffer.record_words;  // record: of all slots and sources
    bool const is_clear = load(&w.here(buffer.words)[record * buffer.stride + j].bits) == 0;
    count_wrong(wrong, is_clear != expected.cleared[record]);
  }
}

/// Every thread notes the answer of the wait, as 2 + answer.
template <group Group>
__global__ void ask_in_vain(channel_view ch, int from, int kind, int* answers) {
  __shared__ int word;
  block const b;
  Group const g;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  int answer = 1;
  if (kind == 0) answer = e.try_wait(g, from, 0, &word);
  else if (kind == 1)
    answer = try_wait_all(
        g, w, w.size(), [&](int s) { return s == from ? e.from(s, 0) : e.from(w.rank(), 1); }, e.number(),
        [&](int s) { return s; }, &word);
  else if (kind == 2) answer = wait_any(g, w, 1, [&](int) { return e.awaits(from, 0); }, &word);
  else answer = e.try_wait(g, from, from, 0, &word);  // the last of its range
  answers[b.rank()] = 2 + answer;
  e.end(b);
}
/// What ask_in_vain waits for, but for rank `silent`'s.
__global__ void ask_and_answer(channel_view ch, int silent, int kind, int* answers) {
  __shared__ int word;
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  if (w.rank() != silent)
    for (int p = 0; p < w.size(); ++p) e.signal(b, p, 0);
  int answer = 0;
  if (kind == 0) answer = e.try_wait(b, w.next(1), 0, &word);
  else if (kind == 1) answer = e.try_wait(b, 0, w.size() - 1, 0, &word);
  else if (kind == 3) {  // rank 1's flag is the last thread's
    auto const from = [&](int i) { return int(i == b.size() - 1); };
    answer = try_wait_all(b, w, b.size(), [&](int i) { return e.from(from(i), 0); }, e.number(), from, &word);
  } else {
    unsigned seen = 0;
    for (int n = 0; n < w.size(); ++n) {
      answer = wait_any(b, w, w.size(), [&](int s) { return seen >> s & 1 ? awaited{} : e.awaits(s, 0); }, &word);
      if (answer < 0) break;
      seen |= 1u << answer;
    }
    answer = answer < 0 ? 0 : seen == (1u << w.size()) - 1;
  }
  answers[b.rank()] = 2 + answer;
  e.end(b);
}

}  // namespace

TEST_CASE("signals: several steps of one flag in a launch") {
  count_on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r, unsigned* wrong) {
    constexpr int blocks = 3;
    channel ch(r.heap, {.max_bytes = blocks * steps * words * 4, .flags_per_source = 1});
    auto const flags = r.heap.allocate<flag>(blocks);
    load_kernel(r.world, send_steps, 128);
    r.meet();
    for (int i = 0; i < 20; ++i) r.launch({blocks, 128}, send_steps, ch.view(make_header("steps", 0)), flags, wrong);
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("signals: a wait for any of several flags takes all of them, each once") {
  if (support::reports_races()) SKIP("it reads ahead of a wait");
  count_on_ranks(GENERATE(1, 2, 4, 8), [](rank_of_test& r, unsigned* wrong) {
    constexpr int messages = 4;
    channel ch(r.heap, {.max_bytes = std::size_t(8 * (messages + 1) * words * 4), .flags_per_source = 1});
    auto const flags = r.heap.allocate<flag>(std::size_t(r.size()));
    load_kernel(r.world, take_any, 128);
    r.meet();
    for (int i = 0; i < 12; ++i)
      r.launch({2, 128}, take_any, ch.view(make_header("any", 0)), flags, messages,
               std::uint64_t((i + r.rank()) % 3 * 5000), wrong);
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("signals: a flag that counts") {
  count_on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r, unsigned* wrong) {
    constexpr int blocks = 3;
    channel ch(r.heap, {.max_bytes = std::size_t(8 * blocks * words * 4), .flags_per_source = 1});
    auto const counts = r.heap.allocate<flag>(2);
    load_kernel(r.world, count_signals, 128);
    r.meet();
    for (int i = 0; i < 15; ++i) {
      if ((i + r.rank()) % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      r.launch({blocks, 128}, count_signals, ch.view(make_header("count", 0)), counts, wrong);
    }
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("signals: the last block of a launch knows that it is, and has what all have stored") {
  count_on_ranks(GENERATE(1, 2), [](rank_of_test& r, unsigned* wrong) {
    constexpr int blocks = 7, launches = 12;
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    auto const parts = r.heap.allocate<int>(2 * 64 * words);
    auto const counters = r.heap.allocate<unsigned>(2);
    r.heap.upload(counters, std::vector{0u, 0u});
    load_kernel(r.world, join_blocks, 2 * wave::width);
    r.meet();
    for (int i = 0; i < launches; ++i)
      r.launch({blocks, 2 * wave::width}, join_blocks, ch.view(make_header("join", 0)), r.here(parts), r.here(counters),
               r.here(counters) + 1, wrong);
    r.world.check(r.stream);
    auto const found = r.heap.download(counters);
    r.found.expect(found[0] == 0, "a ticket of ", found[0]);
    r.found.expect(found[1] == 2 * launches, found[1], " were last");
    r.meet();
  });
}

TEST_CASE("signals: a barrier over all blocks of all ranks") {
  count_on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r, unsigned* wrong) {
    constexpr int blocks = 4;
    auto const barriers = r.heap.allocate<grid_barrier_state>(1);
    auto const rows = r.heap.allocate<int>(std::size_t(r.size() * 8 * words));
    load_kernel(r.world, meet_all_blocks, 128);
    r.meet();
    for (int i = 0; i < 4; ++i)
      r.launch({blocks + r.rank() % 2, 128}, meet_all_blocks, r.view(), barriers, rows, 3, blocks, wrong);
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("signals: words of one's own, published and observed") {
  count_on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r, unsigned* wrong) {
    constexpr int rounds = 10;
    auto const rows = r.heap.allocate<int>(2 * words), kept = r.heap.allocate<int>(2 * words);
    auto const own = r.heap.allocate<flag>(1);
    load_kernel(r.world, look_until_it_comes_published, 128);
    for (int i = 0; i < 2; ++i) {
      r.meet();
      r.launch({1, 128}, look_until_it_comes_published, r.view(), rows, kept, own, epoch_t(1 + i * rounds), rounds,
               wrong);
    }
  });
}

TEST_CASE("signals: several counters of work in a launch") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    constexpr int pieces = 23, launches = 9;
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    auto const taken = r.heap.allocate<unsigned>(work_counters * pieces);
    r.heap.upload(taken, std::vector<unsigned>(work_counters * pieces));
    load_kernel(r.world, take_work_of_all, 128);
    r.meet();
    for (int i = 0; i < launches; ++i)
      r.launch({1 + i % 4, 128}, take_work_of_all, ch.view(make_header("work", 0, std::uint64_t(i))), r.here(taken),
               pieces);
    r.world.check(r.stream);
    r.found.equal(r.heap.download(taken), std::vector<unsigned>(work_counters * pieces, launches), "pieces");
    r.meet();
  });
}

TEST_CASE("signals: a buffer of LL words of any type, on both sides of 2^32 launches") {
  count_on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r, unsigned* wrong) {
    constexpr int blocks = 3, width = 45;
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    ll_buffer inbox(ch, {.records = blocks, .words = width});
    load_kernel(r.world, exchange_ll, 128);
    on_both_sides_of_2_to_32(
        r, ch,
        [&](int) { r.launch({blocks, 128}, exchange_ll, ch.view(make_header("ll", 0)), inbox.view(), width, wrong); },
        unsigned(r.size()) * blocks);
  });
}

TEST_CASE("signals: a record that launches leave unwritten is set to 0 in its turn, all of it and no other") {
  count_on_ranks(GENERATE(1, 3), [](rank_of_test& r, unsigned* wrong) {
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    ll_buffer buffer(ch, {.records = refreshed_records, .words = 668});
    load_kernel(r.world, refresh_others, 512);
    r.fill(buffer.view().words, 0xff);
    r.meet();
    unsigned const records = unsigned(r.size()) * refreshed_records;
    expected_words expected{};
    for (epoch_t const turn : turns_of(records, 5)) {
      skip_to(r, ch, turn - 1);
      for (epoch_t e = turn; e < turn + 3; ++e) {
        r.launch({1, 512}, refresh_others, ch.view(make_header("refresh", 0)), buffer.view());
        unsigned const n = ll_turn(e, records);
        if (n < records && n % refreshed_records != 1) expected.cleared[e % 2 * records + n] = true;
        r.launch({1, 512}, compare_words, r.heap.view(), buffer.view(), expected, wrong);
      }
      r.world.check(r.stream);
    }
    r.meet();
  });
}

TEST_CASE("signals: an inbox that cannot be is refused, and leaves nothing behind") {
  on_ranks(2, [](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    std::size_t const before = r.heap.allocations();
    r.found.throws<bad_argument>("no words", {"ll_buffer: 3 records of 0 words; expected at least 1", "_test.cpp"},
                                 [&] { ll_buffer(ch, {.records = 3, .words = 0}); });
    r.found.throws<out_of_space>("too many words", {"bytes wanted in the signal segment"},
                                 [&] { ll_buffer(ch, {.records = 1 << 12, .words = 1 << 10}); });
    r.found.expect(r.heap.allocations() == before, "something is still allocated");
    { ll_buffer const one(ch, {.records = 2, .words = 3}); }
    r.found.expect(r.heap.allocations() == before, "an inbox that went is still allocated");
  });
}

TEST_CASE("signals: who timed out is told so, all threads alike", "[faults]") {
  int const kind = GENERATE(0, 1, 2, 3), group = GENERATE(0, 1, 2);
  CAPTURE(kind, group);
  on_ranks(
      3,
      [=](rank_of_test& r) {
        constexpr int threads = 2 * wave::width, silent = 1;
        channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 2});
        auto const answers = r.heap.allocate<int>(threads);
        auto const in_vain = group == 0 ? ask_in_vain<thread> : group == 1 ? ask_in_vain<wave> : ask_in_vain<block>;
        load_kernel(r.world, in_vain, threads);
        load_kernel(r.world, ask_and_answer, threads);
        auto const expect = [&](int wanted, std::string const& what) {
          r.found.equal(r.heap.download(answers), std::vector<int>(threads, 2 + wanted), what);
        };
        auto const answer = [&](int who_is_silent) {
          r.heap.upload(answers, std::vector<int>(threads));
          r.meet();
          r.launch({1, threads}, ask_and_answer, ch.view(make_header("answer", 0)), who_is_silent, kind,
                   r.here(answers));
        };
        answer(-1);
        r.world.check(r.stream);
        expect(1, "all came");

        r.meet();
        r.launch({1, threads}, in_vain, ch.view(make_header("in_vain", 0)), silent, kind, r.here(answers));
        std::string const said = verdict(r);
        r.found.expect(
            contains(said, "of in_vain") && contains(said, "for a flag from rank ") && contains(said, "data flag "),
            "a wait that timed out is told as: ", said);
        expect(kind == 2 ? -1 : 0, "nobody came");
        ch.reset();

        answer(silent);
        std::string const missed = verdict(r);
        if (kind > 0 || r.rank() == 0) {  // of kind 0 nobody else waits for rank 1
          r.found.expect(contains(missed, "for a flag from rank 1 (data flag 0 of rank 1, slot ") ||
                             missed.starts_with("abandoned: "),
                         "a wait for a silent rank is told as: ", missed);
          expect(0, "one was silent");
        }
        ch.reset();
        answer(-1);
        r.world.check(r.stream);
        expect(1, "all came again");
        r.meet();
      },
      short_waits());
}
