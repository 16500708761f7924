#include "program.hpp"

#include <llvm/DebugInfo/DWARF/DWARFContext.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>
#include <cstring>

#include "disassembler.hpp"

namespace fusewire::sim {

struct line_table {
  std::unique_ptr<llvm::object::ObjectFile> object;
  std::unique_ptr<llvm::DWARFContext> dwarf;
};

namespace {

/// The owner of a source file: the user, a kernel of the library, the library, HIP or the compiler.
int distance_from_user(std::string const& file) {
  static constexpr std::pair<char const*, int> folders[] = {
      {"/fusewire/ops/", 1},     {"/fusewire/comm/", 1}, {"/fusewire/gemm/", 2}, {"/fusewire/attention/", 2},
      {"/include/fusewire/", 3}, {"/include/hip/", 4},   {"/lib/clang/", 4},     {"/usr/include/", 4}};
  for (auto const& [folder, distance] : folders)
    if (file.find(folder) != file.npos) return distance;
  return 0;
}

std::string source_of(decoded_code const& code, u32 offset) {
  std::call_once(code.lines_read, [&] {
    llvm::StringRef const bytes(reinterpret_cast<char const*>(code.elf.data()), code.elf.size());
    auto object = llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(bytes, ""));
    if (!object) return llvm::consumeError(object.takeError());
    code.lines = std::make_shared<line_table>();
    code.lines->object = std::move(*object);
    code.lines->dwarf = llvm::DWARFContext::create(*code.lines->object);
  });
  if (!code.lines) return {};
  using specifier = llvm::DILineInfoSpecifier;
  auto const frames = code.lines->dwarf->getInliningInfoForAddress(
      {offset, llvm::object::SectionedAddress::UndefSection},
      specifier(specifier::FileLineInfoKind::AbsoluteFilePath, specifier::FunctionNameKind::ShortName));
  u32 best = 0;  // the innermost of those that are nearest to the user
  for (u32 i = 1; i < frames.getNumberOfFrames(); ++i)
    if (distance_from_user(frames.getFrame(i).FileName) < distance_from_user(frames.getFrame(best).FileName)) best = i;
  if (best >= frames.getNumberOfFrames()) return {};
  llvm::DILineInfo const& line = frames.getFrame(best);
  if (line.FileName == llvm::DILineInfo::BadString || line.Line == 0) return {};
  std::string const at = line.FileName.substr(line.FileName.find_last_of('/') + 1) + ":" + std::to_string(line.Line);
  if (best == 0 || frames.getFrame(best - 1).FunctionName == llvm::DILineInfo::BadString) return at;
  return at + ", in " + frames.getFrame(best - 1).FunctionName;
}

}  // namespace

std::string hex(u64 value) {
  std::string digits;
  do digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
  while (value >>= 4);
  return "0x" + digits;
}

std::string_view decoded_code::function_at(u32 offset) const {
  auto const after = std::upper_bound(functions.begin(), functions.end(), offset,
                                      [](u32 at, function_range const& f) { return at < f.begin; });
  if (after == functions.begin() || offset >= std::prev(after)->end) return {};
  return std::prev(after)->name;
}

kernel_descriptor kernel_descriptor::of(kernel const& k) {
  kernel_descriptor d;
  auto const read = [&](auto& field, int at) { std::memcpy(&field, k.descriptor.data() + at, sizeof field); };
  read(d.entry, 16);
  read(d.rsrc3, 44);
  read(d.rsrc1, 48);
  read(d.rsrc2, 52);
  read(d.properties, 56);
  read(d.preload, 58);
  return d;
}

location where(wave const& w) {
  decoded_code const& code = *w.code->text;
  if (w.pc >= code.ops.size()) return {0, "(outside the code)", {}};
  location at = where_is(*w.code, w.pc);
  if (w.group && w.group->launch && w.group->launch->kernel)
    at.offset -= code.ops[w.group->launch->kernel->entry].offset;
  return at;
}

location where_is(program const& p, u32 index) {
  decoded_code const& code = *p.text;
  op const& o = code.ops[index];
  location at{o.offset, {}, source_of(code, o.offset)};
  if (o.size)
    at.instruction =
        disassemble(std::span(code.bytes).subspan(o.offset - code.text, o.size)).value_or("(no instruction)");
  return at;
}

}  // namespace fusewire::sim
