// all_reduce whose partial sums travel in 8 bits, beside the same arithmetic on the host: every rank has those bits.
#include <fusewire/ops/all_reduce.hpp>

#include <catch2/catch_template_test_macros.hpp>

#include <bit>
#include <cmath>

#include "support.hpp"

using namespace support;

namespace {

constexpr int block_elements = 64;

template <class Q>
constexpr float largest_of = 127;
template <>
constexpr float largest_of<fp8_e4m3fn> = fp8_e4m3fn::largest;
template <>
constexpr float largest_of<fp8_e4m3fnuz> = fp8_e4m3fnuz::largest;

/// What other ranks get of a row's elements.
template <class Q>
std::vector<float> as_sent(std::vector<float> x) {
  for (std::size_t at = 0; at < x.size(); at += block_elements) {
    std::size_t const end = std::min(x.size(), at + block_elements);
    float largest = 0;
    for (std::size_t i = at; i < end; ++i) largest = std::isnan(x[i]) ? x[i] : std::max(largest, std::abs(x[i]));
    float const unit = largest / largest_of<Q>, by = unit > 0 ? 1 / unit : 0;
    for (std::size_t i = at; i < end; ++i) {
      float const scaled = x[i] * by;
      if constexpr (std::is_same_v<Q, std::int8_t>) x[i] = std::rint(scaled) * unit;
      else x[i] = float(Q(scaled)) * unit;
    }
  }
  return x;
}

bf16 summand(int rank, int row, int column, unsigned seed) {
  lcg random{seed + unsigned(rank) * 7919u + unsigned(row) * 104729u + unsigned(column) * 1299709u};
  random();
  float const x = float(random.below(65536) - 32768) / 32768;
  return bf16(column / block_elements % 5 == 3 ? 0.0f : std::ldexp(x, row % 7));  // some blocks of zeros
}

/// Row `row` of the result.
template <class Q>
std::vector<float> wanted_row(int ranks, int row, int cols, bool two_shot, unsigned seed) {
  std::vector<float> sum(std::size_t(cols), 0.0f);
  for (int r = 0; r < ranks; ++r) {
    std::vector<float> x(std::size_t(cols), 0.0f);
    for (int j = 0; j < cols; ++j) x[std::size_t(j)] = float(summand(r, row, j, seed));
    x = as_sent<Q>(x);
    for (int j = 0; j < cols; ++j) sum[std::size_t(j)] += x[std::size_t(j)];
  }
  for (float& x : sum) x = float(bf16(x));
  if (two_shot) {
    sum = as_sent<Q>(sum);
    for (float& x : sum) x = float(bf16(x));
  }
  return sum;
}

heap_options large_heap() {
  heap_options h = small_heap();
  h.bulk = 24_MiB;
  return h;
}

}  // namespace

