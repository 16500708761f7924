// Heaps, channels, inboxes and operators end in any order, in another one on each rank, also half-way through an
// exception: their memory comes back, and not before every rank has given it up.
#include <fusewire/ops/flash_decode.hpp>

#include <algorithm>
#include <array>
#include <thread>

#include "channel_kernels.hpp"

using namespace support;

namespace {

constexpr int most = 200;

/// What a program makes, in the order of its dependence.
struct objects {
  std::unique_ptr<world> part;
  std::unique_ptr<heap> memory;
  std::unique_ptr<channel> ch;
  std::unique_ptr<ll_buffer> inbox;
  std::unique_ptr<flash_decode<bf16>> op;
  static constexpr int count = 5;

  explicit objects(world& w)
      : part(std::make_unique<world>(w.split(0))),
        memory(
            std::make_unique<heap>(*part, heap_options{.bulk = 4_MiB, .signal = 1_MiB, .share = sharing_of_tests()})),
        ch(std::make_unique<channel>(*memory, gather_channel(most))),
        inbox(std::make_unique<ll_buffer>(*ch, ll_buffer_options{.records = 3, .words = 40})),
        op(std::make_unique<flash_decode<bf16>>(
            *ch, flash_decode_options{
                     .max_batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64, .page_size = 1, .max_pages = 2})) {}

  void end(int i) {
    if (i == 0) part.reset();
    if (i == 1) memory.reset();
    if (i == 2) ch.reset();
    if (i == 3) inbox.reset();
    if (i == 4) op.reset();
  }
};

/// One all-gather through the channel, on every rank. Does not wait for it.
void launch_gather(rank_of_test& r, channel& ch, unsigned seed, sym<unsigned> wrong) {
  gather_words_args const a{.own = draw_ownership(seed, r.size(), most), .wrong = r.here(wrong)};
  r.launch({2, 64}, gather_words<>, ch.view(header_of(a.own)), a);
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  check_hip(hipMemGetInfo(&free, &total), "hipMemGetInfo");
  return free;
}

}  // namespace

TEST_CASE("lifetimes: world, heap, channel, inbox and operator end in every order, on each rank in another one") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    std::array<int, objects::count> order{0, 1, 2, 3, 4};
    int n = 0;
    do {
      if (n++ % 5) continue;  // a fifth of the orders on each rank
      objects o(r.world);
      auto mine = order;
      std::ranges::rotate(mine, mine.begin() + r.rank() % objects::count);
      for (int i : mine) o.end(i);
    } while (std::next_permutation(order.begin(), order.end()));
    r.meet();
  });
}

TEST_CASE("lifetimes: a channel and a heap that a rank ends while its kernel runs") {
  on_ranks(GENERATE(2, 3, 4), [](rank_of_test& r) {
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    load_kernel(r.world, gather_words<>, 64);
    for (unsigned i = 0; i < 4; ++i) {
      auto memory = std::make_unique<heap>(r.world, small_heap());
      auto ch = std::make_unique<channel>(*memory, gather_channel(most));
      r.meet();
      gather_words_args const a{.own = draw_ownership(i, r.size(), most),
                                .wrong = r.here(wrong),
                                .delay_ns = std::uint64_t(r.rank() == int(i) % r.size()) * 1'000'000};
      r.launch({2, 64}, gather_words<>, ch->view(header_of(a.own)), a);
      if ((int(i) + r.rank()) % 2) memory.reset(), ch.reset();
      else ch.reset(), memory.reset();
      if (i % 2) r.world.collect();
    }
    r.meet();
    r.found.equal(r.download(wrong), {0u}, "wrong words");
  });
}

