// All-reduce against sums on the host: arrays and rows, by LL words and by flags, one-shot and two-shot.
#include <fusewire/ops/all_reduce.hpp>

#include <catch2/catch_template_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "batch_invariance.hpp"
#include "faults.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

/// Summand i of a rank: small integers, whose sums are exact in every type.
float summand(int rank, std::int64_t i, unsigned seed) {
  return float((unsigned(i) * 2654435761u + unsigned(rank) * 40503u + seed * 97u) >> 27) - 16;
}
float sum_of(int ranks, std::int64_t i, unsigned seed) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += summand(r, i, seed);
  return sum;
}

template <class T>
std::vector<T> summands(int rank, std::int64_t count, unsigned seed) {
  std::vector<T> x(std::size_t(count), T(0.0f));
  for (std::int64_t i = 0; i < count; ++i) x[std::size_t(i)] = T(summand(rank, i, seed));
  return x;
}

/// Runs a call of `count` elements, which begin `shift` elements behind a multiple of 16 bytes, and compares all that
/// lies around the result.
template <class T>
void run_array(rank_of_test& r, all_reduce<T>& op, sym<T> in, sym<T> out, std::int64_t count, int shift, bool in_place,
               unsigned seed) {
  r.fill(out, 0x7f);
  r.upload(summands<T>(r.rank(), count, seed), r.here(in) + shift);
  T* const to = in_place ? r.here(in) + shift : r.here(out) + shift;
  op(r.stream, {.in = r.here(in) + shift, .out = to, .count = count});
  r.world.check(r.stream);
  auto const found = r.download(static_cast<T const*>(to), std::size_t(count));
  for (std::int64_t i = 0; i < count; ++i)
    r.found.expect(float(found[std::size_t(i)]) == sum_of(r.size(), i, seed), "count ", count, ", shift ", shift,
                   ": element ", i, " is ", float(found[std::size_t(i)]), ", wanted ", sum_of(r.size(), i, seed));
  if (in_place) return;
  auto const around = r.download(out);
  for (std::size_t i = 0; i < around.size(); ++i) {
    if (i >= std::size_t(shift) && i < std::size_t(shift + count)) continue;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &around[i], sizeof(T));
    r.found.expect(bits == (sizeof(T) == 4 ? 0x7f7f7f7fu : 0x7f7fu), "element ", i, " outside the result was written");
  }
}

/// A heap for these options, and for the arrays of a test.
template <class T>
heap_options heap_for(int ranks, all_reduce_options const& o) {
  auto const r = all_reduce<T>::requirements(ranks, o);
  heap_options h = small_heap();
  h.bulk = r.bulk() + 4_MiB, h.signal = r.signal() + 64_KiB;
  return h;
}
template <class T>
channel_options channel_for(int ranks, all_reduce_options const& o) {
  return channel_options::of(all_reduce<T>::requirements(ranks, o));
}

template <class T>
void arrays(int ranks, reduce_algorithm shots, row_transport transport) {
  CAPTURE(ranks, int(shots), int(transport));
  all_reduce_options const o{.max_rows = 8, .max_cols = 3000, .shots = shots, .transport = transport};
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<T>(r.size(), o));
        all_reduce<T> op(ch, o);
        auto const in = r.heap.allocate<T>(24016), out = r.heap.allocate<T>(24016);
        unsigned seed = 0;
        for (std::int64_t const count : {24000, 1, 7, 2048, 2049, 9001}) {
          ++seed;
          run_array(r, op, in, out, count, int(seed % 3 ? 0 : seed), seed % 2 == 0, seed);
        }
        op(r.stream, {.in = nullptr, .out = nullptr, .count = 0});
        r.world.check(r.stream);
      },
      heap_for<T>(ranks, o));
}

/// Which of rms_norm's operands a call has.
struct norm_parts {
  bool residual = true, in_place = false;
  int ld_more = 0;  // elements between rows
};

/// Calls of all_reduce with rms_norm on [rows, cols], compared with fp64.
template <class T, class Quantised = not_quantised>
struct norm_rank {
  rank_of_test& r;
  int max_rows, max_cols;
  sym<T> in, residual, gamma, residual_out, norm_out;
  sym<std::uint8_t> quantised;
  sym<float> scales;

