// all_gather, reduce_scatter and the all-to-alls against what the host computes, by LL words and by flags.
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_to_all.hpp>
#include <fusewire/ops/all_to_all_v.hpp>
#include <fusewire/ops/reduce_scatter.hpp>

#include <catch2/catch_template_test_macros.hpp>

#include <cstring>

#include "faults.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

/// Element i of what a rank has: small integers, whose sums are exact in every type.
float element(int rank, std::int64_t i, unsigned seed) {
  return float((unsigned(i) * 2654435761u + unsigned(rank) * 40503u + seed * 97u) >> 27) - 16;
}
struct triple {  // of an odd size
  std::uint8_t a, b, c;
};
template <class T>
T made(float x) {
  if constexpr (std::is_same_v<T, triple>) return {std::uint8_t(int(x)), std::uint8_t(int(x) + 1), std::uint8_t(7)};
  else if constexpr (std::is_integral_v<T>) return T(int(x));
  else return T(x);
}
template <class T>
bool same(T const& x, T const& y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}
template <class T>
std::vector<T> elements(int rank, std::int64_t count, unsigned seed) {
  std::vector<T> x;
  for (std::int64_t i = 0; i < count; ++i) x.push_back(made<T>(element(rank, i, seed)));
  return x;
}

/// A heap for these requirements, and for the arrays of a test.
heap_options heap_for(requirements const& r, std::size_t more = 4_MiB) {
  heap_options h = small_heap();
  h.bulk = r.bulk() + more, h.signal = r.signal() + 64_KiB;
  return h;
}

/// Expects wanted(i) in out[shift, shift + n), and that nothing around it was written.
template <class T, class Wanted>
void compare(rank_of_test& r, char const* what, sym<T> out, int shift, std::int64_t n, Wanted const& wanted) {
  auto const found = r.download(out);
  unsigned char poison[sizeof(T)];
  std::memset(poison, 0x7f, sizeof(T));
  for (std::int64_t i = 0; i < std::int64_t(found.size()); ++i) {
    T const& x = found[std::size_t(i)];
    if (i >= shift && i < shift + n)
      r.found.expect(same(x, wanted(i - shift)), what, ": element ", i - shift, " of ", n, " is wrong");
    else
      r.found.expect(std::memcmp(&x, poison, sizeof(T)) == 0, what, ": element ", i, " outside the result was written");
  }
}

/// One call of each collective, with parts of `count` elements that begin `shift` elements behind a multiple of 256
/// bytes. in_place: where torch allows it; all_to_all, too.
template <class T>
void run_gather(rank_of_test& r, all_gather<T>& op, sym<T> in, sym<T> out, std::int64_t count, int shift, bool in_place,
                unsigned seed) {
  r.fill(out, 0x7f);
  T* const to = r.here(out) + shift;
  T* const from = in_place ? to + r.rank() * count : r.here(in) + shift;
  r.upload(elements<T>(r.rank(), count, seed), from);
  op(r.stream, {.in = from, .out = to, .count = count});
  r.world.check(r.stream);
  compare(r, "all_gather", out, shift, count * r.size(),
          [&](std::int64_t i) { return made<T>(element(int(i / count), i % count, seed)); });
}
template <class T>
void run_exchange(rank_of_test& r, all_to_all<T>& op, sym<T> in, sym<T> out, std::int64_t count, int shift,
                  bool in_place, unsigned seed) {
  r.fill(out, 0x7f);
  T* const to = r.here(out) + shift;
  T* const from = in_place ? to : r.here(in) + shift;
  r.upload(elements<T>(r.rank(), count * r.size(), seed), from);
  op(r.stream, {.in = from, .out = to, .count = count});
  r.world.check(r.stream);
  compare(r, "all_to_all", out, shift, count * r.size(),
          [&](std::int64_t i) { return made<T>(element(int(i / count), r.rank() * count + i % count, seed)); });
}
template <class T>
void run_reduce(rank_of_test& r, reduce_scatter<T>& op, sym<T> in, sym<T> out, std::int64_t count, int shift,
                bool in_place, unsigned seed) {
  r.fill(out, 0x7f);
  T* const from = r.here(in) + shift;
  T* const to = in_place ? from + r.rank() * count : r.here(out) + shift;
  r.upload(elements<T>(r.rank(), count * r.size(), seed), from);
  op(r.stream, {.in = from, .out = to, .count = count});
  r.world.check(r.stream);
  auto const wanted = [&](std::int64_t i) {
    float sum = 0;
    for (int s = 0; s < r.size(); ++s) sum += element(s, r.rank() * count + i, seed);
    return T(sum);
  };
  if (!in_place) return compare(r, "reduce_scatter", out, shift, count, wanted);
  auto const found = r.download(static_cast<T const*>(to), std::size_t(count));
  for (std::int64_t i = 0; i < count; ++i)
    r.found.expect(same(found[std::size_t(i)], wanted(i)), "reduce_scatter in place: element ", i, " is wrong");
}

