// Launches of one rank on several streams: which come one after the other, which run side by side, and what a capture
// has to do with it.
#include "streams.hpp"

#include <fusewire/ranks/launch_order.hpp>

using namespace support;

namespace {

/// Sends this rank's words to the next rank, and makes those of the rank before plus 1 its own. Blocks share the words.
__global__ void pass_on(channel_view ch, int* words, int count) {
  block const b;
  auto const e = ch.begin(b);
  world_view const& w = ch.world;
  int const to = w.next(1), from = w.next(w.size() - 1), step = b.count() * b.size();
  for (int i = b.index() * b.size() + b.rank(); i < count; i += step) e.inbox<int>(to)[i] = words[i];
  e.signal(b, to, b.index());
  e.wait(b, from, b.index());
  for (int i = b.index() * b.size() + b.rank(); i < count; i += step) words[i] = e.inbox<int>()[i] + 1;
  e.end(b);
}

/// As pass_on, and counts the blocks that are in the kernel: its own number and the other kernel's. A block that finds
/// blocks of the other one notes it. The dynamic shared memory is so large that a unit holds one block.
__global__ void pass_on_and_count(channel_view ch, int* words, int count, int* inside, int self, int* both) {
  extern __shared__ int whole_unit[];
  block const b;
  if (b.leader()) {
    whole_unit[0] = self;
    atomic_ref<int, scope::device>(inside + self).fetch_add(1);
  }
  b.sync();
  auto const e = ch.begin(b);
  world_view const& w = ch.world;
  int const to = w.next(1), from = w.next(w.size() - 1), step = b.count() * b.size();
  for (int i = b.index() * b.size() + b.rank(); i < count; i += step) e.inbox<int>(to)[i] = words[i];
  e.signal(b, to, b.index());
  e.wait(b, from, b.index());
  for (int i = b.index() * b.size() + b.rank(); i < count; i += step) words[i] = e.inbox<int>()[i] + 1;
  if (b.leader() && atomic_ref<int, scope::device>(inside + 1 - whole_unit[0]).load() != 0)
    atomic_ref<int, scope::device>(both).fetch_add(1);
  b.sync();
  if (b.leader()) atomic_ref<int, scope::device>(inside + self).fetch_add(-1);
  e.end(b);
}

/// Two of them meet on each rank: each raises the other's flag, and ends when its own is raised.
__global__ void meet_the_other(channel_view ch, flag* mine, flag* others) {
  extern __shared__ int whole_unit[];
  block const b;
  if (b.leader()) whole_unit[0] = 1;
  auto const e = ch.begin(b);
  if (b.index() == 0) signal(b, others, e.number());
  wait(b, ch.world, mine, e.number(), ch.world.rank());
  e.end(b);
}

/// As an operator without a channel has it: memory in which one launch at a time adds up.
struct own_memory {
  int* sum;
  void const* memory_of_one_launch() const { return sum; }
};
/// Adds 1 in many steps. Two launches together would lose some.
__global__ void add_slowly(own_memory m, int steps) {
  for (int i = 0; i < steps; ++i) {
    int const before = atomic_ref<int, scope::device>(m.sum).load();
    platform::backoff();
    atomic_ref<int, scope::device>(m.sum).store(before + 1);
  }
}

constexpr int words = 300, blocks = 3, threads = 128;
channel_options for_words(int flags) { return {.max_bytes = words * sizeof(int), .flags_per_source = flags}; }

/// The words of rank r after so many launches of pass_on; at first they are 1000 r + i.
std::vector<int> words_after(int launches, int rank, int ranks) {
  int const first = ((rank - launches) % ranks + ranks) % ranks;
  std::vector<int> w(words);
  for (int i = 0; i < words; ++i) w[std::size_t(i)] = 1000 * first + i + launches;
  return w;
}

/// Shared memory with which a unit holds one block.
int unit_bytes() { return platform::max_shared_bytes / 2 + 1024; }

}  // namespace

