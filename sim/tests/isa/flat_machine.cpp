#include "flat_machine.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "../../isa/address.hpp"

namespace fusewire::sim::test {

bool flat_memory::load(wave& w, cache_bits cache, u64 mask, u64 const* address, int bytes, destination const& to) {
  last_cache = cache;
  alignas(64) u32 out[4][lanes] = {};
  for (int l = 0; l < lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    u32 data[4] = {};
    std::memcpy(data, reinterpret_cast<void const*>(address[l]), bytes);
    for (int d = 0; d < (bytes + 3) / 4; ++d) out[d][l] = data[d];
  }
  to.put(w, to, mask, out);
  return true;
}

bool flat_memory::store(wave&, cache_bits cache, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) {
  last_cache = cache;
  for (int l = 0; l < lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    u32 data[4];
    for (int d = 0; d < (bytes + 3) / 4; ++d) data[d] = in[d][l];
    std::memcpy(reinterpret_cast<void*>(address[l]), data, bytes);
  }
  return true;
}

bool flat_memory::atomic(wave& w, cache_bits cache, rmw what, u64 mask, u64 const* address, int bytes,
                         u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& to) {
  last_cache = cache;
  alignas(64) u32 old[2][lanes] = {};
  auto const value = [&](u32 const(*rows)[lanes], int l) {
    return rows ? rows[0][l] | (bytes == 8 ? u64(rows[1][l]) << 32 : 0) : 0;
  };
  for (int l = 0; l < lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    auto* const at = reinterpret_cast<void*>(address[l]);
    u64 before = 0;
    std::memcpy(&before, at, bytes);
    u64 const after = bytes == 8 ? combined<u64>(what, before, value(data, l), value(compare, l))
                                 : combined<u32>(what, u32(before), u32(value(data, l)), u32(value(compare, l)));
    std::memcpy(at, &after, bytes);
    old[0][l] = u32(before);
    old[1][l] = u32(before >> 32);
  }
  if (to.put) to.put(w, to, mask, old);
  return true;
}

bool flat_memory::scalar_load(wave&, u64 address, int bytes, bool, u32* out) {
  std::memcpy(out, reinterpret_cast<void const*>(address), bytes);
  return true;
}

bool flat_memory::scalar_atomic(wave& w, rmw what, u64 address, int bytes, u64 data, u64 compare,
                                destination const& old) {
  u32 rows[2][2][lanes];
  for (int d = 0; d < 2; ++d) rows[0][d][0] = u32(data >> 32 * d), rows[1][d][0] = u32(compare >> 32 * d);
  return atomic(w, {}, what, 1, &address, bytes, rows[0], rows[1], old);
}

namespace {

std::vector<u8> kernel_arguments(kernel const& k, extent grid, extent block, std::span<u8 const> given,
                                 int dynamic_lds) {
  std::vector<u8> bytes(std::max<std::size_t>(k.kernarg_bytes, given.size()) + 64);
  std::copy(given.begin(), given.end(), bytes.begin());
  for (auto const& a : k.arguments) {
    u64 value = 0;
    if (a.kind == "hidden_block_count_x") value = grid.x;
    else if (a.kind == "hidden_block_count_y") value = grid.y;
    else if (a.kind == "hidden_block_count_z") value = grid.z;
    else if (a.kind == "hidden_group_size_x") value = block.x;
    else if (a.kind == "hidden_group_size_y") value = block.y;
    else if (a.kind == "hidden_group_size_z") value = block.z;
    else if (a.kind == "hidden_grid_dims") value = 3;
    else if (a.kind == "hidden_dynamic_lds_size") value = u64(dynamic_lds);
    else if (!a.kind.starts_with("hidden_")) continue;
    std::memcpy(bytes.data() + a.offset, &value, std::min(a.size, 8));
  }
  return bytes;
}

}  // namespace

launch_result launch(kernel const& k, extent grid, extent block, std::span<u8 const> arguments, int dynamic_lds,
                     memory_port* memory) {
  flat_memory flat;
  dispatch d;
  d.kernel = &k;
  d.grid[0] = grid.x, d.grid[1] = grid.y, d.grid[2] = grid.z;
  d.block[0] = block.x, d.block[1] = block.y, d.block[2] = block.z;
  d.lds = k.lds + dynamic_lds;
  d.kernarg = kernel_arguments(k, grid, block, arguments, dynamic_lds);
  u32 const threads = block.x * block.y * block.z, waves = (threads + lanes - 1) / lanes;
  std::vector<std::unique_ptr<wave>> pool;
  for (u32 i = 0; i < waves; ++i) pool.push_back(std::make_unique<wave>());
  u32 const scratch_bytes = u32(k.scratch) + (k.dynamic_stack ? 16384 : 0);
  std::vector<u8> scratch(std::size_t(waves) * lanes * scratch_bytes, 0xcd);
  launch_result result;
  for (u32 z = 0; z < grid.z; ++z)
    for (u32 y = 0; y < grid.y; ++y)
      for (u32 x = 0; x < grid.x; ++x) {
        workgroup g;
        g.launch = &d;
        g.id[0] = x, g.id[1] = y, g.id[2] = z;
        g.xcd = int((x + grid.x * (y + grid.y * z)) % 8);
        g.lds.assign(d.lds, 0xcd);
        for (u32 i = 0; i < waves; ++i) {
          wave& w = *pool[i];
          w.memory = memory ? memory : &flat;
          w.scratch = scratch.data() + std::size_t(i) * lanes * scratch_bytes;
          w.scratch_bytes = scratch_bytes;
          w.fault_text = &result.fault;
          start(w, d, g, i);
        }
        for (u32 ended = 0; ended < waves;) {
          u32 waiting = 0;
          ended = 0;
          for (u32 i = 0; i < waves; ++i) {
            wave& w = *pool[i];
            if (w.state == wave_state::sleeping) w.state = wave_state::running;
            if (w.state == wave_state::running) result.instructions += execute(w, 10000);
            if (w.faulted) {
              result.where = where(w);
              return result;
            }
            waiting += w.state == wave_state::at_barrier;
            ended += w.state == wave_state::ended;
          }
          if (waiting && waiting + ended == waves)
            for (u32 i = 0; i < waves; ++i)
              if (pool[i]->state == wave_state::at_barrier) pool[i]->state = wave_state::running;
        }
      }
  return result;
}

module::module(std::span<u8 const> elf) :image_(image_size(elf) + 4096) {
  auto* const aligned = reinterpret_cast<u8*>((reinterpret_cast<u64>(image_.data()) + 4095) & ~u64(4095));
  loaded_ = load_module(elf, aligned);
}

kernel const& module::operator[](std::string const& name) const {
  for (auto const& k : loaded_.kernels)
    if (k.name == name) return k;
  throw std::runtime_error("no kernel " + name);
}

std::vector<u8> read_file(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<u8> compile_hip(std::string const& source, std::string const& options) {
  char const* const chosen = std::getenv("FUSEWIRE_SIM_CLANG");
  std::string const compiler = chosen ? chosen : FUSEWIRE_SIM_CLANG;
  auto const directory = std::filesystem::temp_directory_path() /
                         ("fusewire_sim_isa_" + std::to_string(std::rand()) + std::to_string(std::uintptr_t(&source)));
  std::filesystem::create_directories(directory);
  auto const input = directory / "kernel.hip", output = directory / "kernel.hsaco";
  std::ofstream(input) << source;
  std::string const command =
      "\"" + compiler +
      "\" -x hip --offload-arch=gfx942 -nogpuinc -nogpulib --offload-device-only --no-gpu-bundle-output -std=c++20 " +
      options + " " + input.string() + " -o " + output.string();
  bool const done = std::system(command.c_str()) == 0;
  auto const bytes = done ? read_file(output.string()) : std::vector<u8>();
  std::filesystem::remove_all(directory);
  return bytes;
}

std::vector<u8> assemble(std::string const& source) {
  char const* const chosen = std::getenv("FUSEWIRE_SIM_CLANG");
  auto const directory =
      std::filesystem::temp_directory_path() / ("fusewire_sim_asm_" + std::to_string(std::random_device()()));
  std::filesystem::create_directories(directory);
  auto const input = directory / "code.s", output = directory / "code.hsaco";
  std::ofstream(input) << source;
  std::string const command = "\"" + std::string(chosen ? chosen : FUSEWIRE_SIM_CLANG) +
                              "\" -x assembler -target amdgcn-amd-amdhsa -mcpu=gfx942 " + input.string() + " -o " +
                              output.string();
  bool const done = std::system(command.c_str()) == 0;
  auto bytes = done ? read_file(output.string()) : std::vector<u8>();
  std::filesystem::remove_all(directory);
  if (bytes.empty()) throw std::runtime_error("the test's assembly does not assemble");
  return bytes;
}

}  // namespace fusewire::sim::test
