#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "machine/address_space.hpp"
#include "machine/cache.hpp"
#include "machine/memory.hpp"
#include "machine/residency.hpp"
#include "machine/rmw.hpp"

using namespace fusewire::sim;

TEST_CASE("an address names its allocation, also after it was freed") {
  address_space space(2);
  allocation* a = space.allocate(0, 100, memory_kind::coarse);
  allocation* b = space.allocate(1, u64{4} << 20, memory_kind::uncached);
  CHECK(space.find(a->base) == a);
  CHECK(space.find(a->base + 99) == a);
  CHECK(space.find(a->base + 8192) == nullptr);
  CHECK(space.find(b->base + (u64{4} << 20) - 1) == b);
  CHECK(space.find(b->base + (u64{4} << 20)) == nullptr);
  CHECK(space.find(16) == nullptr);
  CHECK(space.nearest(a->base + 8192) == a);
  CHECK(space.used(1) == u64{4} << 20);
  space.release(*b);
  CHECK(space.used(1) == 0);
  CHECK(space.find(b->base) == b);
  CHECK_FALSE(b->live);
  CHECK(space.allocate(1, 64, memory_kind::coarse)->base != b->base);
}

TEST_CASE("a GPU's memory can be used up, and freed memory is used again at last") {
  address_space space(1);
  CHECK(space.allocate(0, address_space::capacity + 1, memory_kind::coarse) == nullptr);
  constexpr u64 most_of_it = std::min(address_space::capacity, address_space::region_bytes) / 2 + 1;
  for (int i = 0; i < 20; ++i) {
    allocation* a = space.allocate(0, most_of_it, memory_kind::coarse);
    REQUIRE(a);
    CHECK(space.allocate(0, most_of_it, memory_kind::coarse) == nullptr);
    space.release(*a);
  }
}

TEST_CASE("freed neighbours become one piece again") {
  address_space space(1);
  constexpr u64 most = std::min(address_space::capacity, address_space::region_bytes);
  for (int i = 0; i < 6; ++i) {
    std::vector<allocation*> pieces;
    for (int p = 0; p < 8; ++p) REQUIRE(pieces.emplace_back(space.allocate(0, most / 16, memory_kind::coarse)));
    for (allocation* a : pieces) space.release(*a);
  }
  CHECK(space.allocate(0, most / 2, memory_kind::coarse));
}

TEST_CASE("registered host memory") {
  address_space space(1);
  static char buffer[4096];
  auto const at = reinterpret_cast<u64>(buffer);
  allocation* a = space.adopt(at + 100, 1000, 0);
  REQUIRE(a);
  CHECK(space.find(at + 100) == a);
  CHECK(space.find(at + 1099) == a);
  CHECK(space.find(at + 1100) == nullptr);
  CHECK(space.adopt(at + 1099, 8, 0) == nullptr);
  CHECK(space.adopt(at, 101, 0) == nullptr);
  CHECK(space.adopt(at, 100, 0) != nullptr);
  space.abandon(*a);
  CHECK(space.find(at + 100) == nullptr);
}

TEST_CASE("a CU holds what its registers, LDS and wave slots allow") {
  kernel k;
  k.vgprs = 32, k.sgprs = 16;
  CHECK(groups_per_cu(k, 64, 0) == 32);
  CHECK(groups_per_cu(k, 128, 0) == 16);
  CHECK(groups_per_cu(k, 256, 0) == 8);
  CHECK(groups_per_cu(k, 1024, 0) == 2);
  CHECK(groups_per_cu(k, 256, 20 * 1024) == 3);
  CHECK(groups_per_cu(k, 256, 65537) == 0);
  k.vgprs = 128, k.agprs = 128;
  CHECK(groups_per_cu(k, 256, 0) == 2);
  CHECK(groups_per_cu(k, 512, 0) == 1);
  k.vgprs = 256, k.agprs = 256;
  CHECK(groups_per_cu(k, 256, 0) == 1);
  CHECK(groups_per_cu(k, 512, 0) == 0);
  k.vgprs = 65, k.agprs = 0;  // 72: seven waves per SIMD
  CHECK(groups_per_cu(k, 256, 0) == 7);
  k.vgprs = 32, k.sgprs = 108;
  CHECK(groups_per_cu(k, 256, 0) == 7);
}

