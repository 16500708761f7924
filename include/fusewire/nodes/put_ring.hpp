// How a kernel asks its host for a put: a ring of descriptors in host memory, which a thread of the host reads.
//
//   kernel   every wave drains | group syncs | leader: ticket = head + 1 | wait until `done` leaves room
//            | words | release, system | number --> ring
//   thread   number --> engine.put(); its source may be written again, in the order of tickets --> done
//
// One release publishes the bytes and the descriptor. `done` is a flag, so a full ring is an ordinary bounded wait with
// an ordinary report.
// Why it does not deadlock. The lowest ticket that is taken and not written has room as soon as the tickets before it
// are done. These are written, and the thread waits for no kernel. All blocks of a launch are resident, so the one that
// has the ticket runs.
#pragma once
#include <fusewire/device/flag.hpp>

namespace fusewire {

/// What the thread reads. The words are stored one by one, `number` last.
struct alignas(64) put_descriptor {
  /// The peer, and its regions of the bytes and of the flag: 16 bits each
  std::uint64_t where = 0;
  /// An address of this rank; 0: the flag alone
  std::uint64_t from = 0;
  /// Bytes from the start of the region
  std::uint64_t to = 0;
  /// Bytes to put
  std::uint64_t bytes = 0;
  /// Bytes from the start of the flag's region
  std::uint64_t flag = 0;
  /// What the flag becomes
  std::uint64_t value = 0;
  /// Not used
  std::uint64_t spare = 0;
  /// 1 + the ticket
  std::uint64_t number = 0;

  /// The word `where`.
  __host__ __device__ static constexpr std::uint64_t where_of(int peer, int region, int flag_region) {
    return std::uint64_t(peer) | std::uint64_t(region) << 16 | std::uint64_t(flag_region) << 32;
  }
};

/// In reports of waits, what numbers of ranks of all nodes begin with; lower ones are ranks of this node.
inline constexpr int first_of_all_nodes = max_ranks;

/// A rank's ring as its kernels see it.
struct put_ring_view {
  put_descriptor* descriptors = nullptr;  // host memory
  int size = 0;                           // of the ring
  unsigned long long* head = nullptr;     // tickets taken; memory of the device
  flag const* done = nullptr;             // puts that have left, in the order of tickets; host memory

  /// Waits until every put for which a ticket was taken so far has left. False: the wait timed out.
  /// Called by: one thread.
  [[nodiscard]] __device__ __forceinline__ bool wait_left(world_view const& w) const {
    return wait_done(w, platform::atomic_load<order::relaxed, scope::device>(head));
  }
  /// Publishes what the group has stored so far, and asks for the put; d.number counts for nothing.
  /// Called by: every thread of the group. Order: release, system: the thread finds it, and so does whoever finds the
  /// flag. Fails: as wait(), and the put is not made.
  template <group Group>
  __device__ __forceinline__ void put(Group g, world_view const& w, put_descriptor const& d) const {
    platform::drain_stores();
    g.sync();
    if (!g.leader()) return;
    auto const ticket = platform::atomic_fetch_add<order::relaxed, scope::device>(head, 1ull);
    if (ticket >= unsigned(size) && !wait_done(w, ticket + 1 - unsigned(size))) return;
    put_descriptor* const p = descriptors + ticket % unsigned(size);
    store(&p->where, d.where), store(&p->from, d.from), store(&p->to, d.to);
    store(&p->bytes, d.bytes), store(&p->flag, d.flag), store(&p->value, d.value);
    platform::fence<order::release, scope::system>();
    store(&p->number, std::uint64_t(ticket + 1));
  }

 private:
  __device__ __forceinline__ bool wait_done(world_view const& w, unsigned long long tickets) const {
    bool const left = detail::spin<until::at_least>(w, done, tickets, -1);
    platform::acquire_polled<scope::system>(&done->value);
    return left;
  }
};

}  // namespace fusewire