  norm_rank(rank_of_test& rank, int rows, int cols)
      : r(rank), max_rows(rows), max_cols(cols), in(elements()), residual(elements()), gamma(elements()),
        residual_out(elements()), norm_out(elements()),
        quantised(r.heap.template allocate<std::uint8_t>(std::size_t(rows) * std::size_t(cols + 8))),
        scales(r.heap.template allocate<float>(std::size_t(rows))) {}
  sym<T> elements() { return r.heap.template allocate<T>(std::size_t(max_rows) * std::size_t(max_cols + 8)); }

  static float residual_at(int row, int col) { return float((row * 31 + col * 7) % 17) - 8; }
  static float gamma_at(int col) { return float(1 + col % 3) / 2; }

  /// Returns the bits of the result.
  std::vector<T> run(all_reduce<T>& op, int rows, int cols, norm_parts parts, unsigned seed,
                     float const* scale = nullptr) {
    int const ld = cols + parts.ld_more;
    std::vector<T> x(std::size_t(rows) * std::size_t(ld), T(0.0f)), old = x, weights(std::size_t(cols), T(0.0f));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) {
        x[std::size_t(i * ld + j)] = T(summand(r.rank(), i * cols + j, seed));
        old[std::size_t(i * ld + j)] = T(residual_at(i, j));
      }
    for (int j = 0; j < cols; ++j) weights[std::size_t(j)] = T(gamma_at(j));
    r.upload(x, in), r.upload(old, residual), r.upload(weights, gamma);
    r.fill(residual_out, 0x7f), r.fill(norm_out, 0x7f), r.fill(quantised, 0x7f), r.fill(scales, 0x7f);
    auto const view = [&](sym<T> m) { return matrix<T>{r.here(m), rows, cols, ld}; };
    rms_norm<T, Quantised> e{.gamma = r.here(gamma), .eps = 0.5f};
    if (parts.residual) e.residual = view(residual);
    e.residual_out = parts.in_place && parts.residual ? view(residual) : view(residual_out);
    e.norm_out = parts.in_place ? view(in) : view(norm_out);
    if constexpr (!std::is_same_v<Quantised, not_quantised>) {
      e.quantised_out = {reinterpret_cast<Quantised*>(r.here(quantised)), rows, cols, ld};
      if (scale) e.scale = scale;
      else e.row_scales = r.here(scales);
    }
    op(r.stream, view(in), e);
    r.world.check(r.stream);
    auto const h = r.download(static_cast<T const*>(e.residual_out.data), x.size()),
               y = r.download(static_cast<T const*>(e.norm_out.data), x.size());
    std::vector<T> bits;
    for (int i = 0; i < rows; ++i) {
      double squares = 0;
      std::vector<double> wanted(static_cast<std::size_t>(cols));
      for (int j = 0; j < cols; ++j) {
        float const sum = sum_of(r.size(), i * cols + j, seed) + (parts.residual ? residual_at(i, j) : 0);
        float const found = float(h[std::size_t(i * ld + j)]);
        r.found.expect(found == float(T(sum)), "[", rows, ", ", cols, "]: residual_out(", i, ", ", j, ") = ", found,
                       ", wanted ", float(T(sum)));
        wanted[std::size_t(j)] = double(float(T(sum)));
        squares += wanted[std::size_t(j)] * wanted[std::size_t(j)];
      }
      double largest = 0;
      for (int j = 0; j < cols; ++j) {
        double& w = wanted[std::size_t(j)];
        w *= gamma_at(j) / std::sqrt(squares / cols + 0.5);
        largest = std::max(largest, std::abs(w));
        T const found = y[std::size_t(i * ld + j)];
        double const bound = std::abs(w) * (sizeof(T) == 4            ? 0x1p-20
                                            : std::is_same_v<T, bf16> ? 0x1p-8
                                                                      : 0x1p-11) +
                             1e-6;
        r.found.expect(std::abs(double(float(found)) - w) <= bound, "[", rows, ", ", cols, "]: norm_out(", i, ", ", j,
                       ") = ", float(found), ", wanted ", w);
        bits.push_back(found);
      }
      if constexpr (!std::is_same_v<Quantised, not_quantised>)
        check_quantised(i, rows, cols, ld, wanted, largest, scale);
    }
    for (int i = 0; i + 1 < rows && !parts.in_place; ++i)
      for (int j = cols; j < ld; ++j) {
        std::uint16_t two;
        std::memcpy(&two, &y[std::size_t(i * ld + j)], 2);
        r.found.expect(two == 0x7f7f, "norm_out: memory behind row ", i, " was written");
      }
    return bits;
  }
  void check_quantised(int row, int rows, int cols, int ld, std::vector<double> const& wanted, double largest,
                       float const* scale) {
    constexpr bool is_int = std::is_same_v<Quantised, std::int8_t>;
    double top = 127;
    if constexpr (!is_int) top = Quantised::largest;
    double unit = largest / top;
    if (scale) {
      unit = double(r.download(scale, 1)[0]);
    } else {
      float const found = r.download(scales)[std::size_t(row)];
      r.found.expect(std::abs(double(found) - unit) <= unit * 0x1p-20, "scale of row ", row, " is ", found, ", wanted ",
                     unit);
    }
    auto const q = r.download(reinterpret_cast<Quantised const*>(r.here(quantised)), std::size_t(rows * ld));
    for (int j = 0; j < cols; ++j) {
      double const x = std::clamp(wanted[std::size_t(j)] / unit, -top, top),
                   found = double(float(q[std::size_t(row * ld + j)])),
                   step = is_int ? 0.5 : std::max(std::abs(x) * 0x1p-4, 0x1p-10);
      r.found.expect(std::abs(found - x) <= step * 1.001, "quantised_out(", row, ", ", j, ") = ", found, ", wanted ",
                     x);
    }
  }
};

