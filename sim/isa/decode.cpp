// From encodings to ops: CDNA3 ISA, chapter 12 "Instruction formats". LLVM's disassembler is asked once for the name of
// each opcode.
#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "disassembler.hpp"
#include "encoding.hpp"
#include "late.hpp"
#include "program.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

operand constant(u16 half, u32 word, u64 quad) {
  operand o;
  o.kind = source::constant;
  o.half = half;
  o.word = word;
  o.quad = quad;
  return o;
}
operand integer_constant(i64 value) { return constant(u16(value), u32(value), u64(value)); }
operand float_constant(double value) {
  return constant(std::bit_cast<u16>(f16(value)), std::bit_cast<u32>(float(value)), std::bit_cast<u64>(value));
}
/// A literal is the upper half of a double, and the zero-extended low half of any other 64-bit operand, as in hardware.
/// double_operand says which.
operand literal(u32 value, bool double_operand) {
  return constant(u16(value), value, double_operand ? u64(value) << 32 : value);
}

operand register_operand(source kind, u32 index) {
  operand o;
  o.kind = kind;
  o.reg = u16(index);
  return o;
}
operand sgpr(u32 index) { return register_operand(source::sgpr, index); }
operand vgpr(u32 index) { return register_operand(source::vgpr, index); }

/// The 9-bit source field (8-bit for scalar instructions).
operand source_operand(u32 field, u32 literal_value, bool double_operand) {
  if (field >= 256) return vgpr(field - 256);
  if (field < 128) return sgpr(field);
  if (field <= 192) return integer_constant(i64(field) - 128);
  if (field <= 208) return integer_constant(192 - i64(field));
  switch (field) {
    case 235: return integer_constant(i64(shared_aperture));
    case 236: return integer_constant(i64(shared_aperture | 0xffffffff));
    case 237: return integer_constant(i64(private_aperture));
    case 238: return integer_constant(i64(private_aperture | 0xffffffff));
    case 240: return float_constant(0.5);
    case 241: return float_constant(-0.5);
    case 242: return float_constant(1);
    case 243: return float_constant(-1);
    case 244: return float_constant(2);
    case 245: return float_constant(-2);
    case 246: return float_constant(4);
    case 247: return float_constant(-4);
    case 248: return constant(0x3118, 0x3e22f983, 0x3fc45f306dc9c882);  // 1 / (2 pi)
    case 251: return register_operand(source::vccz, 0);
    case 252: return register_operand(source::execz, 0);
    case 253: return register_operand(source::scc, 0);
    case 255: return literal(literal_value, double_operand);
  }
  return {};
}

/// One opcode of the code object: LLVM's name for it and what the registry says.
struct opcode {
  std::string name;
  semantics const* meaning = nullptr;
  bool branches = false;
  op_time time;
};

struct instruction_words {
  u32 first, second;
  u64 both() const { return first | u64(second) << 32; }
};

void modify(operand& o) {
  if (o.kind == source::vgpr &&
      (o.negate || o.absolute || o.sign_extend || o.high_half || o.permuted || o.part != select::dword))
    o.kind = source::vgpr_modified;
}

void decode_sdwa(op& o, operand& source0, operand* source1, u32 word, bool compare) {
  auto const selection = [&](operand& s, int base) {
    s.part = select(bits(word, base, 3));
    s.sign_extend = bits(word, base + 3, 1);
    s.negate = bits(word, base + 4, 1);
    s.absolute = bits(word, base + 5, 1);
  };
  source0 = bits(word, 23, 1) ? source_operand(bits(word, 0, 8), 0, false) : vgpr(bits(word, 0, 8));
  selection(source0, 16);
  if (source1) {
    if (bits(word, 31, 1)) *source1 = source_operand(source1->reg, 0, false);
    selection(*source1, 24);
  }
  if (compare) {
    if (bits(word, 15, 1)) o.arg[0] = sgpr(bits(word, 8, 7));
    return;
  }
  o.destination_part = select(bits(word, 8, 3));
  o.unused = unused_bits(bits(word, 11, 2));
  o.clamp = bits(word, 13, 1);
  o.output_scale = bits(word, 14, 2);
}

