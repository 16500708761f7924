// Branches, waits, barriers, hardware registers, scalar memory: CDNA3 ISA, chapters 4 "Program flow control" and 7
// "Scalar memory".
#include "late.hpp"
#include "operands.hpp"
#include "program.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

constexpr semantics nothing = {.run = [](wave&, op const&) {}, .destinations = 0};

void branch(wave& w, op const& o) {
  if (o.target == no_op) fault(w, "branch leaves the code");
  else w.pc = o.target;
}
template <auto Condition>
inline constexpr semantics branch_if = {.run = [](wave& w, op const& o) {
  if (Condition(w)) branch(w, o);
}};

void jump(wave& w, u64 address) {
  decoded_code const& code = *w.code->text;
  u64 const offset = address - w.code->base;
  u32 const index = offset < u64(4) * code.op_at.size() ? code.index_of(u32(offset)) : no_op;
  if (index == no_op) fault(w, "jump to " + hex(address) + ", where no instruction begins");
  else w.pc = index;
}
u64 next_address(wave const& w, op const& o) { return w.code->base + o.offset + o.size; }

void wait(wave& w, op const& o) {
  u32 const field = u32(o.imm);
  int const outstanding = int((field & 15) | (field >> 14 & 3) << 4);
  if (outstanding < 63) w.memory->wait_vmcnt(w, outstanding);
  if (int const lgkm = int(field >> 8 & 15); lgkm < 15) wait_lgkmcnt(w, lgkm);
}

void end(wave& w, op const&) {
  wait_lgkmcnt(w, 0);
  w.state = wave_state::ended;
}

// -------------------------------------------------------------------------------------------------- hardware registers

enum hardware_register : u32 {
  mode = 1,
  status = 2,
  hw_id = 4,
  gpr_alloc = 5,
  lds_alloc = 6,
  shared_bases = 15,
  xcc_id = 20
};

struct register_field {
  u32 id, offset, width;
  explicit register_field(i32 simm16) : id(simm16 & 63), offset(simm16 >> 6 & 31), width((simm16 >> 11 & 31) + 1) {}
  u32 mask() const { return width == 32 ? ~u32(0) : (u32(1) << width) - 1; }
};

u32 read_register(wave const& w, u32 id) {
  workgroup const& g = *w.group;
  switch (id) {
    case mode: return w.mode;
    case status: return u32(w.scc) | u32(w.exec() == 0) << 9 | u32(w.vcc() == 0) << 10 | 1u << 16;
    // WAVE_ID, SIMD_ID, CU_ID, SE_ID
    case hw_id: return (w.index / 4 & 15) | (w.index & 3) << 4 | u32(g.cu & 15) << 8 | u32(g.cu >> 4 & 7) << 13;
    case lds_alloc: return u32((g.lds.size() + 511) / 512) << 12;
    case shared_bases: return u32(shared_aperture >> 48) << 16 | u32(private_aperture >> 48);
    case xcc_id: return u32(g.xcd);
  }
  return 0;
}

void get_register(wave& w, op const& o) {
  register_field const f(o.imm);
  w.s[o.arg[0].reg] = read_register(w, f.id) >> f.offset & f.mask();
}
void set_register(wave& w, op const& o, u32 value) {
  register_field const f(o.imm);
  if (f.id == mode) w.mode = (w.mode & ~(f.mask() << f.offset)) | (value & f.mask()) << f.offset;
}

// ------------------------------------------------------------------------------------------------------- scalar memory

u64 scalar_address(wave const& w, op const& o) {
  u64 address = read_scalar64(w, o.arg[1]) + u64(i64(o.imm));
  if (o.arg[2].kind == source::sgpr) address += w.s[o.arg[2].reg];
  return address & ~u64(3);
}

template <int Dwords>
void scalar_load(wave& w, op const& o) {
  issue_scalar(
      w, {.address = scalar_address(w, o), .reg = o.arg[0].reg, .dwords = Dwords, .inside = Dwords, .glc = o.returns});
}

/// Dword after dword, as exchanges whose old values are not used.
template <int Dwords>
void scalar_store(wave& w, op const& o) {
  u64 const address = scalar_address(w, o);
  for (int d = 0; d < Dwords; ++d)
    issue_scalar(w,
                 {.address = address + 4 * u64(d), .atomic = true, .what = rmw::swap, .data = w.s[o.arg[0].reg + d]});
}

