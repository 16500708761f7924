// The issue of one instruction: when its unit, its registers and its waits allow it, what it then occupies, and for how
// long.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "machine/report.hpp"
#include "machine/timeline.hpp"

namespace fusewire::sim {
namespace {

u64 up(double x) { return static_cast<u64>(std::ceil(x)); }

port port_of(unit u) {
  switch (u) {
    case unit::vector:
    case unit::transcendental:
    case unit::quarter_rate:
    case unit::matrix: return port::vector;
    case unit::lds:
    case unit::crossing: return port::lds;
    case unit::vector_memory:
    case unit::flat_memory:
    case unit::cache_control: return port::memory;
    case unit::scalar_memory: return port::scalar_memory;
    case unit::branch:
    case unit::message:
    case unit::trace_data: return port::branch;
    case unit::scalar: return port::scalar;
    default: return port::count;  // waits, barriers, s_nop: no unit's
  }
}

/// Counts the turns of the banks that an LDS instruction takes. Lanes go in groups that the banks can serve at once;
/// within a group, a bank serves one address after the other.
void count_turns(bank_pattern& p, op_time const& o, u32 banks) {
  u32 const words = o.lds_bytes / 4, at_once = std::max(1u, banks / words);
  for (u32 second = 0; second < (o.lds_stride ? 2u : 1u); ++second) {
    u32 const offset = o.lds_stride ? (static_cast<u32>(o.imm) >> 8 * second & 255) * o.lds_bytes * o.lds_stride
                                    : static_cast<u32>(o.imm) & 0xffff;
    for (u32 from = 0; from < lanes; from += at_once) {
      u32 row[64][4];
      u8 used[64] = {};
      u32 most = 0;
      for (u32 l = from; l < std::min<u32>(from + at_once, lanes); ++l) {
        if (!(p.exec >> l & 1)) continue;
        for (u32 k = 0; k < words; ++k) {
          u32 const word = (p.address[l] + p.at + offset) / 4 + k, bank = word % banks,
                    have = std::min<u32>(used[bank], 4);
          // One word for several lanes
          if (!o.lds_atomic && std::find(row[bank], row[bank] + have, word) != row[bank] + have) continue;
          if (have < 4) row[bank][have] = word;
          most = std::max<u32>(most, ++used[bank]);
        }
      }
      p.turns += most, p.least += most != 0;
    }
  }
}

bank_pattern const& pattern_of(std::array<bank_pattern, 4>& known, wave const& w, op_time const& o, u32 banks) {
  u32 const* const address = w.v[o.address];
  u32 const first = address[0], at = first & 3;
  u64 const exec = w.exec();
  for (bank_pattern& p : known) {
    u32 different = (p.at ^ at) | static_cast<u32>(p.exec != exec);
    for (int l = 0; l < lanes; ++l) different |= (address[l] - first) ^ p.address[l];
    if (!different) return p;
  }
  std::rotate(known.begin(), known.end() - 1, known.end());
  bank_pattern& p = known[0] = {};
  p.exec = exec, p.at = at;
  for (int l = 0; l < lanes; ++l) p.address[l] = address[l] - first;
  p.address[0] = 0;
  // Lanes may lie before the first one. 65536 bytes further on, the banks are the same
  for (u32& a : p.address) a += 65536;
  count_turns(p, o, banks);
  for (u32& a : p.address) a -= 65536;
  return p;
}

}  // namespace

double timeline::matrix_cycles(op_time const& o) const {
  double const rate[] = {t_.matrix_half, t_.matrix_byte, t_.matrix_xf32, t_.matrix_f32, t_.matrix_f64};
  return std::max(8.0, o.products / rate[static_cast<std::size_t>(o.type)]);
}

/// The wave's next instruction waits until then, for this reason.
void timeline::wait(wave_clock& k, stall why, u64 until) {
  u64 const cycles = until - k.time;
  if (trace_ && k.of->index == 0)
    trace_->wait(k.cu->gpu, k.cu->cu, static_cast<resident_group const&>(*k.of->group).trace_place, why, k.time, until);
  k.profile->waited[static_cast<std::size_t>(why)] += cycles;
  k.hot->waited[k.of->pc] += cycles;
  k.time = until;
}

/// Whether the instruction has come from the instruction cache; if not, the wave waits.
bool timeline::fetched(compute_unit_clock& c, wave_clock& k, op_time const& o) {
  u64 const line = k.code_base + o.code_line;
  if (line == k.code_line) return true;
  k.code_line = line;
  if (c.shared->code.touch(line, false).hit) return true;
  wait(k, stall::fetch, k.time + static_cast<u64>(t_.fetch_miss));
  return false;
}

/// When the registers that it reads have their values.
u64 timeline::operands(wave_clock const& k, op_time const& o, u64 time) const {
  if (k.matrix_latest <= time) return time;
  for (int s = 0; s < 3; ++s)
    for (u32 r = 0; r < o.rows[s]; ++r) {
      u64 ready = k.ready[(o.source[s] + r) & 511];
      if (s == 2 && o.on == unit::matrix)
        ready -= std::min(ready, static_cast<u64>(t_.matrix_result - t_.matrix_forward));
      time = std::max(time, ready);
    }
  return time;
}

void timeline::issue(compute_unit_clock& c, wave_clock& k) {
  op_time const& o = k.times[k.of->pc];
  if (!fetched(c, k, o)) return;
  port const p = port_of(o.on);
  if (p != port::count && c.port_free[k.simd][static_cast<std::size_t>(p)] > k.time)
    return wait(k, p == port::vector ? stall::vector : stall::issue, c.port_free[k.simd][static_cast<std::size_t>(p)]);
  u64 start = k.time;
  stall why = stall::issue;
  auto const not_before = [&](u64 t, stall reason) {
    if (t > start) start = t, why = reason;
  };
  switch (o.on) {
    case unit::vector:
    case unit::transcendental:
    case unit::quarter_rate: not_before(operands(k, o, start), stall::matrix); break;
    case unit::matrix:
      not_before(operands(k, o, start), stall::matrix);
      not_before(c.matrix_free[k.simd], stall::matrix);
      break;
    case unit::lds:
    case unit::crossing:
      not_before(operands(k, o, start), stall::matrix);
      not_before(c.lds_free - std::min<u64>(c.lds_free, static_cast<u64>(t_.lds_queue)), stall::lds);
      not_before(k.lgkm_wait(14), stall::lds);
      break;
    case unit::vector_memory:
    case unit::flat_memory:
      not_before(operands(k, o, start), stall::matrix);
      not_before(up(c.path.pipe_free) - std::min<u64>(up(c.path.pipe_free), static_cast<u64>(t_.l1_queue)),
                 stall::memory);
      not_before(k.vm_wait(62), stall::memory);
      break;
    case unit::wait: {
      auto const field = static_cast<u32>(o.imm);
      u64 const there = k.vm_wait((field & 15) | (field >> 14 & 3) << 4);
      not_before(there, k.polls ? stall::flags : stall::memory);
      if (there > static_cast<u64>(memory_paths::lookahead))
        k.gate = std::max(k.gate, there - static_cast<u64>(memory_paths::lookahead));
      not_before(k.lgkm_wait(field >> 8 & 15), k.scalar_load ? stall::scalar_memory : stall::lds);
      break;
    }
    case unit::end: not_before(k.lgkm_latest, stall::lds); break;
    default: break;
  }
  if (start > k.time) return wait(k, why, start);
  execute_one(c, k, start);
}

void timeline::execute_one(compute_unit_clock& c, wave_clock& k, u64 time) {
  wave& w = *k.of;
  u32 const pc = w.pc;
  op_time const& o = k.times[pc];
  kernel_profile& profile = *k.profile;
  timed_memory& m = *memory_;
  port const p = port_of(o.on);
  auto const hold = [&](double cycles) {
    c.port_free[k.simd][static_cast<std::size_t>(p)] = time + static_cast<u64>(cycles);
  };
  if (p != port::count) hold(t_.issue);
  u32 turns = 2, least = 2;  // of the banks
  if (o.on == unit::lds) {
    auto& known = k.hot->banks[pc];
    if (!known) known = std::make_unique<std::array<bank_pattern, 4>>();
    bank_pattern const& p = pattern_of(*known, w, o, static_cast<u32>(t_.lds_bytes / 4));
    turns = std::max(1u, p.turns), least = std::max(1u, p.least);
  }
  m.issued_at = time, m.counted = 0, m.done_at = 0, m.scalar_done_at = 0;

  execute(w, 1);
  ++node_.stats.instructions, ++profile.instructions;
  ++k.hot->executed[pc];
  auto& g = static_cast<resident_group&>(*w.group);
  if (w.faulted) report_fault(g, w);

  u64 next = time + static_cast<u64>(t_.issue);
  switch (o.on) {
    case unit::vector: hold(t_.vector), profile.vector += static_cast<u64>(t_.vector); break;
    case unit::transcendental: hold(t_.transcendental), profile.vector += static_cast<u64>(t_.transcendental); break;
    case unit::quarter_rate: hold(t_.quarter_rate), profile.vector += static_cast<u64>(t_.quarter_rate); break;
    case unit::matrix: {
      u64 const cycles = static_cast<u64>(matrix_cycles(o));
      c.matrix_free[k.simd] = time + cycles;
      profile.matrix += cycles;
      u64 const ready = time + cycles + static_cast<u64>(t_.matrix_result);
      k.matrix_latest = std::max(k.matrix_latest, ready);
      for (u32 r = 0; r < o.result_rows; ++r) k.ready[(o.result + r) & 511] = ready;
      break;
    }
    case unit::lds:
    case unit::crossing: {
      u64 const begin = std::max(time, c.lds_free);
      c.lds_free = begin + turns;
      profile.lds += turns;
      profile.lds_conflicts += turns - least;
      k.scalar_load = false;
      k.lgkm_done_at(begin + turns + static_cast<u64>(t_.lds_latency));
      break;
    }
    case unit::scalar_memory:
      k.scalar_load = true, k.lgkm_done_at(std::max(m.scalar_done_at, time + static_cast<u64>(t_.scalar_hit)));
      break;
    case unit::nop: next = time + static_cast<u64>(t_.issue) * (1 + static_cast<u64>(o.imm & 15)); break;
    case unit::branch: next = time + static_cast<u64>(w.pc == pc + 1 ? t_.branch_not_taken : t_.branch_taken); break;
    case unit::cache_control:
      if (!m.counted) next = time + static_cast<u64>(t_.invalidate);
      break;
    case unit::trace_data:
      if (trace_ && w.index == 0) note_span(k, w.s[124], next);
      break;
    case unit::priority: k.priority = static_cast<u8>(o.imm & 3); break;
    default: break;
  }
  if (m.counted) {
    u64 const done = std::max(m.done_at, next);
    for (u32 i = 0; i < m.counted; ++i) k.vm_done_at(done);
    if (o.on == unit::flat_memory) k.lgkm_done_at(done);
    g.from->end = std::max(g.from->end, k.vm_latest);
  }
  k.time = k.since = next;
  switch (w.state) {
    case wave_state::running: break;
    case wave_state::sleeping: {
      w.state = wave_state::running;
      u64 const slept = static_cast<u64>(t_.sleep_unit) * static_cast<u64>(o.imm & 127);
      profile.waited[static_cast<std::size_t>(stall::flags)] += slept;
      k.hot->waited[pc] += slept;
      k.time = k.since = next + slept;
      break;
    }
    case wave_state::at_barrier:
      k.parked = true;
      ++g.at_barrier;
      g.barrier_time = std::max(g.barrier_time, next);
      release_barrier(c, g);
      break;
    case wave_state::ended: wave_ended(c, k); break;
  }
}

/// Notes a span that a kernel marks (fusewire::trace_span): the address of its name, or 0 at its end, comes in two
/// words.
void timeline::note_span(wave_clock& k, u32 word, u64 time) {
  marked_spans& s = marked_[&k];
  if (!std::exchange(s.has_low, !s.has_low)) {
    s.low = word;
    return;
  }
  u64 const at = s.low | u64{word} << 32;
  auto const& g = static_cast<resident_group const&>(*k.of->group);
  if (at) {
    s.open.push_back({text_at(at), time});
  } else if (!s.open.empty()) {
    trace_->span_of(k.cu->gpu, k.cu->cu, g.trace_place, s.open.back().name, s.open.back().begin, time);
    s.open.pop_back();
  }
}

/// A string in memory that the machine knows.
std::string timeline::text_at(u64 address) const {
  constexpr u64 longest = 200;
  allocation const* const a = node_.memory.find(address);
  if (!a || !a->live) return "a span whose name is nowhere";
  auto const* const text = reinterpret_cast<char const*>(address);
  return {text, strnlen(text, std::min(longest, a->end() - address))};
}

void timeline::release_barrier(compute_unit_clock&, resident_group& g) {
  if (!g.at_barrier || g.at_barrier < g.running) return;
  u64 const go = g.barrier_time + static_cast<u64>(t_.barrier);
  scheduler_.check_barrier(g);
  for (wave* w : g.waves) {
    if (w->state != wave_state::running) continue;
    wave_clock& k = *w->pending->clock;
    k.profile->waited[static_cast<std::size_t>(stall::barrier)] += go - k.time;
    k.hot->waited[w->pc - 1] += go - k.time;
    if (trace_ && w->index == 0) trace_->wait(k.cu->gpu, k.cu->cu, g.trace_place, stall::barrier, k.time, go);
    k.time = k.since = go;
    k.parked = false;
  }
  g.barrier_time = 0;
  released_ = true;
}

void timeline::wave_ended(compute_unit_clock& c, wave_clock& k) {
  auto& g = static_cast<resident_group&>(*k.of->group);
  k.parked = true;
  marked_.erase(&k);
  k.profile->wave_cycles += k.time - k.began;
  g.end_time = std::max(g.end_time, k.time);
  --g.running, --scheduler_.live_waves_;
  ++node_.changes;
  if (g.running) return release_barrier(c, g);
  notice& n = note(timed_event::kind::group_end);
  n.group = &g;
  events_.put(n, g.end_time);
}

}  // namespace fusewire::sim
