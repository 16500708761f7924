// Where memory instructions go: to global memory through the port; to LDS and scratch here, with their bounds checked.
#pragma once
#include "operands.hpp"

namespace fusewire::sim {

enum class segment { global, flat, scratch, buffer };

bool load_segment(wave&, op const&, segment, u64 mask, int bytes, destination const&);
bool store_segment(wave&, op const&, segment, u64 mask, int bytes, u32 const (*in)[lanes]);
bool atomic_segment(wave&, op const&, segment, rmw, u64 mask, int bytes, u32 const (*data)[lanes],
                    u32 const (*compare)[lanes], destination const& old);

/// LDS bytes [address, address + size), or null after a fault.
u8* lds_at(wave&, u64 address, u32 size);

/// One dword per enabled lane to LDS at base + 4 * lane, as loads to LDS do.
void store_lane_dwords(wave&, u32 base, u64 mask, u32 const* data);

/// What an atomic leaves in memory.
template <class T>
T combined(rmw, T old, T data, T compare);

}  // namespace fusewire::sim
