// Errors of a channel: ranks that disagree, signals that never come, and the launches after them; and arguments that
// its constructor refuses.
#include "channel_kernels.hpp"
#include "faults.hpp"

using namespace support;

namespace {

/// Checks that some launches give right results.
void expect_right(rank_of_test& r, channel const& ch, unsigned seed) {
  auto const wrong = r.heap.allocate<unsigned>(1);
  r.fill(wrong, 0);
  for (unsigned i = 0; i < 6; ++i) {
    gather_words_args const a{.own = draw_ownership(seed + i, r.size(), 200), .wrong = r.here(wrong)};
    r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
  }
  auto const v = verdict(r);
  r.found.expect(v.empty(), "launches after reset(): ", v);
  r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words after reset()");
  r.meet();
  r.heap.free(wrong);
}

/// Every rank owns `n` words.
ownership equal_shares(int ranks, int n) {
  ownership o;
  for (int r = 0; r < 8; ++r) {
    o.count[r] = r < ranks ? n : 0;
    o.before[r + 1] = o.before[r] + o.count[r];
  }
  return o;
}

__global__ void stamp(std::uint64_t* ns) { *ns = platform::clock_ns(); }

__global__ void await_rank(channel_view ch, int source) {
  block const b;
  channel_epoch const e = ch.begin(b);
  (void)e.pull().wait_begun(b, source);
  e.end(b);
}

/// A block's report, and the launch in which it waited.
struct told {
  wait_report wait;
  std::uint64_t launch[launch_words];
};

/// The first block times out on the next rank, at a flag of the channel or at `own`. The second takes the next
/// rank's report of its wait, as soon as it is complete.
__global__ void await_and_take(channel_view ch, sym<flag> own, bool of_channel, told* taken, std::uint64_t longest_ns) {
  block const b;
  world_view const& w = ch.world;
  channel_epoch const e = ch.begin(b);
  if (b.index() == 0 && of_channel) e.wait(b, w.next(1), 0);
  if (b.index() == 0 && !of_channel) wait(b, w, w.here(own), 7, w.next(1));
  if (b.index() == 1 && b.leader()) {
    watch const* const theirs = detail::watch_of(w, w.next(1));
    for (std::uint64_t const start = platform::clock_ns(); platform::clock_ns() - start < longest_ns;
         platform::backoff()) {
      if (!platform::atomic_load<order::acquire, scope::system>(&theirs->waits[0].complete)) continue;
      wait_report const& of = theirs->waits[0];  // all but the word that was polled
      taken->wait = {of.block, of.from, of.flag_offset, of.found, of.wanted, of.released, of.claimed, 1};
      for (int i = 0; i < launch_words; ++i) taken->launch[i] = theirs->launch[i];
      break;
    }
  }
  e.end(b);
}

__global__ void await_flag(channel_view ch, int source) {
  block const b;
  channel_epoch const e = ch.begin(b);
  e.wait(b, source, 0);
  e.end(b);
}

/// The last wave's answer to whether the source has begun.
__global__ void ask_whether_begun(channel_view ch, int source, unsigned* answer) {
  block const b;
  channel_epoch const e = ch.begin(b);
  bool const begun = e.pull().wait_begun(b, source);
  if (b.rank() == b.size() - 1) *answer = begun;
  e.end(b);
}

/// Sends `peer` the header that a launch of this rank with the even epoch `e` would send: the same launch, or another
/// one.
__global__ void forge_header(channel_view ch, int peer, epoch_t e, bool same) {
  flag* const f = ch.world.on(peer, ch.flags) + ch.world.rank();
  for (int i = 0; i < launch_words; ++i) store(&f->note[i], same ? ch.header.what[i] : std::uint64_t(i));
  store(&f->note[launch_words], std::uint64_t(1));  // block
  platform::atomic_store<order::release, scope::system>(&f->value, e);
}

}  // namespace

namespace {
/// Makes a call that must not throw, if this rank is asked. If only one rank is asked, a call that all ranks must make
/// together is left out.
template <class F>
void next_call_is_fine(rank_of_test& r, bool asked, F call) {
  try {
    if (asked) call();
  } catch (error const& e) {
    r.found.expect(false, "a call that should be fine: ", e.what());
  }
}
}  // namespace

