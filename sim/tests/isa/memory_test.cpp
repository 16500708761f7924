#include <catch2/catch_test_macros.hpp>

#include "../../isa/address.hpp"
#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

constexpr int data_register = 10;

struct width_case {
  char const* suffix;
  int bytes;
  u32 (*widen)(u32 old, u32 raw);  // null: plain dwords
};
width_case const loads[] = {
    {"dword", 4, nullptr},
    {"dwordx2", 8, nullptr},
    {"dwordx3", 12, nullptr},
    {"dwordx4", 16, nullptr},
    {"ubyte", 1, [](u32, u32 x) { return x & 255; }},
    {"sbyte", 1, [](u32, u32 x) { return u32(i8(x)); }},
    {"ushort", 2, [](u32, u32 x) { return x & 65535; }},
    {"sshort", 2, [](u32, u32 x) { return u32(i16(x)); }},
    {"ubyte_d16", 1, [](u32 old, u32 x) { return (old & 0xffff0000) | (x & 255); }},
    {"ubyte_d16_hi", 1, [](u32 old, u32 x) { return (old & 0xffff) | (x & 255) << 16; }},
    {"sbyte_d16", 1, [](u32 old, u32 x) { return (old & 0xffff0000) | u16(i8(x)); }},
    {"sbyte_d16_hi", 1, [](u32 old, u32 x) { return (old & 0xffff) | u32(u16(i8(x))) << 16; }},
    {"short_d16", 2, [](u32 old, u32 x) { return (old & 0xffff0000) | (x & 0xffff); }},
    {"short_d16_hi", 2, [](u32 old, u32 x) { return (old & 0xffff) | x << 16; }},
};
struct store_case {
  char const* suffix;
  int bytes;
  int shift;
};
store_case const stores[] = {{"dword", 4, 0}, {"dwordx2", 8, 0}, {"dwordx3", 12, 0},     {"dwordx4", 16, 0},
                             {"byte", 1, 0},  {"short", 2, 0},   {"byte_d16_hi", 1, 16}, {"short_d16_hi", 2, 16}};

std::string data_operand(char file, int bytes) {
  int const n = (bytes + 3) / 4;
  return n == 1 ? file + std::to_string(data_register) : std::string(1, file) + "[10:" + std::to_string(9 + n) + "]";
}

/// A way of addressing: how the instruction is written, and where lane l then goes.
struct addressing {
  std::string prefix, address, tail;
  std::function<u8*(test_wave&, std::vector<u8>&, int lane)> at;
};

std::vector<addressing> ways() {
  constexpr int spread = 64;
  return {
      {"global", "v[2:3]", "off offset:-16",
       [](test_wave&, std::vector<u8>& m, int l) { return m.data() + 4096 + spread * l - 16; }},
      {"global", "v4", "s[4:5] offset:32",
       [](test_wave&, std::vector<u8>& m, int l) { return m.data() + 100 + 48 * l + 32; }},
      {"flat", "v[2:3]", "", [](test_wave&, std::vector<u8>& m, int l) { return m.data() + 4096 + spread * l; }},
      {"flat", "v[6:7]", "offset:8",
       [](test_wave& w, std::vector<u8>&, int l) { return w.lds().data() + 128 * l + 8; }},
      {"flat", "v[8:9]", "offset:8",
       [](test_wave& w, std::vector<u8>&, int l) { return w.scratch().data() + 256 * l + 40 + 8; }},
      {"scratch", "off", "s6 offset:12",
       [](test_wave& w, std::vector<u8>&, int l) { return w.scratch().data() + 256 * l + 60 + 12; }},
      {"scratch", "v5", "off offset:-4",
       [](test_wave& w, std::vector<u8>&, int l) { return w.scratch().data() + 256 * l + 4 + l - 4; }},
      {"scratch", "v5", "s6",
       [](test_wave& w, std::vector<u8>&, int l) { return w.scratch().data() + 256 * l + 4 + l + 60; }},
      {"buffer", "v4", "s[8:11], s6 offen offset:24",
       [](test_wave&, std::vector<u8>& m, int l) { return m.data() + 100 + 48 * l + 60 + 24; }},
      {"buffer", "v16", "s[12:15], 0 idxen offset:4",
       [](test_wave&, std::vector<u8>& m, int l) { return m.data() + 100 + 40 * (63 - l) + 4; }},
      {"buffer", "v[16:17]", "s[12:15], 8 idxen offen",
       [](test_wave&, std::vector<u8>& m, int l) { return m.data() + 100 + 40 * (63 - l) + 8 + 4 * (l % 3); }},
  };
}

