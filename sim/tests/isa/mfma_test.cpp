// Every MFMA against a plain triple loop; matrices are scattered to and gathered from lanes as CDNA3 ISA 7.1.4.2
// describes them.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

enum class element { f32, xf32, f16, bf16, fp8, bf8, i8, f64 };

struct shape {
  std::string name;
  int m, k, blocks;
  element a, b;
};

int bits_of(element e) { return e == element::f64 ? 64 : e <= element::xf32 ? 32 : e <= element::bf16 ? 16 : 8; }

/// A small number that the type holds exactly, with its bits.
double random_element(std::mt19937& random, element e, u64& bits) {
  int const n = int(random() % 9) - 4;
  switch (e) {
    case element::f64: bits = as<u64>(double(n)); break;
    case element::f32:
    case element::xf32: bits = as<u32>(float(n)); break;
    case element::f16: bits = as<u16>(f16(float(n))); break;
    case element::bf16: bits = as<u32>(float(n)) >> 16; break;
    case element::fp8: bits = to_fp8(float(n)); break;
    case element::bf8: bits = to_bf8(float(n)); break;
    case element::i8: bits = u8(n); break;
  }
  return n;
}

void put(wave& w, int first, int lane, int item, int bits, u64 value) {
  if (bits == 64) {
    w.v[first + 2 * item][lane] = u32(value), w.v[first + 2 * item + 1][lane] = u32(value >> 32);
    return;
  }
  int const per = 32 / bits, shift = item % per * bits;
  u32& x = w.v[first + item / per][lane];
  u32 const mask = (bits == 32 ? ~0u : (1u << bits) - 1) << shift;
  x = (x & ~mask) | (u32(value) << shift & mask);
}

struct position {
  int item, lane;
};
position output_position(shape const& s, int block, int i, int j) {
  int const rows = s.a == element::f64 ? 1 : 4, n = s.m;
  int const blocks_per_item = std::max(1, 64 / (n * s.m / rows)), groups_per_item = 64 / blocks_per_item / n,
            groups = s.m / (rows * groups_per_item);
  return {i % rows + rows * (i / (rows * groups_per_item) + groups * (block / blocks_per_item)),
          j + n * ((i / rows) % groups_per_item + groups_per_item * (block % blocks_per_item))};
}

std::vector<shape> shapes() {
  std::vector<shape> all;
  for (auto [type, e] : {std::pair{"f16", element::f16}, std::pair{"bf16", element::bf16}}) {
    std::string const t = type;
    all.push_back({"f32_32x32x4_2b_" + t, 32, 4, 2, e, e});
    all.push_back({"f32_16x16x4_4b_" + t, 16, 4, 4, e, e});
    all.push_back({"f32_4x4x4_16b_" + t, 4, 4, 16, e, e});
    all.push_back({"f32_32x32x8_" + t, 32, 8, 1, e, e});
    all.push_back({"f32_16x16x16_" + t, 16, 16, 1, e, e});
  }
  for (auto [na, a] : {std::pair{"fp8", element::fp8}, std::pair{"bf8", element::bf8}})
    for (auto [nb, b] : {std::pair{"fp8", element::fp8}, std::pair{"bf8", element::bf8}}) {
      all.push_back({std::string("f32_16x16x32_") + na + "_" + nb, 16, 32, 1, a, b});
      all.push_back({std::string("f32_32x32x16_") + na + "_" + nb, 32, 16, 1, a, b});
    }
  all.push_back({"f32_32x32x1_2b_f32", 32, 1, 2, element::f32, element::f32});
  all.push_back({"f32_16x16x1_4b_f32", 16, 1, 4, element::f32, element::f32});
  all.push_back({"f32_4x4x1_16b_f32", 4, 1, 16, element::f32, element::f32});
  all.push_back({"f32_32x32x2_f32", 32, 2, 1, element::f32, element::f32});
  all.push_back({"f32_16x16x4_f32", 16, 4, 1, element::f32, element::f32});
  all.push_back({"f32_32x32x4_xf32", 32, 4, 1, element::xf32, element::xf32});
  all.push_back({"f32_16x16x8_xf32", 16, 8, 1, element::xf32, element::xf32});
  all.push_back({"i32_32x32x4_2b_i8", 32, 4, 2, element::i8, element::i8});
  all.push_back({"i32_16x16x4_4b_i8", 16, 4, 4, element::i8, element::i8});
  all.push_back({"i32_4x4x4_16b_i8", 4, 4, 16, element::i8, element::i8});
  all.push_back({"i32_32x32x16_i8", 32, 16, 1, element::i8, element::i8});
  all.push_back({"i32_16x16x32_i8", 16, 32, 1, element::i8, element::i8});
  all.push_back({"f64_16x16x4_f64", 16, 4, 1, element::f64, element::f64});
  all.push_back({"f64_4x4x4_4b_f64", 4, 4, 4, element::f64, element::f64});
  return all;
}

std::string range(char file, int first, int count) {
  return count == 1
             ? file + std::to_string(first)
             : std::string(1, file) + "[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]";
}

}  // namespace