TEST_CASE("channel: a rank compares headers of its launch only, also when the others have timed out") {
  struct forged {
    epoch_t epoch;
    bool same;
  };
  auto const seen_by_rank2 = GENERATE(forged{0, false}, forged{4, false}, forged{4, true});
  auto const verdicts = on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        load_kernel(r.world, await_rank, 64);
        load_kernel(r.world, forge_header, 1);
        r.meet();
        auto const view = ch.view(make_header("await", 0));
        r.launch({1, 64}, await_rank, view, r.rank());
        r.meet();
        if (r.rank() == 1) {
          r.launch({1, 1}, forge_header, view, 2, seen_by_rank2.epoch, seen_by_rank2.same);
          r.launch({1, 1}, forge_header, view, 0, epoch_t(2), false);
        } else {
          r.launch({1, 64}, await_rank, view, r.rank());
        }
        // Rank 1's header of launch 4 does not explain why launch 2 was abandoned
        if (r.rank() == 2)
          for (int variant : {0, 1})
            anyway([&] { r.launch({1, 64}, await_rank, ch.view(make_header("await", variant)), r.rank()); });
        r.note = verdict(r);
        ch.reset();
        expect_right(r, ch, 250);
      },
      short_waits());
  CHECK(contains(verdicts[0], "mismatch: "));
  CHECK(contains(verdicts[2], "because rank 0 aborted"));
}

TEST_CASE("channel: a source has begun when its header is of this launch and says the same") {
  struct forged {
    epoch_t epoch;
    bool same;
    unsigned answer;
  };
  auto const header =
      GENERATE(forged{0, true, 0}, forged{2, true, 1}, forged{2, false, 0}, forged{4, true, 0}, forged{4, false, 0});
  auto const verdicts = on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const answer = r.heap.allocate<unsigned>(1);
        r.fill(answer, 0xff);
        load_kernel(r.world, await_rank, 64);
        load_kernel(r.world, ask_whether_begun, 128);
        load_kernel(r.world, forge_header, 1);
        r.meet();
        auto const view = ch.view(make_header("await", 0, 1, 2, 3, 4));
        r.launch({1, 64}, await_rank, view, r.rank());
        r.meet();
        if (r.rank() == 1) r.launch({1, 1}, forge_header, view, 0, header.epoch, header.same);
        r.meet();
        if (r.rank() == 0) r.launch({1, 128}, ask_whether_begun, view, 1, r.here(answer));
        r.note = verdict(r);
        if (r.rank() == 0) r.found.equal(r.download(answer), std::vector{header.answer}, "answer");
        ch.reset();
        expect_right(r, ch, 270);
      },
      short_waits());
  CHECK(verdicts[0].empty() == (header.answer == 1));
  if (header.epoch != 2) CHECK(contains(verdicts[0], "timeout: "));
}

TEST_CASE("channel: a reset brings the ranks together on all channels of a heap") {
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel one(r.heap, gather_channel(200)), other(r.heap, gather_channel(200));
        load_kernel(r.world, await_rank, 64);
        r.meet();
        if (r.rank() == 0)
          for (int i = 0; i < 2; ++i)
            anyway([&] { r.launch({1, 64}, await_rank, other.view(make_header("await", 0)), 1); });
        (void)verdict(r);
        one.reset();
        expect_right(r, other, 280);
        expect_right(r, one, 281);
      },
      short_waits());
}

TEST_CASE("channel: after a wait of another rank has expired, headers that differ say nothing") {
  auto const verdicts = on_worlds(3, [&](world& w) {
    heap_options o = short_waits();
    if (w.rank() == 2) o.wait_limit = std::chrono::minutes(10);  // rank 0 times out first
    rank_of_test r(w, o);
    channel ch(r.heap, gather_channel(200));
    load_kernel(w, await_rank, 64);
    load_kernel(w, await_flag, 64);
    load_kernel(w, forge_header, 1);
    r.meet();
    auto const view = ch.view(make_header("await", 0));
    r.launch({1, 64}, await_rank, view, r.rank());
    r.meet();
    if (r.rank() == 0) anyway([&] { r.launch({1, 64}, await_rank, view, 1); });
    if (r.rank() == 1) anyway([&] { r.launch({1, 1}, forge_header, view, 2, epoch_t(2), false); });
    if (r.rank() == 2) anyway([&] { r.launch({1, 64}, await_flag, view, 1); });
    std::string const said = verdict(r);
    ch.reset();
    return said;
  });
  CHECK(contains(verdicts[0], "timeout: "));
  CHECK(contains(verdicts[2], "because rank 0 aborted"));
}