void decode_dpp(op& o, operand& source0, operand* source1, u32 word) {
  source0 = vgpr(bits(word, 0, 8));
  source0.permuted = true;
  source0.negate = bits(word, 20, 1);
  source0.absolute = bits(word, 21, 1);
  if (source1) {
    source1->negate = bits(word, 22, 1);
    source1->absolute = bits(word, 23, 1);
  }
  o.dpp = dpp_lanes(bits(word, 8, 9));
  o.bound_zero = bits(word, 19, 1);
  o.dpp_rows = 0;
  for (int lane = 0; lane < lanes; ++lane)
    o.dpp_rows |= u64(bits(word, 28 + lane / 16, 1) & bits(word, 24 + lane / 4 % 4, 1)) << lane;
}

/// VOP1, VOP2, VOPC with their SDWA and DPP forms.
void decode_short_vector(op& o, encoding e, instruction_words w, opcode const& code) {
  bool const compare = e == encoding::vopc, double_operand = code.name.find("f64") != std::string::npos;
  u32 const field0 = bits(w.first, 0, 9);
  semantics const& meaning = *code.meaning;
  int next = 0;
  if (compare) o.arg[next++] = sgpr(106);
  else if (meaning.destinations > 0)
    o.arg[next++] = meaning.scalar_result ? sgpr(bits(w.first, 17, 8)) : vgpr(bits(w.first, 17, 8));
  if (meaning.destinations == 2) o.arg[next++] = sgpr(106);
  operand& source0 = o.arg[next++];
  operand* const source1 = e == encoding::vop1 ? nullptr : &o.arg[next++];
  if (source1) *source1 = vgpr(bits(w.first, 9, 8));
  if (field0 == sdwa_follows) decode_sdwa(o, source0, source1, w.second, compare);
  else if (field0 == dpp_follows) decode_dpp(o, source0, source1, w.second);
  else source0 = source_operand(field0, w.second, double_operand);
  modify(source0);
  if (source1) modify(*source1);
  if (code.name == "v_fmamk_f32" || code.name == "v_madmk_f16") {
    o.arg[next++] = *source1;
    *source1 = literal(w.second, false);
  } else if (code.name == "v_fmaak_f32" || code.name == "v_madak_f16") {
    o.arg[next++] = literal(w.second, false);
  }
  if (meaning.carry_in) o.arg[next++] = sgpr(106);
  if (meaning.accumulates) o.arg[next] = o.arg[0];
}

void decode_vop3(op& o, instruction_words w, opcode const& code) {
  semantics const& meaning = *code.meaning;
  int next = 0;
  if (meaning.destinations > 0)
    o.arg[next++] = meaning.scalar_result ? sgpr(bits(w.first, 0, 8)) : vgpr(bits(w.first, 0, 8));
  bool const vop3b = meaning.destinations == 2;
  if (vop3b) o.arg[next++] = sgpr(bits(w.first, 8, 7));
  o.op_sel = vop3b ? 0 : bits(w.first, 11, 4);
  for (int i = 0; i < 3; ++i) {
    operand& s = o.arg[next++];
    s = source_operand(bits(w.second, 9 * i, 9), 0, false);
    s.negate = bits(w.second, 29 + i, 1);
    s.absolute = vop3b ? 0 : bits(w.first, 8 + i, 1);
    s.high_half = o.op_sel >> i & 1;
    modify(s);
  }
  o.clamp = bits(w.first, 15, 1);
  o.output_scale = bits(w.second, 27, 2);
  o.high_destination = o.op_sel >> 3 & 1;
  if (meaning.accumulates) o.arg[3] = o.arg[0];
}

void decode_vop3p(op& o, instruction_words w, opcode const& code) {
  bool const matrix = code.name.starts_with("v_mfma"), access = code.name.starts_with("v_accvgpr");
  o.arg[0] = vgpr(bits(w.first, 0, 8));
  for (int i = 0; i < 3; ++i) o.arg[1 + i] = source_operand(bits(w.second, 9 * i, 9), 0, false);
  auto const accumulation = [](operand& a) {
    if (a.kind == source::vgpr) a.reg += 256;
  };
  if (matrix) {
    if (bits(w.second, 27, 1)) accumulation(o.arg[1]);
    if (bits(w.second, 28, 1)) accumulation(o.arg[2]);
    if (bits(w.first, 15, 1)) accumulation(o.arg[0]), accumulation(o.arg[3]);
    o.cbsz = bits(w.first, 8, 3);
    o.abid = bits(w.first, 11, 4);
    o.blgp = bits(w.second, 29, 3);
    return;
  }
  if (access) {
    accumulation(code.name == "v_accvgpr_read_b32" ? o.arg[1] : o.arg[0]);
    return;
  }
  o.op_sel = bits(w.first, 11, 3);
  o.op_sel_hi = bits(w.second, 27, 2) | bits(w.first, 14, 1) << 2;
  o.neg_lo = bits(w.second, 29, 3);
  o.neg_hi = bits(w.first, 8, 3);
  o.clamp = bits(w.first, 15, 1);
  if (code.meaning->accumulates) o.arg[3] = o.arg[0];
}

