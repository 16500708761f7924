#include "hip/modules.hpp"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "hip/compressed_bundle.hpp"

namespace fusewire::sim {
namespace {

constexpr char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";

std::vector<u8> elf_at(u8 const* p) {
  Elf64_Ehdr h;
  std::memcpy(&h, p, sizeof h);
  u64 end = h.e_shoff + u64{h.e_shentsize} * h.e_shnum;
  for (int i = 0; i < h.e_phnum; ++i) {
    Elf64_Phdr ph;
    std::memcpy(&ph, p + h.e_phoff + u64{h.e_phentsize} * static_cast<u64>(i), sizeof ph);
    end = std::max<u64>(end, ph.p_offset + ph.p_filesz);
  }
  return {p, p + end};
}

}  // namespace

std::vector<u8> code_object(void const* bundle, std::string& problem) {
  auto const* p = static_cast<u8 const*>(bundle);
  std::vector<u8> expanded;
  if (std::memcmp(p, ELFMAG, SELFMAG) == 0) return elf_at(p);
  if (std::memcmp(p, "CCOB", 4) == 0) {
    expanded = decompress_bundle(p, problem);
    if (expanded.empty()) return {};
    p = expanded.data();
  }
  if (std::memcmp(p, bundle_magic, sizeof bundle_magic - 1) != 0) {
    problem = "it is neither an offload bundle nor an ELF file";
    return {};
  }
  auto const word = [p](u64 at) {
    u64 x;
    std::memcpy(&x, p + at, 8);
    return x;
  };
  std::string have;
  u64 at = sizeof bundle_magic - 1;
  u64 const entries = word(at);
  at += 8;
  for (u64 i = 0; i < entries; ++i) {
    u64 const offset = word(at), size = word(at + 8), length = word(at + 16);
    std::string_view const triple(reinterpret_cast<char const*>(p + at + 24), length);
    at += 24 + length;
    auto const arch = triple.find("gfx942");
    if (triple.starts_with("hip") && arch != triple.npos && triple.substr(arch).find("xnack+") == triple.npos) return {p + offset, p + offset + size};
    if (size) have += " " + std::string(triple);
  }
  problem = "it holds no code for gfx942; it holds:" + have;
  return {};
}

kernel const* device_module::find(std::string const& name) const {
  for (kernel const& k : code.kernels)
    if (k.name == name) return &k;
  return nullptr;
}

module_source* module_registry::add_bundle(void const* bundle) {
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

void module_registry::add_function(module_source* source, void const* stub, char const* name) { functions_[stub] = {source, name, -1}; }

function const* module_registry::find_function(void const* stub) const {
  auto const f = functions_.find(stub);
  return f == functions_.end() ? nullptr : &f->second;
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
      m->code = load_module(source.elf, reinterpret_cast<u8*>(m->image->base));
      // To hold occupancy down, the compiler may ask for more registers than a wave can name: 256 of each kind.
      for (kernel& k : m->code.kernels) k.vgprs = std::min(k.vgprs, 256), k.agprs = std::min(k.agprs, 256);
      slot = std::move(m);
      return slot.get();
    } catch (std::exception const& e) {
      source.problem = e.what();
    }
  }
  std::fprintf(stderr, "fusewire-sim: a module cannot be loaded: %s\n", source.problem.c_str());
  return nullptr;
}

kernel const* module_registry::kernel_of(function const& f, int device) {
  device_module const* m = load(*f.source, f.device >= 0 ? f.device : device);
  return m ? m->find(f.name) : nullptr;
}

std::optional<module_registry::address> module_registry::variable(module_source& source, std::string const& name, int device) {
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
