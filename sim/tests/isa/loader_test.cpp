// Code objects that others made, and malformed ones.
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "flat_machine.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

// What clang writes and nothing requires (.uses_dynamic_stack, .args, .sgpr_count, ...) is missing, as in objects that
// were written by hand.
constexpr char const* by_hand = R"(
.text
.p2align 8
.globl store
.type store,@function
store:
  s_load_dwordx2 s[2:3], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v0, s[2:3]
  s_endpgm
.size store, .-store
.rodata
.p2align 6
.amdhsa_kernel store
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 4
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: store
    .symbol: store.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 4
    .max_flat_workgroup_size: 64
...
.end_amdgpu_metadata
)";

constexpr char const* compiled = R"(
typedef unsigned u32;
__attribute__((device)) int table[4] = {1, 2, 3, 4};
__attribute__((device)) int* pointer = &table[1];
extern "C" __attribute__((global)) void sum(int* a, int n) {
  __attribute__((shared)) static int part[64];
  u32 t = __builtin_amdgcn_workitem_id_x();
  part[t] = a[t] + *pointer;
  __builtin_amdgcn_s_barrier();
  if (t < u32(n)) a[t] = part[63 - t] + table[t & 3];
}
extern "C" __attribute__((global)) void other(float* a) { a[0] = 1; }
)";

enum class outcome { loaded, refused, too_large };

outcome load(std::vector<u8> const& bytes) {
  try {
    // Far more than the mutated object needs; a malformed one may ask for 4 GiB.
    if (image_size(bytes) > 64 << 20) return outcome::too_large;
    test::module const m(bytes);
    return outcome::loaded;
  } catch (std::runtime_error const& e) {
    INFO(e.what());
    CHECK(std::string(e.what()).starts_with("code object: "));
    return outcome::refused;
  }
}

/// Changes a few bytes, mostly of the tables that the loader reads, or cuts the file.
std::vector<u8> mutated(std::vector<u8> bytes, u32 seed) {
  static constexpr u8 edges[] = {0, 1, 0x7f, 0x80, 0xfe, 0xff};
  std::mt19937 random(seed);
  if (seed % 8 == 0) {
    bytes.resize(random() % bytes.size());
    return bytes;
  }
  for (u32 changes = 1 + random() % 4; changes; --changes) {
    std::size_t const at = random() % (random() % 2 ? std::min<std::size_t>(bytes.size(), 2560) : bytes.size());
    if (seed % 8 == 1)
      for (std::size_t i = at; i < std::min(at + 8, bytes.size()); ++i) bytes[i] = 0xff;
    else bytes[at] = random() % 2 ? edges[random() % std::size(edges)] : u8(random());
  }
  return bytes;
}

}  // namespace

TEST_CASE("an object without the optional keys of the metadata loads and runs") {
  test::module const m(assemble(by_hand));
  std::vector<u32> out(64);
  auto const r = launch(m["store"], {1}, {64}, pack(out.data()));
  REQUIRE(r.fault == "");
  for (u32 i = 0; i < 64; ++i) CHECK(out[i] == i);
}

TEST_CASE("an instruction that is not implemented is named, also in a function that does not say how long it is") {
  std::string source = by_hand;
  for (std::string const& unsized : {source, source.replace(source.find(".size store, .-store"), 20, "")}) {
    std::string text = unsized;
    text.insert(text.find("  s_endpgm"), "  buffer_load_format_x v4, off, s[4:7], 0\n");
    std::string why;
    try {
      test::module const m(assemble(text));
    } catch (std::runtime_error const& e) {
      why = e.what();
    }
    CHECK(why.find("buffer_load_format_x v4, off, s[4:7], 0 at 0x") != std::string::npos);
    CHECK(why.find("of store") != std::string::npos);
  }
}

TEST_CASE("a malformed object is refused with a reason") {
  int refused = 0, loaded = 0;
  for (auto const& valid : {assemble(by_hand), compile_hip(compiled, "-O2")}) {
    REQUIRE(load(valid) == outcome::loaded);
    for (u32 seed = 1; seed <= 600; ++seed) {
      INFO("mutant " << seed);
      outcome const o = load(mutated(valid, seed));
      refused += o == outcome::refused;
      loaded += o == outcome::loaded;
    }
  }
  CHECK(refused > 300);
  CHECK(loaded > 100);  // else the mutations hit nothing but the header
}
