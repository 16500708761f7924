// Operations that are in flight when a wave goes on: stores that are counted, writebacks without their wait, atomics
// without a result, loads past a barrier.
#include "questions.hpp"

namespace litmus {
namespace {

/// Role 0 fills role 1's memory and raises a flag there right after a writeback. It waits for the writeback, or does
/// not.
__global__ void write_and_tell(cast k, world_view w, sym<unsigned> data, sym<flag> flags, sym<count_t> counts,
                               int rounds, bool waits) {
  flag *const ready = w.on(k.rank_of[1], flags), *const room = w.on(k.rank_of[0], flags) + 1;
  unsigned* const x = w.on(k.rank_of[1], data);
  count_t* const c = w.here(counts);
  for (int t = 1; t <= rounds; ++t) {
    if (k.role() == 0) {
      if (!meets(room, count_t(t - 1), c)) return;
      for (int i = platform::thread_index(); i < words; i += platform::block_threads()) x[i] = unsigned(t);
      wait_loads();
      __syncthreads();
      if (platform::thread_index() == 0) {
        if (waits) {
          write_back();
          raise(ready, count_t(t));
        } else {
          asm volatile("buffer_wbl2 sc0 sc1\n\tglobal_store_dwordx2 %0, %1, off sc0 sc1" ::"v"(&ready->value),
                       "v"(count_t(t))
                       : "memory");
        }
      }
    } else {
      if (!receives(ready, count_t(t), c)) return;
      count_t const stale = differing(x, words, unsigned(t));
      add(c + 1, stale);
      give_back(room, count_t(t));
    }
  }
}

/// Block 0 stores at device scope and raises a flag without a writeback. Block 1 loads at device scope. They are on
/// different XCDs.
__global__ void store_and_count(world_view w, sym<unsigned> data, sym<flag> flags, sym<count_t> counts, int rounds) {
  flag *const ready = w.here(flags), *const room = ready + 1;
  unsigned* const x = w.here(data);
  count_t* const c = w.here(counts);
  for (int t = 1; t <= rounds; ++t) {
    if (block{}.index() == 0) {
      if (!meets(room, count_t(t - 1), c)) return;
      for (int i = platform::thread_index(); i < words; i += platform::block_threads())
        platform::atomic_store<order::relaxed, scope::device>(x + i, unsigned(t));
      give_back(ready, count_t(t));
    } else {
      if (!meets(ready, count_t(t), c)) return;
      count_t stale = 0;
      for (int i = platform::thread_index(); i < words; i += platform::block_threads())
        stale += platform::atomic_load<order::relaxed, scope::device>(x + i) != unsigned(t);
      add(c + 1, stale);
      give_back(room, count_t(t));
    }
  }
}

constexpr int threads = 1024;
constexpr int adds = 2;    // of a thread, each to its own line
constexpr int loads = 32;  // of a thread: the more are in flight, the longer they take

/// Every thread of role 0 adds 1 to its own words in role 1's memory. Its leader releases after a barrier, which does
/// not wait for memory.
__global__ void add_and_tell(cast k, world_view w, sym<unsigned> data, sym<flag> flags, sym<count_t> counts, int rounds,
                             bool waits) {
  flag *const ready = w.on(k.rank_of[1], flags), *const room = w.on(k.rank_of[0], flags) + 1;
  unsigned* const mine = w.on(k.rank_of[1], data) + platform::thread_index() * 32;
  count_t* const c = w.here(counts);
  for (int t = 1; t <= rounds; ++t) {
    if (k.role() == 0) {
      if (!meets(room, count_t(t - 1), c)) return;
      for (int i = 0; i < adds; ++i)
        (void)__hip_atomic_fetch_add(mine + i * threads * 32, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
      if (waits) wait_loads();
      asm volatile("s_barrier" ::: "memory");
      if (platform::thread_index() == 0) {
        write_back();
        raise(ready, count_t(t));
      }
    } else {
      if (!receives(ready, count_t(t), c)) return;
      for (int i = 0; i < adds; ++i)
        add(c + 1, platform::atomic_load<order::relaxed, scope::system>(mine + i * threads * 32) != unsigned(t));
      give_back(room, count_t(t));
    }
  }
}

/// Role 1 loads from role 0's memory. After a barrier its leader says that there is room, and role 0 writes the next
/// value. counts[1]: loads that brought the next value.
__global__ void load_and_give_back(cast k, world_view w, sym<unsigned> data, sym<flag> flags, sym<count_t> counts,
                                   int rounds, bool waits) {
  flag *const ready = w.on(k.rank_of[1], flags), *const room = w.on(k.rank_of[0], flags) + 1;
  unsigned* const mine = w.on(k.rank_of[0], data) + platform::thread_index();
  count_t* const c = w.here(counts);
  for (int t = 1; t <= rounds; ++t) {
    if (k.role() == 0) {
      if (!meets(room, count_t(t - 1), c)) return;
      for (int i = 0; i < loads; ++i) mine[i * threads] = unsigned(t);
      publish(ready, count_t(t));
    } else {
      if (!receives(ready, count_t(t), c)) return;
      unsigned found[loads];  // the compiler waits for them where they are used
      for (int i = 0; i < loads; ++i) found[i] = mine[i * threads];
      asm volatile("" ::: "memory");
      if (waits) wait_loads();
      __builtin_amdgcn_s_barrier();
      if (platform::thread_index() == 0) raise(room, count_t(t));
      count_t late = 0;
      for (int i = 0; i < loads; ++i) late += found[i] != unsigned(t);
      add(c + 1, late);
    }
  }
}

using experiment = void (*)(cast, world_view, sym<unsigned>, sym<flag>, sym<count_t>, int, bool);

/// Runs the experiment once without the wait and once with it. With it, nothing may be lost.
outcome with_and_without(context& c, experiment kernel, int block_threads, int looked_at, char const* what) {
  count_t wrong[2];
  for (bool waits : {false, true}) {
    c.clear();
    c.play(kernel, block_threads, c.view(), c.data, c.flags, c.counts, c.rounds, waits);
    auto const all = c.gather();
    if (count_t const n = context::sum(all, 0)) return expired(n);
    wrong[waits] = context::sum(all, 1);
  }
  std::string const seen = text(c.where(), ": ", wrong[0], " of ", count_t(c.rounds) * count_t(looked_at), " ", what,
                                " without the wait, ", wrong[1], " with it");
  return {wrong[1] ? answer::broken : wrong[0] ? answer::weak : answer::strong, seen};
}

}  // namespace

outcome counted_stores(context& c) {
  c.clear();
  if (c.w.rank() == 0) {
    store_and_count<<<dim3(2), dim3(threads), 0, c.w.stream()>>>(c.view(), c.data, c.flags, c.counts, c.rounds);
    check_hip(hipGetLastError(), "kernel launch");
  }
  auto const all = c.gather();
  if (count_t const n = context::sum(all, 0)) return expired(n);
  count_t const stale = context::sum(all, 1);
  return {stale ? answer::weak : answer::strong,
          text("between two XCDs of one GPU: ", stale, " of ", count_t(c.rounds) * count_t(words), " words stale")};
}
outcome writeback_delay(context& c) { return with_and_without(c, write_and_tell, 256, words, "words stale"); }
outcome late_atomics(context& c) {
  return with_and_without(c, add_and_tell, threads, threads * adds, "atomics missing");
}
outcome late_loads(context& c) {
  return with_and_without(c, load_and_give_back, threads, threads * loads, "loads too late");
}

}  // namespace litmus
