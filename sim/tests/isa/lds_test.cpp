#include <catch2/catch_test_macros.hpp>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

u64 memory_at(std::vector<u8> const& lds, u32 at, int bytes) {
  u64 x = 0;
  std::memcpy(&x, lds.data() + at, bytes);
  return x;
}

/// v2: an address per lane, `stride` apart in a shuffled order.
void set_addresses(test_wave& w, u32 stride, bool in_order) {
  for (int l = 0; l < lanes; ++l) w->v[2][l] = 64 + stride * u32(in_order ? l : (l * 37) % 64);
}

std::string data(int first, int dwords) {
  return dwords == 1 ? "v" + std::to_string(first)
                     : "v[" + std::to_string(first) + ":" + std::to_string(first + dwords - 1) + "]";
}

}  // namespace

TEST_CASE("LDS reads and writes of dwords") {
  int const sizes[] = {4, 8, 12, 16};
  char const* const names[] = {"b32", "b64", "b96", "b128"};
  std::vector<std::string> texts;
  for (int i = 0; i < 4; ++i) {
    texts.push_back(std::string("ds_read_") + names[i] + " " + data(10, sizes[i] / 4) + ", v2 offset:48");
    texts.push_back(std::string("ds_write_") + names[i] + " v2, " + data(10, sizes[i] / 4) + " offset:48");
  }
  texts.push_back("ds_read_b64 a[10:11], v2 offset:48");
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (int variant = 0; variant < 3; ++variant) {
      int const size = i == 8 ? 8 : sizes[i / 2], row = i == 8 ? 266 : 10;
      test_wave w(u32(i) + 1);
      if (variant) w.set_exec(~u64(0));
      set_addresses(w, u32(variant == 2 ? size : 32), variant == 2);
      auto want = w.lds();
      auto const before = std::make_unique<wave>(*w);
      INFO(texts[i]);
      REQUIRE(c.run(i, *w) == "");
      bool const write = i % 2 == 1;
      for (int l = 0; l < lanes; ++l)
        for (int d = 0; d < size / 4; ++d) {
          u32 const at = before->v[2][l] + 48 + 4 * u32(d);
          bool const on = before->exec() >> l & 1;
          if (write && on) std::memcpy(&want[at], &before->v[10 + d][l], 4);
          if (!write) CHECK(w->v[row + d][l] == (on ? u32(memory_at(want, at, 4)) : before->v[row + d][l]));
        }
      CHECK(w.lds() == want);
    }
}

TEST_CASE("LDS reads and writes of bytes and shorts") {
  struct part {
    char const* text;
    int bytes;
    std::function<u32(u32 old, u32 x)> f;
  };
  std::vector<part> const parts{
      {"ds_read_u8 v10, v2", 1, [](u32, u32 x) { return x; }},
      {"ds_read_i8 v10, v2", 1, [](u32, u32 x) { return u32(i8(x)); }},
      {"ds_read_u16 v10, v2", 2, [](u32, u32 x) { return x; }},
      {"ds_read_i16 v10, v2", 2, [](u32, u32 x) { return u32(i16(x)); }},
      {"ds_read_u8_d16 v10, v2", 1, [](u32 old, u32 x) { return (old & 0xffff0000) | x; }},
      {"ds_read_u8_d16_hi v10, v2", 1, [](u32 old, u32 x) { return (old & 0xffff) | x << 16; }},
      {"ds_read_i8_d16 v10, v2", 1, [](u32 old, u32 x) { return (old & 0xffff0000) | u16(i8(x)); }},
      {"ds_read_i8_d16_hi v10, v2", 1, [](u32 old, u32 x) { return (old & 0xffff) | u32(u16(i8(x))) << 16; }},
      {"ds_read_u16_d16 v10, v2", 2, [](u32 old, u32 x) { return (old & 0xffff0000) | x; }},
      {"ds_read_u16_d16_hi v10, v2", 2, [](u32 old, u32 x) { return (old & 0xffff) | x << 16; }},
  };
  std::vector<std::string> texts;
  for (auto const& p : parts) texts.push_back(p.text);
  std::vector<std::pair<std::string, int>> const writes{{"ds_write_b8 v2, v10", 1},
                                                        {"ds_write_b8_d16_hi v2, v10", 1},
                                                        {"ds_write_b16 v2, v10", 2},
                                                        {"ds_write_b16_d16_hi v2, v10", 2}};
  for (auto const& [text, bytes] : writes) texts.push_back(text);
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    test_wave w(u32(i) + 1);
    set_addresses(w, 6, false);
    auto want = w.lds();
    auto const before = std::make_unique<wave>(*w);
    INFO(texts[i]);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      bool const on = before->exec() >> l & 1;
      u32 const old = before->v[10][l], at = before->v[2][l];
      if (i < parts.size()) {
        CHECK(w->v[10][l] == (on ? parts[i].f(old, u32(memory_at(want, at, parts[i].bytes))) : old));
      } else if (on) {
        auto const& [text, bytes] = writes[i - parts.size()];
        u32 const x = text.find("hi") != std::string::npos ? old >> 16 : old;
        std::memcpy(&want[at], &x, bytes);
      }
    }
    CHECK(w.lds() == want);
  }
}

