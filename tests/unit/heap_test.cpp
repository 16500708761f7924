// The symmetric heap: the same offsets on every rank, alignment, reuse, exhaustion, and refusals that name the mistake.
#include "support.hpp"
#include <chrono>

using namespace support;

namespace {
std::source_location here(std::source_location where = std::source_location::current()) { return where; }

struct alignas(512) wide {
  int x[128];
};

__global__ void count_in(int* words, int count, int add) {
  for (int i = block{}.rank(); i < count; i += block{}.size()) words[i] += add;
}

/// Loads the elements of all ranks to `out`, in rank order; each rank has its own number of them.
__global__ void gather_ragged(world_view w, ragged<int> x, int* out) {
  block const b;
  std::uint64_t first = 0;
  for (int r = 0; r < w.size(); ++r) {
    for (std::uint64_t i = std::uint64_t(b.rank()); i < x.counts[r]; i += std::uint64_t(b.size()))
      out[first + i] = load(w.on(r, x) + i);
    first += x.counts[r];
  }
}

/// Memory of every rank as another library maps it: pointers between threads, IPC handles between processes.
class mapped_elsewhere {
 public:
  mapped_elsewhere(world& w, std::size_t bytes) : w_(w) {
    struct card {
      void* pointer;
      hipIpcMemHandle_t handle;
    };
    card mine{};
    check_hip(hipMalloc(&mine.pointer, bytes), "hipMalloc");
    for (int r = 0; r < w.size(); ++r)
      if (!w.in_one_process(r, w.rank())) check_hip(hipIpcGetMemHandle(&mine.handle, mine.pointer), "get handle");
    auto const cards = w.exchange().all_gather(mine);
    for (int r = 0; r < w.size(); ++r) {
      void* p = cards[std::size_t(r)].pointer;
      if (!w.in_one_process(r, w.rank()))
        check_hip(hipIpcOpenMemHandle(&p, cards[std::size_t(r)].handle, hipIpcMemLazyEnablePeerAccess), "open handle");
      memory.of[r] = static_cast<std::byte*>(p);
    }
  }
  mapped_elsewhere(mapped_elsewhere const&) = delete;
  ~mapped_elsewhere() {
    for (int r = 0; r < w_.size(); ++r)
      if (!w_.in_one_process(r, w_.rank())) ignore_hip(hipIpcCloseMemHandle(memory.of[r]));
    w_.exchange().barrier();
    ignore_hip(hipFree(memory.of[w_.rank()]));
  }
  mapped_memory memory;

 private:
  world& w_;
};

void expect_refusal(heap& h, channel_options const& o) {
  try {
    channel const c(h, o);
  } catch (out_of_space const&) {
    if (h.allocations() == 0) return;
    throw error("a channel that was refused left allocations behind");
  }
  throw error("a channel larger than its heap was not refused");
}
}  // namespace

TEST_CASE("heap: arrays lie at the same offset of every rank and do not overlap") {
  on_ranks(GENERATE(1, 2, 3, 4, 8), [](rank_of_test& r) {
    std::vector<sym<int>> arrays;
    for (std::size_t i = 0; i < 10; ++i) arrays.push_back(r.heap.allocate<int>(100 + 77 * i));
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      auto const everywhere = r.world.exchange().all_gather(arrays[i].offset);
      for (auto o : everywhere)
        r.found.expect(o == arrays[i].offset, "array ", i, " is at ", o, " and ", arrays[i].offset);
      r.upload(std::vector<int>(arrays[i].count, r.rank() * 100 + int(i)), arrays[i]);
    }
    r.meet();
    for (std::size_t i = 0; i < arrays.size(); ++i)
      for (int p = 0; p < r.size(); ++p) {
        auto const theirs = r.download(static_cast<int const*>(r.view().on(p, arrays[i])), arrays[i].count);
        r.found.equal(theirs, std::vector<int>(arrays[i].count, p * 100 + int(i)), text("array ", i, " of rank ", p));
      }
    r.meet();
    for (auto const& a : arrays) r.heap.free(a);
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations left");
  });
}

