// Code objects: AMDGPU ELF with code object metadata V5/V6. LLVM, "User guide for AMDGPU backend": ELF code object,
// kernel descriptor.
#include <elf.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Demangle/Demangle.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "metadata.hpp"
#include "program.hpp"

namespace fusewire::sim {
namespace {

constexpr u32 machine_gfx942 = 0x4c;

enum relocation : u32 { abs32_lo = 1, abs32_hi = 2, abs64 = 3, rel32 = 4, rel64 = 5, abs32 = 6, relative64 = 13 };

// Bytes. No code object for gfx942 has more than these; a malformed one may ask for anything
constexpr u64 largest_image = u64(1) << 32, last_code = u64(1) << 30;
constexpr int largest_lds = 65536, largest_kernarg = 1 << 20;
constexpr int largest_scratch = 131056;  // per lane: what COMPUTE_TMPRING_SIZE can express

/// Names in `why` may come from the file: characters that cannot be printed are replaced
[[noreturn]] void reject(std::string why) {
  for (char& c : why)
    if (c != '\n' && (c < ' ' || c > '~')) c = '?';
  throw std::runtime_error("code object: " + why);
}

/// A bounds-checked view of the file or of the image.
class bytes_view {
 public:
  bytes_view(u8 const* data, u64 size) : data_(data), size_(size) {}
  template <class T>
  T read(u64 at) const {
    if (at > size_ || sizeof(T) > size_ - at) reject("truncated or malformed");
    T value;
    std::memcpy(&value, data_ + at, sizeof value);
    return value;
  }
  std::string string(u64 at) const {
    if (at >= size_) reject("truncated or malformed");
    return {reinterpret_cast<char const*>(data_ + at), strnlen(reinterpret_cast<char const*>(data_ + at), size_ - at)};
  }
  u8 const* range(u64 at, u64 size) const {
    if (at > size_ || size > size_ - at) reject("truncated or malformed");
    return data_ + at;
  }

 private:
  u8 const* data_;
  u64 size_;
};

struct elf_file {
  bytes_view bytes;
  Elf64_Ehdr header;
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;

  explicit elf_file(std::span<u8 const> elf) : bytes(elf.data(), elf.size()), header(bytes.read<Elf64_Ehdr>(0)) {
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
      reject("not a 64-bit ELF file");
    u32 const machine = header.e_flags & 0xff;
    if (header.e_machine != EM_AMDGPU || machine != machine_gfx942)
      reject("not for gfx942 (ELF machine " + std::to_string(header.e_machine) + ", processor flag " + hex(machine) +
             ")");
    if ((header.e_phnum && header.e_phentsize < sizeof(Elf64_Phdr)) ||
        (header.e_shnum && header.e_shentsize < sizeof(Elf64_Shdr)))
      reject("entries of its header tables are too small");
    for (int i = 0; i < header.e_phnum; ++i)
      segments.push_back(bytes.read<Elf64_Phdr>(header.e_phoff + u64(i) * header.e_phentsize));
    for (int i = 0; i < header.e_shnum; ++i)
      sections.push_back(bytes.read<Elf64_Shdr>(header.e_shoff + u64(i) * header.e_shentsize));
    for (auto const& s : segments) {
      if (s.p_type != PT_LOAD && s.p_type != PT_DYNAMIC && s.p_type != PT_NOTE) continue;
      bytes.range(s.p_offset, s.p_filesz);
      if (s.p_type == PT_LOAD &&
          (s.p_filesz > s.p_memsz || s.p_vaddr > largest_image || s.p_memsz > largest_image - s.p_vaddr))
        reject("segment of " + hex(s.p_memsz) + " bytes, " + hex(s.p_filesz) + " of them in the file, at address " +
               hex(s.p_vaddr));
    }
  }