TEST_CASE("matrix multiply-add, every shape") {
  auto const all = shapes();
  std::vector<std::string> texts;
  for (auto const& s : all) {
    int const inputs = std::max(1, s.k * s.m * s.blocks / 64 * bits_of(s.a) / 32),
              outputs = s.m * s.m * s.blocks / 64 * (s.a == element::f64 ? 2 : 1);
    std::string const a = range('v', 2, inputs), b = range('v', 12, inputs), arch = range('v', 32, outputs),
                      acc = range('a', 64, outputs);
    texts.push_back("v_mfma_" + s.name + " " + arch + ", " + a + ", " + b + ", " + arch);
    texts.push_back("v_mfma_" + s.name + " " + acc + ", " + a + ", " + range('a', 12, inputs) + ", " + acc);
    texts.push_back("v_mfma_" + s.name + " " + arch + ", " + a + ", " + b + ", 0");
  }
  code const assembled(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const& s = all[i / 3];
    int const form = int(i % 3), b_first = form == 1 ? 256 + 12 : 12, c_first = form == 1 ? 256 + 64 : 32, n = s.m;
    bool const wide = s.a == element::f64;
    test_wave w(u32(i) + 1);
    std::mt19937 random(u32(i) + 9);
    std::vector<double> a(s.blocks * s.m * s.k), b(s.blocks * s.k * n), c(s.blocks * s.m * n);
    int const per_lane = s.k * s.m * s.blocks / 64;
    for (int block = 0; block < s.blocks; ++block)
      for (int x = 0; x < s.m; ++x) {
        for (int k = 0; k < s.k; ++k) {
          int const lane = x + s.m * (block + s.blocks * (k / per_lane));
          u64 bits;
          a[(block * s.m + x) * s.k + k] = random_element(random, s.a, bits);
          put(*w, 2, lane, k % per_lane, bits_of(s.a), bits);
          b[(block * s.k + k) * n + x] = random_element(random, s.b, bits);
          put(*w, b_first, lane, k % per_lane, bits_of(s.b), bits);
        }
        for (int j = 0; j < n; ++j) {
          auto const at = output_position(s, block, x, j);
          double const v = int(random() % 100) - 50;
          c[(block * s.m + x) * n + j] = form == 2 ? 0 : v;
          put(*w, c_first, at.lane, at.item, wide ? 64 : 32,
              wide                 ? as<u64>(v)
              : s.a == element::i8 ? u32(i32(v))
                                   : as<u32>(float(v)));
        }
      }
    INFO(texts[i]);
    REQUIRE(assembled.run(i, *w) == "");
    int wrong = 0;
    for (int block = 0; block < s.blocks; ++block)
      for (int x = 0; x < s.m; ++x)
        for (int j = 0; j < n; ++j) {
          double want = c[(block * s.m + x) * n + j];
          for (int k = 0; k < s.k; ++k) want += a[(block * s.m + x) * s.k + k] * b[(block * s.k + k) * n + j];
          auto const at = output_position(s, block, x, j);
          double const got = wide                 ? as<double>(w.v64(c_first + 2 * at.item, at.lane))
                             : s.a == element::i8 ? double(i32(w->v[c_first + at.item][at.lane]))
                                                  : double(as<float>(w->v[c_first + at.item][at.lane]));
          wrong += got != want;
        }
    CHECK(wrong == 0);
  }
}

TEST_CASE("matrix broadcast and permutation controls") {
  // 4 blocks of 16x16x1: with cbsz:1 abid:1 blocks 0 and 1 use block 1's A; blgp:3 rotates B's lanes by 16
  code const c({"v_mfma_f32_16x16x1_4b_f32 v[32:47], v2, v4, 0 cbsz:1 abid:1",
                "v_mfma_f32_16x16x1_4b_f32 v[32:47], v2, v4, 0 blgp:3",
                "v_mfma_f64_4x4x4_4b_f64 v[10:11], v[2:3], v[4:5], v[6:7] neg:[1,0,1]",
                "v_mfma_f32_16x16x1_4b_f32 v[32:47], v2, v4, 0 blgp:6"});
  for (std::size_t i : {0u, 1u, 3u}) {
    test_wave w(1);
    for (int l = 0; l < lanes; ++l) w->v[2][l] = as<u32>(float(l + 1)), w->v[4][l] = as<u32>(float(3 * l + 2));
    REQUIRE(c.run(i, *w) == "");
    for (int block = 0; block < 4; ++block)
      for (int x = 0; x < 16; ++x)
        for (int j = 0; j < 16; ++j) {
          int const a_lane = x + 16 * (i == 0 ? (block & ~1) + 1 : block), l = j + 16 * block,
                    b_lane = i == 1   ? (l + 16) % 64
                             : i == 3 ? 32 + l % 16
                                      : l;
          CHECK(as<float>(w->v[32 + x % 4 + 4 * block][j + 16 * (x / 4)]) == float(a_lane + 1) * float(3 * b_lane + 2));
        }
  }
  test_wave w(1);
  for (int l = 0; l < lanes; ++l)
    for (int r : {2, 4, 6}) {
      u64 const x = as<u64>(double(l % 7 + r));
      w->v[r][l] = u32(x), w->v[r + 1][l] = u32(x >> 32);
    }
  REQUIRE(c.run(2, *w) == "");
  for (int block = 0; block < 4; ++block)
    for (int x = 0; x < 4; ++x)
      for (int j = 0; j < 4; ++j) {
        auto const at = [&](int r, int l) { return as<double>(w.v64(r, l)); };
        auto const out = output_position({"", 4, 4, 4, element::f64, element::f64}, block, x, j);
        double want = -at(6, out.lane);
        for (int k = 0; k < 4; ++k) want -= at(2, x + 4 * (block + 4 * k)) * at(4, j + 4 * (block + 4 * k));
        CHECK(as<double>(w.v64(10, out.lane)) == want);
      }
}