TEST_CASE("streams: launches of one channel come one after the other, on whichever stream each is") {
  on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r) {
    channel ch(r.heap, for_words(blocks));
    auto const mine = r.heap.allocate<int>(words);
    r.upload(words_after(0, r.rank(), r.size()), mine);
    own_stream const more[] = {make_stream(), make_stream()};
    hipStream_t const streams[] = {r.stream, more[0].get(), more[1].get()};
    r.meet();
    lcg random{7u + unsigned(r.rank())};  // ranks may choose different streams
    int launches = 0;
    for (int round = 0; round < 4; ++round) {
      hipStream_t last = nullptr;
      for (int i = 0; i < 12; ++i, ++launches)
        launch(r.world, last = streams[random.below(3)], {.blocks = blocks, .threads = threads}, pass_on,
               ch.view(make_header("pass_on", 0)), r.here(mine), words);
      r.world.check(last);  // the last launch is behind all others
      r.found.equal(r.download(mine), words_after(launches, r.rank(), r.size()), text("round ", round));
    }
    r.meet();
  });
}

TEST_CASE("streams: launches that use an operator's own memory come one after the other") {
  on_ranks(2, [](rank_of_test& r) {
    auto const sum = r.heap.allocate<int>(1);
    r.fill(sum, 0);
    own_stream const second = make_stream();
    constexpr int launches = 10, steps = 50;
    for (int i = 0; i < launches; ++i)
      launch(r.world, i % 2 ? second.get() : r.stream, {1, 1}, add_slowly, own_memory{r.here(sum)}, steps);
    r.world.check(second.get());
    r.found.expect(r.download(sum)[0] == launches * steps, "the sum is ", r.download(sum)[0]);
  });
}

TEST_CASE("streams: an event of the program, and the library's own, agree") {
  on_ranks(2, [](rank_of_test& r) {
    channel ch(r.heap, for_words(blocks));
    auto const mine = r.heap.allocate<int>(words);
    r.upload(words_after(0, r.rank(), r.size()), mine);
    own_stream const second = make_stream();
    r.meet();
    hipStream_t at = r.stream, other = second.get();
    for (int i = 0; i < 20; ++i) {
      launch(r.world, at, {.blocks = blocks, .threads = threads}, pass_on, ch.view(make_header("pass_on", 0)),
             r.here(mine), words);
      put_behind(at, other);
      std::swap(at, other);
    }
    check_hip(hipStreamSynchronize(at), "hipStreamSynchronize");
    r.world.check(other);
    r.found.equal(r.download(mine), words_after(20, r.rank(), r.size()), "words");
    r.meet();
  });
}

TEST_CASE("streams: a stream may end when check() has been called for it") {
  on_ranks(2, [](rank_of_test& r) {
    channel ch(r.heap, for_words(blocks));
    auto const mine = r.heap.allocate<int>(words);
    r.upload(words_after(0, r.rank(), r.size()), mine);
    r.meet();
    for (int i = 0; i < 6; ++i) {
      own_stream const once = make_stream();
      launch(r.world, once.get(), {.blocks = blocks, .threads = threads}, pass_on, ch.view(make_header("pass_on", 0)),
             r.here(mine), words);
      r.world.check(once.get());
    }
    r.found.equal(r.download(mine), words_after(6, r.rank(), r.size()), "words");
    r.meet();
  });
}