TEST_CASE("LDS accesses of two elements") {
  std::vector<std::string> texts;
  struct form {
    int bytes, unit;
  };
  std::vector<form> forms;
  for (int bytes : {4, 8})
    for (int unit : {1, 64}) {
      std::string const suffix = std::string(unit == 64 ? "st64" : ""), type = bytes == 4 ? "b32" : "b64";
      int const n = bytes / 4;
      texts.push_back("ds_read2" + suffix + "_" + type + " " + data(10, 2 * n) + ", v2 offset0:3 offset1:20");
      texts.push_back("ds_write2" + suffix + "_" + type + " v2, " + data(4, n) + ", " + data(6, n) +
                      " offset0:3 offset1:20");
      texts.push_back("ds_wrxchg2" + suffix + "_rtn_" + type + " " + data(10, 2 * n) + ", v2, " + data(4, n) + ", " +
                      data(6, n) + " offset0:3 offset1:20");
      forms.push_back({bytes, unit});
    }
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const [bytes, unit] = forms[i / 3];
    test_wave w(u32(i) + 1);
    set_addresses(w, unit == 64 ? 8 : 256, false);
    auto want = w.lds();
    auto const before = std::make_unique<wave>(*w);
    INFO(texts[i]);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l)
      for (int e = 0; e < 2; ++e) {
        u32 const at = before->v[2][l] + u32((e ? 20 : 3) * bytes * unit);
        bool const on = before->exec() >> l & 1;
        for (int d = 0; d < bytes / 4; ++d) {
          int const to = 10 + e * bytes / 4 + d;
          if (i % 3 != 1) CHECK(w->v[to][l] == (on ? u32(memory_at(want, at + 4 * d, 4)) : before->v[to][l]));
          if (i % 3 != 0 && on) std::memcpy(&want[at + 4 * d], &before->v[4 + 2 * e + d][l], 4);
        }
      }
    CHECK(w.lds() == want);
  }
}