TEST_CASE("channel: when one rank times out, every wait of every rank ends, also of later launches") {
  constexpr int ranks = 3, launches = 30;
  auto const verdicts = on_worlds(ranks, [&](world& w) {
    heap_options o = short_waits();
    if (w.rank() == 1) o.wait_limit = std::chrono::minutes(10);  // it would wait for rank 0's sake alone
    rank_of_test r(w, o);
    channel ch(r.heap, gather_channel(200));
    auto const wrong = r.heap.allocate<unsigned>(1);
    auto const times = r.heap.allocate<std::uint64_t>(2);
    load_kernel(w, gather_words<>, 64);
    load_kernel(w, stamp, 1);
    r.meet();
    std::string said;
    if (w.rank() != 2) {
      gather_words_args const a{.own = equal_shares(ranks, 100), .wrong = r.here(wrong)};
      r.launch({1, 1}, stamp, r.here(times));
      for (int i = 0; i < launches; ++i)
        anyway([&] { r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a); });
      anyway([&] { r.launch({1, 1}, stamp, r.here(times) + 1); });
      said = verdict(r);
      auto const ns = r.download(times);
      r.found.expect(ns[1] - ns[0] < ns_of(3), launches, " launches took ", (ns[1] - ns[0]) / 1'000'000,
                     " ms; the limit of one wait is ", limit.count(), " ms");
    }
    ch.reset();
    expect_right(r, ch, 210);
    return said + r.found.summary();
  });
  CHECK(contains(verdicts[0], "timeout: rank 0"));
  CHECK(contains(verdicts[1], "because rank 0 aborted"));
  CHECK(verdicts[2].empty());
  for (auto const& v : verdicts) CHECK(!contains(v, "findings"));
}

TEST_CASE("channel: a signal that never comes is reported with rank, flag and epochs; reset() makes all well") {
  if (support::reports_races()) SKIP("a missing signal is a race");
  int const ranks = GENERATE(2, 3, 8);
  auto const verdicts = on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const wrong = r.heap.allocate<unsigned>(1);
        expect_right(r, ch, 50);  // six launches
        r.meet();
        gather_words_args a{.own = equal_shares(r.size(), 150), .wrong = r.here(wrong)};
        if (r.rank() == 1) a.skip_signal_to = 0;
        r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
        r.note = verdict(r);
        r.found.expect(r.rank() != 0 || !verdict(r).empty(), "the error is forgotten before reset()");
        ch.reset();
        expect_right(r, ch, 70);
      },
      short_waits());
  CHECK(contains(verdicts[0], "timeout: rank 0, block 0 of gather (variant 1, extents "));
  CHECK(contains(verdicts[0], " 500 ms"));
  CHECK(contains(verdicts[0], " for a flag from rank 1 (data flag 0 of rank 1, slot 1"));
  CHECK(contains(verdicts[0], "signal segment + "));
  CHECK(contains(verdicts[0], " found, 7 wanted"));
  for (std::size_t r = 1; r < verdicts.size(); ++r)
    CHECK((verdicts[r].empty() || contains(verdicts[r], "because rank 0 aborted")));
}

namespace {

constexpr int steps = 7;

/// A ring of as many steps as it has flags: in each, a block tells the next rank's block of it, and waits for the
/// previous one's. Each block sends its own flag in each step. Rank 1's block 3 leaves out step `missing`.
__global__ void ring_in_steps(channel_view ch, int missing) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  for (int s = 0; s < steps; ++s) {
    int const flag = s * b.count() + b.index();
    if (w.rank() != 1 || b.index() != 3 || s != missing) e.signal(b, w.next(1), flag);
    // Blocks wait for each other's flags, so that all of them stand behind the missing one
    e.wait(b, w.next(w.size() - 1), s * b.count() + (b.index() + s) % b.count());
  }
  e.end(b);
}

}  // namespace

