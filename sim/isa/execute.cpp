#include <immintrin.h>

#include "operands.hpp"
#include "program.hpp"

namespace fusewire::sim {
namespace {

// MODE: round f32, round f16/f64, denormals f32, denormals f16/f64 (2 bits each) ... GPR_IDX_EN
constexpr u32 float_mode = 0xff, default_float_mode = 0xf0, index_enable = u32(1) << 27;

bool plain(u32 mode) { return (mode & (float_mode | index_enable | skip_vector)) == default_float_mode; }
bool stopped(wave const& w) { return w.state != wave_state::running || w.faulted; }

u64 run_plain(wave& w, op const* ops, u64 budget) {
  u64 done = 0;
  while (done < budget) {
    u32 const at = w.pc;
    op const& o = ops[at];
    w.pc = at + 1;
    o.run(w, o);
    ++done;
    if (stopped(w) || !plain(w.mode)) [[unlikely]] {
      if (w.faulted) w.pc = at;
      break;
    }
  }
  return done;
}

/// The host's rounding and denormal handling as MODE wants it for one kind of instruction.
u32 control_word(u32 host, u32 mode, arithmetic math) {
  if (math == arithmetic::none) return host;
  int const field = math == arithmetic::f32 ? 0 : 2;
  static constexpr u32 rounding[] = {_MM_ROUND_NEAREST, _MM_ROUND_UP, _MM_ROUND_DOWN, _MM_ROUND_TOWARD_ZERO};
  u32 const denormals = mode >> (4 + field) & 3;
  u32 word = (host & ~u32(_MM_ROUND_MASK)) | rounding[mode >> field & 3];
  if (!(denormals & 1)) word |= 0x40;    // sources
  if (!(denormals & 2)) word |= 0x8000;  // results
  return word;
}

/// Between s_set_gpr_idx_on and off, M0 is added to the VGPR numbers that its bits 15:12 choose: source 0, 1, 2,
/// destination.
op indexed(op o, u32 m0) {
  u32 const index = m0 & 255, which = m0 >> 12;
  for (int i = 0; i < 5; ++i) {
    bool const destination = i < o.destinations;
    if (o.arg[i].is_vgpr() && which >> (destination ? 3 : i - o.destinations) & 1) o.arg[i].reg += u16(index);
  }
  return o;
}

u64 run_in_mode(wave& w, op const* ops, u64 budget) {
  u32 const host = _mm_getcsr();
  u64 done = 0;
  while (done < budget && !stopped(w) && !plain(w.mode)) {
    u32 const at = w.pc;
    op const& o = ops[at];
    w.pc = at + 1;
    _mm_setcsr(control_word(host, w.mode, o.math));
    if (w.mode & skip_vector && o.vector) {
      ++done;
      continue;
    }
    if (w.mode & index_enable && o.vector_alu) o.run(w, indexed(o, w.s[124]));
    else o.run(w, o);
    ++done;
    if (w.faulted) w.pc = at;
  }
  _mm_setcsr(host);
  return done;
}

}  // namespace

u64 execute(wave& w, u64 budget) {
  op const* const ops = w.code->text->ops.data();
  u64 done = 0;
  while (done < budget && !stopped(w))
    done += plain(w.mode) ? run_plain(w, ops, budget - done) : run_in_mode(w, ops, budget - done);
  w.executed += done;
  return done;
}

void fault(wave& w, std::string what) {
  if (w.faulted) return;
  w.faulted = true;
  if (w.fault_text) *w.fault_text = std::move(what);
}

}  // namespace fusewire::sim