void prepare(test_wave& w, std::vector<u8>& memory) {
  auto const base = reinterpret_cast<u64>(memory.data());
  for (int l = 0; l < lanes; ++l) {
    auto const set = [&](int reg, u64 x) { w->v[reg][l] = u32(x), w->v[reg + 1][l] = u32(x >> 32); };
    set(2, base + 4096 + 64 * u64(l));
    w->v[4][l] = 48 * u32(l);
    w->v[5][l] = 4 + u32(l);
    set(6, shared_aperture + 128 * u64(l));
    set(8, private_aperture + 40);
    w->v[16][l] = 63 - u32(l);
    w->v[17][l] = 4 * (u32(l) % 3);
  }
  w.set_s64(4, base + 100);
  w->s[6] = 60;
  for (int first : {8, 12}) {
    w.set_s64(first, (base + 100) | u64(first == 12 ? 40 : 0) << 48);
    w->s[first + 2] = first == 12 ? 64 : 8192;
    w->s[first + 3] = 0x20000;
  }
}

std::vector<u8> random_bytes(u32 seed) {
  std::mt19937 random(seed);
  std::vector<u8> m(16384);
  for (auto& x : m) x = u8(random());
  return m;
}

std::string line(addressing const& way, std::string const& operation, std::string const& data, bool store) {
  bool const buffer = way.prefix == "buffer";
  std::string const operands = buffer || !store ? data + ", " + way.address : way.address + ", " + data;
  bool const bare = way.prefix == "flat";
  return way.prefix + "_" + operation + " " + operands + (bare ? " " : ", ") + way.tail;
}

}  // namespace

TEST_CASE("vector memory loads, every width and addressing") {
  std::vector<std::string> texts;
  auto const all = ways();
  for (auto const& way : all)
    for (auto const& load : loads)
      for (char file : {'v', 'a'})
        texts.push_back(line(way, std::string("load_") + load.suffix, data_operand(file, load.bytes), false));
  code const c(texts);
  std::size_t i = 0;
  for (auto const& way : all)
    for (auto const& load : loads)
      for (int first : {data_register, 256 + data_register}) {
        auto memory = random_bytes(u32(i));
        test_wave w(u32(i) + 1);
        prepare(w, memory);
        auto const before = std::make_unique<wave>(*w);
        INFO(texts[i]);
        REQUIRE(c.run(i++, *w) == "");
        int wrong = 0;
        for (int l = 0; l < lanes; ++l) {
          u32 raw[4] = {};
          std::memcpy(raw, way.at(w, memory, l), load.bytes);
          for (int d = 0; d < 4; ++d) {
            u32 const old = before->v[first + d][l];
            bool const written = 4 * d < load.bytes && (before->exec() >> l & 1);
            wrong += w->v[first + d][l] != (written ? (load.widen ? load.widen(old, raw[d]) : raw[d]) : old);
          }
        }
        CHECK(wrong == 0);
      }
}

TEST_CASE("vector memory stores, every width and addressing") {
  std::vector<std::string> texts;
  auto const all = ways();
  for (auto const& way : all)
    for (auto const& store : stores)
      for (char file : {'v', 'a'})
        texts.push_back(line(way, std::string("store_") + store.suffix, data_operand(file, store.bytes), true));
  code const c(texts);
  std::size_t i = 0;
  for (auto const& way : all)
    for (auto const& store : stores)
      for (int first : {data_register, 256 + data_register}) {
        auto memory = random_bytes(u32(i));
        test_wave w(u32(i) + 1);
        prepare(w, memory);
        auto want_memory = memory;
        auto const want_lds = w.lds(), want_scratch = w.scratch();
        auto expected = std::make_unique<test_wave>(u32(i) + 1);
        for (int l = 0; l < lanes; ++l)
          if (w->exec() >> l & 1) {
            u32 data[4];
            for (int d = 0; d < 4; ++d) data[d] = w->v[first + d][l] >> store.shift;
            std::memcpy(way.at(*expected, want_memory, l), data, store.bytes);
          }
        INFO(texts[i]);
        REQUIRE(c.run(i++, *w) == "");
        CHECK(memory == want_memory);
        CHECK(w.lds() == expected->lds());
        CHECK(w.scratch() == expected->scratch());
      }
}

