#pragma once
#include "op.hpp"

namespace fusewire::sim {

/// An LDS instruction. It takes effect now, or any time before the wave has waited for it.
void issue_lds(wave&, op const&);

/// A scalar load of `dwords` dwords into s[reg...]; the first `inside` of them exist, and the others are 0. Or a scalar
/// atomic, of one or two dwords.
struct scalar_access {
  u64 address = 0;
  u16 reg = 0;
  int dwords = 1, inside = 0;
  bool glc = false;  // a load bypasses the scalar cache, an atomic gives the old value
  bool atomic = false;
  rmw what{};
  u64 data = 0, compare = 0;
};
/// Takes effect now, or any time before the wave has waited for it.
void issue_scalar(wave&, scalar_access const&);

/// Waits until at most so many LDS operations and scalar loads of the wave are in flight.
void wait_lgkmcnt(wave&, int outstanding);

}  // namespace fusewire::sim