TEST_CASE("lifetimes: channels that ranks end in different orders leave nothing behind") {
  on_ranks(GENERATE(1, 2, 4), [](rank_of_test& r) {
    for (int round = 0; round < 8; ++round) {
      auto a = std::make_unique<channel>(r.heap, gather_channel(most));
      auto b = std::make_unique<channel>(r.heap, gather_channel(most));
      r.found.expect(r.heap.allocations() == 6, r.heap.allocations(), " allocations of two channels");
      if (r.rank() == 0) a.reset(), b.reset();
      else b.reset(), a.reset();
      r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations after their end");
      r.found.expect(r.heap.half_freed() == 6, r.heap.half_freed(), " arrays wait for a collective");
      if (round % 2) r.world.collect();
      else r.heap.free(r.heap.allocate<char>(1));
      r.world.collect();
      r.found.expect(r.heap.half_freed() == 0, r.heap.half_freed(), " arrays left behind");
    }
    // All of the segment is contiguous again
    r.heap.free(r.heap.allocate<char>(8_MiB));
  });
}

TEST_CASE("lifetimes: memory is used again when the last rank has freed it, and not before") {
  on_ranks(GENERATE(2, 3, 4), [](rank_of_test& r) {
    int const late = r.size() - 1;
    auto const x = r.heap.allocate<int>(1_MiB / sizeof(int));
    r.upload(std::vector<int>(x.count, 7 + r.rank()), x);
    r.meet();
    if (r.rank() != late) r.heap.free(x);
    for (int i = 0; i < 3; ++i) {
      auto const y = r.heap.allocate<int>(1_MiB / sizeof(int));
      r.found.expect(y.offset >= x.offset + 1_MiB, "memory that a rank still has was used again");
      r.upload(std::vector<int>(y.count, -1), y);
      r.heap.free(y);
    }
    r.meet();
    if (r.rank() == late)
      for (int p = 0; p < r.size(); ++p)
        r.found.equal(r.download(static_cast<int const*>(r.view().on(p, x)), x.count), std::vector<int>(x.count, 7 + p),
                      text("the array of rank ", p));
    r.meet();
    r.found.throws<out_of_space>(
        "all of it",
        {"8388608 bytes wanted", r.rank() == late ? "contiguous bytes free" : "and other ranks have not: 1"},
        [&] { r.heap.allocate<char>(8_MiB); });
    if (r.rank() == late) r.heap.free(x);
    r.found.throws<bad_argument>("a second time", {text("offset ", x.offset), "not freed yet"},
                                 [&] { r.heap.free(x); });
    auto const again = r.heap.allocate<int>(x.count);
    r.found.expect(again.offset == x.offset, "memory that all ranks have freed was not used again");
    r.heap.free(again);
    r.heap.free(r.heap.allocate<char>(8_MiB));
  });
}

TEST_CASE("lifetimes: collect() frees arrays and heaps that all ranks have retired, and no others") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    bool const last = r.rank() == r.size() - 1;
    auto const x = r.heap.allocate<int>(1000), y = r.heap.allocate<int>(1000);
    auto other =
        std::make_unique<heap>(r.world, heap_options{.bulk = 64_MiB, .signal = 64_KiB, .share = sharing_of_tests()});
    r.meet();
    auto const free_at_first = free_bytes();
    r.meet();
    r.heap.free(y);
    if (!last) r.heap.free(x), other.reset();
    r.world.collect();
    r.found.expect(r.heap.half_freed() == std::size_t(!last), r.heap.half_freed(), " arrays wait for the last rank");
    r.found.expect(r.heap.allocations() == std::size_t(last), r.heap.allocations(), " arrays left");
    r.meet();
    if (r.size() > 1)
      r.found.expect(free_bytes() < free_at_first + 64_MiB, "a heap was freed that the last rank has still");
    r.meet();
    if (last) r.heap.free(x), other.reset();
    r.world.collect();
    r.found.expect(r.heap.half_freed() == 0, r.heap.half_freed(), " arrays left behind");
    r.meet();
    r.found.expect(free_bytes() >= free_at_first + 64_MiB, "the heap's memory has not come back");
    r.meet();
    auto const again = r.heap.allocate<int>(1000);
    r.found.expect(again.offset == x.offset, "the array's memory is not used again");
  });
}

