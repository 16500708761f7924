// The least machine that runs a kernel: host memory is global memory, workgroups one after the other, waves in turn.
#pragma once
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../../machine.hpp"

namespace fusewire::sim::test {

class flat_memory final : public memory_port {
 public:
  void issue(wave&) override {}
  bool load(wave&, cache_bits, u64 mask, u64 const* address, int bytes, destination const&) override;
  bool store(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) override;
  bool atomic(wave&, cache_bits, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
              u32 const (*compare)[lanes], destination const&) override;
  bool scalar_load(wave&, u64 address, int bytes, bool fresh, u32* out) override;
  bool scalar_atomic(wave&, rmw, u64 address, int bytes, u64 data, u64 compare, destination const& old) override;
  void writeback(wave&, cache_bits) override { ++writebacks; }
  void invalidate(wave&, cache_bits) override { ++invalidates; }
  void wait_vmcnt(wave&, int outstanding) override { last_vmcnt = outstanding; }
  u64 clock(wave&) override { return ++ticks; }
  u64 real_time(wave&) override { return ++ticks; }

  bool late(wave&) override { return lds_is_late; }

  bool lds_is_late = false;
  int writebacks = 0, invalidates = 0, last_vmcnt = -1;
  cache_bits last_cache;
  u64 ticks = 0;
};

struct extent {
  u32 x = 1, y = 1, z = 1;
};

struct launch_result {
  u64 instructions = 0;
  std::string fault;  // empty: all waves ended
  location where;     // of the fault
};

/// Runs one kernel. `arguments` holds the explicit ones, laid out as the kernel expects.
launch_result launch(kernel const&, extent grid, extent block, std::span<u8 const> arguments, int dynamic_lds = 0,
                     memory_port* memory = nullptr);

template <class... T>
std::vector<u8> pack(T const&... values) {
  std::vector<u8> bytes;
  auto const add = [&](auto const& v) {
    while (bytes.size() % alignof(std::remove_cvref_t<decltype(v)>)) bytes.push_back(0);
    auto const at = bytes.size();
    bytes.resize(at + sizeof v);
    std::memcpy(bytes.data() + at, &v, sizeof v);
  };
  (add(values), ...);
  return bytes;
}

/// A code object loaded into memory of its own.
class module {
 public:
  explicit module(std::span<u8 const> elf);
  kernel const& operator[](std::string const& name) const;
  loaded_module const& loaded() const { return loaded_; }

 private:
  std::vector<u8> image_;
  loaded_module loaded_;
};

std::vector<u8> read_file(std::string const& path);

/// The code object of an assembly source; throws when it does not assemble.
std::vector<u8> assemble(std::string const& source);

/// Compiles HIP device code without any header through clang++ (FUSEWIRE_SIM_CLANG of the environment, else the
/// build's); empty if there is none.
std::vector<u8> compile_hip(std::string const& source, std::string const& options);

}  // namespace fusewire::sim::test