void decode_scalar(op& o, encoding e, instruction_words w, opcode const& code) {
  bool const sign = code.name.find("_i64") != std::string::npos && (e == encoding::sop1 || e == encoding::sop2);
  auto const read = [&](int low) {
    operand s = source_operand(bits(w.first, low, 8), w.second, false);
    if (sign && bits(w.first, low, 8) == literal_follows) s.quad = u64(i64(i32(w.second)));
    return s;
  };
  int next = 0;
  if (e != encoding::sopc) o.arg[next++] = sgpr(bits(w.first, 16, 7));
  o.arg[next++] = read(0);
  if (e != encoding::sop1) o.arg[next] = read(8);
}

void decode_smem(op& o, instruction_words w) {
  o.arg[0] = sgpr(bits(w.first, 6, 7));
  o.arg[1] = sgpr(bits(w.first, 0, 6) * 2);
  o.returns = bits(w.first, 16, 1);
  bool const immediate = bits(w.first, 17, 1), register_offset = bits(w.first, 14, 1);
  if (immediate) o.imm = sign_extended(bits(w.second, 0, 21), 21);
  if (register_offset) o.arg[2] = sgpr(bits(w.second, 25, 7));
  else if (!immediate) o.arg[2] = sgpr(bits(w.second, 0, 7));
}

/// arg: destination, address, data, scalar offset or base, buffer resource. DS: destination, address, data, second
/// data.
void decode_vector_memory(op& o, encoding e, instruction_words w) {
  u32 const row = bits(w.second, 23, 1) * 256;
  if (e == encoding::ds) {
    u32 const accumulation = bits(w.first, 25, 1) * 256;
    o.arg[0] = vgpr(bits(w.second, 24, 8) + accumulation);
    o.arg[1] = vgpr(bits(w.second, 0, 8));
    o.arg[2] = vgpr(bits(w.second, 8, 8) + accumulation);
    o.arg[3] = vgpr(bits(w.second, 16, 8) + accumulation);
    o.imm = i32(bits(w.first, 0, 16));
  } else if (e == encoding::flat) {
    u32 const segment = bits(w.first, 14, 2), saddr = bits(w.second, 16, 7);
    bool const scratch = segment == 1, vector_address = !scratch || bits(w.first, 13, 1);
    o.arg[0] = vgpr(bits(w.second, 24, 8) + row);
    if (vector_address) o.arg[1] = vgpr(bits(w.second, 0, 8));
    o.arg[2] = vgpr(bits(w.second, 8, 8) + row);
    if (segment != 0 && saddr != 0x7f) o.arg[3] = sgpr(saddr);
    o.imm = segment == 0 ? i32(bits(w.first, 0, 12)) : sign_extended(bits(w.first, 0, 13), 13);
    o.cache = {.sc0 = bits(w.first, 16, 1) != 0, .sc1 = bits(w.first, 25, 1) != 0, .nt = bits(w.first, 17, 1) != 0};
  } else {
    o.arg[0] = vgpr(bits(w.second, 8, 8) + row);
    o.arg[1] = vgpr(bits(w.second, 0, 8));
    o.arg[2] = o.arg[0];
    o.arg[3] = source_operand(bits(w.second, 24, 8), 0, false);
    o.arg[4] = sgpr(bits(w.second, 16, 5) * 4);
    o.imm = i32(bits(w.first, 0, 12));
    o.offset_enable = bits(w.first, 12, 1);
    o.index_enable = bits(w.first, 13, 1);
    o.to_lds = bits(w.first, 16, 1);
    o.cache = {.sc0 = bits(w.first, 14, 1) != 0, .sc1 = bits(w.first, 15, 1) != 0, .nt = bits(w.first, 17, 1) != 0};
  }
  o.returns = o.cache.sc0;
}

