// 8-bit floats: every value, and rounding to the nearest number everywhere between two of them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <fusewire/core/fp8.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace fusewire;

namespace {

template <class F>
F of_bits(int bits) {
  F f;
  f.bits = std::uint8_t(bits);
  return f;
}

/// What the format says: sign, 4 bits of exponent with a bias, 3 bits of mantissa.
double meaning(int bits, int bias) {
  int const exponent = bits >> 3 & 15, mantissa = bits & 7;
  double const size = exponent ? std::ldexp(8 + mantissa, exponent - bias - 3) : std::ldexp(mantissa, 1 - bias - 3);
  return bits & 0x80 ? -size : size;
}

template <class F>
constexpr int bias = std::is_same_v<F, fp8_e4m3fn> ? 7 : 8;
template <class F>
bool is_nan(int bits) {
  return std::is_same_v<F, fp8_e4m3fn> ? (bits & 0x7f) == 0x7f : bits == 0x80;
}

}  // namespace

TEMPLATE_TEST_CASE("fp8: all 256 values go to float and back", "", fp8_e4m3fn, fp8_e4m3fnuz) {
  double largest = 0;
  for (int bits = 0; bits < 256; ++bits) {
    float const x = float(of_bits<TestType>(bits));
    if (is_nan<TestType>(bits)) {
      CHECK(std::isnan(x));
      continue;
    }
    CAPTURE(bits);
    CHECK(double(x) == meaning(bits, bias<TestType>));
    if (x != 0) CHECK(int(TestType(x).bits) == bits);
    largest = std::max(largest, double(x));
  }
  CHECK(largest == double(TestType::largest));
  CHECK(TestType(0.0f).bits == 0);
  CHECK(is_nan<TestType>(TestType(std::numeric_limits<float>::quiet_NaN()).bits));
}

TEMPLATE_TEST_CASE("fp8: floats are rounded to the nearest number, ties to even", "", fp8_e4m3fn, fp8_e4m3fnuz) {
  std::vector<int> numbers;  // the positive ones, in order
  for (int bits = 0; bits < 0x80; ++bits)
    if (!is_nan<TestType>(bits)) numbers.push_back(bits);
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    int const low = numbers[i - 1], high = numbers[i];
    float const middle = (float(of_bits<TestType>(low)) + float(of_bits<TestType>(high))) / 2;
    CAPTURE(low, middle);
    CHECK(int(TestType(std::nextafter(middle, 0.0f)).bits) == low);
    CHECK(int(TestType(middle).bits) == (low % 2 == 0 ? low : high));
    CHECK(int(TestType(std::nextafter(middle, 1000.0f)).bits) == high);
    CHECK(int(TestType(-std::nextafter(middle, 1000.0f)).bits) == (high | 0x80));
  }
  float const beyond[] = {TestType::largest * 1.01f, 1e30f, std::numeric_limits<float>::infinity()};
  for (float const x : beyond) {
    CHECK(float(TestType(x)) == TestType::largest);
    CHECK(float(TestType(-x)) == -TestType::largest);
  }
  CHECK((TestType(std::numeric_limits<float>::denorm_min()).bits) == 0);
}