TEST_CASE("LDS atomics") {
  struct update {
    std::string name, type;
    int sources;
    bool returns_only;
    std::function<u64(u64 m, u64 d, u64 e)> f;
  };
  std::vector<update> all;
  for (int bits : {32, 64}) {
    std::string const n = std::to_string(bits);
    u64 const mask = bits == 64 ? ~u64(0) : 0xffffffff;
    auto const add = [&](std::string const& name, std::string const& type, int sources,
                         std::function<u64(u64, u64, u64)> f, bool returns_only = false) {
      all.push_back({name, type + n, sources, returns_only, [=](u64 m, u64 d, u64 e) { return f(m, d, e) & mask; }});
    };
    auto const sign = [=](u64 x) { return bits == 64 ? i64(x) : i64(i32(x)); };
    auto const real = [=](u64 x) { return bits == 64 ? as<double>(x) : double(as<float>(u32(x))); };
    auto const raw = [=](double x) { return bits == 64 ? as<u64>(x) : u64(as<u32>(float(x))); };
    add("add", "u", 1, [](u64 m, u64 d, u64) { return m + d; });
    add("sub", "u", 1, [](u64 m, u64 d, u64) { return m - d; });
    add("rsub", "u", 1, [](u64 m, u64 d, u64) { return d - m; });
    add("inc", "u", 1, [](u64 m, u64 d, u64) { return m >= d ? 0 : m + 1; });
    add("dec", "u", 1, [](u64 m, u64 d, u64) { return m == 0 || m > d ? d : m - 1; });
    add("min", "i", 1, [=](u64 m, u64 d, u64) { return sign(m) < sign(d) ? m : d; });
    add("max", "i", 1, [=](u64 m, u64 d, u64) { return sign(m) > sign(d) ? m : d; });
    add("min", "u", 1, [](u64 m, u64 d, u64) { return m < d ? m : d; });
    add("max", "u", 1, [](u64 m, u64 d, u64) { return m > d ? m : d; });
    add("and", "b", 1, [](u64 m, u64 d, u64) { return m & d; });
    add("or", "b", 1, [](u64 m, u64 d, u64) { return m | d; });
    add("xor", "b", 1, [](u64 m, u64 d, u64) { return m ^ d; });
    add("mskor", "b", 2, [](u64 m, u64 d, u64 e) { return (m & ~d) | e; });
    add("wrxchg", "b", 1, [](u64, u64 d, u64) { return d; }, true);
    add("cmpst", "b", 2, [](u64 m, u64 d, u64 e) { return m == d ? e : m; });
    add("cmpst", "f", 2, [=](u64 m, u64 d, u64 e) { return real(m) == real(d) ? e : m; });
    add("min", "f", 1, [=](u64 m, u64 d, u64) { return real(m) < real(d) ? m : d; });
    add("max", "f", 1, [=](u64 m, u64 d, u64) { return real(m) > real(d) ? m : d; });
    add("add", "f", 1, [=](u64 m, u64 d, u64) { return raw(real(m) + real(d)); });
  }
  auto const halves = [](u64 m, u64 d, auto sum) {
    return u64(sum(u16(m), u16(d))) | u64(sum(u16(m >> 16), u16(d >> 16))) << 16;
  };
  all.push_back({"pk_add", "f16", 1, false, [=](u64 m, u64 d, u64) {
                   return halves(m, d,
                                 [](u16 a, u16 b) { return as<u16>(f16(float(as<f16>(a)) + float(as<f16>(b)))); });
                 }});
  all.push_back({"pk_add", "bf16", 1, false, [=](u64 m, u64 d, u64) {
                   return halves(m, d, [](u16 a, u16 b) { return to_bf16(from_bf16(a) + from_bf16(b)); });
                 }});
  std::vector<std::string> texts;
  std::vector<std::pair<update const*, bool>> instances;
  for (auto const& u : all)
    for (bool returns : {false, true}) {
      if (!returns && u.returns_only) continue;
      int const n = u.type.ends_with("64") ? 2 : 1;
      texts.push_back("ds_" + u.name + (returns ? "_rtn_" : "_") + u.type + " " + (returns ? data(10, n) + ", " : "") +
                      "v2, " + data(4, n) + (u.sources == 2 ? ", " + data(6, n) : "") + " offset:8");
      instances.push_back({&u, returns});
    }
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const& [u, returns] = instances[i];
    int const bytes = u->type.ends_with("64") ? 8 : 4, dwords = bytes / 4;
    bool const floating = u->type[0] == 'f' || u->type == "bf16";
    test_wave w(u32(i) + 1);
    set_addresses(w, 24, false);
    std::mt19937 random(u32(i) + 1);
    auto const value = [&]() -> u64 {
      if (!floating) return edge_value(random, 8 * bytes, false);
      float const f = float(random() % 64) / 4;
      if (u->type == "f16") return as<u16>(f16(f)) * 0x10001u;
      if (u->type == "bf16") return to_bf16(f) * 0x10001u;
      return bytes == 8 ? as<u64>(double(f)) : as<u32>(f);
    };
    for (int l = 0; l < lanes; ++l) {
      u64 const m = value(), d = l % 2 ? m : value(), e = value();
      std::memcpy(&w.lds()[w->v[2][l] + 8], &m, bytes);
      for (int k = 0; k < dwords; ++k) w->v[4 + k][l] = u32(d >> 32 * k), w->v[6 + k][l] = u32(e >> 32 * k);
    }
    auto want = w.lds();
    auto const before = std::make_unique<wave>(*w);
    INFO(texts[i]);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      bool const on = before->exec() >> l & 1;
      u32 const at = before->v[2][l] + 8;
      u64 const m = memory_at(want, at, bytes);
      auto const reg = [&](int r) { return before->v[r][l] | (dwords == 2 ? u64(before->v[r + 1][l]) << 32 : 0); };
      u64 const now = u->f(m, reg(4), reg(6));
      if (on) std::memcpy(&want[at], &now, bytes);
      for (int k = 0; k < dwords; ++k)
        CHECK(w->v[10 + k][l] == (on && returns ? u32(m >> 32 * k) : before->v[10 + k][l]));
    }
    CHECK(w.lds() == want);
  }
}

