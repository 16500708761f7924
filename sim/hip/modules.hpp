#pragma once
#include <map>
#include <optional>
#include <span>
#include <unordered_map>

#include "hip/work.hpp"

namespace fusewire::sim {

/// A module's copy on one GPU.
struct device_module {
  allocation* image = nullptr;
  loaded_module code;
  kernel const* find(std::string const& name) const;
};

/// A code object, loaded on each GPU when it is first used there.
struct module_source {
  std::vector<u8> elf;
  std::string problem;  // why there is no code object for gfx942
  int device = -1;      // on which hipModuleLoad loaded it; -1: registered at start, for every GPU
  std::vector<std::unique_ptr<device_module>> loaded;
  struct variable {
    void const* host;
    std::string name;
  };
  std::vector<variable> variables;
  std::unordered_map<std::string, std::unique_ptr<function>> functions;  // hipModuleGetFunction
};

class module_registry {
 public:
  module_registry(node& n) : node_(n) {}
  module_source* add_bundle(std::span<u8 const> bundle);  // __hipRegisterFatBinary, hipModuleLoadData
  void remove(module_source*);
  void add_function(module_source*, void const* stub, char const* name);
  function const* find_function(void const* stub) const;
  bool has(module_source const*) const;
  bool has(function const*) const;
  function const* function_of(module_source&, std::string const& name, int device);

  /// Null, with the reason on standard error, when the module cannot be used.
  device_module* load(module_source&, int device);
  kernel const* kernel_of(function const&, int device);
  struct address {
    u64 at = 0, size = 0;
  };
  std::optional<address> variable(void const* host, int device);
  std::optional<address> variable(module_source&, std::string const& name, int device);

 private:
  node& node_;
  std::vector<std::unique_ptr<module_source>> sources_;
  std::unordered_map<void const*, function> functions_;
};

/// The gfx942 code object in a __CLANG_OFFLOAD_BUNDLE__, or a bare ELF; sets `problem` if there is none. More bytes may
/// follow it.
std::vector<u8> code_object(std::span<u8 const> bundle, std::string& problem);

/// The bytes from an address on that this process can read. It bounds a code object of which HIP passes only the
/// address.
std::span<u8 const> readable_from(void const*);

}  // namespace fusewire::sim