TEMPLATE_TEST_CASE("all_reduce: partial sums in 8 bits, rows and arrays, one-shot and two-shot", "[all_reduce]",
                   std::int8_t, fp8_e4m3fn, fp8_e4m3fnuz) {
  using Q = TestType;
  int const ranks = GENERATE(2, 3, 4);
  auto const shots = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  CAPTURE(ranks, int(shots));
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        constexpr int max_rows = 19, max_cols = 4608;
        bool const two = shots == reduce_algorithm::two_shot;
        all_reduce_options const o{
            .max_rows = max_rows, .max_cols = max_cols, .shots = shots, .transport = row_transport::flags};
        channel ch(r.heap, channel_options::of(all_reduce<bf16, Q>::requirements(ranks, o)));
        all_reduce<bf16, Q> op(ch, o);
        auto const in = r.heap.allocate<bf16>(std::size_t(max_rows * max_cols)),
                   out = r.heap.allocate<bf16>(std::size_t(max_rows * max_cols));
        unsigned seed = 0;
        auto const run = [&](int rows, int cols, auto const& launch) {
          ++seed;
          std::vector<bf16> x;
          for (int i = 0; i < rows; ++i)
            for (int j = 0; j < cols; ++j) x.push_back(summand(r.rank(), i, j, seed));
          r.upload(x, r.here(in));
          r.fill(out, 0xff);
          launch();
          r.world.check(r.stream);
          auto const found = r.download(static_cast<bf16 const*>(r.here(out)), x.size());
          for (int i = 0; i < rows; ++i) {
            auto const wanted = wanted_row<Q>(ranks, i, cols, two, seed);
            for (int j = 0; j < cols; ++j)
              if (float const f = float(found[std::size_t(i * cols + j)]);
                  !r.found.expect(f == wanted[std::size_t(j)], rows, " rows of ", cols, ": (", i, ", ", j, ") is ", f,
                                  ", wanted ", wanted[std::size_t(j)]))
                return;
          }
        };
        for (auto const [rows, cols] : {std::pair{19, 64}, {1, 1}, {7, 200}, {3, 4608}, {19, 1000}})
          run(rows, cols, [&] {
            op(r.stream, {r.here(in), rows, cols, cols}, store_rows<bf16>{{r.here(out), rows * cols, cols, cols}});
          });
        // One row of an array is that of a launch: 4096 elements, in whole blocks
        for (int const count : {4096, 70, 1, 3000})
          run(1, count, [&] { op(r.stream, {.in = r.here(in), .out = r.here(out), .count = count}); });
      },
      large_heap());
}

TEST_CASE("all_reduce: partial sums in 8 bits, NaN and infinity leave nothing finite of their block alone",
          "[all_reduce]") {
  on_ranks(
      2,
      [&](rank_of_test& r) {
        constexpr int cols = 256;
        all_reduce_options const o{.max_rows = 1, .max_cols = cols, .transport = row_transport::flags};
        channel ch(r.heap, channel_options::of(all_reduce<bf16, std::int8_t>::requirements(2, o)));
        all_reduce<bf16, std::int8_t> op(ch, o);
        auto const x = r.heap.allocate<bf16>(cols);
        std::vector<bf16> values(cols, bf16(1.0f));
        if (r.rank() == 1) values[70] = bf16(std::nanf("")), values[200] = bf16(-INFINITY);
        r.upload(values, x);
        op(r.stream, {.in = r.here(x), .out = r.here(x), .count = cols});
        r.world.check(r.stream);
        auto const found = r.download(x);
        for (int i = 0; i < cols; ++i)
          r.found.expect((i / 64 % 2 == 1) != std::isfinite(float(found[std::size_t(i)])), "element ", i, " is ",
                         float(found[std::size_t(i)]));
      },
      large_heap());
}

TEST_CASE("all_reduce: small calls travel as they are, whatever the type of partial sums", "[all_reduce]") {
  on_ranks(
      2,
      [&](rank_of_test& r) {
        all_reduce_options const o{.max_rows = 1, .max_cols = 512, .transport = row_transport::ll_words};
        channel ch(r.heap, channel_options::of(all_reduce<bf16, std::int8_t>::requirements(2, o)));
        all_reduce<bf16, std::int8_t> op(ch, o);
        auto const x = r.heap.allocate<bf16>(512);
        std::vector<bf16> values(512, bf16(0.0f));
        for (int i = 0; i < 512; ++i) values[std::size_t(i)] = bf16(float(i + r.rank()) / 256);
        r.upload(values, x);
        op(r.stream, {.in = r.here(x), .out = r.here(x), .count = 512});
        r.world.check(r.stream);
        auto const found = r.download(x);
        for (int i = 0; i < 512; ++i) {
          float const wanted = float(bf16(float(bf16(float(i) / 256)) + float(bf16(float(i + 1) / 256))));
          r.found.expect(float(found[std::size_t(i)]) == wanted, "element ", i);
        }
      },
      large_heap());
}
