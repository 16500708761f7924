// LDS operations and scalar loads that have been issued and have not taken effect, because their wave has not waited
// for them (lgkmcnt). LLVM's AMDGPU user guide, "Memory Model GFX942": LDS operations of one wave keep their order,
// those of different waves do not. CDNA3 ISA, "Manually inserted wait states": scalar loads return in any order.
#include "late.hpp"

#include <algorithm>
#include <utility>

#include "operands.hpp"

namespace fusewire::sim {
namespace {

constexpr std::size_t most_in_flight = 15;  // lgkmcnt has 4 bits

/// Registers that an LDS instruction reads, each once: address, first and second data.
struct sources {
  u16 reg[9];
  int count = 0;

  void add(operand const& p, int rows) {
    if (!p.is_vgpr()) return;
    for (int r = p.reg; r < std::min(p.reg + rows, 512); ++r)
      if (std::find(reg, reg + count, r) == reg + count) reg[count++] = u16(r);
  }
  explicit sources(op const& o) {
    add(o.arg[1], 1);
    add(o.arg[2], 4);
    add(o.arg[3], 4);
  }
};

/// Whether the result can replace a register that the instruction reads.
bool replaces_a_source(op const& o) {
  sources const from(o);
  return o.returns &&
         std::any_of(from.reg, from.reg + from.count, [&](u16 r) { return r >= o.arg[0].reg && r < o.arg[0].reg + 4; });
}

}  // namespace

struct late_lds {
  op const* what;
  u32 pc, m0;
  u64 exec;
  row saved[9];
};
struct late_queue {
  std::vector<std::unique_ptr<late_lds>> lds, spare;
  std::vector<scalar_access> scalar;
};

namespace {

void exchange(wave& w, late_lds& l, sources const& from) {
  for (int i = 0; i < from.count; ++i) std::swap_ranges(w.v[from.reg[i]], w.v[from.reg[i]] + lanes, l.saved[i].lane);
  std::swap(w.s[124], l.m0);
  u64 const exec = w.exec();
  set_exec(w, l.exec);
  l.exec = exec;
}

void perform_lds(wave& w) {
  late_queue& q = *w.late;
  auto l = std::move(q.lds.front());
  q.lds.erase(q.lds.begin());
  sources const from(*l->what);
  u32 const pc = std::exchange(w.pc, l->pc);
  exchange(w, *l, from);
  l->what->effect(w, *l->what);
  exchange(w, *l, from);
  if (!w.faulted) w.pc = pc;
  q.spare.push_back(std::move(l));
}

void put_scalar(wave& w, destination const& to, u64, u32 const (*data)[lanes]) {
  for (int d = 0; d < to.dwords; ++d) w.s[to.reg + d] = data[d][0];
}

void perform(wave& w, scalar_access const& a) {
  if (a.atomic) {
    destination const old{a.glc ? put_scalar : nullptr, a.reg, u8(a.dwords)};
    w.memory->scalar_atomic(w, a.what, a.address, 4 * a.dwords, a.data, a.compare, old);
    return;
  }
  u32 data[16] = {};
  if (a.inside == 0 || w.memory->scalar_load(w, a.address, 4 * a.inside, a.glc, data))
    std::copy_n(data, a.dwords, &w.s[a.reg]);
}

void perform_scalar(wave& w, std::size_t i) {
  scalar_access const a = w.late->scalar[i];
  w.late->scalar.erase(w.late->scalar.begin() + std::ptrdiff_t(i));
  perform(w, a);
}

bool later(wave& w) {
  if (!w.memory->late(w)) return false;
  if (!w.late) w.late = new late_queue;
  return true;
}

}  // namespace

void issue_lds(wave& w, op const& o) {
  bool const follows = w.late && !w.late->lds.empty();
  if (follows && (replaces_a_source(o) || w.late->lds.size() >= most_in_flight)) wait_lgkmcnt(w, 0);
  if (replaces_a_source(o) || !(later(w) || (w.late && !w.late->lds.empty()))) return o.effect(w, o);
  late_queue& q = *w.late;
  if (q.spare.empty()) q.spare.push_back(std::make_unique<late_lds>());
  auto l = std::move(q.spare.back());
  q.spare.pop_back();
  sources const from(o);
  l->what = &o, l->pc = w.pc - 1, l->m0 = w.s[124], l->exec = w.exec();
  for (int i = 0; i < from.count; ++i) std::copy_n(w.v[from.reg[i]], lanes, l->saved[i].lane);
  q.lds.push_back(std::move(l));
}

void issue_scalar(wave& w, scalar_access const& a) {
  if (!later(w)) return perform(w, a);
  if (w.late->scalar.size() >= most_in_flight) perform_scalar(w, 0);
  w.late->scalar.push_back(a);
}

void wait_lgkmcnt(wave& w, int outstanding) {
  if (!w.late) return;
  auto const most = std::size_t(outstanding);
  while (w.late->lds.size() > most && !w.faulted) perform_lds(w);
  while (w.late->lds.size() + w.late->scalar.size() > most && !w.late->scalar.empty() && !w.faulted)
    perform_scalar(w, w.late->scalar.size() - 1);
}

void let_one_arrive(wave& w) {
  if (!w.late || w.faulted) return;
  if (!w.late->lds.empty()) perform_lds(w);
  else if (!w.late->scalar.empty()) perform_scalar(w, 0);
}
bool waits_for_lds(wave const& w) { return w.late && (!w.late->lds.empty() || !w.late->scalar.empty()); }

void forget(wave& w) {
  delete w.late;
  w.late = nullptr;
}

}  // namespace fusewire::sim