/// The bits of x as text, to compare them between ranks.
template <class T>
std::string as_text(std::vector<T> const& x) {
  return {reinterpret_cast<char const*>(x.data()), x.size() * sizeof(T)};
}

__global__ void send_nothing(channel_view ch) {
  block const b;
  ch.begin(b).end(b);
}

}  // namespace

TEST_CASE("all_reduce: arrays of any length and alignment, 1 to 8 ranks", "[all_reduce]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const shots = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  arrays<bf16>(GENERATE(1, 2, 3, 8), shots, transport);
}
TEST_CASE("all_reduce: float and f16, with what automatic chooses", "[all_reduce]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags, row_transport::automatic);
  arrays<float>(2, reduce_algorithm::automatic, transport);
  arrays<f16>(3, reduce_algorithm::automatic, transport);
}

TEST_CASE("all_reduce: a long array has many chunks, which blocks send ahead of what they add up", "[all_reduce]") {
  auto const shots = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  all_reduce_options const o{.max_rows = 512, .max_cols = 4096, .shots = shots, .transport = row_transport::flags};
  heap_options h = heap_for<bf16>(2, o);
  h.bulk += 16_MiB;
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        std::int64_t const count = 512 * 4096 - 5;
        auto const in = r.heap.allocate<bf16>(std::size_t(count)), out = r.heap.allocate<bf16>(std::size_t(count));
        run_array(r, op, in, out, count, 0, false, 3);
      },
      h);
}

