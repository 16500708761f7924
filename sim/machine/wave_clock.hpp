#pragma once
#include <memory>
#include <vector>

#include "machine/paths.hpp"
#include "op_time.hpp"

namespace fusewire::sim {

struct compute_unit_clock;

/// Caches that two CUs share: the code that they hold, in lines of 128 bytes, and the scalar data, in lines of 64.
struct shared_caches {
  tag_array<64, 8> code;
  tag_array<32, 8> scalar;
};

/// What the clock keeps about one wave: when it can go on, and its scoreboard.
struct wave_clock {
  // In one line of the host's cache: what the choice of the next wave looks at
  alignas(64) u64 time = 0;  // of its next instruction
  u64 since = 0;             // when it first wanted to issue it
  u64 gate = 0;              // it has waited for what takes effect by then
  op_time const* times = nullptr;
  wave* of = nullptr;
  compute_unit_clock* cu = nullptr;
  u64 matrix_latest = 0;  // no result of a matrix product comes after this
  u8 simd = 0, priority = 0;
  bool parked = false;       // at a barrier, or ended
  bool scalar_load = false;  // the latest of what lgkmcnt counts is one
  bool polls = false;        // its latest load was of memory that others write during the kernel
  kernel_profile* profile = nullptr;
  hot_spots* hot = nullptr;
  u64 code_base = 0, code_line = ~u64{0};  // in lines of 128 bytes
  u64 began = 0;

  // Operations that vmcnt counts complete in the order of issue. So do those that lgkmcnt counts, as far as programs
  // rely on it.
  u64 vm[64] = {}, lgkm[16] = {};
  u32 vm_issued = 0, lgkm_issued = 0;
  u64 vm_latest = 0, lgkm_latest = 0;
  double last_effect = 0;  // values come to registers in the order of issue
  void vm_done_at(u64 t) { vm_latest = std::max(vm_latest, t), vm[vm_issued++ % 64] = vm_latest; }
  void lgkm_done_at(u64 t) { lgkm_latest = std::max(lgkm_latest, t), lgkm[lgkm_issued++ % 16] = lgkm_latest; }
  u64 vm_wait(u32 left) const { return left >= 63 || vm_issued <= left ? 0 : vm[(vm_issued - left - 1) % 64]; }
  u64 lgkm_wait(u32 left) const { return left >= 15 || lgkm_issued <= left ? 0 : lgkm[(lgkm_issued - left - 1) % 16]; }

  u64 ready[512] = {};  // registers that one writes: when anything but an accumulation may read them
};

/// Units that issue one instruction each in a SIMD's turn.
enum class port : u8 { vector, scalar, lds, memory, scalar_memory, branch, count };

/// A CU, its waves, and when its units are next free. Its waves run in the exact order of their times.
struct compute_unit_clock {
  int gpu = 0, xcd = 0, cu = 0;
  std::vector<wave_clock*> waves;
  cu_path path;
  shared_caches* shared = nullptr;
  u64 port_free[4][static_cast<std::size_t>(port::count)] = {};
  u64 matrix_free[4] = {};
  u64 lds_free = 0;
  u64 wake_at = ~u64{0};  // the event that counts
  u32 trace_places = 0;   // with a trace: which are taken
};

inline cu_path& cu_path_of(wave_clock& k) { return k.cu->path; }
inline bool scalar_hit(wave_clock& k, u64 line) { return k.cu->shared->scalar.touch(line, false).hit; }

}  // namespace fusewire::sim