TEST_CASE("masked copies") {
  u8 from[line_bytes], to[line_bytes], want[line_bytes];
  random_source chance(3);
  for (int round = 0; round < 1000; ++round) {
    byte_mask mask;
    for (u32 i = 0; i < line_bytes; ++i)
      from[i] = static_cast<u8>(chance.next()), to[i] = want[i] = static_cast<u8>(chance.next());
    for (int r = 0; r < 3; ++r) {
      u32 const at = chance.below(line_bytes), n = 1 + chance.below(std::min<u32>(line_bytes - at, 40));
      mask.add(at, n);
      for (u32 i = at; i < at + n; ++i) want[i] = from[i];
    }
    CHECK(merge(to, from, mask));
    CHECK(std::memcmp(to, want, line_bytes) == 0);
    CHECK_FALSE(merge(to, from, mask));
  }
}

TEST_CASE("an L2 keeps dirty bytes until they are written back") {
  l2_cache cache;
  random_source chance(1);
  u8 data[line_bytes] = {};
  int evicted = 0;
  auto const evict = [&](l2_cache::slot& s) { s.mask = {}, ++evicted; };
  for (u64 i = 1; i <= 100; ++i) {
    byte_mask word;
    word.add(0, 4);
    cache.write(cache.insert(i * line_bytes, i % 2, chance, evict), data, word);
  }
  CHECK(cache.find(5 * line_bytes)->mask.any());
  int written = 0;
  auto const write = [&](l2_cache::slot& s) { s.mask = {}, ++written; };
  cache.writeback([](auto const& s) { return !s.remote; }, write);
  CHECK(written == 50);
  cache.writeback([](auto const&) { return true; }, write);
  CHECK(written == 100);
  CHECK(evicted == 0);
  CHECK(cache.dirty().empty());
  for (u64 i = 1000; i < 40000; ++i) cache.insert(i * line_bytes, true, chance, evict).mask.add(0, 1);
  CHECK(evicted > 0);
}

TEST_CASE("atomics compute") {
  CHECK(apply<u32>(rmw::inc, 5, 5, 0) == 0);
  CHECK(apply<u32>(rmw::inc, 4, 5, 0) == 5);
  CHECK(apply<u32>(rmw::dec, 0, 7, 0) == 7);
  CHECK(apply<u32>(rmw::dec, 9, 7, 0) == 7);
  CHECK(apply<u32>(rmw::smin, 0xffffffff, 1, 0) == 0xffffffff);
  CHECK(apply<u32>(rmw::umin, 0xffffffff, 1, 0) == 1);
  CHECK(apply<u64>(rmw::cmpswap, 3, 9, 3) == 9);
  CHECK(apply<u64>(rmw::cmpswap, 4, 9, 3) == 4);
  CHECK(apply<u32>(rmw::add_f32, std::bit_cast<u32>(1.5f), std::bit_cast<u32>(2.f), 0) == std::bit_cast<u32>(3.5f));
  CHECK(apply<u64>(rmw::max_f64, std::bit_cast<u64>(1.5), std::bit_cast<u64>(-2.), 0) == std::bit_cast<u64>(1.5));
  CHECK(apply<u32>(rmw::pk_add_bf16, 0x3f803f80, 0x40003f80, 0) == 0x40404000);
  CHECK(apply<u32>(rmw::pk_add_f16, 0x3c003c00, 0x40003c00, 0) == 0x42004000);
}

TEST_CASE("polling is recognised, working is not") {
  poll_tracker p;
  for (int i = 0; i < 10; ++i) p.note(64, 0, 1), p.note(128, 5, 2);
  CHECK(p.repeats == 18);
  p.note(64, 1, 1);
  CHECK(p.repeats == 0);
  for (u64 i = 0; i < 100; ++i) p.note(4096 + 128 * i, 0, 3);
  CHECK(p.repeats == 0);
}
