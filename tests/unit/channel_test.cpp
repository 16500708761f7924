// The channel's protocol: a random shape for every launch, stragglers, thousands of launches, graphs, and pulls after
// which the source overwrites its memory immediately.
#include "channel_kernels.hpp"
#include "simulator.hpp"

#include <cstdlib>
#include <thread>

using namespace support;

namespace {

/// `launches` launches without any action of the host between them, each with its own shape.
void gather_many(int ranks, int launches, int blocks, int threads, int most, unsigned seed, int straggler_every = 0) {
  on_ranks(ranks, [=](rank_of_test& r) {
    channel ch(r.heap, gather_channel(most));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, gather_words<>, threads);
    r.meet();
    for (int i = 0; i < launches; ++i) {
      gather_words_args a{.own = draw_ownership(seed + unsigned(i), ranks, most), .wrong = r.here(wrong)};
      if (straggler_every && (i + r.rank()) % straggler_every == 0) a.delay_ns = 30'000;
      if (straggler_every && (i + 3 * r.rank()) % (straggler_every * 5) == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      r.launch({1 + int(seed + unsigned(i)) % blocks, threads}, gather_words<>, ch.view(header_of(a.own)), a);
    }
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}

struct pull_args {
  int count = 0;  // words of every rank
  unsigned* wrong = nullptr;
  int salt = 0;  // of the words of this launch
};

/// Every rank reads every other rank's words in place. No rank's kernel ends before all ranks have read its words.
///   Deadlock: headers and acknowledgements are sent before block 0 waits for acknowledgements; all blocks read first.
__global__ void pull_words(channel_view ch, pull_args a) {
  block const b;
  channel_epoch const e = ch.begin_readable(b);
  world_view const& w = ch.world;
  for (int k = 0; k < w.size(); ++k) {
    int const source = w.next(k);
    if (a.count == 0) {
      if (b.index() == 0) e.pull().acknowledge_nothing(b, source);
      continue;
    }
    if (!e.pull().wait_begun(b, source)) continue;
    int const* const words = reinterpret_cast<int const*>(w.bulk[source] + e.pull().peer_word(source, 0));
    int const salt = int(e.pull().peer_word(source, 1));
    for (int i = b.index() * b.size() + b.rank(); i < a.count; i += b.count() * b.size())
      if (words[i] != word_of(source, i, 0, a.salt) || salt != a.salt + source)
        atomic_ref<unsigned, scope::device>(a.wrong).fetch_add(1u, order::relaxed);
    e.pull().acknowledge(b, source, unsigned(b.count()));
  }
  if (b.index() == 0) e.pull().wait_acknowledged(b);
  e.end(b);
}

/// As pull_words, but through the inbox: a block fetches chunks and raises their flags on this rank, and another block
/// of this rank takes them.
__global__ void fetch_words(channel_view ch, pull_args a) {
  block const b;
  channel_epoch const e = ch.begin_readable(b);
  world_view const& w = ch.world;
  int const pieces = ceil_div(a.count, chunk);
  for (int k = 0; k < w.size(); ++k) {
    int const source = w.next(k);
    if (pieces == 0 && b.index() == 0) e.pull().acknowledge_nothing(b, source);
    for (int c = b.index(); c < pieces; c += b.count()) {
      bool const begun = e.pull().wait_begun(b, source);
      int const* const words = reinterpret_cast<int const*>(w.bulk[source] + e.pull().peer_word(source, 0)) + c * chunk;
      if (begun)
        copy(b, words, e.inbox<int>() + source * a.count + c * chunk,
             a.count - c * chunk < chunk ? a.count - c * chunk : chunk);
      e.signal_here(b, source, c);
      e.pull().acknowledge(b, source, unsigned(pieces));
    }
  }
  for (int source = 0; source < w.size(); ++source)
    for (int c = (b.index() + 1) % b.count(); c < pieces; c += b.count()) {
      e.wait(b, source, c);
      for (int i = c * chunk + b.rank(); i < c * chunk + chunk && i < a.count; i += b.size())
        if (e.inbox<int>()[source * a.count + i] != word_of(source, i, 0, a.salt))
          atomic_ref<unsigned, scope::device>(a.wrong).fetch_add(1u, order::relaxed);
    }
  if (b.index() == 0) e.pull().wait_acknowledged(b);
  e.end(b);
}

__global__ void write_words(int* words, int count, int rank, int salt) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < count; i += block{}.count() * block{}.size())
    words[i] = word_of(rank, i, 0, salt);
}

/// Takes work with e.next(): each piece must go to one block, and to all its waves, whatever the number of blocks.
__global__ void take_work(channel_view ch, unsigned* taken, int pieces) {
  __shared__ int shared;
  block const b;
  channel_epoch const e = ch.begin(b);
  for (int i = e.next(b, &shared); i < pieces; i = e.next(b, &shared))
    if (wave{}.leader()) atomic_ref<unsigned, scope::device>(taken + i).fetch_add(1u, order::relaxed);
  e.end(b);
}

/// Waves that do not meet other waves before the end; some of them are late.
__global__ void compare_epochs(channel_view ch, epoch_t wanted, unsigned* wrong) {
  block const b;
  channel_epoch const e = ch.begin(b);
  if (wave{}.leader() && e.number() != wanted) atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
  e.end(b);
}

/// Another operator on the same channel: every rank sends one word to every rank, by waves.
__global__ void exchange_ranks(channel_view ch, unsigned* wrong) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  if (b.index() == 0 && wave{}.index() == 0)
    for (int p = 0; p < w.size(); ++p) {
      if (wave{}.leader()) e.inbox<epoch_t>(p)[w.rank()] = e.number() * 100 + epoch_t(w.rank());
      e.signal(wave{}, p, 0);
    }
  if (b.index() == b.count() - 1) {
    e.wait(b, 0, w.size() - 1, 0);
    for (int p = b.rank(); p < w.size(); p += b.size())
      if (e.inbox<epoch_t>()[p] != e.number() * 100 + epoch_t(p))
        atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
  }
  e.end(b);
}