TEST_CASE("buffers drop what lies beyond num_records") {
  code const c({"buffer_load_dwordx4 v[10:13], v4, s[8:11], 0 offen",
                "buffer_store_dwordx4 v[10:13], v4, s[8:11], 0 offen", "buffer_load_dword v10, v4, s[8:11], 0 idxen",
                "buffer_load_ubyte v10, v4, s[8:11], 0 offen"});
  std::vector<u8> memory = random_bytes(1);
  for (std::size_t const variant : {0, 1, 2, 3, 4, 5, 7}) {
    std::size_t const i = variant % 4;
    bool const stride = variant >= 4 || i == 2;  // without an index it changes nothing
    auto m = memory;
    test_wave w(1);
    w.set_exec(~u64(0));
    w.set_s64(8, reinterpret_cast<u64>(m.data()) | u64(stride ? 4 : 0) << 48);
    w->s[10] = i == 2 ? 20 : 200;
    w->s[11] = 0x20000;
    for (int l = 0; l < lanes; ++l) w->v[4][l] = i == 2 ? u32(l) : l == 63 ? u32(-8) : 8 * u32(l);
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      CAPTURE(i, l);
      u32 const offset = w->v[4][l];
      if (i == 2) {
        u32 x;
        std::memcpy(&x, m.data() + 4 * l, 4);
        CHECK(w->v[10][l] == (l < 20 ? x : 0));
      } else if (i == 3) {
        CHECK(w->v[10][l] == (offset < 200 ? m[offset] : 0));
      } else if (i == 0) {
        for (u32 d = 0; d < 4; ++d) {
          u32 x = 0;
          if (u64(offset) + 4 * d + 4 <= 200) std::memcpy(&x, m.data() + offset + 4 * d, 4);
          CHECK(w->v[10 + d][l] == x);
        }
      }
    }
    if (i == 1) CHECK(std::equal(m.begin() + 200, m.end(), memory.begin() + 200));
    if (i == 1) CHECK_FALSE(std::equal(m.begin(), m.begin() + 200, memory.begin()));
  }
}

TEST_CASE("loads straight to LDS") {
  code const c({"s_mov_b32 m0, 0x100\nglobal_load_lds_dword v[2:3], off",
                "s_mov_b32 m0, 0x100\nglobal_load_lds_sbyte v4, s[4:5] offset:3",
                "s_mov_b32 m0, 0x200\nbuffer_load_dword v4, s[8:11], 0 offen lds",
                "s_mov_b32 m0, 0x200\nbuffer_load_dword v4, s[8:11], 0 offen offset:16 lds"});
  int const offset[] = {0, 3, 0, 16};  // it moves the address in LDS as well
  auto memory = random_bytes(3);
  for (std::size_t i = 0; i < 4; ++i) {
    test_wave w(u32(i) + 1), untouched(u32(i) + 1);
    prepare(w, memory);
    REQUIRE(c.run(i, *w) == "");
    for (u32 l = 0; l < u32(lanes); ++l) {
      u32 got, old, want;
      u32 const at = (i >= 2 ? 0x200 : 0x100) + offset[i] + 4 * l;
      std::memcpy(&got, &w.lds()[at], 4);
      std::memcpy(&old, &untouched.lds()[at], 4);
      u8 const* const from = memory.data() + (i == 0 ? 4096 + 64 * l : 100 + 48 * l + offset[i]);
      std::memcpy(&want, from, 4);
      if (i == 1) want = u32(i8(*from));
      CHECK(got == (w->exec() >> l & 1 ? want : old));
    }
  }
}