constexpr std::int64_t counts[] = {2600, 1, 7, 1024, 1025, 333};

template <template <class> class Op, class T, class Run>
void run_counts(int ranks, row_transport transport, Run const& run) {
  CAPTURE(ranks, int(transport), sizeof(T));
  typename Op<T>::options const o{.max_count = 2600, .transport = transport};
  auto const needs = Op<T>::requirements(ranks, o);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        Op<T> op(ch, o);
        auto const in = r.heap.allocate<T>(std::size_t(2600 * ranks + 16)),
                   out = r.heap.allocate<T>(std::size_t(2600 * ranks + 16));
        unsigned seed = 0;
        for (auto const count : counts) {
          ++seed;
          run(r, op, in, out, count, int(seed % 3 ? 0 : seed), seed % 2 == 0, seed);
        }
        op(r.stream, {.in = nullptr, .out = nullptr, .count = 0});
        r.world.check(r.stream);
      },
      heap_for(needs));
}
template <class T>
void gathers(int ranks, row_transport transport) {
  run_counts<all_gather, T>(ranks, transport, run_gather<T>);
}
template <class T>
void exchanges(int ranks, row_transport transport) {
  run_counts<all_to_all, T>(ranks, transport, run_exchange<T>);
}
template <class T>
void reductions(int ranks, row_transport transport) {
  run_counts<reduce_scatter, T>(ranks, transport, run_reduce<T>);
}

/// Rows that rank s sends to rank p.
int rows_between(int s, int p, int most, unsigned seed) {
  return int(unsigned(s * 7 + p * 13 + 5) * (seed * 2654435761u + 1) >> 8) % (most + 1);
}

/// all_to_all_v on a rank: calls with counts of their own, and what comes of them.
template <class T, class Index>
struct counted_rank {
  rank_of_test& r;
  int max_rows, max_cols;
  sym<T> in, out;
  sym<Index> in_counts, in_offsets, out_counts, out_offsets;

  counted_rank(rank_of_test& rank, int rows, int cols)
      : r(rank), max_rows(rows), max_cols(cols), in(elements_of()), out(elements_of()), in_counts(indices()),
        in_offsets(indices()), out_counts(indices()), out_offsets(indices()) {}
  sym<T> elements_of() {
    return r.heap.template allocate<T>(std::size_t(max_rows + 1) * std::size_t(max_cols) * std::size_t(r.size()));
  }
  sym<Index> indices() { return r.heap.template allocate<Index>(std::size_t(r.size())); }

  /// Elements of row i for rank p that rank s sends.
  static float at(int s, int p, int i, int j, unsigned seed) { return element(s * 64 + p, i * 1000 + j, seed); }