TEST_CASE("heap: ranks may have arrays of different lengths, at the same offset") {
  on_ranks(GENERATE(1, 2, 3, 8), [](rank_of_test& r) {
    auto const length = [&](int rank) { return std::size_t(rank * 7 % 5 * 100 + (rank == r.size() - 1)); };
    auto const out = r.heap.allocate<int>(8 * 500);
    auto const x = r.heap.allocate_ragged<int>(length(r.rank()));
    auto const behind = r.heap.allocate<int>(1);
    std::vector<int> mine, all;
    std::size_t longest = 0;
    for (int p = 0; p < r.size(); ++p) {
      longest = std::max(longest, length(p));
      r.found.expect(x.counts[p] == length(p), "rank ", p, " has ", x.counts[p], " elements, wanted ", length(p));
      for (int i = 0; i < int(length(p)); ++i) {
        all.push_back(p * 1000 + i);
        if (p == r.rank()) mine.push_back(all.back());
      }
    }
    r.found.expect(x.count == longest, x.count, " elements reserved, wanted ", longest);
    for (auto const offset : r.world.exchange().all_gather(behind.offset))
      r.found.expect(offset == behind.offset && offset >= x.offset + 4 * longest, "the next array is at ", offset);
    r.heap.upload(x, mine);
    r.found.equal(r.heap.download(x), mine, "this rank's elements");
    r.meet();
    load_kernel(r.world, gather_ragged, 64);
    r.launch({1, 64}, gather_ragged, r.view(), x, r.heap.here(out));
    auto found = r.heap.download(out);
    found.resize(all.size());
    r.found.equal(found, all, "all elements");
    r.meet();
    r.found.throws<bad_argument>("too much", {"heap::upload: 2 values; expected at most the 1 elements"},
                                 [&] { r.heap.upload(behind, {1, 2}); });
    r.found.throws<bad_argument>("nothing", {"heap::allocate_ragged: 0 elements on every rank", "heap_test.cpp"},
                                 [&] { r.heap.allocate_ragged<int>(0); });
    r.heap.free(x);
    r.heap.free(behind);
    r.heap.free(out);
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations left");
  });
}

TEST_CASE("heap: upload and download wait for the stream, and take a part or nothing") {
  on_ranks(2, [](rank_of_test& r) {
    auto const x = r.heap.allocate<int>(300);
    r.heap.upload(x, std::vector<int>(300, 5));
    for (int i = 0; i < 10; ++i) r.launch({1, 64}, count_in, r.heap.here(x), 300, 2);
    r.heap.upload(x, {1, 2, 3});
    r.heap.upload(x, {});
    r.launch({1, 64}, count_in, r.heap.here(x), 300, 1);
    auto const found = r.heap.download(x);
    std::vector<int> wanted(300, 26);
    for (int i = 0; i < 3; ++i) wanted[std::size_t(i)] = 2 + i;
    r.found.equal(found, wanted, "words");
  });
}

TEST_CASE("heap: alignment") {
  on_ranks(2, [](rank_of_test& r) {
    for (std::size_t alignment = 4; alignment <= 4096; alignment *= 2) {
      auto const odd = r.heap.allocate<char>(3, 1);
      auto const a = r.heap.allocate<int>(5, alignment);
      r.found.expect(reinterpret_cast<std::uintptr_t>(r.here(a)) % alignment == 0, "alignment ", alignment,
                     " is not kept: ", static_cast<void*>(r.here(a)));
      auto const f = r.heap.allocate<flag>(1, std::max<std::size_t>(alignment, 128));
      r.found.expect(reinterpret_cast<std::uintptr_t>(r.here(f)) % std::max<std::size_t>(alignment, 128) == 0,
                     "a flag's alignment ", alignment, " is not kept");
      r.heap.free(f);
      r.heap.free(a);
      r.heap.free(odd);
    }
    auto const w = r.heap.allocate<wide>(2);
    r.found.expect(reinterpret_cast<std::uintptr_t>(r.here(w)) % 512 == 0, "alignof(T) is not kept");
    r.heap.free(w);
  });
}

TEST_CASE("heap: freed memory is used again, and neighbours grow together") {
  on_ranks(2, [](rank_of_test& r) {
    auto const a = r.heap.allocate<char>(2_MiB), b = r.heap.allocate<char>(2_MiB), c = r.heap.allocate<char>(2_MiB);
    r.heap.free(b);
    auto const again = r.heap.allocate<char>(1_MiB);
    r.found.expect(again.offset == b.offset, "a free range was not used again");
    r.heap.free(a);
    r.heap.free(again);
    auto const both = r.heap.allocate<char>(4_MiB);
    r.found.expect(both.offset == a.offset, "neighbouring free ranges did not grow together");
    r.heap.free(c);
    r.heap.free(both);
    auto const all = r.heap.allocate<char>(8_MiB);
    r.heap.free(all);
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations left");
  });
}