template <rmw What, int Dwords>
void scalar_atomic(wave& w, op const& o) {
  auto const value = [&](int first) {
    return w.s[o.arg[0].reg + first] | (Dwords == 2 ? u64(w.s[o.arg[0].reg + first + 1]) << 32 : 0);
  };
  issue_scalar(w, {.address = scalar_address(w, o),
                   .reg = o.arg[0].reg,
                   .dwords = Dwords,
                   .glc = o.returns,
                   .atomic = true,
                   .what = What,
                   .data = value(0),
                   .compare = What == rmw::cmpswap ? value(Dwords) : 0});
}
template <rmw What>
void add_scalar_atomic(registry& r, std::string const& name) {
  r.add("s_atomic_" + name, {.run = scalar_atomic<What, 1>});
  r.add("s_atomic_" + name + "_x2", {.run = scalar_atomic<What, 2>});
}

/// Beyond num_records reads 0.
template <int Dwords>
void scalar_buffer_load(wave& w, op const& o) {
  u32 const* const resource = &w.s[o.arg[1].reg];
  u64 const base = (resource[0] | u64(resource[1]) << 32) & 0xffffffffffff, stride = resource[1] >> 16 & 0x3fff;
  u64 const size = stride ? stride * resource[2] : resource[2];
  u64 const offset = (u64(i64(o.imm)) + (o.arg[2].kind == source::sgpr ? w.s[o.arg[2].reg] : 0)) & ~u64(3);
  int const inside = offset >= size ? 0 : int(std::min<u64>(Dwords, (size - offset) / 4));
  issue_scalar(w,
               {.address = base + offset, .reg = o.arg[0].reg, .dwords = Dwords, .inside = inside, .glc = o.returns});
}

}  // namespace