void decode_operands(op& o, encoding e, instruction_words w, opcode const& code) {
  switch (e) {
    case encoding::sop1:
    case encoding::sop2:
    case encoding::sopc: return decode_scalar(o, e, w, code);
    case encoding::sopk:
      o.arg[0] = sgpr(bits(w.first, 16, 7));
      o.arg[1] = literal(w.second, false);
      o.imm = i16(w.first);
      return;
    case encoding::sopp: o.imm = i16(w.first); return;
    case encoding::vop1:
    case encoding::vop2:
    case encoding::vopc: decode_short_vector(o, e, w, code); break;
    case encoding::vop3: decode_vop3(o, w, code); break;
    case encoding::vop3p: decode_vop3p(o, w, code); break;
    case encoding::smem: return decode_smem(o, w);
    case encoding::ds:
    case encoding::flat:
    case encoding::mubuf: return decode_vector_memory(o, e, w);
    case encoding::unknown: break;
  }
  o.vector_alu = true;
  o.destinations = code.meaning->destinations;
  if (code.name == "v_accvgpr_mov_b32") o.arg[0].reg += 256, o.arg[1].reg += 256;
  o.keep_high = code.meaning->keeps_high || o.high_destination;
}

void not_implemented(wave& w, op const&) { fault(w, "instruction is not implemented"); }
void past_the_end(wave& w, op const&) { fault(w, "execution ran past the end of the code"); }

}  // namespace

std::vector<std::string> decode(decoded_code& code, u32 begin, u32 end) {
  std::vector<std::string> missing;
  std::unordered_map<u32, opcode> opcodes;
  std::vector<u32> branches;
  code.ops.reserve(code.ops.size() + (end - begin) / 4 + 1);
  code.times.reserve(code.ops.capacity());
  if (code.op_at.size() < end / 4) code.op_at.resize(end / 4, no_op);
  for (u32 at = begin; at < end;) {
    u8 const* const bytes = code.bytes.data() + (at - code.text);
    u32 const left = end - at;
    instruction_words words{};
    std::memcpy(&words, bytes, std::min<u32>(left, 8));
    encoding const form = encoding_of(words.first);
    opcode& entry = opcodes[u32(form) << 16 | opcode_bits(form, words.first)];
    if (entry.name.empty())
      if (auto name = mnemonic({bytes, std::min<u32>(left, 16)})) {
        entry.meaning = instructions().find(*name);
        entry.branches = name->starts_with("s_branch") || name->starts_with("s_cbranch") || *name == "s_call_b64";
        entry.name = std::move(*name);
        entry.time = time_of(entry.name);
      }
    op o;
    o.offset = at;
    o.size = u8(std::min(left, size_of(form, words.first, entry.name)));
    if (entry.meaning) {
      o.run = entry.meaning->run;
      o.math = entry.meaning->math;
      o.to_lds = entry.meaning->to_lds;
      decode_operands(o, form, words, entry);
      if (form == encoding::ds) {
        auto const has = [&](char const* part) { return entry.name.find(part) != std::string::npos; };
        o.effect = std::exchange(o.run, issue_lds);
        o.returns = has("read") || has("rtn") || has("permute") || has("swizzle") || has("append") || has("consume");
        if (has("read")) o.arg[2] = o.arg[3] = {};
      }
      o.vector = form == encoding::vop1 || form == encoding::vop2 || form == encoding::vopc || form == encoding::vop3 ||
                 form == encoding::vop3p || form == encoding::ds || form == encoding::flat || form == encoding::mubuf;
      if (entry.branches) branches.push_back(u32(code.ops.size()));
    } else {
      o.run = not_implemented;
      if (auto const function = code.function_at(at); !function.empty()) {
        auto const text = disassemble({bytes, std::min<u32>(left, 16)});
        missing.push_back((text ? *text : ".long " + hex(words.first)) + " at " + hex(at) + " of " +
                          std::string(function));
      }
    }
    code.op_at[at / 4] = u32(code.ops.size());
    code.ops.push_back(o);
    code.times.push_back(entry.time);
    add_operands(code.times.back(), o);
    at += o.size;
  }
  op last;
  last.run = past_the_end;
  last.offset = end;
  code.ops.push_back(last);
  code.times.emplace_back();
  for (u32 const index : branches) {
    op& o = code.ops[index];
    o.target = code.index_of(o.offset + 4 + u32(o.imm * 4));
  }
  return missing;
}

}  // namespace fusewire::sim