TEST_CASE("channel: of many blocks that time out, the one at the earliest step is named first", "[channel][faults]") {
  if (support::reports_races()) SKIP("a missing signal is a race");
  int const blocks = GENERATE(5, 40), missing = GENERATE(0, 2, 6);
  auto const verdicts = on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, {.max_bytes = 1, .flags_per_source = steps * blocks});
        load_kernel(r.world, ring_in_steps, 64);
        r.meet();
        r.launch({blocks, 64}, ring_in_steps, ch.view(make_header("ring", 0)), missing);
        check_hip(hipStreamSynchronize(r.stream), "hipStreamSynchronize");
        r.world.exchange().all_gather(0);  // all blocks have reported
        r.note = verdict(r);
        r.meet();
        ch.reset();
      },
      short_waits());
  CAPTURE(verdicts[0], verdicts[1], verdicts[2]);
  std::string const missed = text(" for a flag from rank 1 (data flag ", missing * blocks + 3, " of rank 1, slot 1");
  CHECK(!verdicts[2].empty());
  for (auto const& v : verdicts) {
    if (missing == steps - 1 && v.empty()) continue;  // of its last step nobody else knows
    auto const first = v.find(" for a flag");
    REQUIRE(first != v.npos);
    CHECK(v.compare(first, missed.size(), missed) == 0);
    std::size_t named = 0;
    for (auto at = first; at != v.npos; at = v.find(" for a flag", at + 1)) ++named;
    CHECK(named <= 8);
  }
}

TEST_CASE("channel: a rank that does not launch is named, and reset() brings it back") {
  int const ranks = GENERATE(2, 4);
  auto const verdicts = on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const wrong = r.heap.allocate<unsigned>(1);
        r.meet();
        gather_words_args const a{.own = equal_shares(r.size(), 100), .wrong = r.here(wrong)};
        if (r.rank() != 1) {
          r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
          r.note = verdict(r);
        }
        ch.reset();
        expect_right(r, ch, 90);
      },
      short_waits());
  bool named = false;
  for (std::size_t r = 0; r < verdicts.size(); ++r)
    if (r != 1) {
      CHECK(!verdicts[r].empty());
      named = named || contains(verdicts[r], "from rank 1");
    }
  CHECK(named);
}

TEST_CASE("channel: a source that never begins is named") {
  auto const verdicts = on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        r.meet();
        if (r.rank() == 0) {
          r.launch({1, 64}, await_rank, ch.view(make_header("await", 0)), 1);
          r.note = verdict(r);
        }
        ch.reset();
      },
      short_waits());
  CHECK(contains(verdicts[0], "for a flag from rank 1 "));
  CHECK(contains(verdicts[0], "epoch 0 found, 1 wanted"));
}

TEST_CASE("channel: what a wait that timed out reports is there when it says that it is complete") {
  bool const of_channel = GENERATE(false, true);
  on_ranks(
      8,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const own = r.heap.allocate<flag>(1);
        auto const taken = r.heap.allocate<told>(1);
        load_kernel(r.world, await_and_take, 64);
        launch_header const said = make_header("await", 1, 2, 3);
        auto const view = ch.view(said);
        int const next = (r.rank() + 1) % r.size(), after_next = (r.rank() + 2) % r.size();
        for (epoch_t round = 1; round <= 3; ++round) {
          std::uint64_t const place =
              of_channel
                  ? view.flags.offset + std::uint64_t(detail::data_row(round, 0) * r.size() + after_next) * sizeof(flag)
                  : own.offset;
          r.fill(taken, 0);
          r.meet();
          r.launch({2, 64}, await_and_take, view, own, of_channel, r.here(taken), ns_of(8));
          (void)verdict(r);
          auto const [wait, launch] = r.download(taken)[0];
          auto const [block, from, at, found, wanted, released, claimed, complete] = wait;
          r.found.expect(claimed == 1 && complete == 1 && released <= 1, "of rank ", next, ": not a whole report");
          r.found.expect(block == 0 && from == after_next && found == 0 && wanted == (of_channel ? round : 7),
                         "of rank ", next, ": block ", block, ", from ", from, ", epoch ", found, " found, ", wanted,
                         " wanted");
          r.found.expect(at == place, "of rank ", next, ": flag at signal segment + ", at, ", expected ", place);
          for (int i = 0; i < launch_words; ++i)
            r.found.expect(launch[i] == (of_channel ? said.what[i] : 0), "of rank ", next, ": word ", i,
                           " of the launch is ", launch[i]);
          ch.reset();
        }
      },
      short_waits());
}