  /// Writes counts, offsets and rows. gaps: rows between the slices of `in`, and offsets, which else are null.
  void write(int cols, unsigned seed, int gaps) {
    std::vector<Index> n, first;
    std::vector<T> x;
    for (int p = 0; p < r.size(); ++p) {
      n.push_back(Index(rows_between(r.rank(), p, max_rows, seed)));
      first.push_back(Index(x.size() / std::size_t(cols)));
      for (int i = 0; i < int(n.back()) + gaps; ++i)
        for (int j = 0; j < cols; ++j) x.push_back(made<T>(at(r.rank(), p, i, j, seed)));
    }
    x.resize(std::max<std::size_t>(x.size(), 1));
    r.upload(x, in), r.upload(n, in_counts), r.upload(first, in_offsets);
    r.fill(out, 0x7f), r.fill(out_counts, 0x7f), r.fill(out_offsets, 0x7f);
  }
  all_to_all_v_call<T, Index> call(int cols, int gaps, int out_rows) {
    all_to_all_v_call<T, Index> c{.in = r.here(in),
                                  .in_rows = (max_rows + 1) * r.size(),
                                  .out = r.here(out),
                                  .out_rows = out_rows,
                                  .cols = cols,
                                  .in_counts = r.here(in_counts),
                                  .out_counts = r.here(out_counts),
                                  .out_offsets = r.here(out_offsets)};
    if (gaps) c.in_offsets = r.here(in_offsets);
    return c;
  }
  void check(int cols, unsigned seed, int out_rows) {
    std::vector<T> wanted;
    auto const n = r.download(out_counts), first = r.download(out_offsets);
    for (int s = 0; s < r.size(); ++s) {
      int const rows = rows_between(s, r.rank(), max_rows, seed);
      r.found.expect(n[std::size_t(s)] == Index(rows), "out_counts[", s, "] = ", n[std::size_t(s)], ", wanted ", rows);
      r.found.expect(first[std::size_t(s)] == Index(wanted.size() / std::size_t(cols)), "out_offsets[", s,
                     "] = ", first[std::size_t(s)], ", wanted ", wanted.size() / std::size_t(cols));
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) wanted.push_back(made<T>(at(s, r.rank(), i, j, seed)));
    }
    if (wanted.size() > std::size_t(out_rows * cols)) wanted.resize(std::size_t(out_rows * cols));
    compare(r, "all_to_all_v", out, 0, std::int64_t(wanted.size()),
            [&](std::int64_t i) { return wanted[std::size_t(i)]; });
  }
  void run(all_to_all_v<T>& op, int cols, unsigned seed, int gaps = 0, int out_rows = -1) {
    if (out_rows < 0) out_rows = max_rows * r.size();
    write(cols, seed, gaps);
    op(r.stream, call(cols, gaps, out_rows));
    r.world.check(r.stream);
    check(cols, seed, out_rows);
  }
};

template <class T, class Index>
void counted(int ranks, row_transport transport) {
  CAPTURE(ranks, int(transport));
  all_to_all_v_options const o{.max_count = 23 * 520, .transport = transport};
  auto const needs = all_to_all_v<T>::requirements(ranks, o);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_to_all_v<T> op(ch, o);
        counted_rank<T, Index> c(r, 23, 520);
        c.run(op, 520, 1);
        c.run(op, 1, 2);
        c.run(op, 33, 3, 1);
        c.run(op, 256, 4);
        c.run(op, 77, 5, 0, 19);
      },
      heap_for(needs));
}

__global__ void send_nothing(channel_view ch) {
  block const b;
  ch.begin(b).end(b);
}

}  // namespace

TEST_CASE("collectives: all_gather of any length and alignment, 1 to 8 ranks", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  gathers<bf16>(GENERATE(1, 2, 3, 4, 8), transport);
}
TEST_CASE("collectives: all_to_all of any length and alignment, 1 to 8 ranks", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  exchanges<bf16>(GENERATE(1, 2, 3, 4, 8), transport);
}
TEST_CASE("collectives: reduce_scatter of any length and alignment, 1 to 8 ranks", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  reductions<bf16>(GENERATE(1, 2, 3, 4, 8), transport);
}
TEST_CASE("collectives: other types, with what automatic chooses", "[collectives]") {
  auto const transport = GENERATE(row_transport::automatic, row_transport::ll_words, row_transport::flags);
  gathers<std::uint8_t>(2, transport);
  gathers<triple>(3, transport);
  exchanges<double>(2, transport);
  reductions<float>(2, transport);
  reductions<f16>(3, transport);
}
TEST_CASE("collectives: all_to_all_v with counts that the host does not know, 1 to 8 ranks", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  counted<bf16, std::int64_t>(GENERATE(1, 2, 3, 8), transport);
}
TEST_CASE("collectives: all_to_all_v of floats and bytes, with counts of 32 bits", "[collectives]") {
  auto const transport = GENERATE(row_transport::automatic, row_transport::ll_words);
  counted<float, std::int32_t>(2, transport);
  counted<std::uint8_t, std::int32_t>(3, transport);
}

