// Questions that only a machine can answer. Each is asked by a small kernel whose outcome tells the possible answers
// apart.
//
// A question has a strong and a weak answer. Where no primary source promises the strong one, the simulator gives the
// weak one, so that what passes under it holds on every machine. Where the library needs the strong answer, the
// question says so, and the machine's answer decides. Every spin is bounded, by a number of polls and by the clock: the
// program ends whatever the machine does.
#pragma once
#include <fusewire/fusewire.hpp>

#include <array>
#include <string>
#include <vector>

namespace litmus {

using namespace fusewire;
using count_t = unsigned long long;

enum class answer {
  strong,
  weak,
  skipped,  // this machine cannot be asked, or not when the program is started in this way
  broken,   // something that must hold on every machine did not: the experiment or the machine is wrong
};

struct outcome {
  answer is;
  std::string text;  // what was seen, in numbers
};

class context;

struct question {
  char const* name;
  char const* asks;
  char const* sources;  // what primary sources say about it
  char const* strong;   // the two answers
  char const* weak;
  char const* depends;  // what in the library depends on it, and how
  answer needed;        // strong: the library is wrong if the answer is weak; weak: it is right with either answer
  outcome (*ask)(context&);
};

/// All questions, in the order in which they are asked.
std::vector<question> const& questions();

constexpr int words = 1 << 16;  // of `data`
constexpr int counters = 64;    // of `counts`
constexpr int flags_of_rank = 64;

/// The two roles of an experiment. Where every rank has its own GPU, ranks 0 and 1 have one block each. Otherwise
/// they are blocks 0 and 1 on rank 0's GPU, which run on different XCDs.
struct cast {
  int first;       // role of block 0
  int rank_of[2];  // the rank whose memory has a role's flags
  __device__ int role() const { return first + block{}.index(); }
};

/// The memory that every experiment needs; all ranks make it together.
class context {
 public:
  context(world& w, heap& h, int rounds)
      : w(w), h(h), rounds(rounds), data(h.allocate<unsigned>(words)), counts(h.allocate<count_t>(counters)),
        flags(h.allocate<flag>(flags_of_rank)), far(w.size() > 1 && w.max_ranks_on_a_device() == 1) {}

  world_view const& view() const { return h.view(); }

  /// Sets all of it to zero on every rank.
  void clear() {
    check_hip(hipMemset(view().here(data), 0, words * sizeof(unsigned)), "hipMemset");
    check_hip(hipMemset(view().here(counts), 0, counters * sizeof(count_t)), "hipMemset");
    check_hip(hipMemset(view().here(flags), 0, flags_of_rank * sizeof(flag)), "hipMemset");
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
    w.barrier();
  }

  /// Waits for the stream. Returns every rank's counters, in rank order.
  std::vector<std::array<count_t, counters>> gather() {
    std::array<count_t, counters> mine;
    check_hip(hipStreamSynchronize(w.stream()), "hipStreamSynchronize");
    check_hip(hipMemcpy(mine.data(), view().here(counts), sizeof mine, hipMemcpyDeviceToHost), "hipMemcpy");
    return w.exchange().all_gather(mine);
  }
  /// The sum of counter i over the ranks.
  static count_t sum(std::vector<std::array<count_t, counters>> const& all, int i) {
    count_t s = 0;
    for (auto const& of_rank : all) s += of_rank[std::size_t(i)];
    return s;
  }

  /// Launches kernel(cast, arguments...) for the two roles, between two ranks or within a GPU.
  template <class... P>
  void play(void (*kernel)(cast, P...), int threads, std::type_identity_t<P> const&... arguments) {
    if (w.rank() >= (far ? 2 : 1)) return;
    cast const c = far ? cast{w.rank(), {0, 1}} : cast{0, {0, 0}};
    kernel<<<dim3(far ? 1 : 2), dim3(unsigned(threads)), 0, w.stream()>>>(c, arguments...);
    check_hip(hipGetLastError(), "kernel launch");
  }
  std::string where() const { return far ? "between two GPUs" : "between two XCDs of one GPU"; }

  world& w;
  heap& h;
  int const rounds;
  sym<unsigned> const data;
  sym<count_t> const counts;  // counter 0: waits that expired
  sym<flag> const flags;
  bool const far;  // ranks have GPUs of their own
};

inline outcome expired(count_t n) { return {answer::broken, text(n, " waits expired")}; }
inline outcome needs_peers() { return {answer::skipped, "needs two GPUs, and one rank on each"}; }

// ------------------------------------------------------------------------------------------------------- on the device

__device__ inline void add(count_t* to, count_t n) {
  if (n) (void)__hip_atomic_fetch_add(to, n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/// A store that bypasses every cache, without order.
__device__ inline void raise(flag* f, count_t value) {
  platform::atomic_store<order::relaxed, scope::system>(&f->value, value);
}

/// One thread polls until *f is `value`, or more where the other role is ahead. Returns false when that takes too long.
__device__ inline bool reaches(flag const* f, count_t value) {
  constexpr std::uint64_t limit = 10'000'000'000;  // ns
  std::uint64_t const start = platform::clock_ns();
  for (int looks = 0; looks < 1 << 24; ++looks) {
    if (platform::atomic_load<order::relaxed, scope::system>(&f->value) >= value) return true;
    platform::backoff();
    if (looks % 16 == 15 && platform::clock_ns() - start > limit) return false;
  }
  return false;
}

/// The block waits for *f without an acquire. Counts a wait that expires.
__device__ inline bool meets(flag const* f, count_t value, count_t* expired_waits) {
  __shared__ int there;
  __syncthreads();
  if (platform::thread_index() == 0) {
    there = reaches(f, value);
    if (!there) add(expired_waits, 1);
  }
  __syncthreads();
  return there;
}
/// As meets(); then what was released before is visible to the block.
__device__ inline bool receives(flag const* f, count_t value, count_t* expired_waits) {
  bool const there = meets(f, value, expired_waits);
  platform::fence<order::acquire, scope::system>();
  return there;
}

/// Returns when all memory operations of this wave are done.
__device__ inline void wait_loads() { asm volatile("s_waitcnt vmcnt(0)" ::: "memory"); }
/// Writes back all that this XCD's L2 holds, and waits for the end of it. A release needs this in the code of every
/// compiler.
__device__ inline void write_back() { asm volatile("buffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)" ::: "memory"); }

/// Releases the block's stores, then raises *f.
__device__ inline void publish(flag* f, count_t value) {
  wait_loads();
  __syncthreads();
  if (platform::thread_index() == 0) {
    write_back();
    raise(f, value);
  }
}
/// Raises *f after the block has done its reads.
__device__ inline void give_back(flag* f, count_t value) {
  wait_loads();
  __syncthreads();
  if (platform::thread_index() == 0) raise(f, value);
}

/// How many of p[0], p[stride], ... the calling thread finds different from `value`. The sum over the threads of the
/// block is the answer.
__device__ inline count_t differing(unsigned const* p, int n, unsigned value, int stride = 1) {
  count_t wrong = 0;
  for (int i = platform::thread_index(); i < n; i += platform::block_threads())
    wrong += p[std::int64_t(i) * stride] != value;
  return wrong;
}

}  // namespace litmus