TEST_CASE("lifetimes: collect() waits for the kernels of a rank that gives something up, and of no other") {
  on_ranks(GENERATE(2, 3), [](rank_of_test& r) {
    if (r.world.max_ranks_on_a_device() > 1) return;  // there a launch waits for its end
    auto const wrong = r.heap.allocate<unsigned>(1), x = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    channel ch(r.heap, gather_channel(most));
    load_kernel(r.world, gather_words<>, 64);
    r.meet();
    // Rank 0's kernel waits for the others, and so would collect() if it waited for that kernel.
    if (r.rank() == 0) launch_gather(r, ch, 1, wrong);
    if (r.rank() == 1) r.heap.free(x);
    r.world.collect();
    if (r.rank() > 0) launch_gather(r, ch, 1, wrong);
    r.world.check(r.stream);
    r.meet();
    if (r.rank() != 1) r.heap.free(x);
    gather_words_args const slow{.own = draw_ownership(2, r.size(), most),
                                 .wrong = r.here(wrong),
                                 .delay_ns = std::uint64_t(r.rank() == 1) * 20'000'000};
    r.launch({2, 64}, gather_words<>, ch.view(header_of(slow.own)), slow);
    r.world.collect();
    if (r.rank() != 1)
      r.found.expect(hipStreamQuery(r.stream) == hipSuccess, "collect() returned before this rank's kernel had ended");
    r.found.expect(r.heap.half_freed() == 0, r.heap.half_freed(), " arrays left behind");
    r.world.check(r.stream);
    r.found.equal(r.download(wrong), {0u}, "wrong words");
    r.meet();
  });
}

TEST_CASE("lifetimes: collect() in a capture frees nothing, and the next one does") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    auto const x = r.heap.allocate<int>(1000), wrong = r.heap.allocate<int>(1);
    r.heap.free(x);
    graph const g(r, [&] {
      check_hip(hipMemsetAsync(r.here(wrong), 0, sizeof(int), r.stream), "hipMemsetAsync");
      r.world.collect();
    });
    r.found.expect(r.heap.half_freed() == 1, r.heap.half_freed(), " arrays wait after the capture");
    r.world.collect();
    r.found.expect(r.heap.half_freed() == 0, r.heap.half_freed(), " arrays left behind");
  });
}

TEST_CASE("lifetimes: collect() with a rank that has abandoned its world says so") {
  needs_threads("processes.any_order.abandons is this with processes");
  on_ranks(3, [](rank_of_test& r) {
    auto const x = r.heap.allocate<int>(1000);
    r.heap.free(x);
    r.meet();
    if (r.rank() == 1) return r.world.abandon();
    r.found.throws<peer_failed>("collect()", {"rank 1 has abandoned its world"}, [&] { r.world.collect(); });
  });
}

TEST_CASE("lifetimes: an exception half-way on one rank leaves nothing behind, and the ranks go on") {
  on_ranks(GENERATE(2, 3), [](rank_of_test& r) {
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    for (int round = 0; round < 6; ++round) {
      bool caught = false;
      try {
        heap other(r.world, small_heap());
        channel a(r.heap, gather_channel(most)), b(other, gather_channel(most));
        owned<int> const x(r.heap, r.heap.allocate<int>(100));
        launch_gather(r, a, unsigned(round), wrong);
        launch_gather(r, b, unsigned(round), wrong);
        if (r.rank() == round % r.size()) throw error("on purpose");
      } catch (error const&) {
        caught = true;
      }
      r.found.expect(caught == (r.rank() == round % r.size()), "another exception");
      channel next(r.heap, gather_channel(most));
      r.found.expect(r.heap.half_freed() == 0, r.heap.half_freed(), " arrays left behind");
      launch_gather(r, next, unsigned(round), wrong);
      r.world.check(r.stream);
    }
    r.world.collect();
    r.found.expect(r.heap.allocations() == 1, r.heap.allocations(), " allocations left");
    r.found.equal(r.download(wrong), {0u}, "wrong words");
  });
}