TEST_CASE("heap: exhaustion names what is wanted, what is left and what to enlarge") {
  on_ranks(2, [](rank_of_test& r) {
    auto const most = r.heap.allocate<char>(7_MiB);
    r.found.throws<out_of_space>("bulk", {"2097152", "1048576", "bulk"}, [&] { r.heap.allocate<char>(2_MiB); });
    r.found.throws<out_of_space>("signal", {"12800000", "signal"}, [&] { r.heap.allocate<flag>(100'000); });
    r.found.expect(r.heap.allocations() == 1, r.heap.allocations(), " allocations after refusals");
    auto const rest = r.heap.allocate<char>(1_MiB);
    r.heap.free(rest);
    r.heap.free(most);
  });
}

TEST_CASE("heap: an allocation larger than the address space is refused") {
  on_ranks(1, [](rank_of_test& r) {
    for (std::size_t count : {SIZE_MAX, SIZE_MAX / 8 + 2, SIZE_MAX / 2})
      r.found.throws<error>(text(count, " doubles"), {text(count)}, [&] { r.heap.allocate<double>(count); });
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations after refusals");
  });
}

TEST_CASE("heap: bad arguments of allocate and free") {
  on_ranks(2, [](rank_of_test& r) {
    auto const a = r.heap.allocate<int>(8);
    r.found.throws<bad_argument>("no elements", {"0 elements", "at least 1"}, [&] { r.heap.allocate<int>(0); });
    r.found.throws<bad_argument>("alignment 24", {"24", "power of two"}, [&] { r.heap.allocate<int>(1, 24); });
    r.found.throws<bad_argument>("alignment 0", {"alignment 0", "power of two"}, [&] { r.heap.allocate<int>(1, 0); });
    r.found.throws<bad_argument>("alignment 2 of ints", {"alignment 2", "4"}, [&] { r.heap.allocate<int>(1, 2); });
    r.found.throws<bad_argument>("free in the middle", {text(a.offset + 8)}, [&] { r.heap.free(a + 2); });
    r.found.throws<bad_argument>("free of nothing", {"12345"}, [&] { r.heap.free(sym<int>{12345, 1}); });
    r.found.expect(r.heap.allocations() == 1, r.heap.allocations(), " allocations after refusals");
    r.heap.free(a);
    r.found.throws<bad_argument>("double free", {text("offset ", a.offset), "bulk"}, [&] { r.heap.free(a); });
    auto const f = r.heap.allocate<flag>(1);
    r.heap.free(f);
    r.found.throws<bad_argument>("double free of a flag", {text("offset ", f.offset), "signal"},
                                 [&] { r.heap.free(f); });
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations after refusals");
  });
}

TEST_CASE("heap: ranks that ask for different things are told who requested what") {
  on_ranks(3, [](rank_of_test& r) {
    r.found.throws<rank_mismatch>("sizes", {"heap::allocate", "disagree in bytes", "rank 0 has 40", "rank 2 has 44"},
                                  [&] { r.heap.allocate<int>(r.rank() == 2 ? 11 : 10); });
    r.found.throws<rank_mismatch>("alignment", {"alignment", "256", "512"},
                                  [&] { r.heap.allocate<int>(10, r.rank() == 1 ? 512 : 256); });
    r.found.expect(r.heap.allocations() == 0, r.heap.allocations(), " allocations after a mismatch");
  });
}

TEST_CASE("heap: segments that are too small, or differ between ranks") {
  none_found_anything(on_worlds(2, [&](world& w) {
    findings found;
    found.rank = w.rank();
    found.throws<bad_argument>("bulk", {"1000 bytes", "1048576"}, [&] { heap(w, {.bulk = 1000}); });
    found.throws<bad_argument>("signal", {"100 bytes", "65536"}, [&] { heap(w, {.bulk = 1_MiB, .signal = 100}); });
    found.throws<bad_argument>("wait limit", {"wait_limit", "0"},
                               [&] { heap(w, {.bulk = 1_MiB, .wait_limit = std::chrono::seconds(0)}); });
    found.throws<bad_argument>("wait limit", {"wait_limit", "-5"},
                               [&] { heap(w, {.bulk = 1_MiB, .wait_limit = std::chrono::nanoseconds(-5)}); });
    found.throws<rank_mismatch>("unequal", {"bulk", "1048576", "2097152"},
                                [&] { heap(w, {.bulk = w.rank() ? 2_MiB : 1_MiB, .signal = 64_KiB}); });
    for (std::size_t const bytes : {SIZE_MAX, SIZE_MAX - 2_MiB, SIZE_MAX / 2})
      found.throws<out_of_space>("more than has addresses", {text(bytes), "have addresses"},
                                 [&] { heap(w, {.bulk = bytes, .signal = 64_KiB}); });
    found.throws<runtime_failure>("more than there is", {"bulk"},
                                  [&] { heap(w, {.bulk = std::size_t(1) << 50, .signal = 64_KiB}); });
    heap fine(w, {.bulk = 1_MiB, .signal = 64_KiB});
    found.expect(fine.allocations() == 0, "a new heap has allocations");
    return found.summary();
  }));
}

TEST_CASE("heap: offset_of accepts what is on the heap and nothing else") {
  on_ranks(2, [](rank_of_test& r) {
    auto const a = r.heap.allocate<int>(100);
    r.found.expect(r.heap.offset_of(r.here(a), 400, "a", here()) == a.offset, "offset of an array");
    r.found.expect(r.heap.offset_of(r.here(a) + 3, 4, "a", here()) == a.offset + 12, "offset of an element");
    int on_the_stack = 0;
    r.found.throws<bad_argument>("stack", {"weights", "(4 bytes)", "not on the symmetric heap"},
                                 [&] { r.heap.offset_of(&on_the_stack, 4, "weights", here()); });
    r.found.throws<bad_argument>("null", {"a = ", "not on the symmetric heap"},
                                 [&] { r.heap.offset_of(nullptr, 4, "a", here()); });
    r.found.throws<bad_argument>("past the end", {"not on the symmetric heap"},
                                 [&] { r.heap.offset_of(r.here(a), 8_MiB + 1, "a", here()); });
    r.found.throws<bad_argument>("longer than memory", {"not on the symmetric heap"},
                                 [&] { r.heap.offset_of(r.here(a) + 1, SIZE_MAX, "a", here()); });
    if (r.size() > 1)
      r.found.throws<bad_argument>("a peer's", {"not on the symmetric heap"},
                                   [&] { r.heap.offset_of(r.view().on(r.partner(), a), 4, "a", here()); });
    int* elsewhere = nullptr;
    check_hip(hipMalloc(&elsewhere, 64), "hipMalloc");
    r.found.throws<bad_argument>("other device memory", {"not on the symmetric heap"},
                                 [&] { r.heap.offset_of(elsewhere, 4, "a", here()); });
    r.meet();
    check_hip(hipFree(elsewhere), "hipFree");
  });
}

TEST_CASE("heap: several ranks share a device") {
  auto const body = [](rank_of_test& r) {
    r.found.expect(r.world.ranks_on_device() == 4, r.world.ranks_on_device(), " ranks on the device");
    auto const a = r.heap.allocate<int>(64);
    r.upload(std::vector<int>(64, r.rank()), a);
    r.launch({1, 64}, count_in, r.here(a), 64, 10);
    r.meet();
    for (int p = 0; p < 4; ++p)
      r.found.equal(r.download(static_cast<int const*>(r.view().on(p, a)), 64), std::vector<int>(64, p + 10),
                    text("array of rank ", p));
    r.meet();
  };
  on_ranks(4, body, small_heap(), {.devices = {0, 0, 0, 0}});
}

TEST_CASE("heap: two heaps of one world are apart") {
  on_ranks(2, [](rank_of_test& r) {
    heap second(r.world, {.bulk = 1_MiB, .signal = 64_KiB});
    auto const a = r.heap.allocate<int>(16), b = second.allocate<int>(16);
    r.upload(std::vector<int>(16, 1), a);
    r.upload(std::vector<int>(16, 2), second.view().here(b));
    r.found.equal(r.download(a), std::vector<int>(16, 1), "first heap");
    r.found.throws<bad_argument>("the other heap's memory", {"not on the symmetric heap"},
                                 [&] { r.heap.offset_of(second.view().here(b), 4, "b", here()); });
  });
}

TEST_CASE("heap: data may lie in memory that the program has mapped") {
  on_ranks(GENERATE(1, 2, 3), [](rank_of_test& r) {
    mapped_elsewhere const theirs(r.world, 4_MiB);
    std::byte* const mine = theirs.memory.of[r.rank()];
    auto const out = r.heap.allocate<int>(1024);
    {
      heap h(r.world, {.bulk = 4_MiB, .signal = 1_MiB, .bulk_at = theirs.memory});
      channel ch(h, {.max_bytes = 1_MiB, .flags_per_source = 1});
      auto const first = h.allocate<int>(7);
      auto const x = h.allocate_ragged<int>(std::size_t(100 + r.rank()));
      auto* const at = reinterpret_cast<std::byte*>(h.here(x));
      r.found.expect(at == mine + x.offset && x.offset >= first.offset + 28, "the array is at ", at - mine);
      r.found.expect(h.offset_of(at, 4, "x", here()) == x.offset, "offset of an array");
      std::vector<int> all;
      for (int p = 0; p < r.size(); ++p)
        for (int i = 0; i < 100 + p; ++i) all.push_back(1000 * p + i);
      auto const begin = all.begin() + 100 * r.rank() + r.rank() * (r.rank() - 1) / 2;
      h.upload(x, std::vector<int>(begin, begin + 100 + r.rank()));
      r.meet();
      r.launch({1, 256}, gather_ragged, h.view(), x, r.here(out));
      r.found.equal(r.download(static_cast<int const*>(r.here(out)), all.size()), all, "what the ranks have");
      r.meet();
    }
    r.world.collect();
    r.meet();
    check_hip(hipMemset(mine, 1, 4_MiB), "the memory outlives the heap: hipMemset");
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  });
}

TEST_CASE("heap: memory that the program has mapped is at a page, on every rank or on none") {
  none_found_anything(on_worlds(2, [&](world& w) {
    findings found;
    found.rank = w.rank();
    mapped_elsewhere const theirs(w, 2_MiB);
    auto const with = [&](mapped_memory const& m) { heap const h(w, {.bulk = 1_MiB, .signal = 64_KiB, .bulk_at = m}); };
    mapped_memory wrong = theirs.memory;
    wrong.of[1] += 256;
    found.throws<bad_argument>("inside a page", {"bulk_at of rank 1", "multiple of 4096"}, [&] { with(wrong); });
    wrong.of[1] = nullptr;
    found.throws<bad_argument>("one is missing", {"bulk_at of rank 1", "multiple of 4096"}, [&] { with(wrong); });
    found.throws<rank_mismatch>("one rank has none", {"bulk_at, given or not", "rank 0 has 1, rank 1 has 0"},
                                [&] { with(w.rank() == 0 ? theirs.memory : mapped_memory{}); });
    with(theirs.memory);
    return found.summary();
  }));
}

TEST_CASE("heap: memory is given back, also by constructors that throw") {
  needs_threads("run_local throws one error for all ranks; a process has its own");
  auto const free_bytes = [] {
    std::size_t free = 0, total = 0;
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
    check_hip(hipMemGetInfo(&free, &total), "hipMemGetInfo");
    return free;
  };
  auto const once = [] {
    run_local(2, {.devices = {0, 0}}, [](world& w) {
      heap h(w, {.bulk = 64_MiB, .signal = 64_KiB});
      expect_refusal(h, {.max_bytes = 1_GiB});
      expect_refusal(h, {.max_bytes = 1_MiB, .flags_per_source = 1 << 20});
    });
    CHECK_THROWS_AS(run_local(2, {.devices = {0, 0}},
                              [](world& w) {
                                heap h(w, {.bulk = 64_MiB, .signal = 64_KiB});
                                channel ch(h, {.max_bytes = 1_MiB, .flags_per_source = 8});
                                if (w.rank() == 1) throw error("on purpose");
                                h.allocate<int>(1);
                              }),
                    error);
  };
  once();  // the runtime's own, once
  auto const before = free_bytes();
  for (int i = 0; i < 4; ++i) once();
  auto const after = free_bytes();
  CHECK(before <= after + 32_MiB);
}