/// Thread 0 sends `words` words to every rank, and takes those of the others as they arrive: from its own inbox, and
/// from the sender's inbox. It calls wait() only if arrived() is still false after many polls. It has read both inboxes
/// before, so its caches hold old values.
__global__ void take_what_has_arrived(channel_view ch, int words, unsigned* wrong) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  thread const t;
  if (b.leader()) {
    unsigned failures = 0;
    for (int p = 0; p < w.size(); ++p)
      for (int i = 0; i < words; ++i)
        failures += (e.inbox<int>()[p * words + i] == word_of(p, i, e.number() + 1, 0)) +
                    (e.inbox<int>(p)[p * words + i] == word_of(p, i, e.number() + 1, 0));
    for (int p = 0; p < w.size(); ++p)
      for (int i = 0; i < words; ++i) e.inbox<int>(p)[w.rank() * words + i] = word_of(w.rank(), i, e.number(), 0);
    for (int p = 0; p < w.size(); ++p) e.signal(t, p, 0);
    for (int k = 0; k < w.size(); ++k) {
      int const source = w.next(k);
      for (int looks = 0; looks < 1000 && !e.arrived(source, 0); ++looks) platform::backoff();
      if (!e.arrived(source, 0)) e.wait(t, source, 0);
      failures += !e.arrived(source, 0);
      for (int i = 0; i < words; ++i)
        failures += (e.inbox<int>()[source * words + i] != word_of(source, i, e.number(), 0)) +
                    (e.inbox<int>(source)[source * words + i] != word_of(source, i, e.number(), 0));
    }
    if (failures) atomic_ref<unsigned, scope::device>(wrong).fetch_add(failures, order::relaxed);
  }
  e.end(b);
}

/// Part of the 10,000 launches of "channel: 10,000 launches", which FUSEWIRE_TEST_LAUNCHES replaces.
int launches_of_10000(int part) {
  char const* const all = std::getenv("FUSEWIRE_TEST_LAUNCHES");
  return int((all ? std::atoll(all) : 10'000) * part / 10'000);
}

}  // namespace

TEST_CASE("channel: a new shape at every launch") {
  int const ranks = GENERATE(1, 2, 3, 4, 8);
  gather_many(ranks, 60, 3, 128, 600, unsigned(ranks) * 1000);
}

