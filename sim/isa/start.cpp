// The initial contents of a wave's registers. LLVM, "User guide for AMDGPU backend": initial kernel execution state.
#include <algorithm>
#include <cstring>

#include "program.hpp"

namespace fusewire::sim {
namespace {

constexpr u32 undefined = 0xcdcdcdcd;

enum property : u32 {
  private_segment_buffer = 1,
  dispatch_ptr = 2,
  queue_ptr = 4,
  kernarg_ptr = 8,
  dispatch_id = 16,
  flat_scratch_init = 32,
  private_segment_size = 64
};

void user_registers(wave& w, dispatch const& launch, kernel_descriptor const& d) {
  int next = 0;
  auto const push = [&](u64 value, int dwords) {
    for (int i = 0; i < dwords; ++i) w.s[next++] = i < 2 ? u32(value >> 32 * i) : 0;
  };
  if (d.properties & private_segment_buffer) push(0, 4);
  if (d.properties & dispatch_ptr) push(launch.dispatch_packet, 2);
  if (d.properties & queue_ptr) push(0, 2);
  if (d.properties & kernarg_ptr) push(reinterpret_cast<u64>(launch.kernarg.data()), 2);
  if (d.properties & dispatch_id) push(0, 2);
  if (d.properties & flat_scratch_init) push(0, 2);
  if (d.properties & private_segment_size) push(w.scratch_bytes, 1);
  for (int i = 0; i < d.preload_length(); ++i) {
    u64 const at = u64(d.preload_offset() + i) * 4;
    u32 value = 0;
    if (at + 4 <= launch.kernarg.size()) std::memcpy(&value, launch.kernarg.data() + at, 4);
    push(value, 1);
  }
}

void system_registers(wave& w, workgroup const& group, kernel_descriptor const& d) {
  int next = d.user_sgprs();
  for (int axis = 0; axis < 3; ++axis)
    if (d.rsrc2 >> (7 + axis) & 1) w.s[next++] = group.id[axis];
  if (d.rsrc2 >> 10 & 1) w.s[next++] = 0;
}

}  // namespace

void start(wave& w, dispatch const& launch, workgroup& group, u32 index_in_group) {
  kernel const& k = *launch.kernel;
  auto const descriptor = kernel_descriptor::of(k);
  w.scc = false;
  w.state = wave_state::running;
  w.pc = k.entry;
  // FLOAT_MODE, DX10_CLAMP, IEEE_MODE
  w.mode = (descriptor.rsrc1 >> 12 & 0xff) | (descriptor.rsrc1 >> 21 & 1) << 8 | (descriptor.rsrc1 >> 23 & 1) << 9;
  w.index = index_in_group;
  w.code = k.code;
  w.group = &group;
  w.executed = 0;
  w.faulted = false;
  w.late = nullptr;

  std::fill(std::begin(w.s), std::end(w.s), undefined);
  std::fill(&w.v[0][0], &w.v[0][0] + k.vgprs * lanes, undefined);
  std::fill(&w.v[256][0], &w.v[256][0] + k.agprs * lanes, undefined);
  user_registers(w, launch, descriptor);
  system_registers(w, group, descriptor);

  u32 const threads = launch.block[0] * launch.block[1] * launch.block[2], first = index_in_group * lanes;
  u32 const here = std::min<u32>(lanes, threads - first);
  u64 const exec = here == lanes ? ~u64(0) : (u64(1) << here) - 1;
  w.s[126] = u32(exec);
  w.s[127] = u32(exec >> 32);
  for (u32 l = 0; l < here; ++l) {
    u32 const t = first + l, x = t % launch.block[0], y = t / launch.block[0] % launch.block[1],
              z = t / launch.block[0] / launch.block[1];
    w.v[0][l] = x | y << 10 | z << 20;
  }
}

}  // namespace fusewire::sim
