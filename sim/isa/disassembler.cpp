#include "disassembler.hpp"

#include <llvm/Config/llvm-config.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string_view>

extern "C" {
void LLVMInitializeAMDGPUTargetInfo();
void LLVMInitializeAMDGPUTargetMC();
void LLVMInitializeAMDGPUDisassembler();
}

namespace fusewire::sim {
namespace {

class llvm_disassembler {
 public:
  llvm_disassembler() {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    llvm::Triple const triple("amdgcn-amd-amdhsa");
#if LLVM_VERSION_MAJOR >= 22
    llvm::Triple const& name = triple;
#else
    llvm::StringRef const name = triple.getTriple();
#endif
    std::string error;
    auto const* target = llvm::TargetRegistry::lookupTarget(name, error);
    if (!target) throw std::runtime_error("LLVM has no AMDGPU target: " + error);
    registers_.reset(target->createMCRegInfo(name));
    assembly_.reset(target->createMCAsmInfo(*registers_, name, options_));
    instructions_.reset(target->createMCInstrInfo());
    subtarget_.reset(target->createMCSubtargetInfo(name, "gfx942", ""));
    context_ = std::make_unique<llvm::MCContext>(triple, assembly_.get(), registers_.get(), subtarget_.get());
    decoder_.reset(target->createMCDisassembler(*subtarget_, *context_));
    printer_.reset(target->createMCInstPrinter(triple, 0, *assembly_, *instructions_, *registers_));
  }

  std::optional<std::string> print(std::span<u8 const> bytes) {
    std::lock_guard const lock(mutex_);
    llvm::MCInst instruction;
    u64 size = 0;
    if (decoder_->getInstruction(instruction, size, {bytes.data(), bytes.size()}, 0, llvm::nulls()) !=
        llvm::MCDisassembler::Success)
      return std::nullopt;
    std::string text;
    llvm::raw_string_ostream stream(text);
    printer_->printInst(&instruction, 0, "", *subtarget_, stream);
    auto const begin = text.find_first_not_of("\t ");
    return begin == std::string::npos ? std::nullopt : std::optional(text.substr(begin));
  }

 private:
  std::mutex mutex_;
  llvm::MCTargetOptions options_;
  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> assembly_;
  std::unique_ptr<llvm::MCInstrInfo> instructions_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> decoder_;
  std::unique_ptr<llvm::MCInstPrinter> printer_;
};

}  // namespace

std::optional<std::string> disassemble(std::span<u8 const> bytes) {
  static llvm_disassembler& llvm = *new llvm_disassembler;  // never destroyed: reports at exit need it
  return llvm.print(bytes);
}

std::optional<std::string> mnemonic(std::span<u8 const> bytes) {
  auto text = disassemble(bytes);
  if (!text) return text;
  std::string_view name = *text;
  name = name.substr(0, name.find_first_of(" \t"));
  for (std::string_view suffix : {"_e32", "_e64", "_sdwa", "_dpp"})
    if (name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      break;
    }
  return std::string(name);
}

}  // namespace fusewire::sim
