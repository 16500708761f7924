#include "op_time.hpp"

#include <cstdio>

#include "program.hpp"

namespace fusewire::sim {
namespace {

/// "v_mfma_f32_32x32x4_2b_bf16": 32 * 32 * 4 * 2 multiply-adds of halves.
void matrix_shape(std::string const& name, op_time& t) {
  u32 m = 16, n = 16, k = 16, blocks = 1;
  std::string const shape = name.substr(name.find('_', 7) + 1);
  if (std::sscanf(shape.c_str(), "%ux%ux%u_%ub", &m, &n, &k, &blocks) < 4) blocks = 1;
  auto const ends = [&](char const* type) { return name.ends_with(type); };
  t.type = ends("fp8") || ends("bf8") || (ends("_i8") && k * blocks * m > 256) ? matrix_type::byte
           : ends("xf32")                                                      ? matrix_type::xf32
           : ends("_f32")                                                      ? matrix_type::f32
           : ends("_f64")                                                      ? matrix_type::f64
                                                                               : matrix_type::half;
  t.products = m * n * k * blocks;
  u32 const bytes = t.type == matrix_type::byte   ? 1
                    : t.type == matrix_type::half ? 2
                    : t.type == matrix_type::f64  ? 8
                                                  : 4;
  t.result_rows = u8(m * n * blocks * (bytes == 8 ? 2 : 1) / lanes);
  t.rows[0] = t.rows[1] = u8(std::max(1u, m * k * blocks * bytes / 4 / lanes));
  t.rows[2] = t.result_rows;
}

void lds_shape(std::string const& name, op_time& t) {
  auto const has = [&](char const* part) { return name.find(part) != name.npos; };
  t.lds_bytes = has("b128") ? 16 : has("b96") ? 12 : has("_b64") || has("_u64") || has("_i64") || has("_f64") ? 8 : 4;
  if (has("read2") || has("write2") || has("wrxchg2")) t.lds_stride = has("st64") ? 64 : 1;
  t.lds_atomic = !has("read") && !has("ds_write");
  t.rows[0] = 1, t.rows[1] = t.rows[2] = u8(t.lds_bytes / 4);
}

}  // namespace

op_time time_of(std::string const& name) {
  op_time t;
  auto const is = [&](char const* prefix) { return name.starts_with(prefix); };
  auto const has = [&](char const* part) { return name.find(part) != name.npos; };
  if (is("v_mfma")) {
    t.on = unit::matrix;
    matrix_shape(name, t);
  } else if (has("permute_b32") || is("ds_swizzle")) {
    t.on = unit::crossing;
    t.rows[0] = t.rows[1] = 1;
  } else if (is("ds_")) {
    t.on = unit::lds;
    lds_shape(name, t);
  } else if (is("buffer_inv") || is("buffer_wb")) {
    t.on = unit::cache_control;
  } else if (is("global_") || is("buffer_") || is("scratch_") || is("flat_")) {
    t.on = is("flat_") ? unit::flat_memory : unit::vector_memory;
    t.rows[0] = 2;
    if (has("store") || has("atomic")) t.rows[1] = has("x4") ? 4 : has("x3") ? 3 : has("x2") || has("64") ? 2 : 1;
  } else if (is("s_load") || is("s_buffer_load") || is("s_mem") || is("s_dcache") || is("s_store") || is("s_atomic")) {
    t.on = unit::scalar_memory;
  } else if (is("s_waitcnt")) {
    t.on = unit::wait;
  } else if (is("s_barrier")) {
    t.on = unit::barrier;
  } else if (is("s_sleep")) {
    t.on = unit::sleep;
  } else if (is("s_setprio")) {
    t.on = unit::priority;
  } else if (is("s_nop")) {
    t.on = unit::nop;
  } else if (is("s_endpgm")) {
    t.on = unit::end;
  } else if (is("s_sendmsg") || is("s_trap") || is("s_icache")) {
    t.on = unit::message;
  } else if (is("s_ttracedata")) {
    t.on = unit::trace_data;
  } else if (is("s_branch") || is("s_cbranch") || is("s_setpc") || is("s_swappc") || is("s_call")) {
    t.on = unit::branch;
  } else if (is("v_")) {
    t.on = unit::vector;
    if (is("v_exp_") || is("v_log_") || is("v_rcp_") || is("v_rsq_") || is("v_sqrt_") || is("v_sin_") || is("v_cos_"))
      t.on = unit::transcendental;
    if (is("v_mul_lo_u32") || is("v_mul_hi_") || is("v_mad_u64_u32") || is("v_mad_i64_i32")) t.on = unit::quarter_rate;
    bool const wide = has("64") || is("v_pk_mul_f32") || is("v_pk_fma_f32") || is("v_pk_add_f32") || is("v_pk_mov");
    t.rows[0] = t.rows[1] = t.rows[2] = wide ? 2 : 1;
  }
  return t;
}

void add_operands(op_time& t, op const& o) {
  t.imm = o.imm;
  t.code_line = u16(o.offset >> 7);
  t.address = o.arg[1].reg;
  t.result = o.arg[0].reg;
  u32 const first =
      t.on == unit::vector || t.on == unit::transcendental || t.on == unit::quarter_rate ? o.destinations : 1;
  for (u32 i = 0; i < 3; ++i) {
    operand const& a = o.arg[std::min(first + i, 4u)];
    if (a.is_vgpr() && t.rows[i]) t.source[i] = a.reg;
    else t.rows[i] = 0;
  }
}

op_time const* times_of(program const& p) { return p.text->times.data(); }
std::size_t op_count(program const& p) { return p.text->times.size(); }
u64 image_base(program const& p) { return p.base; }
bool same_code(program const& a, program const& b) { return a.text == b.text || a.text->elf == b.text->elf; }
std::shared_ptr<program const> keep(program const& p) { return p.shared_from_this(); }

}  // namespace fusewire::sim