TEST_CASE("lifetimes: ranks make and end heaps again and again, and memory does not grow") {
  on_ranks(GENERATE(1, 2, 4), [](rank_of_test& r) {
    auto const one = [&] {
      heap first(r.world, {.bulk = 64_MiB, .signal = 64_KiB, .share = sharing_of_tests()});
      auto const second =
          std::make_unique<heap>(r.world, heap_options{.bulk = 64_MiB, .signal = 64_KiB, .share = sharing_of_tests()});
      first.allocate<int>(3);
    };
    auto const in_group = [&] {
      world part = r.world.split(r.rank() % 2);
      heap const h(part, {.bulk = 64_MiB, .signal = 64_KiB, .share = sharing_of_tests()});
    };
    one(), in_group();  // the runtime's own, once
    r.world.collect();
    (void)r.world.split(0);
    r.meet();
    auto const before = free_bytes();
    r.meet();
    for (int i = 0; i < 3; ++i) one(), in_group();
    r.world.collect();
    (void)r.world.split(0);
    r.meet();
    auto const after = free_bytes();
    r.found.expect(before <= after + 32_MiB, (before - after) >> 20, " MiB lost");
    r.meet();
  });
}

TEST_CASE("lifetimes: reset() leaves out a channel that some ranks have ended") {
  on_ranks(GENERATE(2, 3), [](rank_of_test& r) {
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    std::array<std::unique_ptr<channel>, 3> all;
    for (auto& c : all) c = std::make_unique<channel>(r.heap, gather_channel(most));
    for (unsigned i = 0; i < 5; ++i) launch_gather(r, *all[0], i, wrong);
    launch_gather(r, *all[2], 1, wrong);
    r.world.check(r.stream);
    if (r.rank() == 0) all[0].reset();
    if (r.rank() == 1) all[1].reset();
    all[2]->reset();
    for (unsigned i = 0; i < 3; ++i) launch_gather(r, *all[2], i, wrong);
    r.world.check(r.stream);
    channel_state const state = r.download(all[2]->view({}).state)[0];
    r.found.expect(state.epoch == 4, "epoch ", state.epoch, " after 4 launches, and a reset among them");
    r.found.equal(r.download(wrong), {0u}, "wrong words");
  });
}

TEST_CASE("lifetimes: what ends during a capture calls nothing that the capture forbids") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    channel ch(r.heap, gather_channel(most));
    auto memory = std::make_unique<heap>(r.world, small_heap());
    auto garbage = std::make_unique<channel>(*memory, gather_channel(most));
    auto inbox = std::make_unique<ll_buffer>(*garbage, ll_buffer_options{});
    load_kernel(r.world, gather_words<>, 64);
    graph const g(r.stream, [&] {
      memory.reset(), garbage.reset(), inbox.reset();
      launch_gather(r, ch, 3, wrong);
    });
    g.launch(r.stream);
    r.meet();
    r.world.check(r.stream);
    r.world.collect();
    r.found.equal(r.download(wrong), {0u}, "wrong words");
    r.found.expect(g.nodes().size() == 1, g.nodes().size(), " nodes");
  });
}

TEST_CASE("lifetimes: a collector's thread ends objects, with another current device") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    int devices = 0;
    check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
    auto o = std::make_unique<objects>(r.world);
    int during = -1;
    std::thread collector([&] {
      ignore_hip(hipSetDevice((r.world.device() + 1) % devices));
      o.reset();
      ignore_hip(hipGetDevice(&during));
    });
    collector.join();
    r.found.expect(during == (r.world.device() + 1) % devices, "the thread's device became ", during);
    r.meet();
  });
}
