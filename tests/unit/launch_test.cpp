// launch(): calls that it refuses; a captured launch is one kernel.
#include "support.hpp"

using namespace support;

namespace {

__global__ void touch(int* word) { atomic_ref<int, scope::device>(word).fetch_add(1, order::relaxed); }

__global__ void use_shared(int* word, int last) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = int(threadIdx.x);
  if (block{}.leader()) shared[last] = 7;
  block{}.sync();
  if (block{}.leader()) atomic_ref<int, scope::device>(word).fetch_add(shared[last], order::relaxed);
}

/// Every block waits for all blocks of all ranks: it returns only if all are co-resident.
__global__ void all_together(world_view w, sym<flag> counter, sym<unsigned> arrived, int blocks) {
  block b;
  if (b.leader()) {
    atomic_ref<unsigned> const all(w.on(0, arrived));
    if (all.fetch_add(1u) + 1 == unsigned(blocks * w.size()))
      signal_all(thread{}, w.size(), [&](int r) { return w.on(r, counter); }, 1);
  }
  wait(b, w, w.here(counter), 1, 0);
}

}  // namespace

TEST_CASE("launch: bad shapes") {
  on_ranks(1, [](rank_of_test& r) {
    auto const word = r.heap.allocate<int>(1);
    r.fill(word, 0);
    auto const refuse = [&](launch_shape s, std::vector<std::string> const& pieces) {
      r.found.throws<bad_argument>(text(s.blocks, " x ", s.threads, " x ", s.shared_bytes), pieces,
                                   [&] { r.launch(s, touch, r.here(word)); });
    };
    refuse({0, 64}, {"0 blocks of 64 threads", "at least 1"});
    refuse({-3, 64}, {"-3 blocks", "at least 1"});
    refuse({1, 0}, {"1 blocks of 0 threads", "1 to 1024"});
    refuse({1, -64}, {"-64 threads", "1 to 1024"});
    refuse({1, 1025}, {"1025 threads", "1 to 1024"});
    refuse({1, 64, -1}, {"-1 bytes of shared memory", text(platform::max_shared_bytes)});
    refuse({1, 64, platform::max_shared_bytes + 1}, {text(platform::max_shared_bytes + 1, " bytes of shared memory"),
                                                     text("0 to ", platform::max_shared_bytes)});
    refuse({1 << 30, 64}, {"1073741824 blocks", "fit concurrently"});
    r.found.expect(r.download(word)[0] == 0, "a refused launch ran");
    r.launch({3, 64}, touch, r.here(word));
    r.found.expect(r.download(word)[0] == 192, "a good launch after refusals did not run");
  });
}

TEST_CASE("launch: a refusal names the caller's file and line") {
  on_ranks(1, [](rank_of_test& r) {
    int const line = __LINE__ + 1;
    auto const refused = [&] { launch(r.world, r.stream, {.blocks = 0}, touch, static_cast<int*>(nullptr)); };
    r.found.throws<bad_argument>("place", {text("launch_test.cpp:", line)}, refused);
  });
}

TEST_CASE("launch: more blocks than fit are refused with the number that do") {
  int const ranks = GENERATE(1, 2);
  on_worlds(ranks, {.devices = std::vector<int>(std::size_t(ranks), 0)}, [ranks](world& w) {
    int const fit = resident_blocks(w, touch, 1024, 0);
    try {
      launch(w, w.stream(), {fit + 1, 1024}, touch, static_cast<int*>(nullptr));
    } catch (bad_argument const& e) {
      std::string const message = e.what();
      for (auto const& piece : {text(fit + 1, " blocks of 1024 threads"), text(fit, " fit concurrently on "),
                                std::string(ranks == 1 ? " fit concurrently on device 0, and" : "2 ranks share it")})
        if (message.find(piece) == message.npos) throw error(text("'", piece, "' is not in: ", message));
      return "";
    }
    throw error("too many blocks were not refused");
  });
}

TEST_CASE("launch: the null stream is refused where ranks share a device") {
  on_worlds(2, {.devices = {0, 0}}, [](world& w) {
    try {
      launch(w, nullptr, {1, 64}, touch, static_cast<int*>(nullptr));
    } catch (bad_argument const& e) {
      if (std::string(e.what()).find("null stream") == std::string::npos)
        throw error(text("another refusal: ", e.what()));
      return "";
    }
    throw error("the null stream was not refused");
  });
}

TEST_CASE("launch: as many blocks as fit are co-resident") {
  int const ranks = GENERATE(2, 3, 5);
  auto const body = [&](rank_of_test& r) {
    world& w = r.world;
    auto const counter = r.heap.allocate<flag>(1);
    auto const arrived = r.heap.allocate<unsigned>(1);
    r.fill(arrived, 0);
    int const fit = resident_blocks(w, all_together, 64, 0);
    if (fit == 0) return;  // a device with fewer units than XCDs
    r.found.expect(fit <= w.compute_units() / ranks * 32, fit, " blocks fit");
    r.meet();
    r.launch({fit, 64}, all_together, r.view(), counter, arrived, fit);
    r.found.throws<error>("another one", {text(fit)},
                          [&] { r.launch({fit + 1, 64}, all_together, r.view(), counter, arrived, fit); });
    w.check(r.stream);
    r.meet();
  };
  on_ranks(ranks, body, small_heap(), {.devices = std::vector<int>(std::size_t(ranks), 0)});
}

TEST_CASE("launch: one kernel with different amounts of shared memory") {
  on_ranks(1, [](rank_of_test& r) {
    auto const word = r.heap.allocate<int>(1);
    r.fill(word, 0);
    int launches = 0;
    for (int bytes : {60 * 1024, 4096, 60 * 1024, 50 * 1024, 60 * 1024}) {
      r.launch({2, 64, bytes}, use_shared, r.here(word), bytes / 4 - 1);
      ++launches;
    }
    r.found.expect(r.download(word)[0] == launches * 2 * 7, "a launch did not run");
  });
}

TEST_CASE("launch: reserved compute units are left alone") {
  on_ranks(1, [](rank_of_test& r) {
    int const all = resident_blocks(r.world, touch, 256, 0), units = r.world.compute_units();
    int xcds = 1;
    check_hip(platform::xcd_count(&xcds, r.world.device()), "xcd_count");
    r.found.expect(resident_blocks(r.world, touch, 256, 0, 2) == all / units * (xcds == 1 ? units - 2 : units - xcds),
                   "two reserved units");
    r.found.expect(resident_blocks(r.world, touch, 256, 0, xcds + 1) == all / units * (units - 2 * xcds),
                   "one more than there are XCDs");
    r.found.expect(resident_blocks(r.world, touch, 256, 0, units) == 0, "all units reserved");
    r.found.expect(resident_blocks(r.world, touch, 256, 0, units + 5) == 0, "more than all units reserved");
  });
}

TEST_CASE("launch: a captured launch is one kernel node") {
  on_ranks(2, [](rank_of_test& r) {
    auto const word = r.heap.allocate<int>(1);
    r.fill(word, 0);
    load_kernel(r.world, touch, 64);
    graph const g(r, [&] { r.launch({2, 64}, touch, r.here(word)); });
    r.found.expect(g.nodes() == std::vector{hipGraphNodeTypeKernel}, "a captured launch has ", g.nodes().size(),
                   " nodes");
    r.found.expect(r.download(word)[0] == 0, "capture ran the kernel");
    for (int i = 0; i < 50; ++i) g.launch(r.stream);
    r.found.expect(r.download(word)[0] == 50 * 128, "50 replays added ", r.download(word)[0]);
  });
}