TEST_CASE("collectives: long slices have many chunks, which blocks send ahead of what they take", "[collectives]") {
  std::int64_t const count = 700'001;
  auto const gather = all_gather<bf16>::requirements(2, {.max_count = count, .transport = row_transport::flags}),
             reduce = reduce_scatter<bf16>::requirements(2, {.max_count = count, .transport = row_transport::flags}),
             swap = all_to_all<bf16>::requirements(2, {.max_count = count, .transport = row_transport::flags});
  auto const needs = gather + reduce + swap;
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_gather<bf16> gathers(ch, {.max_count = count, .transport = row_transport::flags});
        reduce_scatter<bf16> reduces(ch, {.max_count = count, .transport = row_transport::flags});
        all_to_all<bf16> swaps(ch, {.max_count = count, .transport = row_transport::flags});
        auto const in = r.heap.allocate<bf16>(2 * count), out = r.heap.allocate<bf16>(2 * count);
        run_gather(r, gathers, in, out, count, 0, false, 1);
        run_reduce(r, reduces, in, out, count, 0, true, 2);
        run_exchange(r, swaps, in, out, count, 0, true, 3);
      },
      heap_for(needs, 16_MiB));
}

TEST_CASE("collectives: slices that lie apart, as parts of larger ones do", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  std::int64_t const whole = 3001, part = 1100;
  auto const needs = all_gather<bf16>::requirements(3, {.max_count = part, .transport = transport}) +
                     reduce_scatter<bf16>::requirements(3, {.max_count = part, .transport = transport}) +
                     all_to_all<bf16>::requirements(3, {.max_count = part, .transport = transport});
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_gather<bf16> gathers(ch, {.max_count = part, .transport = transport});
        reduce_scatter<bf16> reduces(ch, {.max_count = part, .transport = transport});
        all_to_all<bf16> swaps(ch, {.max_count = part, .transport = transport});
        auto const in = r.heap.allocate<bf16>(3 * whole), out = r.heap.allocate<bf16>(3 * whole);
        r.upload(elements<bf16>(r.rank(), 3 * whole, 1), in);
        auto const in_parts = [&](auto const& call) {
          r.fill(out, 0x7f);
          for (std::int64_t at = 0; at < whole; at += part) call(at, std::min(part, whole - at));
          r.world.check(r.stream);
        };
        in_parts([&](std::int64_t at, std::int64_t n) {
          gathers(r.stream, {.in = r.here(in) + at, .out = r.here(out) + at, .count = n, .pitch = whole});
        });
        compare(r, "all_gather", out, 0, 3 * whole,
                [&](std::int64_t i) { return bf16(element(int(i / whole), i % whole, 1)); });
        in_parts([&](std::int64_t at, std::int64_t n) {
          swaps(r.stream, {.in = r.here(in) + at, .out = r.here(out) + at, .count = n, .pitch = whole});
        });
        compare(r, "all_to_all", out, 0, 3 * whole,
                [&](std::int64_t i) { return bf16(element(int(i / whole), r.rank() * whole + i % whole, 1)); });
        in_parts([&](std::int64_t at, std::int64_t n) {
          reduces(r.stream, {.in = r.here(in) + at, .out = r.here(out) + at, .count = n, .pitch = whole});
        });
        compare(r, "reduce_scatter", out, 0, whole, [&](std::int64_t i) {
          float sum = 0;
          for (int s = 0; s < 3; ++s) sum += element(s, r.rank() * whole + i, 1);
          return bf16(sum);
        });
      },
      heap_for(needs));
}

TEST_CASE("collectives: sums are added in the order of ranks", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  reduce_scatter_options const o{.max_count = 40, .transport = transport};
  auto const needs = reduce_scatter<float>::requirements(3, o);
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        reduce_scatter<float> op(ch, o);
        auto const x = r.heap.allocate<float>(120), sums = r.heap.allocate<float>(40);
        // 2^24 + 1 is 2^24 in fp32: in any other order a 1 is left
        float const large = float(1 << 24), of_rank[] = {large, 1, -large};
        r.upload(std::vector(120, of_rank[r.rank()]), x);
        op(r.stream, {.in = r.here(x), .out = r.here(sums), .count = 40});
        r.world.check(r.stream);
        for (float const sum : r.download(sums)) r.found.expect(sum == 0, "a sum is ", sum, ", wanted 0");
      },
      heap_for(needs));
}

