#include "hip/modules.hpp"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "hip/compressed_bundle.hpp"

namespace fusewire::sim {
namespace {

constexpr std::string_view bundle_magic = "__CLANG_OFFLOAD_BUNDLE__";

/// Thrown by a read past the end.
struct truncated : std::runtime_error {
  truncated() : std::runtime_error("it is truncated or malformed") {}
};

std::span<u8 const> part(std::span<u8 const> bytes, u64 at, u64 size) {
  if (at > bytes.size() || size > bytes.size() - at) throw truncated();
  return bytes.subspan(at, size);
}
template <class T>
T read(std::span<u8 const> bytes, u64 at) {
  T x;
  std::memcpy(&x, part(bytes, at, sizeof x).data(), sizeof x);
  return x;
}
bool begins(std::span<u8 const> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

/// The ELF file that begins here. It ends with its section headers or its last segment, whichever is later.
std::vector<u8> elf_at(std::span<u8 const> bytes) {
  auto const h = read<Elf64_Ehdr>(bytes, 0);
  std::size_t end = part(bytes, h.e_shoff, u64{h.e_shentsize} * h.e_shnum).size() + h.e_shoff;
  for (u64 i = 0; i < h.e_phnum; ++i) {
    auto const ph = read<Elf64_Phdr>(bytes, h.e_phoff + h.e_phentsize * i);
    end = std::max(end, part(bytes, ph.p_offset, ph.p_filesz).size() + ph.p_offset);
  }
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<u8> find_code_object(std::span<u8 const> bytes) {
  std::vector<u8> expanded;
  if (begins(bytes, {ELFMAG, SELFMAG})) return elf_at(bytes);
  if (begins(bytes, "CCOB")) bytes = expanded = decompress_bundle(bytes);
  if (!begins(bytes, bundle_magic)) throw std::runtime_error("it is neither an offload bundle nor an ELF file");
  std::string have;
  u64 at = bundle_magic.size();
  u64 const entries = read<u64>(bytes, at);
  at += 8;
  for (u64 i = 0; i < entries; ++i) {
    auto const offset = read<u64>(bytes, at), size = read<u64>(bytes, at + 8), length = read<u64>(bytes, at + 16);
    auto const name = part(bytes, at + 24, length);
    std::string_view const triple(reinterpret_cast<char const*>(name.data()), name.size());
    at += 24 + length;
    auto const arch = triple.find("gfx942");
    if (triple.starts_with("hip") && arch != triple.npos && triple.substr(arch).find("xnack+") == triple.npos) {
      auto const code = part(bytes, offset, size);
      return {code.begin(), code.end()};
    }
    if (size) have += " " + std::string(triple);
  }
  throw std::runtime_error("it holds no code for gfx942; it holds:" + have);
}

}  // namespace

std::vector<u8> code_object(std::span<u8 const> bytes, std::string& problem) {
  try {
    return find_code_object(bytes);
  } catch (std::exception const& e) {
    problem = e.what();
    return {};
  }
}

std::span<u8 const> readable_from(void const* p) {
  auto const at = reinterpret_cast<u64>(p);
  u64 end = at;
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  if (!maps) return {};
  unsigned long long first, last;
  char readable;
  while (std::fscanf(maps, "%llx-%llx %c%*[^\n]", &first, &last, &readable) == 3)
    if (readable == 'r' && first <= end && end < last) end = last;
  std::fclose(maps);
  return {static_cast<u8 const*>(p), end - at};
}

kernel const* device_module::find(std::string const& name) const {
  for (kernel const& k : code.kernels)
    if (k.name == name) return &k;
  return nullptr;
}

module_source* module_registry::add_bundle(std::span<u8 const> bundle) {
  auto s = std::make_unique<module_source>();
  s->elf = code_object(bundle, s->problem);
  s->loaded.resize(static_cast<std::size_t>(node_.settings.gpus));
  sources_.push_back(std::move(s));
  return sources_.back().get();
}

void module_registry::remove(module_source* source) {
  for (auto const& m : source->loaded)
    if (m) node_.memory.release(*m->image);
  std::erase_if(functions_, [&](auto const& f) { return f.second.source == source; });
  std::erase_if(sources_, [&](auto const& s) { return s.get() == source; });
}

void module_registry::add_function(module_source* source, void const* stub, char const* name) {
  functions_[stub] = {source, name, -1};
}

function const* module_registry::find_function(void const* stub) const {
  auto const f = functions_.find(stub);
  return f == functions_.end() ? nullptr : &f->second;
}

bool module_registry::has(module_source const* m) const {
  return std::ranges::any_of(sources_, [&](auto const& s) { return s.get() == m; });
}

bool module_registry::has(function const* f) const {
  return std::ranges::any_of(functions_, [&](auto const& x) { return &x.second == f; }) ||
         std::ranges::any_of(sources_, [&](auto const& s) {
           return std::ranges::any_of(s->functions, [&](auto const& x) { return x.second.get() == f; });
         });
}

function const* module_registry::function_of(module_source& source, std::string const& name, int device) {
  device_module const* m = load(source, device);
  if (!m || !m->find(name)) return nullptr;
  auto& f = source.functions[name];
  if (!f) f = std::make_unique<function>(function{&source, name, device});
  return f.get();
}

device_module* module_registry::load(module_source& source, int device) {
  auto& slot = source.loaded[static_cast<std::size_t>(device)];
  if (slot) return slot.get();
  if (source.problem.empty()) {
    auto m = std::make_unique<device_module>();
    try {
      m->image = node_.memory.allocate(device, image_size(source.elf), memory_kind::image);
      if (!m->image) throw std::runtime_error("the GPU has no memory left for it");
      auto const other = std::ranges::find_if(source.loaded, [](auto const& x) { return x != nullptr; });
      m->code = load_module(source.elf, reinterpret_cast<u8*>(m->image->base),
                            other == source.loaded.end() ? nullptr : (*other)->code.code.get());
      // To limit occupancy, the compiler may ask for more registers than a wave can name: 256 of each kind
      for (kernel& k : m->code.kernels) k.vgprs = std::min(k.vgprs, 256), k.agprs = std::min(k.agprs, 256);
      slot = std::move(m);
      return slot.get();
    } catch (std::exception const& e) {
      source.problem = e.what();
      if (m->image) node_.memory.release(*m->image);
    }
  }
  std::fprintf(stderr, "fusewire-sim: a module cannot be loaded: %s\n", source.problem.c_str());
  return nullptr;
}

kernel const* module_registry::kernel_of(function const& f, int device) {
  device_module const* m = load(*f.source, f.device >= 0 ? f.device : device);
  return m ? m->find(f.name) : nullptr;
}

std::optional<module_registry::address> module_registry::variable(module_source& source, std::string const& name,
                                                                  int device) {
  if (device_module const* m = load(source, device))
    for (module_variable const& v : m->code.variables)
      if (v.name == name) return address{v.address, v.size};
  return std::nullopt;
}

std::optional<module_registry::address> module_registry::variable(void const* host, int device) {
  for (auto const& s : sources_)
    for (auto const& v : s->variables)
      if (v.host == host) return variable(*s, v.name, device);
  return std::nullopt;
}

}  // namespace fusewire::sim