TEST_CASE("channel: a rank's wait is named when its report is complete, and not while it is written") {
  needs_threads("one rank forges what another one's kernel writes");
  bool const complete = GENERATE(false, true);
  auto const verdicts = on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        r.meet();
        if (r.rank() == 0) {
          watch forged;
          check_hip(hipMemcpy(&forged, r.view().signal[1], sizeof forged, hipMemcpyDeviceToHost), "hipMemcpy");
          forged.reported = 1;
          forged.waits[0] = {.block = 41,
                             .from = 0,
                             .flag_offset = 8192,
                             .found = 3,
                             .wanted = 4,
                             .released = 1,
                             .claimed = 1,
                             .complete = complete};
          check_hip(hipMemcpy(r.view().signal[1], &forged, sizeof forged, hipMemcpyHostToDevice), "hipMemcpy");
          r.launch({1, 64}, await_rank, ch.view(make_header("await", 0)), 1);
          r.note = verdict(r);
        }
        ch.reset();
      },
      short_waits());
  CHECK(contains(verdicts[0], "timeout: rank 0, block 0 of await"));
  CHECK(contains(verdicts[0], "block 41 of a launch that is not known waited") == complete);
}

TEST_CASE("channel: ranks that launch different things are told what") {
  int const ranks = GENERATE(2, 3);
  auto const verdicts = on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const wrong = r.heap.allocate<unsigned>(1);
        r.meet();
        gather_words_args const a{.own = equal_shares(r.size(), 100), .wrong = r.here(wrong)};
        launch_header const h =
            r.rank() == 1 ? make_header("scatter", 3, 8192, 24) : make_header("gather", 2, 4096, 24);
        r.launch({2, 64}, gather_words<>, ch.view(h), a);
        r.note = verdict(r);
        ch.reset();
        expect_right(r, ch, 110);
      },
      short_waits());
  int mismatches = 0;
  for (auto const& v : verdicts) {
    CHECK(!v.empty());
    if (!contains(v, "mismatch: ")) continue;
    ++mismatches;
    CHECK(contains(v, "gather (variant 2, extents 4096, 24"));
    CHECK(contains(v, "scatter (variant 3, extents 8192, 24"));
    CHECK(contains(v, "rank 1"));
  }
  CHECK(mismatches >= 1);
}

TEST_CASE("channel: the error that comes out of run_local is the one that says why") {
  needs_threads("run_local throws one error for all ranks; a process has its own");
  for (int i = 0; i < 5; ++i) {
    std::string message;
    try {
      run_local(4, [&](world& w) {
        rank_of_test r(w, short_waits());
        channel ch(r.heap, gather_channel(200));
        auto const wrong = r.heap.allocate<unsigned>(1);
        r.meet();
        gather_words_args const a{.own = equal_shares(4, 100), .wrong = r.here(wrong)};
        if (r.rank() != 3) r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
        w.check(r.stream);
        w.barrier();
      });
    } catch (wait_timeout const& e) {
      message = e.what();
    }
    CHECK(contains(message, "from rank 3"));
  }
}

TEST_CASE("channel: check() finds a launch that did not end, on its stream alone") {
  on_ranks(2, [](rank_of_test& r) {
    channel ch(r.heap, gather_channel(200));
    expect_right(r, ch, 300);
    auto const view = ch.view({});
    auto const right = r.download(view.state);
    auto const state_is = [&](channel_state s) { r.upload(std::vector{s}, view.state); };
    auto const launch_once = [&] {
      r.launch({2, 64}, await_rank, ch.view(make_header("await", 0)), r.rank());
      r.synchronize();
    };
    launch_once();
    r.world.check(r.stream);
    launch_once();
    channel_state state = right[0];
    ++state.epoch;
    state_is(state);  // as if no block had called end()
    hipStream_t other = nullptr;
    check_hip(hipStreamCreateWithFlags(&other, hipStreamNonBlocking), "hipStreamCreateWithFlags");
    r.world.check(other);
    check_hip(hipStreamDestroy(other), "hipStreamDestroy");
    r.found.throws<launch_unfinished>("no end",
                                      {"launch 8 of a channel did not end", "launched await",
                                       "with 2 blocks, and 0 blocks called channel_epoch::end()"},
                                      [&] { r.world.check(r.stream); });
    state.ticket = 1;
    state_is(state);
    r.found.throws<launch_unfinished>("one end", {"and 1 block called channel_epoch::end()"},
                                      [&] { r.world.check(r.stream); });
    ch.reset();
    expect_right(r, ch, 310);
  });
}