TEST_CASE("collectives: launches on both sides of 2^32", "[collectives][channel]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const needs = all_gather<bf16>::requirements(3, {.max_count = 2000, .transport = transport}) +
                     reduce_scatter<bf16>::requirements(3, {.max_count = 2000, .transport = transport}) +
                     all_to_all_v<bf16>::requirements(3, {.max_count = 9 * 64, .transport = transport});
  on_ranks(
      3,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_gather<bf16> gathers(ch, {.max_count = 2000, .transport = transport});
        reduce_scatter<bf16> reduces(ch, {.max_count = 2000, .transport = transport});
        all_to_all_v<bf16> rows(ch, {.max_count = 9 * 64, .transport = transport});
        auto const in = r.heap.allocate<bf16>(6000), out = r.heap.allocate<bf16>(6000);
        counted_rank<bf16, std::int32_t> c(r, 9, 64);
        on_both_sides_of_2_to_32(
            r, ch,
            [&](int i) {
              int const count = 1 + i * 577 % 2000;
              if (i % 3 == 0) run_gather(r, gathers, in, out, count, 0, false, unsigned(i));
              else if (i % 3 == 1) run_reduce(r, reduces, in, out, count, 0, false, unsigned(i));
              else c.run(rows, 64, unsigned(i));
            },
            6);
      },
      heap_for(needs));
}

TEST_CASE("collectives: a captured call of all_to_all_v sees the counts of each replay", "[collectives]") {
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  all_to_all_v_options const o{.max_count = 12 * 300, .transport = transport};
  auto const needs = all_to_all_v<bf16>::requirements(2, o);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_to_all_v<bf16> op(ch, o);
        counted_rank<bf16, std::int64_t> c(r, 12, 300);
        graph const g(r, [&] { op(r.stream, c.call(300, 0, 24)); });
        r.found.expect(g.nodes().size() == 1, "a call has ", g.nodes().size(), " nodes");
        for (unsigned seed = 0; seed < 4; ++seed) {
          c.write(300, seed, 0);
          g.launch(r.stream);
          r.world.check(r.stream);
          c.check(300, seed, 24);
        }
      },
      heap_for(needs));
}

TEST_CASE("collectives: counts that are too large are cut, and negative ones are none", "[collectives]") {
  all_to_all_v_options const o{.max_count = 4 * 8};
  auto const needs = all_to_all_v<float>::requirements(2, o);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_to_all_v<float> op(ch, o);
        auto const in = r.heap.allocate<float>(8 * 6), out = r.heap.allocate<float>(8 * 8);
        auto const n = r.heap.allocate<std::int64_t>(2), at = r.heap.allocate<std::int64_t>(2),
                   got = r.heap.allocate<std::int64_t>(2);
        auto const run = [&](std::vector<std::int64_t> const& counts, std::vector<std::int64_t> const& offsets,
                             std::vector<std::int64_t> const& wanted) {
          r.upload(counts, n), r.upload(offsets, at);
          op(r.stream, all_to_all_v_call<float>{.in = r.here(in),
                                                .in_rows = 6,
                                                .out = r.here(out),
                                                .out_rows = 8,
                                                .cols = 8,
                                                .in_counts = r.here(n),
                                                .in_offsets = r.here(at),
                                                .out_counts = r.here(got)});
          r.world.check(r.stream);
          r.found.expect(r.download(got) == wanted, "counts arrived as ", r.download(got)[0], " and ",
                         r.download(got)[1]);
        };
        auto const both = [](std::int64_t x) { return std::vector<std::int64_t>{x, x}; };
        run({1000, 1000}, {0, 0}, both(4));  // max_count
        run({-3, -3}, {0, 0}, both(0));
        run({4, 4}, {5, 5}, both(1));  // in_rows
        run({4, 4}, {-9, -9}, both(4));
        run({4, 4}, {900, 900}, both(0));
      },
      heap_for(needs));
}