TEST_CASE("LDS addresses wrap") {
  struct pair {
    std::string wrapped, plain;
    u32 offset;
  };
  std::vector<pair> pairs;
  auto const one = [&](std::string const& text) { pairs.push_back({text + " offset:33024", text, 33024}); };
  for (auto const* size : {"b32", "b64", "b96", "b128"}) {
    int const dwords = std::atoi(size + 1) / 32;
    one(std::string("ds_read_") + size + " " + data(10, dwords) + ", v2");
    one(std::string("ds_write_") + size + " v2, " + data(10, dwords));
  }
  for (auto const* part :
       {"u8", "i8", "u16", "i16", "u8_d16", "u8_d16_hi", "i8_d16", "i8_d16_hi", "u16_d16", "u16_d16_hi"})
    one(std::string("ds_read_") + part + " v10, v2");
  for (auto const* part : {"b8", "b8_d16_hi", "b16", "b16_d16_hi"}) one(std::string("ds_write_") + part + " v2, v10");
  for (auto const* text : {"ds_add_u32 v2, v4", "ds_add_rtn_u64 v[10:11], v2, v[4:5]", "ds_cmpst_b32 v2, v4, v6",
                           "ds_cmpst_rtn_b64 v[10:11], v2, v[4:5], v[6:7]", "ds_max_rtn_f32 v10, v2, v4",
                           "ds_pk_add_f16 v2, v4", "ds_wrxchg_rtn_b32 v10, v2, v4"})
    one(text);
  for (int bytes : {4, 8})
    for (int unit : {1, 64}) {
      std::string const form = std::string(unit == 64 ? "st64" : ""), type = bytes == 4 ? "b32 " : "b64 ";
      int const n = bytes / 4;
      auto const two = [&](std::string const& text) {
        pairs.push_back({text + " offset0:40 offset1:100", text + " offset0:0 offset1:60", u32(40 * bytes * unit)});
      };
      two("ds_read2" + form + "_" + type + data(10, 2 * n) + ", v2");
      two("ds_write2" + form + "_" + type + "v2, " + data(4, n) + ", " + data(6, n));
      two("ds_wrxchg2" + form + "_rtn_" + type + data(10, 2 * n) + ", v2, " + data(4, n) + ", " + data(6, n));
    }
  std::vector<std::string> texts;
  for (auto const& p : pairs) texts.push_back(p.wrapped), texts.push_back(p.plain);
  code const c(texts);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    for (bool const all : {false, true})
      for (bool const in_order : {false, true}) {
        auto const ready = [&](test_wave& w, u32 offset) {
          if (all) w.set_exec(~u64(0));
          set_addresses(w, 16, in_order);
          for (u32& address : w->v[2]) address -= 64 + offset;
        };
        test_wave wrapped(u32(i) + 1), plain(u32(i) + 1);
        ready(wrapped, pairs[i].offset);
        ready(plain, 0);
        INFO(pairs[i].wrapped);
        REQUIRE(c.run(2 * i, *wrapped) == "");
        REQUIRE(c.run(2 * i + 1, *plain) == "");
        CHECK(wrapped.lds() == plain.lds());
        for (int r = 3; r < 32; ++r) CHECK(std::memcmp(wrapped->v[r], plain->v[r], sizeof wrapped->v[r]) == 0);
      }
}