TEST_CASE("all_reduce: rows are added to a residual and normalised, the same bits on every rank and by every way",
          "[all_reduce]") {
  int const ranks = GENERATE(1, 2, 3, 5);
  std::vector<std::string> first;
  for (auto const transport : {row_transport::ll_words, row_transport::flags})
    for (auto const shots : {reduce_algorithm::one_shot, reduce_algorithm::two_shot}) {
      CAPTURE(ranks, int(transport), int(shots));
      all_reduce_options const o{.max_rows = 9, .max_cols = 4200, .shots = shots, .transport = transport};
      auto const bits = on_ranks(
          ranks,
          [&](rank_of_test& r) {
            channel ch(r.heap, channel_for<bf16>(r.size(), o));
            all_reduce<bf16> op(ch, o);
            norm_rank<bf16> n(r, o.max_rows, o.max_cols);
            r.note = as_text(n.run(op, 9, 4200, {}, 1));
            r.note += as_text(n.run(op, 1, 64, {}, 2));
            r.note += as_text(n.run(op, 4, 1001, {.ld_more = 3}, 3));
            r.note += as_text(n.run(op, 2, 7, {.residual = false}, 4));
            r.note += as_text(n.run(op, 3, 520, {.in_place = true}, 5));
          },
          heap_for<bf16>(ranks, o));
      if (first.empty()) first = bits;
      for (auto const& b : bits) CHECK((b == first[0]));
    }
}
TEST_CASE("all_reduce: a row longer than a block's threads", "[all_reduce]") {
  all_reduce_options const o{.max_rows = 2, .max_cols = 4000, .transport = row_transport::flags};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<float>(r.size(), o));
        all_reduce<float> op(ch, o);
        norm_rank<float> n(r, o.max_rows, o.max_cols);
        (void)n.run(op, 2, 4000, {}, 1);
        (void)n.run(op, 1, 2100, {}, 2);
      },
      heap_for<float>(2, o));
}
TEST_CASE("all_reduce: results of a row depend on no other row", "[all_reduce]") {
  all_reduce_options const o{.max_rows = 33, .max_cols = 264};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        norm_rank<bf16> n(r, o.max_rows, o.max_cols);
        auto const all = n.run(op, 33, 264, {}, 7);
        for (int const rows : {1, 2, 16, 32}) {
          auto const some = n.run(op, rows, 264, {}, 7);
          r.found.expect(std::memcmp(some.data(), all.data(), some.size() * 2) == 0, rows, " rows have other bits");
        }
      },
      heap_for<bf16>(3, o));
}

TEMPLATE_TEST_CASE("all_reduce: the norm in 8 bits, with a given scale and with one of each row", "[all_reduce]",
                   std::int8_t, fp8_e4m3fn, fp8_e4m3fnuz) {
  all_reduce_options const o{.max_rows = 5, .max_cols = 300};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        norm_rank<bf16, TestType> n(r, o.max_rows, o.max_cols);
        auto const scale = r.heap.template allocate<float>(1);
        r.upload(std::vector{0.01f}, scale);
        (void)n.run(op, 5, 300, {}, 1);
        (void)n.run(op, 3, 77, {.ld_more = 5}, 2);
        (void)n.run(op, 5, 300, {}, 3, r.here(scale));
      },
      heap_for<bf16>(2, o));
}

TEST_CASE("all_reduce: sums are added in the order of ranks", "[all_reduce]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const shots = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  all_reduce_options const o{.max_rows = 1, .max_cols = 40, .shots = shots, .transport = transport};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<float>(r.size(), o));
        all_reduce<float> op(ch, o);
        auto const x = r.heap.allocate<float>(40);
        // 2^24 + 1 is 2^24 in fp32: in any other order a 1 is left
        float const large = float(1 << 24), of_rank[] = {large, 1, -large};
        r.upload(std::vector(40, of_rank[r.rank()]), x);
        op(r.stream, {.in = r.here(x), .out = r.here(x), .count = 40});
        r.world.check(r.stream);
        for (float const sum : r.download(x)) r.found.expect(sum == 0, "a sum is ", sum, ", wanted 0");
      },
      heap_for<float>(3, o));
}

TEST_CASE("all_reduce: launches on both sides of 2^32", "[all_reduce][channel]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const shots = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  all_reduce_options const o{.max_rows = 1, .max_cols = 2000, .shots = shots, .transport = transport};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        auto const in = r.heap.allocate<bf16>(2000), out = r.heap.allocate<bf16>(2000);
        on_both_sides_of_2_to_32(
            r, ch, [&](int i) { run_array(r, op, in, out, 1 + i * 577 % 2000, 0, false, unsigned(i)); }, 4);
      },
      heap_for<bf16>(3, o));
}