TEST_CASE("streams: kernels that do not fit side by side run one after the other") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    if (r.world.max_ranks_on_a_device() > 1) return;  // there every launch waits for its end
    int const fit = resident_blocks(r.world, pass_on_and_count, threads, unit_bytes());
    channel first(r.heap, for_words(fit)), second(r.heap, for_words(fit));
    sym<int> const mine[] = {r.heap.allocate<int>(words), r.heap.allocate<int>(words)};
    auto const inside = r.heap.allocate<int>(2), both = r.heap.allocate<int>(1);
    for (sym<int> const& m : mine) r.upload(words_after(0, r.rank(), r.size()), m);
    r.fill(inside, 0), r.fill(both, 0);
    own_stream const other = make_stream();
    hipStream_t const streams[] = {r.stream, other.get()};
    r.meet();
    constexpr int rounds = 8;
    for (int i = 0; i < rounds; ++i)
      for (int k : {0, 1})  // the streams of a channel change, too
        launch(r.world, streams[(k + i / 4) % 2], {fit, threads, unit_bytes()}, pass_on_and_count,
               (k ? second : first).view(make_header("count", 0)), r.here(mine[k]), words, r.here(inside), k,
               r.here(both));
    r.world.check(streams[0]);
    r.world.check(streams[1]);
    for (sym<int> const& m : mine) r.found.equal(r.download(m), words_after(rounds, r.rank(), r.size()), "words");
    r.found.expect(r.download(both)[0] == 0, r.download(both)[0], " blocks saw both kernels");
    r.meet();
  });
}

TEST_CASE("streams: kernels that reserve units for each other run side by side") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    if (r.world.max_ranks_on_a_device() > 1) return;
    int const half = (r.world.compute_units() + 1) / 2;
    int const fit = resident_blocks(r.world, meet_the_other, threads, unit_bytes(), half);
    if (fit == 0) return;  // a device with one unit in each XCD
    channel first(r.heap, for_words(1)), second(r.heap, for_words(1));
    auto const flags = r.heap.allocate<flag>(2);
    own_stream const other = make_stream();
    r.meet();
    for (int i = 0; i < 5; ++i) {
      launch(r.world, r.stream, {fit, threads, unit_bytes()}, meet_the_other, first.view(make_header("meet", 0)),
             r.here(flags), r.here(flags) + 1);
      launch(r.world, other.get(), {fit, threads, unit_bytes()}, meet_the_other, second.view(make_header("meet", 1)),
             r.here(flags) + 1, r.here(flags));
      r.world.check(r.stream);
      r.world.check(other.get());
    }
    r.meet();
  });
}

TEST_CASE("streams: which launches fit side by side") {
  auto const whole = [](int blocks, int units) {
    return launch_room{std::min(blocks, units), units - blocks, blocks, 1, units};
  };
  auto const two = [](int blocks, int units) {
    return launch_room{std::min(blocks, units), units - (blocks + 1) / 2, blocks, 2, units};
  };
  auto const cluster = [](int touched, int spare) { return launch_room{touched, spare, touched, 0, 0}; };
  auto const fit = [](std::vector<launch_room> const& all) { return fit_together(all); };
  CHECK(fit({whole(38, 38)}));
  CHECK(fit({whole(19, 38), whole(19, 38)}));
  CHECK_FALSE(fit({whole(20, 38), whole(19, 38)}));
  CHECK(fit({whole(10, 38), whole(10, 38), whole(18, 38)}));
  CHECK_FALSE(fit({whole(10, 38), whole(10, 38), whole(19, 38)}));
  CHECK(fit({two(76, 38)}));
  CHECK(fit({two(38, 38), two(38, 38)}));
  CHECK_FALSE(fit({two(39, 38), two(38, 38)}));
  CHECK_FALSE(fit({two(20, 38), whole(19, 38)}));  // the first may have a block on each of 20 units
  CHECK(fit({two(19, 38), whole(19, 38)}));
  CHECK_FALSE(fit({whole(19, 38), whole(19, 30)}));  // a mask leaves the second 30 units, perhaps those of the first
  CHECK(fit({cluster(60, 36), cluster(36, 60)}));
  CHECK_FALSE(fit({cluster(60, 35), cluster(36, 60)}));
  CHECK(fit({launch_room{}, whole(38, 38)}));  // nothing is known of a launch that is over
}