TEST_CASE("collectives: what crosses a link", "[collectives]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 4) SKIP("four simulated GPUs are needed");
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const needs = all_gather<bf16>::requirements(4, {.max_count = 8192, .transport = transport}) +
                     reduce_scatter<bf16>::requirements(4, {.max_count = 8192, .transport = transport});
  on_ranks(
      4,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_gather<bf16> gathers(ch, {.max_count = 8192, .transport = transport});
        reduce_scatter<bf16> reduces(ch, {.max_count = 8192, .transport = transport});
        auto const in = r.heap.allocate<bf16>(4 * 8192), out = r.heap.allocate<bf16>(4 * 8192);
        auto const bytes = [&] {
          r.meet();
          auto const link = simulator_stats()->links[r.rank()][r.partner()].store_bytes;
          r.meet();
          return link;
        };
        auto const expect = [&](char const* what, auto const& call) {
          auto const before = bytes();
          call();
          auto const crossed = bytes() - before,
                     wanted = std::uint64_t(8192 * 2 * (transport == row_transport::ll_words ? 2 : 1));
          r.found.expect(crossed >= wanted && crossed < wanted + 1024, what, ": ", crossed,
                         " bytes crossed the link; wanted ", wanted, " and less than 1024 for flags and a header");
        };
        expect("all_gather", [&] { run_gather(r, gathers, in, out, 8192, 0, false, 1); });
        expect("reduce_scatter", [&] { run_reduce(r, reduces, in, out, 8192, 0, false, 2); });
      },
      heap_for(needs));
}

TEST_CASE("collectives: a rank that sends nothing is named, and reset() brings it back", "[collectives][faults]") {
  if (reports_races()) SKIP("a missing signal is a race");
  auto const transport = GENERATE(row_transport::ll_words, row_transport::flags);
  auto const needs = all_gather<bf16>::requirements(2, {.max_count = 512, .transport = transport}) +
                     all_to_all_v<bf16>::requirements(2, {.max_count = 4 * 64, .transport = transport});
  heap_options h = heap_for(needs);
  h.wait_limit = std::chrono::milliseconds(500);
  bool const of_rows = GENERATE(false, true);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        channel ch(r.heap, needs);
        all_gather<bf16> op(ch, {.max_count = 512, .transport = transport});
        all_to_all_v<bf16> rows(ch, {.max_count = 4 * 64, .transport = transport});
        load_kernel(r.world, send_nothing, 64);
        auto const in = r.heap.allocate<bf16>(512), out = r.heap.allocate<bf16>(1024);
        counted_rank<bf16, std::int64_t> c(r, 4, 64);
        c.write(64, 1, 0);
        r.meet();
        if (r.rank() == 0) {
          if (of_rows) rows(r.stream, c.call(64, 0, 8));
          else op(r.stream, {.in = r.here(in), .out = r.here(out), .count = 512});
          r.found.throws<error>("a rank sends nothing", {of_rows ? "all_to_all_v by" : "all_gather by", "rank 1"},
                                [&] { r.world.check(r.stream); });
          if (transport == row_transport::ll_words && !of_rows)
            for (int i = 512; i < 1024; ++i) {
              float const x = float(r.download(out)[std::size_t(i)]);
              r.found.expect(x != x, "what has not come is ", x, ", wanted NaN");
            }
        } else {
          r.launch({1, 64}, send_nothing, ch.view(make_header(of_rows ? "alltoalv" : "allgathr", 0)));
          r.synchronize();
          try {
            r.world.check(r.stream);
          } catch (error const&) {}
        }
        r.meet();
        ch.reset();
        run_gather(r, op, in, out, 512, 0, false, 1);
        c.run(rows, 64, 2);
      },
      h);
}