TEST_CASE("all_reduce: a captured call sees the summands of each replay", "[all_reduce]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  all_reduce_options const o{.max_rows = 2, .max_cols = 600, .transport = transport};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        auto const in = r.heap.allocate<bf16>(1200), out = r.heap.allocate<bf16>(1200);
        graph const g(r, [&] { op(r.stream, {.in = r.here(in), .out = r.here(out), .count = 1200}); });
        r.found.expect(g.nodes().size() == 1, "a call has ", g.nodes().size(), " nodes");
        for (unsigned seed = 0; seed < 3; ++seed) {
          r.upload(summands<bf16>(r.rank(), 1200, seed), in);
          g.launch(r.stream);
          r.world.check(r.stream);
          auto const found = r.download(out);
          for (int i = 0; i < 1200; ++i)
            r.found.expect(float(found[std::size_t(i)]) == sum_of(2, i, seed), "replay ", seed, ": element ", i);
        }
      },
      heap_for<bf16>(2, o));
}

TEST_CASE("all_reduce: what crosses a link", "[all_reduce]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 4) SKIP("four simulated GPUs are needed");
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const shots = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  all_reduce_options const o{.max_rows = 8, .max_cols = 2048, .shots = shots, .transport = transport};
  on_ranks(
      4,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        auto const x = r.heap.allocate<bf16>(16384);
        r.fill(x, 0);
        auto const bytes = [&] {
          r.meet();
          auto const link = simulator_stats()->links[r.rank()][r.partner()].store_bytes;
          r.meet();
          return link;
        };
        auto const before = bytes();
        op(r.stream, {.in = r.here(x), .out = r.here(x), .count = 16384});
        r.world.check(r.stream);
        auto const crossed = bytes() - before, array = std::uint64_t(16384 * sizeof(bf16)),
                   payload = shots == reduce_algorithm::one_shot ? array : array / 2,
                   wanted = transport == row_transport::ll_words ? 2 * payload : payload;
        r.found.expect(crossed >= wanted && crossed < wanted + 1024, crossed, " bytes crossed the link; wanted ",
                       wanted, " and less than 1024 for flags and a header");
      },
      heap_for<bf16>(4, o));
}

TEST_CASE("all_reduce: a rank that sends nothing is named, and reset() brings it back", "[all_reduce][faults]") {
  if (reports_races()) SKIP("a missing signal is a race");
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  all_reduce_options const o{.max_rows = 1, .max_cols = 512, .transport = transport};
  heap_options h = heap_for<bf16>(2, o);
  h.wait_limit = std::chrono::milliseconds(500);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> op(ch, o);
        load_kernel(r.world, send_nothing, 64);
        auto const in = r.heap.allocate<bf16>(512), out = r.heap.allocate<bf16>(512);
        r.meet();
        if (r.rank() == 0) {
          op(r.stream, {.in = r.here(in), .out = r.here(out), .count = 512});
          r.found.throws<error>("a rank sends nothing", {"all_reduce one-shot", "rank 1"},
                                [&] { r.world.check(r.stream); });
          for (bf16 const x : r.download(out))
            r.found.expect(transport == row_transport::flags || float(x) != float(x),
                           "a result without its summands is ", float(x), ", wanted NaN");
        } else {
          r.launch({1, 64}, send_nothing, ch.view(make_header("allreduc", 0)));
          r.synchronize();
          try {
            r.world.check(r.stream);
          } catch (error const&) {}
        }
        r.meet();
        ch.reset();
        run_array(r, op, in, out, 512, 0, false, 1);
      },
      h);
}

TEST_CASE("all_reduce: says which way a call takes", "[all_reduce]") {
  all_reduce_options const o{
      .max_rows = 16, .max_cols = 512, .shots = reduce_algorithm::two_shot, .transport = row_transport::flags};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, channel_for<bf16>(r.size(), o));
        all_reduce<bf16> const op(ch, o);
        auto const says = [&](std::string const& found, std::string const& wanted) {
          r.found.expect(found == wanted, "describe() = ", found, ", wanted ", wanted);
        };
        says(op.describe(0), "all_reduce: nothing");
        says(op.describe(16 * 512), "all_reduce: two-shot, flags, 2 rows of 4096, 1 a chunk");
        says(op.describe(16, 512), "all_reduce: two-shot, flags, 16 rows of 512, 8 a chunk");
      },
      heap_for<bf16>(3, o));
}

