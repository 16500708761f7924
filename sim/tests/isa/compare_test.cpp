#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

template <class T>
std::map<std::string, std::function<bool(T, T)>> relations() {
  std::map<std::string, std::function<bool(T, T)>> r{
      {"f", [](T, T) { return false; }}, {"lt", std::less<T>()},    {"eq", std::equal_to<T>()},
      {"le", std::less_equal<T>()},      {"gt", std::greater<T>()}, {"ge", std::greater_equal<T>()},
  };
  if constexpr (std::is_integral_v<T>) {
    r["ne"] = std::not_equal_to<T>();
    r["t"] = [](T, T) { return true; };
  } else {
    auto const unordered = [](T a, T b) { return std::isnan(double(a)) || std::isnan(double(b)); };
    r["lg"] = [=](T a, T b) { return !unordered(a, b) && a != b; };
    r["o"] = [=](T a, T b) { return !unordered(a, b); };
    r["u"] = unordered;
    r["nge"] = [=](T a, T b) { return unordered(a, b) || a < b; };
    r["nlg"] = [=](T a, T b) { return unordered(a, b) || a == b; };
    r["ngt"] = [=](T a, T b) { return unordered(a, b) || a <= b; };
    r["nle"] = [=](T a, T b) { return unordered(a, b) || a > b; };
    r["neq"] = [=](T a, T b) { return unordered(a, b) || a != b; };
    r["nlt"] = [=](T a, T b) { return unordered(a, b) || a >= b; };
    r["tru"] = [](T, T) { return true; };
  }
  return r;
}

template <class T>
T value(test_wave const& w, int reg, int l) {
  u64 const x = w.v64(reg, l);
  if constexpr (sizeof(T) == 8) return as<T>(x);
  if constexpr (sizeof(T) == 4) return as<T>(u32(x));
  if constexpr (sizeof(T) == 2) return as<T>(u16(x));
}

template <class T>
void check_type(std::string const& type) {
  constexpr bool floating = !std::is_integral_v<T>;
  std::vector<std::string> texts;
  std::vector<std::function<bool(T, T)>> references;
  std::string const sources = sizeof(T) == 8 ? "v[2:3], v[4:5]" : "v2, v4";
  for (auto const& [name, f] : relations<T>()) {
    references.push_back(f);
    texts.push_back("v_cmp_" + name + "_" + type + " vcc, " + sources);
    texts.push_back("v_cmp_" + name + "_" + type + "_e64 s[30:31], " + sources);
    texts.push_back("v_cmpx_" + name + "_" + type + "_e64 s[30:31], " + sources);
  }
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    test_wave w(u32(i) + 1);
    std::mt19937 random(u32(i) + 3);
    for (int l = 0; l < lanes; ++l)
      for (int r : {2, 4}) {
        u64 const x = r == 4 && random() % 4 == 0 ? w.v64(2, l) : edge_value(random, 8 * sizeof(T), floating);
        w->v[r][l] = u32(x), w->v[r + 1][l] = u32(x >> 32);
      }
    u64 const exec = w->exec();
    INFO(texts[i]);
    REQUIRE(c.run(i, *w) == "");
    u64 want = 0;
    for (int l = 0; l < lanes; ++l)
      if (exec >> l & 1) want |= u64(references[i / 3](value<T>(w, 2, l), value<T>(w, 4, l))) << l;
    CHECK((i % 3 == 0 ? w->vcc() : w.s64(30)) == want);
    CHECK(w->exec() == (i % 3 == 2 ? want : exec));
  }
}

}  // namespace

TEST_CASE("compares of every type") {
  check_type<i16>("i16");
  check_type<u16>("u16");
  check_type<i32>("i32");
  check_type<u32>("u32");
  check_type<i64>("i64");
  check_type<u64>("u64");
  check_type<float>("f32");
  check_type<double>("f64");
  check_type<f16>("f16");
}

TEST_CASE("class compares") {
  code const c({"v_cmp_class_f32 vcc, v2, v4", "v_cmp_class_f64 vcc, v[2:3], v4", "v_cmp_class_f16 vcc, v2, v4"});
  for (std::size_t i = 0; i < 3; ++i) {
    test_wave w(7);
    w.set_exec(~u64(0));
    int const bits = i == 0 ? 32 : i == 1 ? 64 : 16;
    std::mt19937 random(8);
    std::vector<u64> x(lanes);
    for (int l = 0; l < lanes; ++l) {
      x[l] = edge_value(random, bits, true);
      if (l == 5) x[l] = bits == 64 ? 0x7ff0000000000001 : bits == 32 ? 0x7f800001 : 0x7c01;  // signalling
      w->v[2][l] = u32(x[l]), w->v[3][l] = u32(x[l] >> 32), w->v[4][l] = 1u << l % 10;
    }
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      double const d = bits == 64 ? as<double>(x[l]) : bits == 32 ? as<float>(u32(x[l])) : float(as<f16>(u16(x[l])));
      bool const negative = x[l] >> (bits - 1) & 1;
      double const smallest = bits == 64 ? 0x1p-1022 : bits == 32 ? 0x1p-126 : 0x1p-14;
      int kind;
      if (std::isnan(d)) kind = x[l] >> (bits == 64 ? 51 : bits == 32 ? 22 : 9) & 1 ? 1 : 0;
      else if (std::isinf(d)) kind = negative ? 2 : 9;
      else if (d == 0) kind = negative ? 5 : 6;
      else if (std::fabs(d) < smallest) kind = negative ? 4 : 7;
      else kind = negative ? 3 : 8;
      CAPTURE(i, l, d);
      CHECK((w->vcc() >> l & 1) == u64(kind == l % 10));
    }
  }
}

TEST_CASE("v_cndmask selects by lane") {
  code const c({"v_cndmask_b32 v10, v2, v4, vcc", "v_cndmask_b32_e64 v10, v2, -v4, s[30:31]",
                "v_cndmask_b32_e64 v10, 1.0, 7, s[30:31]"});
  for (std::size_t i = 0; i < 3; ++i) {
    test_wave w(3);
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    u64 const mask = i == 0 ? w->vcc() : w.s64(30);
    for (int l = 0; l < lanes; ++l) {
      u32 const a = i == 2 ? 0x3f800000 : w->v[2][l], b = i == 0 ? w->v[4][l] : i == 1 ? w->v[4][l] ^ 0x80000000 : 7;
      CHECK(w->v[10][l] == (before->exec() >> l & 1 ? (mask >> l & 1 ? b : a) : before->v[10][l]));
    }
  }
}
