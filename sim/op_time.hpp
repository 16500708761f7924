// What the clock (machine/timeline.cpp) knows of one instruction: which unit it needs and which registers it waits for.
// How many cycles that takes is said in machine/timing.hpp.
#pragma once
#include "machine.hpp"

namespace fusewire::sim {

enum class unit : u8 {
  scalar,
  branch,
  nop,
  vector,
  transcendental,
  quarter_rate,
  matrix,
  lds,
  crossing /* lanes, without LDS memory */,
  vector_memory,
  flat_memory,
  cache_control,
  scalar_memory,
  wait,
  barrier,
  sleep,
  priority,
  message,
  trace_data,
  end,
};

enum class matrix_type : u8 { half, byte, xf32, f32, f64 };

struct op_time {
  unit on = unit::scalar;
  matrix_type type = matrix_type::half;
  u8 lds_bytes = 4;   // per lane and address
  u8 lds_stride = 0;  // two addresses, their offsets in units of lds_bytes * lds_stride; 0: one address
  bool lds_atomic = false;
  u8 rows[3] = {};     // registers of each source
  u8 result_rows = 0;  // of a matrix product
  u16 source[3] = {};  // the first register of each; the third of a matrix product is C
  u16 result = 0;
  u16 address = 0;    // LDS: the register
  u16 code_line = 0;  // of 128 bytes, within the code object, modulo 2^16
  u32 products = 0;   // of a matrix product: multiply-adds
  std::int32_t imm = 0;
};

/// Of each op of the program.
op_time const* times_of(program const&);
std::size_t op_count(program const&);
u64 image_base(program const&);
bool same_code(program const&, program const&);
std::shared_ptr<program const> keep(program const&);  // which a module owns

}  // namespace fusewire::sim
