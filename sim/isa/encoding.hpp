// The encodings of gfx942, and how to tell their instructions apart: CDNA3 ISA, chapter 12 "Instruction formats".
#pragma once
#include <string_view>

#include "op.hpp"

namespace fusewire::sim {

enum class encoding : u8 {
  sop2,
  sopk,
  sop1,
  sopc,
  sopp,
  vop2,
  vop1,
  vopc,
  vop3,
  vop3p,
  smem,
  ds,
  flat,
  mubuf,
  unknown
};

constexpr u32 bits(u64 word, int low, int count) { return u32(word >> low & ((u64(1) << count) - 1)); }
constexpr i32 sign_extended(u32 value, int width) { return i32(value << (32 - width)) >> (32 - width); }

inline encoding encoding_of(u32 word) {
  if (word >> 31 == 0) {
    u32 const top = word >> 25;
    return top == 0x3f ? encoding::vop1 : top == 0x3e ? encoding::vopc : encoding::vop2;
  }
  if (word >> 30 == 2) {
    switch (word >> 23) {
      case 0x17d: return encoding::sop1;
      case 0x17e: return encoding::sopc;
      case 0x17f: return encoding::sopp;
    }
    return word >> 28 == 0xb ? encoding::sopk : encoding::sop2;
  }
  switch (word >> 26) {
    case 0x30: return encoding::smem;
    case 0x34: return word >> 23 == 0x1a7 ? encoding::vop3p : encoding::vop3;
    case 0x36: return encoding::ds;
    case 0x37: return encoding::flat;
    case 0x38: return encoding::mubuf;
  }
  return encoding::unknown;
}

/// The bits that choose the instruction within its encoding.
inline u32 opcode_bits(encoding e, u32 word) {
  switch (e) {
    case encoding::sop2: return bits(word, 23, 7);
    case encoding::sopk: return bits(word, 23, 5);
    case encoding::sop1: return bits(word, 8, 8);
    case encoding::sopc:
    case encoding::sopp: return bits(word, 16, 7);
    case encoding::vop2: return bits(word, 25, 6);
    case encoding::vop1: return bits(word, 9, 8);
    case encoding::vopc: return bits(word, 17, 8);
    case encoding::vop3: return bits(word, 16, 10);
    case encoding::vop3p: return bits(word, 16, 7);
    case encoding::smem: return bits(word, 18, 8);
    case encoding::ds: return bits(word, 16, 9);
    case encoding::flat: return bits(word, 14, 11) & ~0xcu;
    case encoding::mubuf: return bits(word, 18, 7);
    case encoding::unknown: break;
  }
  return 0;
}

// values of the first source field
inline constexpr u32 literal_follows = 255, sdwa_follows = 249, dpp_follows = 250;

/// In bytes.
inline u32 size_of(encoding e, u32 word, std::string_view name) {
  switch (e) {
    case encoding::sop2:
    case encoding::sopc: return bits(word, 0, 8) == literal_follows || bits(word, 8, 8) == literal_follows ? 8 : 4;
    case encoding::sop1: return bits(word, 0, 8) == literal_follows ? 8 : 4;
    case encoding::sopk: return name == "s_setreg_imm32_b32" ? 8 : 4;
    case encoding::sopp: return 4;
    case encoding::vop2:
      if (name == "v_fmaak_f32" || name == "v_fmamk_f32" || name == "v_madak_f16" || name == "v_madmk_f16") return 8;
      [[fallthrough]];
    case encoding::vop1:
    case encoding::vopc: {
      u32 const source0 = bits(word, 0, 9);
      return source0 == literal_follows || source0 == sdwa_follows || source0 == dpp_follows ? 8 : 4;
    }
    default: return 8;
  }
}

}  // namespace fusewire::sim