TEST_CASE("memory faults say what and where") {
  code const c({"ds_read_b32 v10, v2", "scratch_load_dword v10, off, s6", "ds_write_b128 v2, v[4:7]",
                "scratch_store_dwordx2 off, v[2:3], s6"});
  test_wave w(1);
  w.set_exec(1u << 5);
  w->v[2][5] = 65534;
  w->s[6] = 254;
  auto const text = c.run(0, *w);
  CHECK(text.find("LDS access of 4 bytes at 0xfffe") != std::string::npos);
  CHECK(where(*w).instruction == "ds_read_b32 v10, v2");
  CHECK(c.run(1, *w).find("scratch access of 4 bytes at 0xfe in lane 5") != std::string::npos);
  CHECK(c.run(2, *w).find("LDS access of 16 bytes") != std::string::npos);
  CHECK(c.run(3, *w).find("scratch access of 8 bytes") != std::string::npos);
  w.set_exec(0);
  CHECK(c.run(0, *w) == "");
}

TEST_CASE("cache bits reach the memory") {
  code const c({"global_load_dword v10, v[2:3], off sc0 sc1", "global_store_dword v[2:3], v10, off nt",
                "buffer_load_dword v10, v4, s[8:11], 0 offen sc1", "global_atomic_add v[2:3], v10, off sc1",
                "global_atomic_add v10, v[2:3], v10, off sc0"});
  auto memory = random_bytes(3);
  bool const want[5][3] = {
      {true, true, false}, {false, false, true}, {false, true, false}, {true, true, false}, {false, true, false}};
  for (std::size_t i = 0; i < 5; ++i) {
    test_wave w(1);
    prepare(w, memory);
    REQUIRE(c.run(i, *w) == "");
    auto const got = w.memory().last_cache;
    CAPTURE(i);
    CHECK((got.sc0 == want[i][0] && got.sc1 == want[i][1] && got.nt == want[i][2]));
  }
}

// ------------------------------------------------------------------------------------------------------------- atomics

namespace {

struct atomic_case {
  std::string name;
  int bytes;
  bool compare, floating;
  std::function<u64(u64 memory, u64 data, u64 expected)> f;
  std::string only = {};  // prefixes that have it; empty: all
};

u32 half_sum(u32 a, u32 b) { return as<u16>(f16(float(as<f16>(u16(a))) + float(as<f16>(u16(b))))); }

std::vector<atomic_case> atomics() {
  std::vector<atomic_case> all;
  for (int bytes : {4, 8}) {
    auto const add = [&](std::string const& name, std::function<u64(u64, u64, u64)> f, bool compare = false) {
      u64 const mask = bytes == 8 ? ~u64(0) : 0xffffffff;
      all.push_back({name + (bytes == 8 ? "_x2" : ""), bytes, compare, false,
                     [=](u64 m, u64 d, u64 e) { return f(m, d, e) & mask; }});
    };
    auto const sign = [=](u64 x) { return bytes == 8 ? i64(x) : i64(i32(x)); };
    add("swap", [](u64, u64 d, u64) { return d; });
    add("cmpswap", [](u64 m, u64 d, u64 e) { return m == e ? d : m; }, true);
    add("add", [](u64 m, u64 d, u64) { return m + d; });
    add("sub", [](u64 m, u64 d, u64) { return m - d; });
    add("smin", [=](u64 m, u64 d, u64) { return sign(m) < sign(d) ? m : d; });
    add("umin", [](u64 m, u64 d, u64) { return m < d ? m : d; });
    add("smax", [=](u64 m, u64 d, u64) { return sign(m) > sign(d) ? m : d; });
    add("umax", [](u64 m, u64 d, u64) { return m > d ? m : d; });
    add("and", [](u64 m, u64 d, u64) { return m & d; });
    add("or", [](u64 m, u64 d, u64) { return m | d; });
    add("xor", [](u64 m, u64 d, u64) { return m ^ d; });
    add("inc", [](u64 m, u64 d, u64) { return m >= d ? 0 : m + 1; });
    add("dec", [](u64 m, u64 d, u64) { return m == 0 || m > d ? d : m - 1; });
  }
  all.push_back({"add_f32", 4, false, true,
                 [](u64 m, u64 d, u64) { return u64(as<u32>(as<float>(u32(m)) + as<float>(u32(d)))); }});
  all.push_back({"add_f64", 8, false, true, [](u64 m, u64 d, u64) { return as<u64>(as<double>(m) + as<double>(d)); }});
  all.push_back({"min_f64", 8, false, true, [](u64 m, u64 d, u64) { return as<double>(m) < as<double>(d) ? m : d; }});
  all.push_back({"max_f64", 8, false, true, [](u64 m, u64 d, u64) { return as<double>(m) > as<double>(d) ? m : d; }});
  all.push_back({"pk_add_f16", 4, false, true, [](u64 m, u64 d, u64) {
                   return u64(half_sum(u32(m), u32(d)) | half_sum(u32(m >> 16), u32(d >> 16)) << 16);
                 }});
  all.push_back({"pk_add_bf16", 4, false, true,
                 [](u64 m, u64 d, u64) {
                   auto const sum = [](u32 a, u32 b) { return u64(to_bf16(from_bf16(u16(a)) + from_bf16(u16(b)))); };
                   return sum(u32(m), u32(d)) | sum(u32(m >> 16), u32(d >> 16)) << 16;
                 },
                 "global flat"});
  return all;
}

}  // namespace

