// signal(), wait() and barrier(): messages by flag between ranks, by threads, waves and blocks, launched once and
// replayed.
#include "simulator.hpp"
#include "support.hpp"

using namespace support;

namespace {

constexpr int message = 256;  // ints

__host__ __device__ int word_of(int rank, int round, int i) { return rank * 1000003 + round * 1009 + i; }

/// Block b belongs to one conversation: it sends `rounds` messages to the next rank and checks those of the previous
/// one. Each round has a buffer and its own flag.
template <group Group>
__global__ void pass_messages(world_view w, sym<int> inbox, sym<flag> flags, sym<unsigned> wrong, int rounds,
                              epoch_t epoch) {
  Group const g;
  int const groups = block{}.size() / g.size();
  int const conversation = block{}.index() * groups + block{}.rank() / g.size();
  int const to = w.next(1), from = w.next(w.size() - 1);
  for (int i = 0; i < rounds; ++i) {
    int const at = conversation * rounds + i;
    int* const there = w.on(to, inbox) + at * message;
    for (int k = g.rank(); k < message; k += g.size()) there[k] = word_of(w.rank(), at + int(epoch), k);
    signal(g, w.on(to, flags) + at, epoch);
    wait(g, w, w.here(flags) + at, epoch, from);
    int const* const here = w.here(inbox) + at * message;
    for (int k = g.rank(); k < message; k += g.size())
      if (here[k] != word_of(from, at + int(epoch), k))
        atomic_ref<unsigned, scope::device>(w.here(wrong)).fetch_add(1u, order::relaxed);
  }
}

template <group Group>
void check_messages(int ranks, int threads) {
  on_ranks(ranks, [=](rank_of_test& r) {
    constexpr int blocks = 3, rounds = 3;
    int const conversations = blocks * (std::is_same_v<Group, thread> ? threads
                                        : std::is_same_v<Group, wave> ? threads / wave::width
                                                                      : 1);
    auto const inbox = r.heap.allocate<int>(std::size_t(conversations * rounds * message));
    auto const flags = r.heap.allocate<flag>(std::size_t(conversations * rounds));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    // A barrier on the host between them: the inboxes are single. A wait asks for one value, not for more
    for (epoch_t e : {1, 2, 3, 2, 1}) {
      r.meet();
      r.launch({blocks, threads}, pass_messages<Group>, r.view(), inbox, flags, wrong, rounds, e);
      r.meet();
    }
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
  });
}

/// In each of `rounds` rounds every rank writes a word into its row on every rank. All meet, read all rows, and meet
/// again before rows are overwritten.
template <group Group>
__global__ void meet_and_compare(world_view w, sym<barrier_state> barriers, sym<int> rows, sym<unsigned> wrong,
                                 int const* input, int rounds) {
  Group const g;
  if (!std::is_same_v<Group, block> && block{}.rank() / g.size() > 0) return;
  for (int round = 0; round < rounds; ++round) {
    for (int p = 0; p < w.size(); ++p)
      for (int i = g.rank(); i < 64; i += g.size())
        (w.on(p, rows) + w.rank() * 64)[i] = word_of(w.rank(), round, i) + *input;
    barrier(g, w, barriers);
    for (int p = 0; p < w.size(); ++p)
      for (int i = g.rank(); i < 64; i += g.size())
        if ((w.here(rows) + p * 64)[i] != word_of(p, round, i) + *input)
          atomic_ref<unsigned, scope::device>(w.here(wrong)).fetch_add(1u, order::relaxed);
    barrier(g, w, barriers);
  }
}

template <group Group>
void check_barrier(int ranks) {
  on_ranks(ranks, [](rank_of_test& r) {
    auto const barriers = r.heap.allocate<barrier_state>(1);
    auto const rows = r.heap.allocate<int>(std::size_t(64 * r.size()));
    auto const wrong = r.heap.allocate<unsigned>(1);
    auto const input = r.heap.allocate<int>(1);
    r.fill(wrong, 0);
    r.upload({17}, input);
    for (int launches = 0; launches < 6; ++launches) {
      if (launches == 3) {
        r.meet();
        r.upload(std::vector{(epoch_t(1) << 32) - 5}, &r.here(barriers)->epoch);
        r.meet();
      }
      r.launch({1, 128}, meet_and_compare<Group>, r.view(), barriers, rows, wrong,
               static_cast<int const*>(r.here(input)), 5);
    }
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}

/// Sends with one release for all peers.
__global__ void send_to_all(world_view w, sym<int> inbox, sym<flag> flags, sym<int> sum, int const* input,
                            epoch_t const* epoch) {
  block b;
  epoch_t const e = *epoch;
  int const slot = int(e & 1) * w.size();
  for (int p = 0; p < w.size(); ++p)
    for (int i = b.rank(); i < message; i += b.size()) (w.on(p, inbox) + (slot + w.rank()) * message)[i] = input[i];
  signal_all(b, w.size(), [&](int p) { return w.on(p, flags) + slot + w.rank(); }, e);
  wait_all(b, w, w.size(), [&](int p) { return w.here(flags) + slot + p; }, e, [](int p) { return p; });
  for (int i = b.rank(); i < message; i += b.size()) {
    int total = 0;
    for (int p = 0; p < w.size(); ++p) total += (w.here(inbox) + (slot + p) * message)[i];
    w.here(sum)[i] = total;
  }
}
__global__ void advance(epoch_t* epoch) { ++*epoch; }

/// Words stay in their writer's memory. Every rank reads those of the next rank, which are then overwritten and read
/// again. flags: [written, read].
__global__ void read_again(world_view w, sym<int> words, sym<flag> flags, sym<unsigned> wrong, int rounds) {
  block const b;
  int const next = w.next(1), before = w.next(w.size() - 1);
  auto const tell_and_wait = [&](int to, int from, int which, epoch_t round) {
    signal(b, w.on(to, flags) + which, round);
    // A reading has the same kind before and after it
    if (round / 2 % 2) wait(b, w, w.here(flags) + which, round, from);
    else wait_all(b, w, 1, [&](int) { return w.here(flags) + which; }, round, [&](int) { return from; });
  };
  for (int i = 1; i <= rounds; ++i) {
    for (int k = b.rank(); k < message; k += b.size()) w.here(words)[k] = word_of(w.rank(), i, k);
    tell_and_wait(before, next, 0, epoch_t(i));
    for (int k = b.rank(); k < message; k += b.size())
      if (w.on(next, words)[k] != word_of(next, i, k))
        atomic_ref<unsigned, scope::device>(w.here(wrong)).fetch_add(1u, order::relaxed);
    tell_and_wait(next, before, 1, epoch_t(i));
  }
}

/// The first wave meets all ranks, round by round, and reads their words. The second wave reads the same lines all the
/// time, so the cache holds old values before a flag is up. They must be gone after wait_all().
/// words: [round][source][lane]; flags: [round][source].
__global__ void read_what_another_wave_reads(world_view w, sym<int> words, sym<flag> flags, sym<unsigned> wrong,
                                             int* sum, int rounds) {
  wave const g;
  auto const row = [&](int rank, int round, int source) {
    return w.on(rank, words) + (round * w.size() + source) * wave::width;
  };
  if (g.index() == 0) {
    for (int i = 0; i < rounds; ++i) {
      for (int p = 0; p < w.size(); ++p) row(p, i, w.rank())[g.rank()] = word_of(w.rank(), i, g.rank());
      signal_all(g, w.size(), [&](int p) { return w.on(p, flags) + i * w.size() + w.rank(); }, 1);
      wait_all(g, w, w.size(), [&](int p) { return w.here(flags) + i * w.size() + p; }, 1, [](int p) { return p; });
      for (int p = 0; p < w.size(); ++p)
        if (row(w.rank(), i, p)[g.rank()] != word_of(p, i, g.rank()))
          atomic_ref<unsigned, scope::device>(w.here(wrong)).fetch_add(1u, order::relaxed);
    }
  } else {
    int total = 0;
    for (int turn = 0; turn < 60; ++turn)
      for (int i = 0; i < rounds * w.size(); ++i) total += w.here(words)[platform::opaque(i * wave::width + g.rank())];
    sum[g.rank()] = total;
  }
}

/// A message travels from wave to wave within one rank.
__global__ void whisper(world_view w, sym<int> words, sym<flag> flags, sym<unsigned> wrong, int rounds) {
  wave const g;
  int const waves = block{}.size() / wave::width * block{}.count();
  int const me = block{}.index() * (block{}.size() / wave::width) + g.index();
  for (int i = 0; i < rounds; ++i) {
    if (i > 0 || me > 0) {
      int const before = i * waves + me - 1;
      wait(g, w, w.here(flags) + before, 1, w.rank());
      if (w.here(words)[before * wave::width + g.rank()] != before)
        atomic_ref<unsigned, scope::device>(w.here(wrong)).fetch_add(1u, order::relaxed);
    }
    int const now = i * waves + me;
    w.here(words)[now * wave::width + g.rank()] = now;
    if (i % 2) signal<scope::device>(g, w.here(flags) + now, 1);
    else signal_all<scope::device>(g, 1, [&](int) { return w.here(flags) + now; }, 1);
  }
}

}  // namespace

TEST_CASE("messages: by blocks") { check_messages<block>(GENERATE(1, 2, 3, 4, 8), 192); }
TEST_CASE("messages: by waves") { check_messages<wave>(GENERATE(1, 2, 3, 8), 128); }
TEST_CASE("messages: by threads") { check_messages<thread>(GENERATE(1, 2, 4), 4); }

TEST_CASE("messages: from block to block of one rank, at device scope") {
  on_ranks(2, [](rank_of_test& r) {
    constexpr int blocks = 4, threads = 2 * wave::width, rounds = 8, messages = blocks * 2 * rounds;
    auto const words = r.heap.allocate<int>(messages * wave::width);
    auto const flags = r.heap.allocate<flag>(messages);
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    r.launch({blocks, threads}, whisper, r.view(), words, flags, wrong, rounds);
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
  });
}

TEST_CASE("messages: that stay at their sender, whose memory is read again and again") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    auto const words = r.heap.allocate<int>(message);
    auto const flags = r.heap.allocate<flag>(2);
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    r.meet();
    r.launch({1, 192}, read_again, r.view(), words, flags, wrong, 20);
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}

TEST_CASE("messages: of which another wave reads the lines while they come") {
  if (support::reports_races()) SKIP("it reads ahead of a wait");
  on_ranks(4, [](rank_of_test& r) {
    constexpr int rounds = 8;
    auto const words = r.heap.allocate<int>(std::size_t(rounds * r.size() * wave::width)),
               sum = r.heap.allocate<int>(wave::width);
    auto const flags = r.heap.allocate<flag>(std::size_t(rounds * r.size()));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(words, 0);
    r.fill(wrong, 0);
    r.meet();
    r.launch({1, 2 * wave::width}, read_what_another_wave_reads, r.view(), words, flags, wrong, r.here(sum), rounds);
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}
TEST_CASE("barrier: by a block") { check_barrier<block>(GENERATE(1, 2, 3, 4, 8)); }
TEST_CASE("barrier: by a wave") { check_barrier<wave>(GENERATE(1, 2, 3, 4, 8)); }
TEST_CASE("barrier: by a thread") { check_barrier<thread>(GENERATE(1, 2, 4)); }

TEST_CASE("messages: 50 replays of a graph, with changing data") {
  on_ranks(GENERATE(1, 2, 4), [](rank_of_test& r) {
    auto const inbox = r.heap.allocate<int>(std::size_t(2 * r.size() * message));
    auto const flags = r.heap.allocate<flag>(std::size_t(2 * r.size()));
    auto const input = r.heap.allocate<int>(message), sum = r.heap.allocate<int>(message);
    auto const epoch = r.heap.allocate<epoch_t>(1);
    r.upload({epoch_t(1)}, epoch);
    load_kernel(r.world, send_to_all, 128);
    load_kernel(r.world, advance, 1);
    graph const g(r, [&] {
      r.launch({1, 128}, send_to_all, r.view(), inbox, flags, sum, static_cast<int const*>(r.here(input)),
               static_cast<epoch_t const*>(r.here(epoch)));
      r.launch({1, 1}, advance, r.here(epoch));
    });
    r.meet();
    for (int replay = 0; replay < 50; ++replay) {
      std::vector<int> mine(message), wanted(message);
      for (int i = 0; i < message; ++i)
        for (int p = 0; p < r.size(); ++p) {
          int const v = (p + 1) * (replay + 1) + i;
          if (p == r.rank()) mine[std::size_t(i)] = v;
          wanted[std::size_t(i)] += v;
        }
      r.upload(mine, input);
      g.launch(r.stream);
      r.found.equal(r.download(sum), wanted, text("replay ", replay));
    }
    r.world.check(r.stream);
    r.meet();
  });
}

TEST_CASE("barrier: replayed in a graph") {
  on_ranks(GENERATE(2, 3), [](rank_of_test& r) {
    auto const barriers = r.heap.allocate<barrier_state>(1);
    auto const rows = r.heap.allocate<int>(std::size_t(64 * r.size()));
    auto const wrong = r.heap.allocate<unsigned>(1);
    auto const input = r.heap.allocate<int>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, meet_and_compare<block>, 128);
    graph const g(r, [&] {
      r.launch({1, 128}, meet_and_compare<block>, r.view(), barriers, rows, wrong,
               static_cast<int const*>(r.here(input)), 2);
    });
    r.found.expect(g.nodes() == std::vector{hipGraphNodeTypeKernel}, "a captured launch has ", g.nodes().size(),
                   " nodes");
    r.meet();
    for (int replay = 0; replay < 50; ++replay) {
      r.upload({replay}, input);  // the same on every rank
      g.launch(r.stream);
    }
    r.world.check(r.stream);
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words");
    r.meet();
  });
}