TEST_CASE("channel: an error that nobody has polled is reported by the next call, once, and by check() until reset()") {
  enum { launch, view, barrier, allocate, stream_of_its_own };
  int const call = GENERATE(int(launch), int(view), int(barrier), int(allocate), int(stream_of_its_own));
  CAPTURE(call);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        load_kernel(r.world, await_rank, 64);
        load_kernel(r.world, stamp, 1);
        auto const ns = r.heap.allocate<std::uint64_t>(1);
        hipStream_t other = nullptr;
        check_hip(hipStreamCreateWithFlags(&other, hipStreamNonBlocking), "hipStreamCreateWithFlags");
        r.meet();
        auto const next_call = [&] {
          if (call == launch) r.launch({1, 1}, stamp, r.here(ns));
          if (call == view || call == stream_of_its_own) (void)ch.view({});
          if (call == barrier) r.world.barrier();
          if (call == allocate) r.heap.free(r.heap.allocate<int>(1));
        };
        if (r.rank() == 0) {
          next_call_is_fine(r, call != barrier && call != allocate, next_call);
          hipStream_t const s = call == stream_of_its_own ? other : r.stream;
          fusewire::launch(r.world, s, {1, 64}, await_rank, ch.view(make_header("await", 0)), 1);
          if (call != stream_of_its_own) r.synchronize();
          else check_hip(hipStreamSynchronize(other), "hipStreamSynchronize");
          std::vector<std::string> const pieces{"rank 0, block 0 of await", "500 ms", "for a flag from rank 1",
                                                "epoch 0 found, 1 wanted; results are invalid until reset()"};
          std::size_t const allocations = r.heap.allocations();
          r.found.throws<wait_timeout>("next call", pieces, next_call);
          r.found.expect(r.heap.allocations() == allocations, "a call that threw has allocated");
          next_call_is_fine(r, call != barrier && call != allocate, next_call);
          r.found.throws<wait_timeout>("check", pieces, [&] { r.world.check(r.stream); });
        } else if (call == barrier) {
          r.world.barrier();
        } else if (call == allocate) {
          r.found.throws<launch_abandoned>("allocate", {"heap::allocate: a launch of rank 0 has failed"}, next_call);
        }
        ch.reset();
        expect_right(r, ch, 320);
        next_call();
        check_hip(hipStreamDestroy(other), "hipStreamDestroy");
      },
      short_waits());
}

TEST_CASE("channel: an error that nobody has polled is reported where another rank has timed out, too") {
  none_found_anything(on_worlds(3, [&](world& w) {
    heap_options o = short_waits();
    if (w.rank() == 1) o.wait_limit = std::chrono::minutes(10);  // rank 0 times out
    rank_of_test r(w, o);
    channel ch(r.heap, gather_channel(200));
    load_kernel(w, await_rank, 64);
    r.meet();
    if (r.rank() < 2) {
      r.launch({1, 64}, await_rank, ch.view(make_header("await", 0)), 2);
      r.synchronize();
      r.found.throws<wait_timeout>(
          "next call",
          {r.rank() == 0 ? "rank 0, block 0 of await" : "rank 1: the launch was abandoned because rank 0 aborted",
           "for a flag from rank 2"},
          [&] { (void)ch.view({}); });
    }
    ch.reset();
    expect_right(r, ch, 340);
    return r.found.summary();
  }));
}

TEST_CASE("channel: a replay that fails is told by poll_errors() after it, and by check()") {
  bool const looks = GENERATE(true, false);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const wrong = r.heap.allocate<unsigned>(1);
        r.fill(wrong, 0);
        gather_words_args const a{.own = equal_shares(r.size(), 100), .wrong = r.here(wrong)};
        graph const replayed(r, [&] { r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a); });
        r.meet();
        std::vector<std::string> const pieces{"rank 0, block ", " of gather (variant 1", "500 ms",
                                              "for a flag from rank 1", "results are invalid until reset()"};
        if (r.rank() == 0) {
          r.world.poll_errors();
          for (int i = 0; i < 3; ++i) replayed.launch(r.stream);  // which throws nothing
          r.synchronize();
          if (looks) r.found.throws<wait_timeout>("look", pieces, [&] { r.world.poll_errors(); });
          else r.found.throws<wait_timeout>("check", pieces, [&] { r.world.check(r.stream); });
        }
        ch.reset();
        r.fill(wrong, 0);
        for (int i = 0; i < 3; ++i) replayed.launch(r.stream);
        r.synchronize();
        r.world.poll_errors();
        r.world.check(r.stream);
        r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words after reset()");
        r.meet();
      },
      short_waits());
}