void add_control(registry& r) {
  for (auto name : {"s_nop", "s_setprio", "s_sendmsg", "s_sendmsghalt", "s_icache_inv", "s_incperflevel",
                    "s_decperflevel", "s_ttracedata", "s_dcache_wb", "s_dcache_wb_vol", "s_wakeup", "s_sethalt",
                    "s_code_end", "v_nop", "ds_nop", "buffer_wbinvl1", "buffer_wbinvl1_vol", "v_clrexcp"})
    r.add(name, nothing);
  add_scalar_atomic<rmw::swap>(r, "swap");
  add_scalar_atomic<rmw::cmpswap>(r, "cmpswap");
  add_scalar_atomic<rmw::add>(r, "add");
  add_scalar_atomic<rmw::sub>(r, "sub");
  add_scalar_atomic<rmw::smin>(r, "smin");
  add_scalar_atomic<rmw::umin>(r, "umin");
  add_scalar_atomic<rmw::smax>(r, "smax");
  add_scalar_atomic<rmw::umax>(r, "umax");
  add_scalar_atomic<rmw::and_>(r, "and");
  add_scalar_atomic<rmw::or_>(r, "or");
  add_scalar_atomic<rmw::xor_>(r, "xor");
  add_scalar_atomic<rmw::inc>(r, "inc");
  add_scalar_atomic<rmw::dec>(r, "dec");
  r.add({
      {"s_branch", branch_if<[](wave const&) { return true; }>},
      {"s_cbranch_scc0", branch_if<[](wave const& w) { return !w.scc; }>},
      {"s_cbranch_scc1", branch_if<[](wave const& w) { return w.scc; }>},
      {"s_cbranch_vccz", branch_if<[](wave const& w) { return w.vcc() == 0; }>},
      {"s_cbranch_vccnz", branch_if<[](wave const& w) { return w.vcc() != 0; }>},
      {"s_cbranch_execz", branch_if<[](wave const& w) { return w.exec() == 0; }>},
      {"s_cbranch_execnz", branch_if<[](wave const& w) { return w.exec() != 0; }>},
      {"s_getpc_b64", {.run = [](wave& w, op const& o) { write_scalar64(w, o.arg[0], next_address(w, o)); }}},
      {"s_setpc_b64", {.run = [](wave& w, op const& o) { jump(w, read_scalar64(w, o.arg[1])); }}},
      {"s_swappc_b64",
       {.run =
            [](wave& w, op const& o) {
              u64 const to = read_scalar64(w, o.arg[1]);
              write_scalar64(w, o.arg[0], next_address(w, o));
              jump(w, to);
            }}},
      {"s_call_b64",
       {.run =
            [](wave& w, op const& o) {
              write_scalar64(w, o.arg[0], next_address(w, o));
              branch(w, o);
            }}},
      {"s_waitcnt", {.run = wait}},
      {"s_barrier", {.run = [](wave& w, op const&) { w.state = wave_state::at_barrier; }}},
      {"s_sleep", {.run = [](wave& w, op const&) { w.state = wave_state::sleeping; }}},
      {"s_endpgm", {.run = end}},
      {"s_endpgm_saved", {.run = end}},
      {"s_trap",
       {.run =
            [](wave& w, op const& o) {
              fault(w, "s_trap " + std::to_string(o.imm) + (o.imm == 2 ? " (abort, assert or __builtin_trap)" : ""));
            }}},
      {"s_getreg_b32", {.run = get_register}},
      {"s_setreg_b32", {.run = [](wave& w, op const& o) { set_register(w, o, w.s[o.arg[0].reg]); }}},
      {"s_setreg_imm32_b32", {.run = [](wave& w, op const& o) { set_register(w, o, o.arg[1].word); }}},
      {"s_set_gpr_idx_on",
       {.run =
            [](wave& w, op const& o) {
              w.mode |= 1u << 27;
              // Source 1 is an immediate
              w.s[124] = (w.s[124] & ~0xf0ffu) | (read_scalar32(w, o.arg[0]) & 255) | u32(o.arg[1].reg & 15) << 12;
            }}},
      {"s_set_gpr_idx_off", {.run = [](wave& w, op const&) { w.mode &= ~(1u << 27); }}},
      {"s_set_gpr_idx_idx",
       {.run = [](wave& w, op const& o) { w.s[124] = (w.s[124] & ~0xffu) | (read_scalar32(w, o.arg[1]) & 255); }}},
      {"s_set_gpr_idx_mode",
       {.run = [](wave& w, op const& o) { w.s[124] = (w.s[124] & ~0xf000u) | u32(o.imm & 15) << 12; }}},
      {"s_dcache_inv", {.run = [](wave& w, op const&) { w.memory->invalidate_scalars(w); }}},
      {"s_dcache_inv_vol", {.run = [](wave& w, op const&) { w.memory->invalidate_scalars(w); }}},
      {"s_memtime", {.run = [](wave& w, op const& o) { write_scalar64(w, o.arg[0], w.memory->clock(w)); }}},
      {"s_memrealtime", {.run = [](wave& w, op const& o) { write_scalar64(w, o.arg[0], w.memory->real_time(w)); }}},
      {"buffer_wbl2", {.run = [](wave& w, op const& o) { w.memory->writeback(w, o.cache); }}},
      {"buffer_inv", {.run = [](wave& w, op const& o) { w.memory->invalidate(w, o.cache); }}},
      {"s_setvskip",
       {.run =
            [](wave& w, op const& o) {
              bool const on = read_scalar32(w, o.arg[0]) >> (read_scalar32(w, o.arg[1]) & 31) & 1;
              w.mode = (w.mode & ~skip_vector) | (on ? skip_vector : 0);
            }}},
      {"s_store_dword", {.run = scalar_store<1>}},
      {"s_store_dwordx2", {.run = scalar_store<2>}},
      {"s_store_dwordx4", {.run = scalar_store<4>}},
      {"s_load_dword", {.run = scalar_load<1>}},
      {"s_load_dwordx2", {.run = scalar_load<2>}},
      {"s_load_dwordx4", {.run = scalar_load<4>}},
      {"s_load_dwordx8", {.run = scalar_load<8>}},
      {"s_load_dwordx16", {.run = scalar_load<16>}},
      {"s_buffer_load_dword", {.run = scalar_buffer_load<1>}},
      {"s_buffer_load_dwordx2", {.run = scalar_buffer_load<2>}},
      {"s_buffer_load_dwordx4", {.run = scalar_buffer_load<4>}},
      {"s_buffer_load_dwordx8", {.run = scalar_buffer_load<8>}},
      {"s_buffer_load_dwordx16", {.run = scalar_buffer_load<16>}},
  });
}

}  // namespace fusewire::sim
