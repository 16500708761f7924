// The machine itself: the placement of blocks, clocks, the scalar cache, flags.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "questions.hpp"

namespace litmus {
namespace {

__device__ int xcd() { return int(__builtin_amdgcn_s_getreg(20 | 3 << 11)); }  // XCC_ID, 4 bits

/// Notes where each block runs and in which order blocks start. Then all blocks meet, if all of them are resident at
/// once.
__global__ void start_and_meet(unsigned* where, unsigned* order_of_start, unsigned* started, count_t* expired_waits) {
  if (platform::thread_index() != 0) return;
  int const b = platform::block_index(), n = platform::grid_blocks();
  where[b] = unsigned(xcd());
  order_of_start[b] = platform::atomic_fetch_add<order::relaxed, scope::device>(started, 1u);
  std::uint64_t const start = platform::clock_ns();
  while (platform::atomic_load<order::relaxed, scope::device>(started) != unsigned(n)) {
    platform::backoff();
    if (platform::clock_ns() - start > 10'000'000'000) return add(expired_waits, 1);
  }
}

}  // namespace

namespace {

/// The result of several launches on rank 0's GPU, with as many blocks as it has CUs.
struct placement {
  int blocks, xcds, times;
  std::array<int, 8> first;  // XCD of block 0, by launch
  bool in_turn = true;       // block i on the XCD after that of block i-1
  bool in_order = true;      // blocks started in the order of their numbers
  count_t missed;            // blocks that did not find all others there
};

placement place_blocks(context& c) {
  c.clear();
  placement seen{};
  seen.in_turn = seen.in_order = true;
  seen.blocks = c.w.compute_units(), seen.times = std::min<int>(c.rounds, int(seen.first.size()));
  check_hip(platform::xcd_count(&seen.xcds, c.w.device()), "hipDeviceGetAttribute");
  // More than half of a CU's: one block on each CU
  int const n = seen.blocks, lds = platform::max_shared_bytes / 2 + 1024;
  std::vector<unsigned> found(std::size_t(2 * n));
  if (c.w.rank() == 0)
    for (int t = 0; t < seen.times; ++t) {
      unsigned* const where = c.view().here(c.data);
      check_hip(hipMemset(where, 0, words * sizeof(unsigned)), "hipMemset");
      start_and_meet<<<dim3(unsigned(n)), dim3(64), unsigned(lds), c.w.stream()>>>(where, where + n, where + 2 * n,
                                                                                   c.view().here(c.counts));
      check_hip(hipGetLastError(), "kernel launch");
      check_hip(hipStreamSynchronize(c.w.stream()), "hipStreamSynchronize");
      check_hip(hipMemcpy(found.data(), where, found.size() * sizeof(unsigned), hipMemcpyDeviceToHost), "hipMemcpy");
      seen.first[std::size_t(t)] = int(found[0]);
      for (int b = 0; b < n; ++b) {
        seen.in_turn &= found[std::size_t(b)] == (found[0] + unsigned(b)) % unsigned(seen.xcds);
        seen.in_order &= found[std::size_t(n + b)] == unsigned(b);
      }
    }
  seen.missed = context::sum(c.gather(), 0);
  return c.w.exchange().all_gather(seen)[0];
}

}  // namespace

outcome first_xcd(context& c) {
  placement const p = place_blocks(c);
  std::string said =
      text(p.blocks, " blocks, ", p.xcds, " XCDs: block i ",
           p.in_turn ? "is on the XCD after that of block i-1" : "is NOT on the XCD after that of block i-1",
           "; block 0 on XCD");
  bool zero = true;
  for (int t = 0; t < p.times; ++t) {
    said += text(" ", p.first[std::size_t(t)]);
    zero &= p.first[std::size_t(t)] == 0;
  }
  return {p.in_turn && zero ? answer::strong : answer::weak, said};
}

outcome dispatch_order(context& c) {
  placement const p = place_blocks(c);
  std::string const said =
      text(p.times, " times ", p.blocks, " blocks of a CU each start ", p.in_order ? "in order" : "out of order", "; ",
           p.missed ? text("NOT all there at once: ", p.missed, " did not see the others") : "all there at once");
  return {p.missed ? answer::broken : p.in_order ? answer::strong : answer::weak, said};
}

namespace {

/// Role 0 asks, role 1 answers with its clock. Role 0's counts: [1] ticks of the shortest round trip, [2] role 1's
/// clock minus role 0's in the middle of that round trip.
__global__ void compare_clocks(cast k, world_view w, sym<flag> flags, sym<count_t> counts, int rounds) {
  if (platform::thread_index() != 0) return;
  int const role = k.role();
  flag *const mine = w.on(k.rank_of[role], flags) + role, *const theirs = w.on(k.rank_of[1 - role], flags) + 1 - role;
  count_t* const c = w.here(counts);
  count_t shortest = ~count_t{0};
  for (int t = 1; t <= rounds; ++t) {
    if (role == 0) {
      count_t const asked = __builtin_amdgcn_s_memrealtime();
      raise(theirs, count_t(t));
      if (!reaches(mine, count_t(t))) return add(c, 1);
      count_t const answered = __builtin_amdgcn_s_memrealtime();
      count_t const clock = load(&mine->note[t & 1]);
      if (answered - asked < shortest) {
        shortest = answered - asked;
        c[1] = shortest;
        c[2] = clock - (asked + shortest / 2);
      }
    } else {
      if (!reaches(mine, count_t(t))) return add(c, 1);
      store(&theirs->note[t & 1], __builtin_amdgcn_s_memrealtime());
      wait_loads();
      raise(theirs, count_t(t));
    }
  }
}

__global__ void read_clock(count_t* to) {
  if (platform::thread_index() == 0) *to = __builtin_amdgcn_s_memrealtime();
}

}  // namespace

outcome clocks(context& c) {
  std::string seen;
  count_t waits = 0;
  bool differ = false;
  auto const compare = [&](char const* who, cast const* k, int blocks) {
    c.clear();
    if (k) {
      compare_clocks<<<dim3(unsigned(blocks)), dim3(64), 0, c.w.stream()>>>(*k, c.view(), c.flags, c.counts,
                                                                            16 * c.rounds);
      check_hip(hipGetLastError(), "kernel launch");
    }
    auto const all = c.gather();
    waits += context::sum(all, 0);
    long long const round_trip = static_cast<long long>(all[0][1]), offset = static_cast<long long>(all[0][2]);
    seen += text(who, " differ by ", offset, " ticks, round trip ", round_trip, "; ");
    differ |= std::llabs(offset) > round_trip / 2 + 1;
  };
  cast const xcds{0, {0, 0}};
  compare("two XCDs", c.w.rank() == 0 ? &xcds : nullptr, 2);
  if (c.far)
    for (int r = 1; r < c.w.size(); ++r) {
      cast const k{c.w.rank() == 0 ? 0 : 1, {0, r}};
      compare(text("GPU 0 and GPU ", r).c_str(), c.w.rank() == 0 || c.w.rank() == r ? &k : nullptr, 1);
    }
  count_t ticks[2];
  std::chrono::steady_clock::time_point when[2];
  for (int i = 0; i < 2; ++i) {
    if (i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    read_clock<<<dim3(1), dim3(64), 0, c.w.stream()>>>(c.view().here(c.counts) + 1);
    check_hip(hipStreamSynchronize(c.w.stream()), "hipStreamSynchronize");
    when[i] = std::chrono::steady_clock::now();
    check_hip(hipMemcpy(&ticks[i], c.view().here(c.counts) + 1, sizeof ticks[i], hipMemcpyDeviceToHost), "hipMemcpy");
  }
  double const microseconds = std::chrono::duration<double, std::micro>(when[1] - when[0]).count();
  seen += text(std::round(double(ticks[1] - ticks[0]) / microseconds), " ticks per microsecond of the host");
  if (waits) return expired(waits);
  return {differ ? answer::weak : answer::strong, seen};
}

namespace {

__device__ unsigned scalar_load(unsigned const* p) {
  unsigned x;
  asm volatile("s_load_dword %0, %1, 0x0\n\ts_waitcnt lgkmcnt(0)" : "=s"(x) : "s"(p) : "memory");
  return x;
}

/// Role 1 reads a word of its rank through the scalar cache; role 0 writes it; role 1 acquires and reads it again.
/// counts[1]: the scalar load was stale; [2]: the vector load was; [3]: the scalar load after s_dcache_inv was.
__global__ void read_scalars(cast k, world_view w, sym<unsigned> data, sym<flag> flags, sym<count_t> counts,
                             int rounds) {
  flag *const ready = w.on(k.rank_of[1], flags), *const room = w.on(k.rank_of[0], flags) + 1;
  unsigned* const x = w.on(k.rank_of[1], data);
  count_t* const c = w.here(counts);
  for (int t = 1; t <= rounds; ++t) {
    if (k.role() == 0) {
      if (!meets(room, count_t(t), c)) return;
      if (platform::thread_index() == 0) x[0] = unsigned(t);
      publish(ready, count_t(t));
    } else {
      (void)scalar_load(x);  // the cache has the line
      if (platform::thread_index() == 0) raise(room, count_t(t));
      if (!receives(ready, count_t(t), c)) return;
      unsigned const scalar = scalar_load(x), vector = load(x);
      asm volatile("s_dcache_inv\n\ts_waitcnt lgkmcnt(0)" ::: "memory");
      unsigned const again = scalar_load(x);
      if (platform::thread_index() != 0) continue;
      add(c + 1, scalar != unsigned(t));
      add(c + 2, vector != unsigned(t));
      add(c + 3, again != unsigned(t));
    }
  }
}

}  // namespace

outcome scalar_cache(context& c) {
  c.clear();
  c.play(read_scalars, 64, c.view(), c.data, c.flags, c.counts, c.rounds);
  auto const all = c.gather();
  if (count_t const n = context::sum(all, 0)) return expired(n);
  count_t const scalar = context::sum(all, 1), vector = context::sum(all, 2), again = context::sum(all, 3);
  std::string const seen = text(c.where(), ": ", scalar, " of ", c.rounds, " scalar loads stale behind an acquire, ",
                                again, " behind s_dcache_inv; ", vector, " vector loads");
  return {vector ? answer::broken : scalar ? answer::weak : answer::strong, seen};
}

namespace {

/// Rank 0 and rank `peer` raise each other's flags in turn. counts[1] of rank 0: ticks for all rounds.
__global__ void bounce(world_view w, sym<flag> flags, sym<count_t> counts, int peer, int rounds) {
  if (platform::thread_index() != 0) return;
  flag *const mine = w.here(flags) + peer, *const theirs = w.on(w.rank() == 0 ? peer : 0, flags) + peer;
  count_t* const c = w.here(counts);
  count_t const start = __builtin_amdgcn_s_memrealtime();
  for (int t = 1; t <= rounds; ++t) {
    if (w.rank() == 0) raise(theirs, count_t(t));
    if (!reaches(mine, count_t(t))) return add(c, 1);
    if (w.rank() != 0) raise(theirs, count_t(t));
  }
  if (w.rank() == 0) c[1] = __builtin_amdgcn_s_memrealtime() - start;
}

}  // namespace

outcome flag_round_trip(context& c) {
  if (c.w.size() < 2) return {answer::skipped, "needs two ranks"};
  std::string seen;
  for (int peer = 1; peer < c.w.size(); ++peer) {
    c.clear();
    int const rounds = 16 * c.rounds;
    if (c.w.rank() == 0 || c.w.rank() == peer) {
      bounce<<<dim3(1), dim3(64), 0, c.w.stream()>>>(c.view(), c.flags, c.counts, peer, rounds);
      check_hip(hipGetLastError(), "kernel launch");
    }
    auto const all = c.gather();
    if (context::sum(all, 0))
      return {answer::broken, text("a flag between ranks 0 and ", peer, " was not seen within 10 s")};
    seen += text(peer > 1 ? ", " : text(rounds, " round trips each, in microseconds: "), "rank ", peer, " ",
                 std::round(double(all[0][1]) / rounds) / 100);
  }
  return {answer::strong, seen};
}

}  // namespace litmus
