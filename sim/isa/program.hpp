// A decoded code object.
#pragma once
#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "op.hpp"
#include "op_time.hpp"

namespace fusewire::sim {

/// "0x1f"
std::string hex(u64);

inline constexpr u32 no_op = ~u32(0);

struct function_range {
  std::string name;
  u32 begin, end;  // bytes from the image's begin
};

struct line_table;  // LLVM's reader of the code object's DWARF

/// What the images of a code object have in common: one for each GPU.
struct decoded_code {
  std::vector<op> ops;
  std::vector<op_time> times;  // of each op
  std::vector<u32> op_at;      // offset / 4 -> index into ops, or no_op
  std::vector<u8> bytes;       // the executable part of the image, from byte `text`
  u32 text = 0;
  std::vector<function_range> functions;  // sorted by begin
  std::vector<u8> elf;                    // kept for the line tables, which are read when first asked for
  mutable std::shared_ptr<line_table> lines;
  mutable std::once_flag lines_read;

  u32 index_of(u32 offset) const { return offset % 4 == 0 && offset / 4 < op_at.size() ? op_at[offset / 4] : no_op; }
  std::string_view function_at(u32 offset) const;
  /// Whether decoding this code object, loaded at `image`, would give the same.
  bool same_as(std::span<u8 const> other_elf, u8 const* image) const {
    return std::ranges::equal(elf, other_elf) && std::ranges::equal(bytes, std::span(image + text, bytes.size()));
  }
};

/// A code object in a GPU's memory.
struct program : std::enable_shared_from_this<program> {
  u64 base = 0;  // address of the image
  std::shared_ptr<decoded_code const> text;
};

/// The fields of kernel::descriptor. LLVM, "User guide for AMDGPU backend", kernel descriptor.
struct kernel_descriptor {
  i64 entry = 0;  // bytes from the descriptor to the first instruction
  u32 rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  u16 properties = 0, preload = 0;

  static kernel_descriptor of(kernel const&);
  int registers() const { return int((rsrc1 & 63) + 1) * 8; }
  int first_agpr() const { return int((rsrc3 & 63) + 1) * 4; }
  int user_sgprs() const { return int(rsrc2 >> 1 & 31); }
  int preload_length() const { return preload & 127; }  // dwords
  int preload_offset() const { return preload >> 7; }   // dwords
};

/// Decodes [begin, end) of the image into `code`. Returns the instructions that are not implemented, as text with
/// function and address; they decode to an op that faults.
std::vector<std::string> decode(decoded_code& code, u32 begin, u32 end);

/// What the clock needs to know about all instructions with this mnemonic, and about one of them.
op_time time_of(std::string const& mnemonic);
void add_operands(op_time&, op const&);

/// The lane from which each lane reads under a DPP_CTRL field.
lane_map const* dpp_lanes(u32 control);

}  // namespace fusewire::sim
