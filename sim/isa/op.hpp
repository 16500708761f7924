// One decoded instruction.
#pragma once
#include "../machine.hpp"

namespace fusewire::sim {

using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using f16 = _Float16;
using handler = void (*)(wave&, op const&);

enum class source : u8 {
  none,
  vgpr,           // rows of wave::v as they are; AGPRs are rows 256 and up
  vgpr_modified,  // ... with a modifier, an SDWA selection, a DPP permutation or the high half
  sgpr,
  constant,
  scc,
  vccz,
  execz,
};

enum class select : u8 { byte_0, byte_1, byte_2, byte_3, word_0, word_1, dword };

struct operand {
  source kind = source::none;
  bool negate : 1 = false, absolute : 1 = false, sign_extend : 1 = false, high_half : 1 = false, permuted : 1 = false;
  select part = select::dword;
  u16 reg = 0;
  u16 half = 0;  // a constant's bits, as a 16-, 32- and 64-bit operand sees it
  u32 word = 0;
  u64 quad = 0;

  bool is_vgpr() const { return kind == source::vgpr || kind == source::vgpr_modified; }
};

/// Which field of the MODE register governs an instruction's rounding and denormals.
enum class arithmetic : u8 { none, f32, f16_f64 };

/// MODE.VSKIP, which s_setvskip sets: vector instructions have no effect.
inline constexpr u32 skip_vector = u32(1) << 28;

/// Addresses of LDS and scratch in flat instructions; no x86-64 pointer looks like these.
inline constexpr u64 shared_aperture = u64(1) << 48, private_aperture = u64(2) << 48;

enum class unused_bits : u8 { pad, sign_extend, preserve };

/// DPP: the lane from which lane l reads, or -1.
using lane_map = std::array<signed char, lanes>;

struct op {
  handler run = nullptr;
  handler effect = nullptr;  // of an LDS instruction, which run() issues
  operand arg[5];            // destinations first, then sources
  u32 offset = 0;            // bytes from the image's begin
  u32 target = 0;            // branch: index of the op it goes to
  i32 imm = 0;               // SOPP/SOPK: simm16; memory: the offset field; DS: both offset bytes
  u8 size = 0;               // bytes
  u8 destinations = 0;
  bool vector = false, vector_alu = false;  // VOP, DS, flat and buffer; VOP
  arithmetic math = arithmetic::none;

  // vector results
  u8 output_scale = 0;  // 1: times 2, 2: times 4, 3: half
  bool clamp = false;
  bool high_destination = false;  // op_sel writes the upper 16 bits
  bool keep_high = false;         // a 16-bit result leaves the other half alone
  select destination_part = select::dword;
  unused_bits unused = unused_bits::pad;

  // packed operands: one bit per source
  u8 op_sel = 0, op_sel_hi = 0, neg_lo = 0, neg_hi = 0;
  u8 cbsz = 0, abid = 0, blgp = 0;

  lane_map const* dpp = nullptr;
  u64 dpp_rows = ~u64(0);   // lanes that row_mask and bank_mask let through
  bool bound_zero = false;  // lanes without a source read 0 (else they are not written)

  // memory
  cache_bits cache;
  // Returns: an atomic the old value, an LDS instruction anything
  bool offset_enable = false, index_enable = false, to_lds = false, returns = false;
};

/// What a mnemonic means to the decoder.
struct semantics {
  handler run;
  arithmetic math = arithmetic::none;
  u8 destinations = 1;
  bool accumulates = false;  // the destination is also the last source
  bool carry_in = false;     // reads a lane mask as its last source; VCC in the short encodings
  bool scalar_result = false;
  bool to_lds = false;      // loads that go to LDS by their opcode
  bool keeps_high = false;  // 16-bit result that preserves the upper half
};

}  // namespace fusewire::sim