TEST_CASE("LDS instructions that cross lanes or count") {
  code const c({"ds_bpermute_b32 v10, v2, v4 offset:8", "ds_permute_b32 v10, v2, v4",
                "ds_swizzle_b32 v10, v4 offset:swizzle(QUAD_PERM,1,0,3,2)",
                "ds_swizzle_b32 v10, v4 offset:swizzle(BITMASK_PERM,\"01pi0\")",
                "ds_swizzle_b32 v10, v4 offset:swizzle(SWAP,16)", "s_mov_b32 m0, 0x40\nds_append v10 offset:4",
                "s_mov_b32 m0, 0x40\nds_consume v10 offset:4", "s_mov_b32 m0, 0x40\nds_read_addtid_b32 v10 offset:16",
                "s_mov_b32 m0, 0x40\nds_write_addtid_b32 v10 offset:16"});
  for (std::size_t i = 0; i < 9; ++i)
    for (bool all : {true, false}) {
      test_wave w(u32(i) + 1);
      if (all) w.set_exec(~u64(0));
      u64 const exec = w->exec();
      for (int l = 0; l < lanes; ++l) w->v[2][l] = i == 1 ? 4 * u32((l * 5 + 3) % 64) : w->v[2][l];
      auto want_lds = w.lds();
      auto const before = std::make_unique<wave>(*w);
      u32 const counter = u32(memory_at(w.lds(), 0x44, 4));
      REQUIRE(c.run(i, *w) == "");
      for (int l = 0; l < lanes; ++l) {
        u32 want = 0;
        auto const from = [&](int lane) { return exec >> lane & 1 ? before->v[4][lane] : 0; };
        switch (i) {
          case 0: want = from(int((before->v[2][l] + 8) / 4 % 64)); break;
          case 1:
            for (int k = 0; k < lanes; ++k)
              if ((k * 5 + 3) % 64 == l) want = from(k);
            break;
          case 2: want = from(l ^ 1); break;
          case 3: want = from((l & 32) | 8 | (l & 4) | (~l & 2)); break;
          case 4: want = from(l ^ 16); break;
          case 5:
          case 6: want = counter; break;
          case 7: want = u32(memory_at(want_lds, 0x50 + 4 * u32(l), 4)); break;
          case 8:
            want = before->v[10][l];
            if (exec >> l & 1) std::memcpy(&want_lds[0x50 + 4 * l], &want, 4);
            break;
        }
        CAPTURE(i, l);
        CHECK(w->v[10][l] == (exec >> l & 1 ? want : before->v[10][l]));
      }
      if (i == 5 || i == 6) {
        u32 const n = u32(std::popcount(exec)), now = i == 5 ? counter + n : counter - n;
        std::memcpy(&want_lds[0x44], &now, 4);
      }
      CHECK(w.lds() == want_lds);
    }
}

TEST_CASE("an LDS operation in flight keeps what it read, and leaves registers alone that change meanwhile") {
  // v0 to v3 are where the encoding of a read has its unused data fields.
  code const c({"ds_read_b128 v[8:11], v3 offset:16\nv_mov_b32 v3, v20\nv_mov_b32 v1, v21\ns_waitcnt lgkmcnt(0)",
                "ds_write_b64 v3, v[4:5] offset:16\nv_mov_b32 v3, v20\nv_mov_b32 v4, v21\ns_waitcnt lgkmcnt(0)"});
  for (std::size_t i = 0; i < 2; ++i) {
    test_wave w(u32(i) + 1);
    w.memory().lds_is_late = true;
    w.set_exec(~u64(0));
    for (int l = 0; l < lanes; ++l) w->v[3][l] = 16 * u32(l);
    auto want = w.lds();
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      u32 const at = 16 * u32(l) + 16;
      CHECK(w->v[3][l] == before->v[20][l]);
      CHECK(w->v[i == 0 ? 1 : 4][l] == before->v[21][l]);
      for (u32 d = 0; d < 4 && i == 0; ++d) CHECK(w->v[8 + d][l] == u32(memory_at(want, at + 4 * d, 4)));
      for (u32 d = 0; d < 2 && i == 1; ++d) std::memcpy(&want[at + 4 * d], &before->v[4 + d][l], 4);
    }
    CHECK(w.lds() == want);
    forget(*w);
  }
}
