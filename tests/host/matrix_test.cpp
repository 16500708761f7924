// Matrix views and small arithmetic.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/core/matrix.hpp>

#include <numeric>
#include <vector>

using namespace fusewire;

TEST_CASE("matrix: element (r, c) is data[r * ld + c]") {
  std::vector<int> data(60);
  std::iota(data.begin(), data.end(), 0);
  matrix<int> const m{data.data(), 5, 8, 12};
  for (int r = 0; r < 5; ++r)
    for (int c = 0; c < 8; ++c) {
      CHECK(m(r, c) == r * 12 + c);
      CHECK(m.at(r, c) == data.data() + r * 12 + c);
    }
  m(2, 3) = -1;
  CHECK(data[27] == -1);
}

TEST_CASE("matrix: a submatrix keeps the distance of the rows") {
  std::vector<int> data(60);
  std::iota(data.begin(), data.end(), 0);
  matrix<int> const m{data.data(), 5, 8, 12};
  auto const p = m.submatrix(1, 2, 3, 4);
  CHECK(p.rows == 3);
  CHECK(p.cols == 4);
  CHECK(p.ld == 12);
  CHECK(p(0, 0) == m(1, 2));
  CHECK(p(2, 3) == m(3, 5));
  CHECK(p.submatrix(1, 1, 1, 1)(0, 0) == m(2, 3));
}

TEST_CASE("matrix: a view of constants from one of variables, not the other way") {
  int x = 5;
  matrix<int> const m{&x, 1, 1, 1};
  matrix<int const> const c = m;
  CHECK(c(0, 0) == 5);
  STATIC_CHECK(std::is_convertible_v<matrix<int>, matrix<int const>>);
  STATIC_CHECK(!std::is_convertible_v<matrix<int const>, matrix<int>>);
  STATIC_CHECK(std::is_trivially_copyable_v<matrix<int>>);
}

TEST_CASE("matrix: offsets beyond 2^31 elements") {
  matrix<char> const m{reinterpret_cast<char*>(4096), 100'000, 50'000, 60'000};
  CHECK(reinterpret_cast<std::uintptr_t>(m.at(99'999, 49'999)) == 4096 + 99'999ull * 60'000 + 49'999);
}

TEST_CASE("ceil_div and round_up") {
  CHECK(ceil_div(0, 8) == 0);
  CHECK(ceil_div(1, 8) == 1);
  CHECK(ceil_div(8, 8) == 1);
  CHECK(ceil_div(9, 8) == 2);
  CHECK(round_up(0, 256) == 0);
  CHECK(round_up(1, 256) == 256);
  CHECK(round_up(256, 256) == 256);
  CHECK(round_up(257, 256) == 512);
}