TEST_CASE("all_reduce: refuses what it cannot do, with the numbers that it can", "[all_reduce]") {
  on_ranks(1, [&](rank_of_test& r) {
    channel small(r.heap, {.max_bytes = 16, .flags_per_source = 1}), ch(r.heap, {.max_bytes = 1_MiB});
    using op = all_reduce<bf16>;
    r.found.throws<bad_argument>("no rows", {"max_rows = 0"}, [&] { op x(ch, {.max_rows = 0, .max_cols = 8}); });
    r.found.throws<bad_argument>("no columns", {"max_cols = -1"}, [&] { op x(ch, {.max_rows = 1, .max_cols = -1}); });
    r.found.throws<bad_argument>("no such algorithm", {"shots = 7"},
                                 [&] { op x(ch, {.max_rows = 1, .max_cols = 8, .shots = reduce_algorithm(7)}); });
    r.found.throws<bad_argument>("no such transport", {"transport = 9"},
                                 [&] { op x(ch, {.max_rows = 1, .max_cols = 8, .transport = row_transport(9)}); });
    r.found.throws<out_of_space>("a small channel", {"flags per source", "the channel has 1"},
                                 [&] { op x(small, {.max_rows = 100, .max_cols = 800}); });
    all_reduce<bf16> x(ch, {.max_rows = 4, .max_cols = 100});
    auto const m = r.heap.allocate<bf16>(800);
    bf16* const p = r.here(m);
    auto const fails = [&](char const* what, std::vector<std::string> const& pieces, auto const& call) {
      r.found.throws<bad_argument>(what, pieces, call);
    };
    fails("too many", {"count = 401", "max_rows * max_cols = 400"},
          [&] { x(r.stream, {.in = p, .out = p, .count = 401}); });
    fails("null", {"in is null"}, [&] { x(r.stream, {.in = nullptr, .out = p, .count = 1}); });
    fails("overlap", {"out = ", "overlaps in"}, [&] { x(r.stream, {.in = p, .out = p + 8, .count = 100}); });
    rms_norm<bf16> const norm{.gamma = p + 200, .norm_out = {p + 400, 4, 100, 100}};
    fails("rows", {"in has 5 rows", "max_rows = 4"}, [&] { x(r.stream, {p, 5, 100, 100}, norm); });
    fails("columns", {"in has 101 columns"}, [&] { x(r.stream, {p, 4, 101, 101}, norm); });
    fails("ld", {"in.ld = 99"}, [&] { x(r.stream, {p, 4, 100, 99}, norm); });
    fails("shape of an output", {"norm_out is [4, 100]", "expected [3, 100]"},
          [&] { x(r.stream, {p, 3, 100, 100}, norm); });
    fails("overlap with in", {"norm_out = ", "overlaps in = "},
          [&] { x(r.stream, {p, 4, 100, 100}, rms_norm<bf16>{.gamma = p + 700, .norm_out = {p + 100, 4, 100, 100}}); });
    fails("no gamma", {"gamma is null"}, [&] { x(r.stream, {p, 4, 100, 100}, rms_norm<bf16>{}); });
    fails("no scale", {"one of scale and row_scales"}, [&] {
      auto* const q = reinterpret_cast<std::int8_t*>(p + 400);
      x(r.stream, {p, 1, 8, 8}, rms_norm<bf16, std::int8_t>{.gamma = p, .quantised_out = {q, 1, 8, 8}});
    });
  });
}

TEST_CASE("batch_invariant: all_reduce with a norm, every number of rows from 1 to 256, whatever the options",
          "[all_reduce][batch_invariant]") {
  using namespace batch_invariance;
  int const ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        constexpr int cols = 520;
        batches x(r, cols, cols, layout::row_major, 1 + unsigned(r.rank()));
        all_reduce_options const o{.max_rows = max_m, .max_cols = cols};
        channel ch(r.heap, batch_invariance::channel_for<all_reduce<bf16>>(ranks, o));
        all_reduce<bf16> op(ch, o);
        x.compare_c("all_reduce", cols, ranks == 2 ? 1 : 9, [&](int m) {  // LL words, then flags
          op(r.stream, x.rows_of_a(m), rms_norm<bf16>{.gamma = r.here(x.b), .norm_out = {r.here(x.c), m, cols, cols}});
          return std::pair(0, m);
        });
      },
      large_heap());
}