  u64 image_size() const {
    u64 size = 0;
    for (auto const& s : segments)
      if (s.p_type == PT_LOAD) size = std::max(size, s.p_vaddr + s.p_memsz);
    return size;
  }
  /// The bytes [begin, begin + size) of the image come from the file.
  bool in_file(u64 begin, u64 size) const {
    return std::any_of(segments.begin(), segments.end(), [&](Elf64_Phdr const& s) {
      return s.p_type == PT_LOAD && begin >= s.p_vaddr && begin - s.p_vaddr <= s.p_filesz &&
             size <= s.p_filesz - (begin - s.p_vaddr);
    });
  }
};

struct symbol {
  std::string name;
  Elf64_Sym raw;
};

std::vector<symbol> symbols_of(elf_file const& elf) {
  std::vector<symbol> all;
  u64 const end = elf.image_size();
  for (auto const& section : elf.sections) {
    if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
    if (section.sh_link >= elf.sections.size()) reject("truncated or malformed");
    auto const& names = elf.sections[section.sh_link];
    for (u64 at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      auto const raw = elf.bytes.read<Elf64_Sym>(section.sh_offset + at);
      if (raw.st_shndx == SHN_UNDEF || raw.st_shndx >= SHN_LORESERVE) continue;
      int const type = ELF64_ST_TYPE(raw.st_info);
      bool const placed = type == STT_FUNC || type == STT_OBJECT;
      symbol s{elf.bytes.string(names.sh_offset + raw.st_name), raw};
      if (placed && (raw.st_value > end || raw.st_size > end - raw.st_value))
        reject("symbol " + s.name + " lies outside of the segments");
      all.push_back(std::move(s));
    }
  }
  return all;
}

void copy_segments(elf_file const& elf, u8* image) {
  for (auto const& s : elf.segments) {
    if (s.p_type != PT_LOAD) continue;
    std::memcpy(image + s.p_vaddr, elf.bytes.range(s.p_offset, s.p_filesz), s.p_filesz);
    std::memset(image + s.p_vaddr + s.p_filesz, 0, s.p_memsz - s.p_filesz);
  }
}

void relocate(elf_file const& elf, u8* image) {
  bytes_view const view(image, elf.image_size());
  u64 table = 0, size = 0, symbols = 0, strings = 0;
  for (auto const& s : elf.segments) {
    if (s.p_type != PT_DYNAMIC) continue;
    for (u64 at = 0; at + sizeof(Elf64_Dyn) <= s.p_filesz; at += sizeof(Elf64_Dyn)) {
      auto const entry = elf.bytes.read<Elf64_Dyn>(s.p_offset + at);
      switch (entry.d_tag) {
        case DT_RELA: table = entry.d_un.d_ptr; break;
        case DT_RELASZ: size = entry.d_un.d_val; break;
        case DT_SYMTAB: symbols = entry.d_un.d_ptr; break;
        case DT_STRTAB: strings = entry.d_un.d_ptr; break;
      }
    }
  }
  u64 const base = reinterpret_cast<u64>(image);
  for (u64 at = 0; at + sizeof(Elf64_Rela) <= size; at += sizeof(Elf64_Rela)) {
    auto const r = view.read<Elf64_Rela>(table + at);
    u32 const type = ELF64_R_TYPE(r.r_info);
    u64 value = u64(r.r_addend) + base;
    if (type != relative64) {
      auto const target = view.read<Elf64_Sym>(symbols + ELF64_R_SYM(r.r_info) * sizeof(Elf64_Sym));
      if (target.st_shndx == SHN_UNDEF && ELF64_ST_BIND(target.st_info) != STB_WEAK)
        reject("undefined symbol " + view.string(strings + target.st_name));
      value = target.st_shndx == SHN_UNDEF ? 0 : value + target.st_value;
    }
    int bytes = 4;
    switch (type) {
      case abs32_lo:
      case abs32: break;
      case abs32_hi: value >>= 32; break;
      case rel32: value -= base + r.r_offset; break;
      case rel64: value -= base + r.r_offset; [[fallthrough]];
      case abs64:
      case relative64: bytes = 8; break;
      default: reject("relocation type " + std::to_string(type) + " is not known");
    }
    view.range(r.r_offset, bytes);
    std::memcpy(image + r.r_offset, &value, bytes);
  }
}

void decode_text(elf_file const& elf, u8 const* image, decoded_code& code) {
  struct range {
    u64 begin, end;
  };
  std::vector<range> executable;
  for (auto const& s : elf.sections)
    if (s.sh_flags & SHF_EXECINSTR && s.sh_size) executable.push_back({s.sh_addr, s.sh_addr + s.sh_size});
  if (executable.empty())
    for (auto const& s : elf.segments)
      if (s.p_type == PT_LOAD && s.p_flags & PF_X && s.p_filesz)
        executable.push_back({s.p_vaddr, s.p_vaddr + s.p_filesz});
  if (executable.empty()) return;
  for (auto const& r : executable)
    if (r.begin >= r.end || (r.begin | r.end) % 4 || r.end > last_code || !elf.in_file(r.begin, r.end - r.begin))
      reject("code from " + hex(r.begin) + " to " + hex(r.end) + " does not lie in a segment");
  std::sort(executable.begin(), executable.end(), [](range const& a, range const& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < executable.size(); ++i)
    if (executable[i].begin < executable[i - 1].end) reject("sections of code overlap at " + hex(executable[i].begin));
  code.text = u32(executable.front().begin);
  code.bytes.assign(image + executable.front().begin, image + executable.back().end);
  std::string missing;
  for (auto const& r : executable)
    for (auto const& instruction : decode(code, u32(r.begin), u32(r.end))) missing += "\n  " + instruction;
  if (!missing.empty()) reject("instructions that fusewire-sim does not implement:" + missing);
}

/// Sorts by a member. Of several with the same name the first stays.
template <class T, class Member>
void sort_by(std::vector<T>& list, Member T::* member) {
  std::ranges::sort(list, {}, member);
  list.erase(std::unique(list.begin(), list.end(), [](auto const& a, auto const& b) { return a.name == b.name; }),
             list.end());
}

std::shared_ptr<decoded_code const> read_code(std::span<u8 const> bytes, elf_file const& elf,
                                              std::vector<symbol> const& symbols, u8 const* image) {
  auto code = std::make_shared<decoded_code>();
  code->elf.assign(bytes.begin(), bytes.end());
  for (auto const& s : symbols)
    if (ELF64_ST_TYPE(s.raw.st_info) == STT_FUNC)
      code->functions.push_back({s.name, u32(s.raw.st_value), u32(s.raw.st_value + s.raw.st_size)});
  sort_by(code->functions, &function_range::begin);
  // Assembly need not give a function's length: it then ends at the next one, or at the end of the code
  for (std::size_t i = 0; i < code->functions.size(); ++i)
    if (auto& f = code->functions[i]; f.end == f.begin)
      f.end = i + 1 < code->functions.size() ? code->functions[i + 1].begin : ~u32(0);
  decode_text(elf, image, *code);
  return code;
}

// ------------------------------------------------------------------------------------------------------------- kernels

std::string text(metadata const& map, char const* key) {
  auto const* const found = map.find(key);
  return found ? found->text : std::string();
}
/// From 0 to `most`; `otherwise` where the key is missing.
int number(metadata const& map, char const* key, int most, int otherwise = 0) {
  auto const* const found = map.find(key);
  u64 const value = found ? found->number : u64(otherwise);
  if (value > u64(most))
    reject(std::string("its metadata has ") + key + " = " + std::to_string(i64(value)) + "; the limit is " +
           std::to_string(most));
  return int(value);
}

kernel_argument read_argument(metadata const& meta) {
  kernel_argument const a{number(meta, ".offset", largest_kernarg), number(meta, ".size", largest_kernarg),
                          text(meta, ".value_kind")};
  if (a.kind.starts_with("hidden_") && a.size > 8)
    reject("its metadata has a " + a.kind + " of " + std::to_string(a.size) + " bytes");
  return a;
}

kernel read_kernel(metadata const& meta, std::vector<symbol> const& symbols, bytes_view image, program const& code) {
  kernel k;
  k.name = text(meta, ".name");
  k.demangled = llvm::demangle(k.name);
  k.code = &code;
  auto const name = text(meta, ".symbol");
  auto const descriptor = std::find_if(symbols.begin(), symbols.end(), [&](symbol const& s) { return s.name == name; });
  if (name.empty() || descriptor == symbols.end()) reject("no kernel descriptor " + name);
  u64 const at = descriptor->raw.st_value;
  std::memcpy(k.descriptor.data(), image.range(at, k.descriptor.size()), k.descriptor.size());
  auto const fields = kernel_descriptor::of(k);
  u64 entry = at + u64(fields.entry);
  // The first 256 bytes load the arguments that this packet processor preloads
  if (fields.preload_length()) entry += 256;
  k.entry = entry < largest_image ? code.text->index_of(u32(entry)) : no_op;
  if (k.entry == no_op) reject("kernel " + k.name + " has no code");
  k.sgprs = number(meta, ".sgpr_count", 1024);
  k.vgprs = fields.first_agpr();
  k.agprs = std::max(0, fields.registers() - fields.first_agpr());
  if (k.agprs == 0) k.vgprs = fields.registers();
  k.lds = number(meta, ".group_segment_fixed_size", largest_lds);
  k.scratch = number(meta, ".private_segment_fixed_size", largest_scratch);
  k.max_threads = number(meta, ".max_flat_workgroup_size", 1024, 1024);
  k.kernarg_bytes = number(meta, ".kernarg_segment_size", largest_kernarg);
  auto const* const dynamic = meta.find(".uses_dynamic_stack");
  k.dynamic_stack = dynamic && dynamic->number;
  if (auto const* const arguments = meta.find(".args"))
    for (metadata const& argument : arguments->items) {
      k.arguments.push_back(read_argument(argument));
      k.kernarg_bytes = std::max(k.kernarg_bytes, k.arguments.back().offset + k.arguments.back().size);
    }
  return k;
}

/// Each entry is "0:0:hash,format"
std::shared_ptr<std::map<u64, std::string> const> read_formats(metadata const& list) {
  auto formats = std::make_shared<std::map<u64, std::string>>();
  for (metadata const& entry : list.items) {
    auto const [hash, format] = llvm::StringRef(entry.text).split(':').second.split(':').second.split(',');
    if (u64 key; !hash.getAsInteger(16, key)) formats->emplace(key, format.str());
  }
  return formats;
}

std::vector<kernel> read_kernels(elf_file const& elf, std::vector<symbol> const& symbols, u8 const* image,
                                 program const& code) {
  constexpr u32 metadata_note = 32;
  std::vector<kernel> kernels;
  for (auto const& s : elf.segments) {
    if (s.p_type != PT_NOTE) continue;
    for (u64 at = s.p_offset; at + sizeof(Elf64_Nhdr) <= s.p_offset + s.p_filesz;) {
      auto const note = elf.bytes.read<Elf64_Nhdr>(at);
      u64 const content = at + sizeof note + ((note.n_namesz + 3) & ~3u);
      if (note.n_type == metadata_note) {
        auto const root = read_metadata({elf.bytes.range(content, note.n_descsz), note.n_descsz});
        if (!root) reject("malformed metadata");
        if (auto const* const list = root->find("amdhsa.kernels"))
          for (metadata const& meta : list->items)
            kernels.push_back(read_kernel(meta, symbols, {image, elf.image_size()}, code));
        if (auto const* const list = root->find("amdhsa.printf"))
          for (auto const formats = read_formats(*list); kernel& k : kernels) k.formats = formats;
      }
      at = content + ((note.n_descsz + 3) & ~3u);
    }
  }
  return kernels;
}

}  // namespace

u64 image_size(std::span<u8 const> elf) { return elf_file(elf).image_size(); }

loaded_module load_module(std::span<u8 const> bytes, u8* image, program const* like) {
  elf_file const elf(bytes);
  copy_segments(elf, image);
  relocate(elf, image);

  auto code = std::make_shared<program>();
  code->base = reinterpret_cast<u64>(image);
  auto const symbols = symbols_of(elf);
  code->text = like && like->text->same_as(bytes, image) ? like->text : read_code(bytes, elf, symbols, image);

  loaded_module module;
  for (auto const& s : symbols)
    if (ELF64_ST_TYPE(s.raw.st_info) == STT_OBJECT && !s.name.ends_with(".kd"))
      module.variables.push_back({s.name, code->base + s.raw.st_value, s.raw.st_size});
  sort_by(module.variables, &module_variable::name);
  module.kernels = read_kernels(elf, symbols, image, *code);
  module.code = std::move(code);
  return module;
}

}  // namespace fusewire::sim