TEST_CASE("channel: an error that nobody has polled is reported in a capture, too") {
  on_ranks(
      2,
      [](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        load_kernel(r.world, await_rank, 64);
        r.meet();
        if (r.rank() == 0) {
          r.launch({1, 64}, await_rank, ch.view(make_header("await", 0)), 1);
          r.synchronize();
          r.found.throws<wait_timeout>("capture", {"a launch before this capture has failed"},
                                       [&] { graph(r.stream, [&] { (void)ch.view({}); }); });
          r.found.throws<wait_timeout>("next call", {"for a flag from rank 1"}, [&] { (void)ch.view({}); });
        }
        (void)r.world.exchange().all_gather(0);  // reset() copies, which would end the capture
        ch.reset();
        expect_right(r, ch, 330);
      },
      short_waits());
}

TEST_CASE("channel: bad arguments") {
  on_ranks(2, [](rank_of_test& r) {
    auto const refuse = [&]<class E>(E*, channel_options const& o, std::vector<std::string> const& pieces) {
      r.found.throws<E>(text(o.max_bytes, " bytes, ", o.flags_per_source, " flags"), pieces,
                        [&] { channel(r.heap, o); });
    };
    bad_argument* const bad = nullptr;
    out_of_space* const too_large = nullptr;
    refuse(bad, {.max_bytes = 0}, {"max_bytes = 0", "channel_error_test.cpp"});
    refuse(bad, {.max_bytes = SIZE_MAX}, {text("max_bytes = ", SIZE_MAX)});
    refuse(bad, {.max_bytes = (SIZE_MAX >> 1) + 257}, {text("max_bytes = ", (SIZE_MAX >> 1) + 257)});
    refuse(bad, {.max_bytes = 1, .flags_per_source = 0}, {"flags_per_source = 0", "1 to 536870910"});
    refuse(bad, {.max_bytes = 1, .flags_per_source = -8}, {"flags_per_source = -8"});
    refuse(too_large, {.max_bytes = 5_MiB}, {"10486272 bytes wanted", "bulk"});
    refuse(too_large, {.max_bytes = 1, .flags_per_source = 1 << 20}, {"signal"});
    refuse(bad, {.max_bytes = 1, .flags_per_source = 0x7fffffff}, {"flags_per_source = 2147483647", "1 to 536870910"});
    r.found.throws<rank_mismatch>("unequal", {"channel: ranks disagree in max_bytes: rank 0 has 256, rank 1 has 512"},
                                  [&] { channel(r.heap, {.max_bytes = r.rank() ? 512u : 256u}); });
    r.found.throws<rank_mismatch>("unequal",
                                  {"channel: ranks disagree in flags_per_source: rank 0 has 1, rank 1 has 2"},
                                  [&] { channel(r.heap, {.max_bytes = 256, .flags_per_source = 1 + r.rank()}); });
    r.found.throws<rank_mismatch>("unequal", {"channel: ranks disagree in poison: rank 0 has 0, rank 1 has 1"},
                                  [&] { channel(r.heap, {.max_bytes = 256, .poison = r.rank() == 1}); });
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations after refusals");
    channel const fine(r.heap, gather_channel(200));
    expect_right(r, fine, 130);
  });
}

TEST_CASE("channel: an operator that refuses on one rank does not harm later launches") {
  on_ranks(
      2,
      [](rank_of_test& r) {
        channel ch(r.heap, gather_channel(200));
        auto const wrong = r.heap.allocate<unsigned>(1);
        gather_words_args const a{.own = equal_shares(2, 100), .wrong = r.here(wrong)};
        r.found.throws<bad_argument>("too many blocks", {"fit concurrently"},
                                     [&] { r.launch({1 << 20, 64}, gather_words<>, ch.view(header_of(a.own)), a); });
        r.meet();
        expect_right(r, ch, 150);
      },
      short_waits());
}

TEST_CASE("channel: reset() of a channel that is well changes nothing") {
  on_ranks(3, [](rank_of_test& r) {
    channel ch(r.heap, gather_channel(200));
    for (unsigned i = 0; i < 3; ++i) {
      expect_right(r, ch, 170 + i);
      ch.reset();
    }
  });
}