TEST_CASE("collectives: say which way a call takes", "[collectives]") {
  on_ranks(3, [&](rank_of_test& r) {
    auto const flags = row_transport::flags;
    channel ch(r.heap, {.max_bytes = 1_MiB});
    all_gather<bf16> const gathers(ch, {.max_count = 30'000, .transport = flags});
    reduce_scatter<float> const reduces(ch, {.max_count = 20'000, .transport = flags});
    auto const says = [&](std::string const& found, std::string const& wanted) {
      r.found.expect(found == wanted, "describe() = ", found, ", wanted ", wanted);
    };
    says(gathers.describe(0), "all_gather: nothing");
    says(gathers.describe(30'000), "all_gather: flags, 8 rows of 8192 bytes, 1 a chunk");
    says(reduces.describe(20'000), "reduce_scatter: flags, 10 rows of 8192 bytes, 1 a chunk");
  });
}

TEST_CASE("collectives: refuse what they cannot do, with the numbers that they can", "[collectives]") {
  on_ranks(1, [&](rank_of_test& r) {
    channel small(r.heap, {.max_bytes = 16, .flags_per_source = 1}), ch(r.heap, {.max_bytes = 1_MiB});
    auto const fails = [&](char const* what, std::vector<std::string> const& pieces, auto const& call) {
      r.found.throws<bad_argument>(what, pieces, call);
    };
    fails("no elements", {"all_gather: max_count = 0"}, [&] { all_gather<bf16> x(ch, {.max_count = 0}); });
    fails("no elements", {"reduce_scatter: max_count = -1"}, [&] { reduce_scatter<bf16> x(ch, {.max_count = -1}); });
    fails("no such transport", {"all_to_all: transport = 9"},
          [&] { all_to_all<bf16> x(ch, {.max_count = 1, .transport = row_transport(9)}); });
    fails("no elements", {"all_to_all_v: max_count = 0"}, [&] { all_to_all_v<bf16> x(ch, {.max_count = 0}); });
    fails("no such units", {"reserved_cus = -1"},
          [&] { all_gather<bf16> x(ch, {.max_count = 1, .reserved_cus = -1}); });
    r.found.throws<out_of_space>("a small channel", {"flags per source", "the channel has 1"},
                                 [&] { all_gather<bf16> x(small, {.max_count = 100'000}); });
    all_gather<bf16> gathers(ch, {.max_count = 100});
    all_to_all<bf16> swaps(ch, {.max_count = 100});
    reduce_scatter<bf16> reduces(ch, {.max_count = 100});
    all_to_all_v<bf16> rows(ch, {.max_count = 10 * 20});
    auto const m = r.heap.allocate<bf16>(800);
    auto const n = r.heap.allocate<std::int64_t>(8);
    bf16* const p = r.here(m);
    fails("too many", {"all_gather: count = 101", "max_count = 100"},
          [&] { gathers(r.stream, {.in = p, .out = p + 200, .count = 101}); });
    fails("slices in each other", {"all_gather: pitch = 7", "at least count = 8"},
          [&] { gathers(r.stream, {.in = p, .out = p + 200, .count = 8, .pitch = 7}); });
    fails("null", {"all_to_all: in is null"}, [&] { swaps(r.stream, {.in = nullptr, .out = p, .count = 1}); });
    fails("null", {"reduce_scatter: out is null"}, [&] { reduces(r.stream, {.in = p, .out = nullptr, .count = 1}); });
    fails("overlap", {"out = ", "overlaps in"}, [&] { gathers(r.stream, {.in = p + 8, .out = p, .count = 100}); });
    fails("overlap", {"out = ", "overlaps in"}, [&] { swaps(r.stream, {.in = p, .out = p + 8, .count = 100}); });
    fails("overlap", {"out = ", "overlaps in"}, [&] { reduces(r.stream, {.in = p, .out = p + 8, .count = 100}); });
    all_to_all_v_call<bf16> const c{
        .in = p, .in_rows = 10, .out = p + 400, .out_rows = 10, .cols = 20, .in_counts = r.here(n)};
    auto const with = [&](auto const& change) {
      auto x = c;
      change(x);
      rows(r.stream, x);
    };
    fails("columns", {"cols = 201", "max_count = 200"}, [&] { with([](auto& x) { x.cols = 201; }); });
    fails("rows", {"in_rows = -1"}, [&] { with([](auto& x) { x.in_rows = -1; }); });
    fails("null", {"in is null"}, [&] { with([](auto& x) { x.in = nullptr; }); });
    fails("null", {"in_counts is null"}, [&] { with([](auto& x) { x.in_counts = nullptr; }); });
    fails("overlap", {"out = ", "overlaps in"}, [&] { with([&](auto& x) { x.out = p + 20; }); });
    fails("overlap", {"out_counts = ", "overlaps in_counts"},
          [&] { with([&](auto& x) { x.out_counts = r.here(n); }); });
  });
}
