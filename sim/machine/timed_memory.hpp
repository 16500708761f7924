#pragma once
#include "machine/event_wheel.hpp"
#include "machine/memory.hpp"
#include "machine/paths.hpp"

namespace fusewire::sim {

/// An access that has been issued, and takes effect at its time.
struct timed_operation : timed_event {
  timed_operation() : timed_event(kind::operation) {}
  memory_request::kind access = memory_request::kind::read;
  wave* by = nullptr;
  wave_memory* memory = nullptr;
  u64 serial = 0;  // of the wave: it may have ended since
  u32 pc = 0;
  cache_bits bits;
  rmw update{};
  int bytes = 0;
  destination to;
  u64 mask = 0;
  u64 address[lanes];
  alignas(64) u32 data[4][lanes], compare[2][lanes];
};

/// Memory under the clock. An access takes effect when it arrives where it is served: loads take their value, stores
/// and atomics act. Until then no other wave sees it. memory_paths gives the times between issue and effect, and
/// between effect and the end of the wait for it. Caches cost time here and hide nothing: weak_memory finds a program
/// that forgets a release or an acquire, this class does not.
class timed_memory final : public node_memory {
 public:
  timed_memory(node&, timing const&, event_wheel&);
  void issue(wave&) override;
  bool load(wave&, cache_bits, u64 mask, u64 const* address, int bytes, destination const&) override;
  bool store(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) override;
  bool atomic(wave&, cache_bits, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
              u32 const (*compare)[lanes], destination const& old) override;
  bool scalar_load(wave&, u64 address, int bytes, bool fresh, u32* out) override;
  void writeback(wave&, cache_bits) override;
  void invalidate(wave&, cache_bits) override;
  void wait_vmcnt(wave&, int) override {}
  u64 clock(wave&) override;
  u64 real_time(wave&) override;

  void perform(timed_operation&);
  void announce(timed_operation const&) const;  // perform() comes soon: the host may fetch what it will need

  memory_paths paths;
  // For the instruction in execution: when it was issued, how many operations vmcnt counts for it, when all of these
  // are done, and when a scalar load is.
  u64 issued_at = 0;
  u32 counted = 0;
  u64 done_at = 0, scalar_done_at = 0;
  u64 jumped = 0;  // cycles by which waves see time further ahead than it is

 protected:
  bool act(wave&, cache_bits, u32 pc, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
           u32 const (*compare)[lanes], destination const& old) override;

 private:
  timed_operation& begin(wave&, memory_request::kind, cache_bits, u64 mask, u64 const* address, int bytes);
  bool collect(wave&, access, u64 mask, u64 const* address, int bytes);
  void send(wave&, timed_operation&, bool ordered);
  void tell_outside(timed_operation const&) const;

  timing const& t_;
  event_wheel& events_;
  memory_request request_;
  std::vector<std::unique_ptr<timed_operation>> all_;
  std::vector<timed_operation*> spare_;
};

}  // namespace fusewire::sim
