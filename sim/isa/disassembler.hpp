// LLVM's disassembler for gfx942.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "../machine.hpp"

namespace fusewire::sim {

/// One instruction as LLVM prints it ("v_add_f32_e32 v0, v1, v2"), or nothing if gfx942 does not have it.
std::optional<std::string> disassemble(std::span<u8 const> bytes);

/// The instruction's name without the suffix of its encoding: "v_add_f32".
std::optional<std::string> mnemonic(std::span<u8 const> bytes);

}  // namespace fusewire::sim