TEST_CASE("atomics in every memory") {
  auto const all = atomics();
  std::vector<addressing> some;
  for (auto const& way : ways())
    if (way.prefix != "scratch") some.push_back(way);
  std::vector<std::string> texts;
  struct instance {
    addressing const* way;
    atomic_case const* what;
    bool returns;
  };
  std::vector<instance> instances;
  for (auto const& way : some)
    for (auto const& a : all) {
      if (!a.only.empty() && a.only.find(way.prefix) == std::string::npos) continue;
      for (bool returns : {false, true}) {
        std::string const data = data_operand('v', a.bytes * (a.compare ? 2 : 1));
        std::string operands = way.prefix == "buffer"
                                   ? data + ", " + way.address
                                   : (returns ? "v" + std::string(a.bytes == 8 ? "[20:21]" : "20") + ", " : "") +
                                         way.address + ", " + data;
        texts.push_back(way.prefix + "_atomic_" + a.name + " " + operands + (way.prefix == "flat" ? " " : ", ") +
                        way.tail + (returns ? " sc0" : ""));
        instances.push_back({&way, &a, returns});
      }
    }
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const& [way, what, returns] = instances[i];
    auto memory = random_bytes(u32(i));
    test_wave w(u32(i) + 1);
    prepare(w, memory);
    std::mt19937 random(u32(i) + 1);
    // values that make conditions go both ways, and floats whose sums are exact
    auto const value = [&](int) -> u64 {
      if (!what->floating) return edge_value(random, 8 * what->bytes, false);
      float const f = float(int(random() % 64)) / 4;
      if (what->name == "pk_add_f16") return as<u16>(f16(f)) | u64(as<u16>(f16(-f))) << 16;
      if (what->name == "pk_add_bf16") return to_bf16(f) | u64(to_bf16(-f)) << 16;
      return what->bytes == 8 ? as<u64>(double(f)) : as<u32>(f);
    };
    int const dwords = what->bytes / 4;
    std::vector<u64> old(lanes), data(lanes), expected(lanes);
    for (int l = 0; l < lanes; ++l) {
      old[l] = value(l), data[l] = value(l), expected[l] = l % 2 ? old[l] : value(l);
      if (dwords == 1) old[l] &= 0xffffffff, data[l] &= 0xffffffff, expected[l] &= 0xffffffff;
      std::memcpy(way->at(w, memory, l), &old[l], what->bytes);
      for (int d = 0; d < dwords; ++d)
        w->v[data_register + d][l] = u32(data[l] >> 32 * d),
                             w->v[data_register + dwords + d][l] = u32(expected[l] >> 32 * d);
    }
    auto const before = std::make_unique<wave>(*w);
    INFO(texts[i]);
    REQUIRE(c.run(i, *w) == "");
    int const to = way->prefix == "buffer" ? data_register : 20;
    int wrong = 0;
    for (int l = 0; l < lanes; ++l) {
      bool const on = before->exec() >> l & 1;
      u64 now = 0;
      std::memcpy(&now, way->at(w, memory, l), what->bytes);
      wrong += now != (on ? what->f(old[l], data[l], expected[l]) : old[l]);
      for (int d = 0; d < dwords; ++d)
        wrong += w->v[to + d][l] != (on && returns ? u32(old[l] >> 32 * d) : before->v[to + d][l]);
    }
    CHECK(wrong == 0);
  }
}