TEST_CASE("streams: launches of one capture on two streams come one after the other in its replays") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    channel ch(r.heap, for_words(blocks));
    auto const mine = r.heap.allocate<int>(words);
    r.upload(words_after(0, r.rank(), r.size()), mine);
    load_kernel(r.world, pass_on, threads);
    own_stream const second = make_stream();
    hipStream_t const s[] = {r.stream, second.get()};
    auto const once = [&](hipStream_t on) {
      launch(r.world, on, {.blocks = blocks, .threads = threads}, pass_on, ch.view(make_header("pass_on", 0)),
             r.here(mine), words);
    };
    once(s[1]);  // a launch before the capture gives it no order
    graph const g(r, [&] {
      put_behind(s[0], s[1]);  // the second stream joins, and then both go on without an event of the program
      for (int i = 0; i < 6; ++i) once(s[i % 2]);
      put_behind(s[1], s[0]);
    });
    r.world.check(s[1]);
    r.meet();
    for (int i = 0; i < 4; ++i) g.launch(r.stream);
    put_behind(r.stream, s[1]);
    once(s[1]);
    r.world.check(s[1]);
    r.found.equal(r.download(mine), words_after(1 + 4 * 6 + 1, r.rank(), r.size()), "words");
    r.meet();
  });
}

TEST_CASE("streams: a launch that would have to wait for a stream that is being captured is refused") {
  on_ranks(2, [](rank_of_test& r) {
    channel ch(r.heap, for_words(blocks));
    auto const mine = r.heap.allocate<int>(words);
    r.upload(words_after(0, r.rank(), r.size()), mine);
    load_kernel(r.world, pass_on, threads);
    own_stream const second = make_stream();
    auto const once = [&](hipStream_t on) {
      launch(r.world, on, {.blocks = blocks, .threads = threads}, pass_on, ch.view(make_header("pass_on", 0)),
             r.here(mine), words);
    };
    r.meet();
    once(second.get());
    graph const g(second.get(), [&] {
      r.found.throws<bad_argument>("capture",
                                   {"the launch before it, of ", "streams_test.cpp:", "has begun a capture since"},
                                   [&] { once(r.stream); });
      once(second.get());
    });
    r.world.check(second.get());
    once(r.stream);
    r.meet();
    g.launch(second.get());
    r.world.check(second.get());
    r.world.check(r.stream);
    r.found.equal(r.download(mine), words_after(3, r.rank(), r.size()), "words");
    r.meet();
  });
}

TEST_CASE("streams: a replay that runs while check() looks at another stream is no launch that did not end") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    if (r.world.max_ranks_on_a_device() > 1) return;  // there the launch on the first stream waits for the replay
    channel ch(r.heap, for_words(blocks));
    auto const mine = r.heap.allocate<int>(words);
    r.upload(words_after(0, r.rank(), r.size()), mine);
    load_kernel(r.world, pass_on, threads);
    own_stream const second = make_stream();
    channel_view const view = ch.view(make_header("pass_on", 0));
    auto const once = [&] {
      launch(r.world, r.stream, {.blocks = blocks, .threads = threads}, pass_on, view, r.here(mine), words);
    };
    graph const g(r, once);
    for (int round = 0; round < 3; ++round) {
      once();  // the channel's latest launch is on the first stream, and not captured
      put_behind(r.stream, second.get());
      if (r.rank() > 0) (void)r.world.exchange().all_gather(0);
      g.launch(second.get());  // that of rank 0 waits for the other ranks
      if (r.rank() == 0) {
        auto const begun = [&] {
          auto const headers = r.download(r.here(view.flags), std::size_t(4 * r.size()));
          return headers[std::size_t(r.rank())].value == epoch_t(2 * round + 2);
        };
        for (int look = 0; !begun() && look < 2000; ++look) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        r.found.expect(begun(), "the replay has not begun");
        try {
          r.world.check(r.stream);
        } catch (std::exception const& e) {
          r.found.expect(false, "check() threw: ", e.what());
        }
        (void)r.world.exchange().all_gather(0);
      }
      put_behind(second.get(), r.stream);
    }
    r.world.check(second.get());
    r.world.check(r.stream);
    r.found.equal(r.download(mine), words_after(6, r.rank(), r.size()), "words");
    r.meet();
  });
}