TEST_CASE("channel: blocks whose last wave is not full") {
  gather_many(GENERATE(2, 8), 20, 2, wave::width + 1, 200, 77);
}
TEST_CASE("channel: blocks of less than a wave") { gather_many(GENERATE(2, 8), 10, 2, 3, 50, 78); }

TEST_CASE("channel: stragglers, by device and by host") { gather_many(GENERATE(2, 4, 8), 60, 2, 64, 300, 4242, 4); }

TEST_CASE("channel: 10,000 launches, 2 ranks") { gather_many(2, launches_of_10000(5000), 2, 64, 100, 1); }
TEST_CASE("channel: 10,000 launches, 3 ranks") { gather_many(3, launches_of_10000(3000), 2, 64, 100, 100'000); }
TEST_CASE("channel: 10,000 launches, 8 ranks") { gather_many(8, launches_of_10000(2000), 1, 64, 100, 200'000); }

TEST_CASE("channel: launches on both sides of 2^32") {
  int const ranks = GENERATE(2, 3, 8);
  on_ranks(ranks, [&](rank_of_test& r) {
    channel ch(r.heap, gather_channel(200));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    graph const replayed(
        r, [&] { r.launch({2, 64}, exchange_ranks, ch.view(make_header("exchange", 0)), r.here(wrong)); });
    on_both_sides_of_2_to_32(r, ch, [&](int i) {
      gather_words_args const a{.own = draw_ownership(unsigned(i), r.size(), 200), .wrong = r.here(wrong)};
      if (i % 5 == 3) replayed.launch(r.stream);
      else r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
    });
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.found.expect(r.download(&r.here(ch.view(make_header("test", 0)).state)->epoch, 1)[0] == (epoch_t(1) << 32) + 5,
                   "another epoch than 2^32 + 5");
  });
}

TEST_CASE("channel: what arrives is what was sent") {
  on_ranks(GENERATE(1, 2, 4, 8), [](rank_of_test& r) {
    constexpr int most = 500;
    channel ch(r.heap, gather_channel(most));
    auto const input = r.heap.allocate<int>(most), out = r.heap.allocate<int>(8 * most);
    auto const wrong = r.heap.allocate<unsigned>(1);
    for (int i = 0; i < 12; ++i) {
      auto const own = draw_ownership(unsigned(i) + 31, r.size(), most);
      std::vector<int> mine, wanted;
      for (int p = 0; p < r.size(); ++p)
        for (int k = 0; k < own.count[p]; ++k) {
          wanted.push_back(word_of(p, k, 0, i));
          if (p == r.rank()) mine.push_back(wanted.back());
        }
      if (!mine.empty()) r.upload(mine, input);
      r.fill(out, 0xee);
      r.launch({3, 128}, gather_words<>, ch.view(header_of(own)),
               gather_words_args{.own = own, .input = r.here(input), .out = r.here(out), .wrong = r.here(wrong)});
      r.found.equal(r.download(static_cast<int const*>(r.here(out)), wanted.size()), wanted, text("launch ", i));
    }
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("channel: 50 replays of a graph, with changing data") {
  on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r) {
    constexpr int most = 200;
    channel ch(r.heap, gather_channel(most));
    auto const input = r.heap.allocate<int>(most), out = r.heap.allocate<int>(8 * most);
    auto const wrong = r.heap.allocate<unsigned>(1);
    ownership own = draw_ownership(4, r.size(), most);
    if (own.before[8] == 0) own = draw_ownership(6, r.size(), most);
    load_kernel(r.world, gather_words<>, 64);
    gather_words_args const a{.own = own, .input = r.here(input), .out = r.here(out), .wrong = r.here(wrong)};
    graph const one(r, [&] { r.launch({2, 64}, gather_words<>, ch.view(header_of(own)), a); });
    r.found.expect(one.nodes() == std::vector{hipGraphNodeTypeKernel}, "a captured call has ", one.nodes().size(),
                   " nodes");
    graph const three(r, [&] {
      for (int i = 0; i < 3; ++i) r.launch({2, 64}, gather_words<>, ch.view(header_of(own)), a);
    });
    r.meet();
    for (int replay = 0; replay < 50; ++replay) {
      std::vector<int> mine(most, 0), wanted;
      for (int p = 0; p < r.size(); ++p)
        for (int k = 0; k < own.count[p]; ++k) {
          wanted.push_back(word_of(p, k, 0, replay));
          if (p == r.rank()) mine[std::size_t(k)] = wanted.back();
        }
      r.upload(mine, input);
      (replay % 7 == 3 ? three : one).launch(r.stream);
      r.found.equal(r.download(static_cast<int const*>(r.here(out)), wanted.size()), wanted, text("replay ", replay));
    }
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("channel: what has arrived can be read without a wait") {
  if (support::reports_races()) SKIP("it reads ahead of a wait");
  on_ranks(GENERATE(1, 2, 4), [](rank_of_test& r) {
    constexpr int words = 70;
    channel ch(r.heap, gather_channel(words));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, take_what_has_arrived, 64);
    r.meet();
    for (int i = 0; i < 20; ++i)
      r.launch({1, 64}, take_what_has_arrived, ch.view(make_header("arrived", 0)), words, r.here(wrong));
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}

TEST_CASE("channel: several operators share it, launches and replays mixed") {
  on_ranks(GENERATE(2, 3), [](rank_of_test& r) {
    constexpr int most = 200;
    channel ch(r.heap, gather_channel(most));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, gather_words<>, 64);
    load_kernel(r.world, exchange_ranks, 128);
    auto const gather = [&](unsigned seed) {
      gather_words_args const a{.own = draw_ownership(seed, r.size(), most), .wrong = r.here(wrong)};
      r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
    };
    auto const exchange = [&] { r.launch({2, 128}, exchange_ranks, ch.view(make_header("ranks", 0)), r.here(wrong)); };
    graph const both(r, [&] { gather(11), exchange(), gather(12); });
    r.meet();
    for (unsigned i = 0; i < 60; ++i) {
      gather(100 + i);
      if (i % 3 == 0) both.launch(r.stream);
      exchange();
    }
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}

namespace {
/// Every launch pulls words that the stream has just written, and that it overwrites right after the launch.
void pull_many(int ranks, void (*kernel)(channel_view, pull_args)) {
  on_ranks(ranks, [=](rank_of_test& r) {
    constexpr int most = 700;
    channel ch(r.heap, gather_channel(most));
    auto const words = r.heap.allocate<int>(std::size_t(most + 64 * r.size()));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, kernel, 128);
    load_kernel(r.world, write_words, 64);
    r.meet();
    lcg random{99};
    for (int i = 0; i < 60; ++i) {
      int const count = i % 9 == 5 ? 0 : 1 + random.below(most);
      int const salt = random.below(1000);
      // At another offset on every rank and in every launch
      int* const mine = r.here(words) + 64 * ((r.rank() + i) % r.size());
      r.launch({2, 64}, write_words, mine, count, r.rank(), salt);
      launch_header h = make_header("pull", 0, std::uint64_t(count), std::uint64_t(salt));
      h.mine[0] = r.heap.offset_of(mine, std::size_t(count) * 4, "words", std::source_location::current());
      h.mine[1] = std::uint64_t(salt + r.rank());
      // The last wave of a block sends the header; with one wave it is the first, too
      int const threads = i % 3 == 1 ? wave::width : 2 * wave::width;
      r.launch({std::max(3, r.world.xcd_count()), threads}, kernel, ch.view(h), pull_args{count, r.here(wrong), salt});
      r.launch({2, 64}, write_words, mine, count, r.rank(), -1);
    }
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}
}  // namespace

TEST_CASE("channel: sources are overwritten right after each pull") { pull_many(GENERATE(1, 2, 3, 4, 8), pull_words); }
TEST_CASE("channel: sources are fetched into the inbox and overwritten right after each pull") {
  pull_many(GENERATE(1, 2, 3, 8), fetch_words);
}

TEST_CASE("channel: work is handed out once") {
  on_ranks(2, [](rank_of_test& r) {
    constexpr int pieces = 40;
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    auto const taken = r.heap.allocate<unsigned>(pieces);
    r.fill(taken, 0);
    for (unsigned launches = 1; launches <= 5; ++launches) {
      r.launch({int(launches), 4 * wave::width}, take_work, ch.view(make_header("work", 0, launches)), r.here(taken),
               pieces);
      r.found.equal(r.download(taken), std::vector<unsigned>(pieces, 4 * launches), "pieces");
    }
    r.world.check(r.stream);
    r.meet();
  });
}

namespace {
/// Rank 1's blocks acknowledge pieces of rank 0's memory one after the other. They count the pieces after which rank 0
/// has its acknowledgement although more pieces follow.
__global__ void acknowledge_in_turn(channel_view ch, unsigned* early) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  if (w.rank() == 1) {
    unsigned const* const arrived = &w.here(ch.state)->arrived[0];
    flag const* const told = w.on(0, ch.flags) + (2 * (e.number() & 1) + 1) * std::uint64_t(w.size()) + 1;
    for (int look = 0;
         look < 1000 && platform::atomic_load<order::relaxed, scope::device>(arrived) != unsigned(b.index()); ++look)
      platform::backoff();
    for (int look = 0; look < 50; ++look)
      if (b.leader() && platform::atomic_load<order::relaxed, scope::system>(&told->value) == e.number())
        atomic_ref<unsigned, scope::device>(early).fetch_add(1u, order::relaxed);
    platform::fence<order::acquire, scope::system>();  // tests/isa/check_order.py wants one behind what is polled
    e.pull().acknowledge(b, 0, unsigned(b.count()));
    if (b.index() == 0) e.pull().acknowledge_nothing(b, 1);
  } else if (b.index() == 0) {
    for (int r : {0, 1}) e.pull().acknowledge_nothing(b, r);
  }
  if (b.index() == 0) e.pull().wait_acknowledged(b);
  e.end(b);
}
}  // namespace

TEST_CASE("channel: a rank is told of the last piece of its memory, not before") {
  on_ranks(2, [](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    auto const early = r.heap.allocate<unsigned>(1);
    r.fill(early, 0);
    load_kernel(r.world, acknowledge_in_turn, 64);
    r.meet();
    for (int launches = 0; launches < 4; ++launches)
      r.launch({3, 64}, acknowledge_in_turn, ch.view(make_header("told", 0)), r.here(early));
    r.world.check(r.stream);
    r.found.expect(r.download(early)[0] == 0, "told too early, at ", r.download(early)[0], " looks");
  });
}

TEST_CASE("channel: all waves of a launch see the same epoch") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, compare_epochs, 4 * wave::width);
    r.meet();
    for (epoch_t i = 1; i <= 100; ++i)
      r.launch({4, 4 * wave::width}, compare_epochs, ch.view(make_header("epochs", 0)), i, r.here(wrong));
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " waves with another epoch");
    r.meet();
  });
}

TEST_CASE("channel: a subgroup has channels of its own") {
  none_found_anything(on_worlds(6, [&](world& w) {
    world part = w.split(w.rank() < 2);
    rank_of_test r(part, small_heap());
    channel ch(r.heap, gather_channel(200));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    // Allocating and freeing wait for the device, where another part's kernels may be waiting for this thread
    w.barrier();
    for (unsigned i = 0; i < (part.size() == 2 ? 30u : 20u); ++i) {
      gather_words_args const a{.own = draw_ownership(i, part.size(), 200), .wrong = r.here(wrong)};
      r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
    }
    part.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
    w.barrier();
    return r.found.summary();
  }));
}

TEST_CASE("channel: one after the other in the same memory") {
  on_ranks(2, [](rank_of_test& r) {
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    for (unsigned i = 0; i < 4; ++i) {
      channel ch(r.heap, gather_channel(300));
      for (unsigned k = 0; k < 5; ++k) {
        gather_words_args const a{.own = draw_ownership(10 * i + k, r.size(), 300), .wrong = r.here(wrong)};
        r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
      }
      r.world.check(r.stream);
      r.meet();
    }
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.found.expect(r.heap.allocations() == 1, r.heap.allocations(), " allocations left");
  });
}
