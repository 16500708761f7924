// Lines of 128 bytes with two writers, and whether a peer's mapping of uncached memory keeps lines.
#include "questions.hpp"

namespace litmus {
namespace {

constexpr int shared_bytes = 16384;

__device__ unsigned char byte_of(int role, int round) {
  return static_cast<unsigned char>(1 + (round * 2 + role) % 255);
}

/// Both roles read x, write every second byte of it, and release. In odd rounds role 0 is first: role 1 still has its
/// own bytes in its L2 when those of role 0 arrive. In even rounds role 1 is first. counts[1]: bytes of the other role
/// that are missing after an acquire; counts[2]: own bytes that are gone. A role has its flags in the memory of
/// rank_of[role]; x is memory of rank `home`.
__global__ void share_lines(cast k, world_view w, int home, sym<unsigned> data, sym<flag> flags, sym<count_t> counts,
                            int rounds) {
  int const role = k.role(), other = 1 - role;
  auto* const x = reinterpret_cast<unsigned char*>(w.on(home, data));
  flag *const mine = w.on(k.rank_of[role], flags) + role * 2, *const theirs = w.on(k.rank_of[other], flags) + other * 2;
  count_t* const c = w.here(counts);
  for (int t = 1; t <= rounds; ++t) {
    count_t lost_of_other = 0, lost_of_mine = 0;
    for (int i = platform::thread_index(); i < shared_bytes / 2; i += platform::block_threads()) {
      lost_of_other += t > 1 && x[2 * i + other] != byte_of(other, t - 1);
      lost_of_mine += t > 1 && x[2 * i + role] != byte_of(role, t - 1);
    }
    give_back(theirs + 1, count_t(2 * t - 1));  // both have read before either writes
    if (!meets(mine + 1, count_t(2 * t - 1), c)) return;
    for (int i = platform::thread_index(); i < shared_bytes / 2; i += platform::block_threads())
      x[2 * i + role] = byte_of(role, t);
    bool const first = t % 2 != role;
    if (first) publish(theirs, count_t(t));
    if (!receives(mine, count_t(t), c)) return;
    for (int i = platform::thread_index(); i < shared_bytes / 2; i += platform::block_threads()) {
      lost_of_other += x[2 * i + other] != byte_of(other, t);
      lost_of_mine += x[2 * i + role] != byte_of(role, t);
    }
    add(c + 1, lost_of_other);
    add(c + 2, lost_of_mine);
    if (!first) publish(theirs, count_t(t));
    give_back(theirs + 1, count_t(2 * t));
    if (!meets(mine + 1, count_t(2 * t), c)) return;
    platform::fence<order::acquire, scope::system>();
  }
}

/// The result of one choice of the two writers and of the memory.
struct lost {
  count_t of_other = 0, of_mine = 0, expired = 0;
};
lost share(context& c, cast const* k, int blocks, int home) {
  c.clear();
  if (k) {
    share_lines<<<dim3(unsigned(blocks)), dim3(256), 0, c.w.stream()>>>(*k, c.view(), home, c.data, c.flags, c.counts,
                                                                        c.rounds);
    check_hip(hipGetLastError(), "kernel launch");
  }
  auto const all = c.gather();
  return {context::sum(all, 1), context::sum(all, 2), context::sum(all, 0)};
}

}  // namespace

outcome shared_lines(context& c) {
  int const rank = c.w.rank();
  std::string seen;
  count_t wrong = 0, waits = 0;
  auto const note = [&](char const* who, lost const& l) {
    seen +=
        text(seen.empty() ? "" : "; ", who, ": ", l.of_other, " bytes of the other and ", l.of_mine, " own bytes lost");
    wrong += l.of_other + l.of_mine;
    waits += l.expired;
  };
  cast const xcds{0, {0, 0}};
  note("two XCDs of one GPU", share(c, rank == 0 ? &xcds : nullptr, 2, 0));
  if (c.far) {
    cast const two{rank, {0, 1}};
    note("a GPU and its peer", share(c, rank < 2 ? &two : nullptr, 1, 1));
    if (c.w.size() > 2) note("two peers", share(c, rank < 2 ? &two : nullptr, 1, 2));
  }
  seen += text(" (of ", 2 * c.rounds * shared_bytes, " looks each)");
  if (waits) return expired(waits);
  if (wrong == 0 && c.w.size() < 3) seen += "; two peers: needs three GPUs";
  return {wrong ? answer::weak : answer::strong, seen};
}

namespace {

constexpr int enough_looks = 4096;

/// Rank 1 has rank 0's signal segment mapped. An access at agent scope bypasses the L1, and stops at an L2 that keeps
/// the line.
///   counts[1] 1: rank 1 read a word that it had read before, at agent scope, and did not see what rank 0 wrote
///   counts[2] 1: rank 1 wrote a word at agent scope, and rank 0 did not see it
///   counts[3], [4]: the same at system scope, which is what the library does
__global__ void look_through_mapping(world_view w, sym<flag> flags, sym<count_t> counts) {
  flag *const there = w.on(0, flags), *const here = w.here(flags);
  flag* const theirs = w.on(1 - w.rank(), flags);
  count_t* const c = w.here(counts);
  count_t *const read = &there[0].value, *const written = &there[1].value;
  auto const await = [&](int i, count_t value) {
    if (reaches(here + i, value)) return true;
    add(c, 1);
    return false;
  };
  auto const sees = [&](auto load) {
    for (int i = 0; i < enough_looks; ++i) {
      if (load() == 1) return true;
      platform::backoff();
    }
    return false;
  };
  if (platform::thread_index() != 0) return;
  if (w.rank() == 1) {
    count_t const before = platform::atomic_load<order::relaxed, scope::device>(read) +
                           platform::atomic_load<order::relaxed, scope::system>(read + 1);
    wait_loads();
    raise(theirs + 8, 1 + before);  // `before` is 0: the flag is raised after the load
    if (!await(8, 1)) return;
    add(c + 1, !sees([&] { return platform::atomic_load<order::relaxed, scope::device>(read); }));
    add(c + 3, !sees([&] { return platform::atomic_load<order::relaxed, scope::system>(read + 1); }));
    platform::atomic_store<order::relaxed, scope::device>(written, count_t(1));
    platform::atomic_store<order::relaxed, scope::system>(written + 1, count_t(1));
    wait_loads();
    raise(theirs + 9, 1);
    (void)await(9, 1);  // the end of this kernel would write the line back
  } else {
    if (!await(8, 1)) return;
    raise(there, 1);
    platform::atomic_store<order::relaxed, scope::system>(read + 1, count_t(1));
    wait_loads();
    raise(theirs + 8, 1);
    if (!await(9, 1)) return;
    add(c + 2, !sees([&] { return platform::atomic_load<order::relaxed, scope::system>(written); }));
    add(c + 4, !sees([&] { return platform::atomic_load<order::relaxed, scope::system>(written + 1); }));
    raise(theirs + 9, 1);
  }
}

}  // namespace

outcome uncached_through_ipc(context& c) {
  if (c.w.size() < 2) return {answer::skipped, "needs two ranks"};
  c.clear();
  if (c.w.rank() < 2) {
    look_through_mapping<<<dim3(1), dim3(64), 0, c.w.stream()>>>(c.view(), c.flags, c.counts);
    check_hip(hipGetLastError(), "kernel launch");
  }
  auto const all = c.gather();
  if (count_t const n = context::sum(all, 0)) return expired(n);
  auto const said = [&](int i) { return context::sum(all, i) ? "not seen" : "seen"; };
  bool const kept = context::sum(all, 1) + context::sum(all, 2) != 0,
             broken = context::sum(all, 3) + context::sum(all, 4) != 0;
  std::string const seen =
      text(c.w.in_one_process(0, 1) ? "mapped by peer access, within a process" : "mapped by an IPC handle",
           ": agent-scope store of the owner ", said(1), " by the peer, of the peer ", said(2),
           " by the owner; system scope ", said(3), " and ", said(4));
  return {broken ? answer::broken : kept ? answer::weak : answer::strong, seen};
}

}  // namespace litmus
