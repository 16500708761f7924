// Flash Decode against a reference in fp64 on the host. Inputs are eighths that 16 bits hold exactly. If all keys are
// equal and values are integers, every sum is exact and == needs no tolerance.
#include <fusewire/ops/flash_decode.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include <catch2/catch_template_test_macros.hpp>

#include "decode_rank.hpp"
#include "faults.hpp"

using namespace support;

namespace {

heap_options decode_heap() { return {.bulk = 24_MiB, .signal = 8_MiB, .wait_limit = std::chrono::seconds(20)}; }
channel_options decode_channel() { return {.max_bytes = 1, .flags_per_source = 1}; }

template <class F>
std::vector<std::string> on_decode_ranks(int ranks, F f) {
  return on_ranks(ranks, f, decode_heap());
}

template <class T>
void one(int ranks, heads_of h, int page_size, int max_pages, problem const& p, float scale = 0,
         reduce_algorithm how = reduce_algorithm::automatic) {
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    decode_rank<T> d(r, h, p.batch, page_size, max_pages, scale, how);
    channel ch(r.heap, decode_channel());
    flash_decode<T> op(ch, d.options());
    d.run(op, p);
  });
}

int any_length(int most, unsigned seed, int rank, int s) {
  lcg random{seed * 977 + unsigned(rank * 31 + s)};
  return random.below(4) == 0 ? 0 : random.below(most + 1);
}

/// A split, as kv_splits gives it.
struct split {
  int sequence, head, item, begin, end, starts, whole, has_last_token, first_block, last_block;
  bool operator==(split const&) const = default;
};

__global__ void plan_splits(decode_lengths lengths, bool by_wave, split* found, int* counts, int most) {
  __shared__ int words[kv_splits<>::shared_words];
  block const b;
  int n = 0;
  for (kv_splits<> run(b, lengths, words, b.index(), by_wave); !run.done() && n < most; run.next(), ++n)
    if (b.leader())
      found[b.index() * most + n] = {run.sequence(),    run.head(),      run.head_item(), run.begin(),
                                     run.end(),         run.starts(),    run.whole(),     run.has_last_token(),
                                     run.first_block(), run.last_block()};
  if (b.leader()) counts[b.index()] = n;
}

/// A piece of a head item.
struct piece_at {
  int item, piece, pieces, begin, end;
  bool operator==(piece_at const&) const = default;
};

__global__ void plan_pieces(decode_lengths lengths, bool by_wave, piece_at* found, int* count) {
  __shared__ int words[kv_splits<>::shared_words];
  block const b;
  for (kv_splits<true> run(b, lengths, words, b.index(), by_wave); !run.done(); run.next())
    if (b.leader())
      found[atomic_ref<int, scope::device>(count).fetch_add(1, order::relaxed)] = {
          run.head_item(), run.piece(), run.pieces(), run.begin(), run.end()};
}

/// The same from the rule: units of 128 tokens, and a gap behind each item, dealt to the blocks in equal runs; runs end
/// where items do if all are alike and this makes no run longer.
std::vector<std::vector<split>> splits_of(std::vector<int> const& lengths, int max_tokens, int kv_heads, int blocks) {
  struct item_at {
    int first, units, tokens;
  };
  std::vector<item_at> items;
  int all = 0, gap = decode_lengths::switch_cost;
  for (int n : lengths)
    for (int head = 0; head < kv_heads; ++head) {
      int const tokens = std::clamp(n, 0, max_tokens), units = std::max(1, ceil_div(tokens, 128));
      items.push_back({all, units, tokens});
      all += units + gap;
    }
  int const runs = std::min(blocks, decode_lengths::max_blocks(kv_heads)), count = int(items.size()),
            units = items[0].units;
  int length = ceil_div(all, runs);
  bool const alike = std::all_of(items.begin(), items.end(), [&](item_at const& i) { return i.units == units; }),
             many = count > runs;
  if (int const aligned = many ? ceil_div(count, runs) * (units + gap) : ceil_div(units, runs / count);
      alike && aligned <= length) {
    length = aligned;
    if (!many) gap = ceil_div(units, length) * length - units;
    for (int i = 0; i < count; ++i) items[std::size_t(i)].first = i * (units + gap);
  }
  std::vector<std::vector<split>> of(static_cast<std::size_t>(blocks));
  for (int i = 0; i < int(items.size()); ++i) {
    auto const [first, units, tokens] = items[std::size_t(i)];
    int const first_block = first / length, last_block = (first + units - 1) / length;
    for (int b = first_block; b <= last_block; ++b) {
      int const from = std::max(first, b * length) - first, to = std::min(first + units, (b + 1) * length) - first;
      of[std::size_t(b)].push_back({i / kv_heads, i % kv_heads, i, from * 128, std::min(to * 128, tokens), from == 0,
                                    from == 0 && to == units, to == units, first_block, last_block});
    }
  }
  return of;
}

/// Writes the query and the newest token's K and V of every sequence, as the stream of a decoder does just before
/// attention.
__global__ void write_newest(f16* q, f16* k, f16* v, decode_lengths l, std::int32_t const* table, int q_elements,
                             int page_size, int max_pages, int d, float query, float key, float value) {
  block const b;
  for (int i = b.rank(); i < q_elements; i += b.size()) q[i] = f16(query);
  for (int s = 0; s < l.batch; ++s) {
    int const t = l.of(s) - 1, row = table[s * max_pages + t / page_size] * page_size + t % page_size,
              elements = l.kv_heads * d;
    for (int i = b.rank(); i < elements; i += b.size()) {
      k[std::int64_t(row) * elements + i] = f16(key);
      v[std::int64_t(row) * elements + i] = f16(value);
    }
  }
}

}  // namespace

/// Stamps of one parity are equal 2^32 launches apart, and not before.
__device__ constexpr bool stamps_differ() {
  for (int bit = 1; bit < 32; ++bit)
    if (detail::ll_stamp(1) == detail::ll_stamp(1 + (epoch_t(1) << bit))) return false;
  return detail::ll_stamp(1) == detail::ll_stamp(1 + (epoch_t(1) << 32));
}
static_assert(stamps_differ());

TEST_CASE("kv_splits: every block has the splits that the rule gives it", "[flash_decode]") {
  on_ranks(1, [&](rank_of_test& r) {
    constexpr int most = 300, max_tokens = 1000, max_blocks = 40;
    auto const found = r.heap.allocate<split>(max_blocks * most);
    auto const counts = r.heap.allocate<int>(max_blocks);
    lcg random{3};
    for (int batch : {1, 2, 3, 65, 140}) {
      std::int32_t* tokens = nullptr;  // not on the heap, so that the simulator tells of a read past them
      check_hip(hipMalloc(&tokens, std::size_t(batch) * sizeof(std::int32_t)), "hipMalloc");
      for (int kv_heads : {1, 3})
        for (int blocks : {1, 2, 7, max_blocks})
          for (bool const alike : {false, true}) {  // some runs of seven that are alike end with a sequence
            if (batch * kv_heads > most * blocks) continue;
            std::vector<int> lengths;
            for (int s = 0; s < batch; ++s)
              lengths.push_back(alike             ? 200
                                : random.below(3) ? 128 * random.below(9) + random.below(3) - 1
                                                  : random.below(1500));
            r.upload(std::vector<std::int32_t>(lengths.begin(), lengths.end()), tokens);
            for (bool const by_wave : {false, true}) {
              r.fill(counts, 0xff);
              r.launch({blocks, 128}, plan_splits, decode_lengths(tokens, batch, max_tokens, kv_heads, blocks), by_wave,
                       r.here(found), r.here(counts), most);
              auto const n = r.download(counts);
              auto const all = r.download(found);
              auto const wanted = splits_of(lengths, max_tokens, kv_heads, blocks);
              for (int b = 0; b < blocks; ++b) {
                auto const& w = wanted[std::size_t(b)];
                if (!r.found.expect(n[std::size_t(b)] == int(w.size()), "block ", b, " of ", blocks, ", batch ", batch,
                                    ": ", n[std::size_t(b)], " splits, wanted ", w.size()))
                  continue;
                for (std::size_t i = 0; i < w.size(); ++i)
                  r.found.expect(all[std::size_t(b * most) + i] == w[i], "block ", b, " of ", blocks, ", batch ", batch,
                                 ": split ", i, ", of sequence ", w[i].sequence, ", is wrong");
              }
            }
          }
      check_hip(hipFree(tokens), "hipFree");
    }
  });
}

TEST_CASE("kv_splits: batch-invariant, every piece of every sequence once, as its own length says", "[flash_decode]") {
  on_ranks(1, [&](rank_of_test& r) {
    constexpr int most = 4000, max_tokens = 5000;
    auto const found = r.heap.allocate<piece_at>(most);
    auto const count = r.heap.allocate<int>(1);
    auto const tokens = r.heap.allocate<std::int32_t>(70);
    lcg random{4};
    for (int batch : {1, 2, 7, 65})
      for (int kv_heads : {1, 3})
        for (int blocks : {1, 2, 7, 40})
          for (bool const by_wave : {false, true}) {
            int const pieces = 1 + random.below(9);
            std::vector<std::int32_t> lengths(70, 0);
            for (int s = 0; s < batch; ++s) lengths[std::size_t(s)] = random.below(4) ? random.below(5500) : 0;
            r.upload(lengths, tokens);
            r.fill(count, 0);
            decode_lengths l(r.here(tokens), batch, max_tokens, kv_heads, blocks);
            l.pieces = pieces;
            r.launch({blocks, 128}, plan_pieces, l, by_wave, r.here(found), r.here(count));
            std::vector<piece_at> wanted;
            for (int item = 0; item < batch * kv_heads; ++item) {
              int const n = std::min(lengths[std::size_t(item / kv_heads)], max_tokens),
                        units = std::max(1, ceil_div(n, 128)), of_piece = std::max(4, ceil_div(units, pieces)),
                        all = ceil_div(units, of_piece);
              for (int i = 0; i < all; ++i)
                wanted.push_back({item, i, all, i * of_piece * 128, std::min((i + 1) * of_piece * 128, n)});
            }
            auto all = r.download(found);
            all.resize(std::size_t(r.download(count)[0]));
            std::sort(all.begin(), all.end(), [](piece_at const& x, piece_at const& y) {
              return std::pair(x.item, x.piece) < std::pair(y.item, y.piece);
            });
            r.found.expect(all == wanted, "batch ", batch, ", ", blocks, " blocks, ", pieces, " pieces: ", all.size(),
                           " found, ", wanted.size(), " wanted");
          }
  });
}

TEST_CASE("flash_decode: 1 to 8 ranks, bf16", "[flash_decode]") {
  int const ranks = GENERATE(1, 2, 3, 4, 8);
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  CAPTURE(ranks, int(how));
  one<bf16>(ranks, {8, 2, 128}, 16, 20, {3, [](int r, int s) { return any_length(300, 1, r, s); }}, 0, how);
}

TEST_CASE("flash_decode: heads per KV head, d and type", "[flash_decode]") {
  int const group = GENERATE(1, 2, 3, 8, 16);
  CAPTURE(group);
  problem const p{2, [](int r, int s) { return any_length(150, 2, r, s); }};
  one<bf16>(2, {3 * group, 3, 64}, 4, 40, p);
  one<f16>(2, {2 * group, 2, 128}, 4, 40, p);
  one<f16>(2, {group, 1, 64}, 4, 40, p, 0.25f);
}

TEST_CASE("flash_decode: every head dimension", "[flash_decode]") {
  int const d = GENERATE(64, 96, 128, 192, 256);
  CAPTURE(d);
  auto const length = [](int r, int s) { return 260 - 90 * r - 77 * s; };
  one<bf16>(2, {6, 2, d}, 16, 17, {3, length});
  one<f16>(1, {13, 1, d}, 4, 65, {2, length});
  one<f16>(2, {2, 2, d}, 16, 17, {2, length, problem::equal_keys}, 0, reduce_algorithm::two_shot);
}

TEST_CASE("flash_decode: a sliding window leaves out what lies before it", "[flash_decode]") {
  int const ranks = GENERATE(1, 3), d = GENERATE(64, 128);
  auto const form = GENERATE(output::replicated, output::heads);
  CAPTURE(ranks, d, int(form));
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    decode_rank<bf16> x(r, {6, 2, d}, 4, 4, 100);
    x.windowed = true;
    x.output = form;
    channel ch(r.heap, decode_channel());
    flash_decode<bf16, decode_features{.sliding_window = true}> op(ch, x.options());
    problem p{4, [](int rank, int s) { return s == 3 ? 0 : 390 - 50 * rank - 70 * s; }};
    p.window_begin = [](int rank, int s) { return 129 * rank - 3 + 4 * s; };
    x.run(op, p);
    p.window_begin = [&](int rank, int s) { return p.length(rank, s) - (rank + s) % 3; };  // some of none or one token
    x.run(op, p);
    p.window_begin = [](int rank, int) { return rank == 1 ? INT32_MAX : 0; };
    x.run(op, p);
    p.keys = problem::equal_keys;
    p.window_begin = [](int, int s) { return 257 - s; };
    x.run(op, p);
    x.windowed = false;
    p.window_begin = {};
    x.run(op, p);
  });
}

TEST_CASE("flash_decode: a soft cap bends scores", "[flash_decode]") {
  int const d = GENERATE(64, 128, 256);
  float const cap = GENERATE(0.0f, 1.0f, 30.0f);
  auto const keys = GENERATE(problem::random, problem::large);
  CAPTURE(d, cap, int(keys));
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<f16> x(r, {4, 2, d}, 3, 16, 20);
    x.soft_cap = cap;
    channel ch(r.heap, decode_channel());
    flash_decode<f16, decode_features{.soft_cap = true}> op(ch, x.options());
    x.run(op, {3, [](int rank, int s) { return 300 - 50 * rank - 100 * s; }, keys});
  });
}

TEST_CASE("flash_decode: page sizes", "[flash_decode]") {
  int const page_size = GENERATE(1, 4, 16, 256);
  CAPTURE(page_size);
  one<f16>(2, {6, 2, 64}, page_size, ceil_div(280, page_size),
           {2, [](int r, int s) { return 280 - 37 * (r + 2 * s); }});
}

TEST_CASE("flash_decode: lengths around the edges of pages, steps, units and waves", "[flash_decode]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<f16> d(r, {2, 1, 64}, 6, 4, 66);
    channel ch(r.heap, decode_channel());
    flash_decode<f16> op(ch, d.options());
    int const edges[] = {0, 1, 3, 4, 5, 31, 32, 33, 63, 65, 127, 128, 129, 160, 255, 256, 257, 264};
    for (int i = 0; i < 18; i += 6)
      d.run(op, {6, [&, i](int rank, int s) { return edges[rank == 0 ? i + s : 17 - i - s]; }, problem::random,
                 unsigned(i)});
  });
}

TEST_CASE("flash_decode: the same edges with pages of one token and of 64, d = 128", "[flash_decode]") {
  int const page_size = GENERATE(1, 64);
  CAPTURE(page_size);
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<f16> d(r, {3, 1, 128}, 5, page_size, ceil_div(257, page_size));
    channel ch(r.heap, decode_channel());
    flash_decode<f16> op(ch, d.options());
    int const edges[] = {1, 32, 63, 64, 65, 127, 128, 129, 255, 257};
    for (int i = 0; i < 10; i += 5)
      d.run(op, {5, [&, i](int rank, int s) { return edges[rank == 0 ? i + s : 9 - i - s]; }, problem::random,
                 unsigned(i)});
  });
}

TEST_CASE("flash_decode: a single token in all, on each rank in turn", "[flash_decode]") {
  on_decode_ranks(3, [&](rank_of_test& r) {
    decode_rank<f16> d(r, {4, 2, 128}, 3, 1, 2);
    channel ch(r.heap, decode_channel());
    flash_decode<f16> op(ch, d.options());
    d.run(op, {3, [](int rank, int s) { return rank == s ? 1 : 0; }});
    d.run(op, {3, [](int rank, int s) { return rank == s ? 1 : 0; }, problem::equal_keys});
  });
}

TEST_CASE("flash_decode: empty shards on some ranks and on all", "[flash_decode]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  CAPTURE(int(how));
  on_decode_ranks(3, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {4, 2, 64}, 4, 16, 10, 0, how);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    d.run(op, {4, [](int, int) { return 0; }});
    d.run(op, {4, [](int rank, int s) { return rank == s ? 140 : 0; }});
    d.run(op, {4, [](int rank, int) { return rank == 1 ? 0 : 33; }});
    d.run(op, {1, [](int, int) { return 0; }});
  });
}

TEST_CASE("flash_decode: equal keys are a mean, exactly", "[flash_decode]") {
  problem const p{3, [](int r, int s) { return any_length(260, 3, r, s); }, problem::equal_keys};
  one<bf16>(4, {8, 2, 64}, 16, 20, p);
  one<f16>(2, {8, 2, 128}, 1, 300, p);
  one<f16>(2, {4, 2, 64}, 16, 20, p, 64.0f);  // scores of hundreds
}

/// Means half way between two numbers of T: an error of one unit of fp32 decides which of the two is the result.
template <class T>
void means_half_way(int ranks, int least) {
  constexpr int tokens = 122;  // o times the rounded 1 / 122 is often not o / 122
  problem const p{1, [=](int r, int) { return r == 0 ? tokens - 30 * (ranks - 1) : 30; }, problem::ties, 3, least};
  int products_that_differ = 0;
  for (int j = 0; j < 64; ++j) {
    float const l = tokens, o = (p.v(0, 0, 0, 0, j) + p.v(0, 0, 1, 0, j)) * l / 2;
    products_that_differ += T(o / l).bits != T(o * (1 / l)).bits;
  }
  REQUIRE(products_that_differ > 0);
  one<T>(ranks, {2, 1, 64}, 16, 8, p);
}

TEST_CASE("flash_decode: an output is the rounded quotient of two sums", "[flash_decode]") {
  int const ranks = GENERATE(1, 2, 4);
  CAPTURE(ranks);
  means_half_way<bf16>(ranks, 128);  // 8 bits
  means_half_way<f16>(ranks, 1024);  // 11 bits
}

TEST_CASE("flash_decode: the key that outweighs all is first, last, or at an edge of a step or unit",
          "[flash_decode]") {
  int const lengths[] = {1, 63, 64, 65, 255, 257};  // it is in the middle
  one<f16>(2, {4, 2, 64}, 16, 17,
           {6, [&](int r, int s) { return r == 0 ? lengths[s] : lengths[5 - s]; }, problem::one_dominant}, 1.0f);
}

TEST_CASE("flash_decode: large scores, and one key that outweighs all", "[flash_decode]") {
  auto const length = [](int r, int s) { return 150 + 10 * r - 40 * s; };
  auto const keys = GENERATE(problem::one_dominant, problem::large);
  problem p{2, length};
  p.keys = keys;
  one<bf16>(2, {4, 2, 64}, 16, 10, p, 1.0f);
  one<f16>(2, {4, 2, 128}, 16, 10, p, -2.0f);
}

TEST_CASE("flash_decode: few blocks, each with many items and parts of two", "[flash_decode]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  CAPTURE(int(how));
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {4, 2, 64}, 9, 16, 40, 0, how);
    channel ch(r.heap, decode_channel());
    auto o = d.options();
    int xcds = 1;
    check_hip(platform::xcd_count(&xcds, r.world.device()), "xcd_count");
    o.reserved_cus = r.world.compute_units() - xcds * r.world.max_ranks_on_a_device();  // each has one of each XCD
    flash_decode<bf16> op(ch, o);
    d.run(op, {9, [](int rank, int s) { return s == 4 ? 640 - 200 * rank : any_length(200, 8, rank, s); }});
    d.run(op, {9, [](int rank, int s) { return s == 0 ? 640 : rank * s * 3; }, problem::equal_keys});
  });
}

TEST_CASE("flash_decode: items of five splits, launch after launch", "[flash_decode]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {4, 2, 64}, 1, 16, 40);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    for (unsigned seed = 0; seed < 4; ++seed) d.run(op, {1, [](int, int) { return 640; }, problem::random, seed});
  });
}

TEST_CASE("flash_decode: as many splits as one thread, eight or sixteen read", "[flash_decode]") {
  int const splits = GENERATE(7, 8, 15, 16, 17, 33);
  CAPTURE(splits);
  auto const run = [&]<class T>(T, int ranks, heads_of h) {
    on_decode_ranks(ranks, [&](rank_of_test& r) {
      decode_rank<T> d(r, h, 1, 64, 2 * splits);
      channel ch(r.heap, decode_channel());
      flash_decode<T> op(ch, d.options());
      for (unsigned seed = 0; seed < 2; ++seed)
        d.run(op, {1, [&](int rank, int) { return 128 * splits - 50 * rank; }, problem::random, seed});
    });
  };
  run(bf16{}, 1, {1, 1, 64});    // a single line of vec4s
  run(f16{}, 2, {3, 1, 128});    // lines that blocks cannot have in equal shares
  run(bf16{}, 1, {32, 2, 128});  // as many heads as there can be
}

TEST_CASE("flash_decode: results by heads, each rank's own", "[flash_decode]") {
  int const ranks = GENERATE(1, 2, 3, 4, 8);
  auto const h = GENERATE(heads_of{8, 2, 64},    // whole KV heads, or parts of their groups
                          heads_of{6, 6, 64},    // a query head for each KV head; unequal shares
                          heads_of{2, 1, 128});  // ranks without heads
  CAPTURE(ranks, h.q, h.kv);
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, h, 3, 16, 20);
    d.output = output::heads;
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    d.run(op, {3, [](int rank, int s) { return any_length(300, 1, rank, s); }});
    d.run(op, {2, [](int rank, int s) { return s == 0 ? 0 : 130 * (rank + 1) % 300; }, problem::equal_keys});
  });
}

TEST_CASE("flash_decode: results by heads with splits, few blocks and more sequences than those", "[flash_decode]") {
  on_decode_ranks(3, [&](rank_of_test& r) {
    decode_rank<f16> d(r, {10, 2, 64}, 9, 16, 40);
    d.output = output::heads;
    channel ch(r.heap, decode_channel());
    auto o = d.options();
    int xcds = 1;
    check_hip(platform::xcd_count(&xcds, r.world.device()), "xcd_count");
    o.reserved_cus = r.world.compute_units() - xcds * r.world.max_ranks_on_a_device();  // each has one of each XCD
    flash_decode<f16> few(ch, o), many(ch, d.options());
    problem const p{9, [](int rank, int s) { return s == 4 ? 640 - 200 * rank : any_length(200, 8, rank, s); }};
    d.run(few, p);
    d.run(many, p);
    d.run(many, {1, [](int, int) { return 640; }});
  });
}

TEST_CASE("flash_decode: results by heads have the bits of replicated ones", "[flash_decode]") {
  int const ranks = GENERATE(1, 2, 4, 5);
  CAPTURE(ranks);
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {12, 2, 64}, 3, 16, 40);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> replicated(ch, d.options());
    d.output = output::heads;
    flash_decode<bf16> scattered(ch, d.options());
    d.fill({3, [](int rank, int s) { return 600 - 100 * rank - 150 * s; }});
    replicated(r.stream, d.call(3));
    r.world.check(r.stream);
    auto const all = r.download(d.out);
    auto const all_lse = r.download(d.lse);
    d.poison();
    scattered(r.stream, d.call(3));
    r.world.check(r.stream);
    auto const found = r.download(d.out);
    auto const found_lse = r.download(d.lse);
    index_range const own = flash_decode<bf16>::heads_of(r.rank(), r.size(), d.options());
    for (int row = 0; row < 3 * own.size(); ++row) {
      int const of_all = row / own.size() * d.h.q + own.begin + row % own.size();
      r.found.expect(
          std::bit_cast<unsigned>(found_lse[std::size_t(row)]) == std::bit_cast<unsigned>(all_lse[std::size_t(of_all)]),
          "lse of row ", row);
      for (int j = 0; j < d.h.d; ++j)
        if (!r.found.expect(found[std::size_t(row * d.h.d + j)].bits == all[std::size_t(of_all * d.h.d + j)].bits,
                            "row ", row, ", d ", j))
          return;
    }
  });
}

TEST_CASE("flash_decode: lse in base 2, by heads and replicated", "[flash_decode]") {
  auto const form = GENERATE(output::replicated, output::heads);
  CAPTURE(int(form));
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<f16> d(r, {4, 2, 64}, 3, 16, 20);
    d.output = form;
    d.lse_base = lse_base::two;
    channel ch(r.heap, decode_channel());
    flash_decode<f16> op(ch, d.options());
    d.run(op, {3, [](int rank, int s) { return s == 2 ? 0 : 90 * rank + 50 * s; }});
  });
}

TEST_CASE("flash_decode: batch-invariant, a sequence has the same bits in every batch", "[flash_decode]") {
  int const ranks = GENERATE(1, 2, 3), d = GENERATE(64, 128);
  auto const form = GENERATE(output::replicated, output::heads);
  CAPTURE(ranks, d, int(form));
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    constexpr int batch = 5, max_tokens = 2600;
    decode_rank<bf16> x(r, {4, 2, d}, batch, 16, ceil_div(max_tokens, 16));
    x.output = form;
    channel ch(r.heap, decode_channel());
    auto o = x.options();
    using invariant = flash_decode<bf16, decode_features{.batch_invariant = true}>;
    invariant op(ch, o);
    int xcds = 1;
    check_hip(platform::xcd_count(&xcds, r.world.device()), "xcd_count");
    o.reserved_cus = r.world.compute_units() - xcds * r.world.max_ranks_on_a_device();  // each has one of each XCD
    invariant few_blocks(ch, o);
    int const lengths[] = {2600, 300, 0, 1300, 700};
    problem const p{batch, [&](int rank, int s) { return std::max(0, lengths[s] - 90 * rank); }};
    x.run(op, p);
    index_range const own = form == output::heads ? invariant::heads_of(r.rank(), r.size(), o) : index_range{0, x.h.q};
    auto const rows = std::size_t(own.size()), row = std::size_t(own.size() * d);
    auto const wanted = r.download(x.out);
    auto const wanted_lse = r.download(x.lse);
    auto const compare = [&](char const* how, invariant& by, int first, int sequences) {
      x.poison();
      auto c = x.call(sequences);
      c.q += first * x.h.q * d;
      c.block_table += first * x.max_pages;
      c.lengths += first;
      by(r.stream, c);
      r.world.check(r.stream);
      auto const out = r.download(x.out);
      auto const lse = r.download(x.lse);
      bool same = true;
      for (std::size_t i = 0; i < row * std::size_t(sequences); ++i)
        same = same && out[i].bits == wanted[row * std::size_t(first) + i].bits;
      for (std::size_t i = 0; i < rows * std::size_t(sequences); ++i)
        same = same &&
               std::bit_cast<unsigned>(lse[i]) == std::bit_cast<unsigned>(wanted_lse[rows * std::size_t(first) + i]);
      r.found.expect(same, how, ": sequences ", first, " to ", first + sequences - 1);
    };
    for (int sequences = 1; sequences <= batch; ++sequences)
      for (int first = 0; first + sequences <= batch; ++first) compare("part of the batch", op, first, sequences);
    compare("few blocks", few_blocks, 0, batch);
    compare("few blocks, one sequence", few_blocks, 0, 1);
    // Sequence 3 beside others that are as long as can be, or empty
    for (int const others : {0, max_tokens}) {
      auto n = r.download(x.lengths);
      for (int s = 0; s < batch; ++s)
        if (s != 3) n[std::size_t(s)] = std::min(others, n[std::size_t(s)]);
      r.upload(n, x.lengths);
      compare("others' lengths", op, 3, 1);
      x.poison();
      op(r.stream, x.call(batch));
      r.world.check(r.stream);
      auto const out = r.download(x.out);
      for (std::size_t i = 3 * row; i < 4 * row; ++i)
        if (!r.found.expect(out[i].bits == wanted[i].bits, "element ", i, " beside others of ", others)) return;
    }
  });
}

TEST_CASE("flash_decode: batch-invariant, any lengths, with a window and a soft cap", "[flash_decode]") {
  int const ranks = GENERATE(1, 2, 4);
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  CAPTURE(ranks, int(how));
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    decode_rank<f16> x(r, {6, 2, 64}, 9, 16, 90, 0, how);
    channel ch(r.heap, decode_channel());
    flash_decode<f16, decode_features{.soft_cap = true, .sliding_window = true, .batch_invariant = true}> op(
        ch, x.options());
    for (unsigned i = 0; i < 4; ++i) {
      problem p{int(1 + 2 * i), [i](int rank, int s) { return any_length(1440, i, rank, s); }, problem::random, i};
      x.windowed = i > 1;
      x.soft_cap = i % 2 ? 5.0f : 0.0f;
      if (x.windowed) p.window_begin = [](int rank, int s) { return 300 * s - 100 * rank; };
      x.run(op, p);
    }
    x.windowed = false;
    x.soft_cap = 0;
    x.run(op, {9, [](int rank, int s) { return s == 4 ? 1440 : 1440 * rank + s == 1 ? 1 : 0; }, problem::equal_keys});
  });
}

TEST_CASE("flash_decode: a query that is NaN gives NaN, and to no other", "[flash_decode]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<f16> d(r, {4, 2, 64}, 2, 16, 4);
    channel ch(r.heap, decode_channel());
    flash_decode<f16> op(ch, d.options());
    d.fill({2, [](int rank, int s) { return 20 * (rank + s); }});
    auto q = r.download(d.q);
    std::size_t const first = std::size_t(5 * d.h.d), last = first + std::size_t(d.h.d);  // sequence 1, head 1
    for (std::size_t i = first; i < last; ++i) q[i].bits = 0xffff;
    r.upload(q, d.q);
    op(r.stream, d.call(2));
    r.world.check(r.stream);
    auto const out = r.download(d.out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      float const x = float(out[i]);
      r.found.expect(std::isnan(x) == (i >= first && i < last), "element ", i, " of out is ", x);
    }
  });
}

TEST_CASE("flash_decode: one long sequence, cut into as many splits as there may be", "[flash_decode]") {
  problem const p{1, [](int, int) { return 39990; }, problem::equal_keys};
  on_decode_ranks(1, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {2, 1, 64}, 1, 64, 625);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    d.run(op, p);
  });
}

TEST_CASE("flash_decode: an uneven batch, with more sequences than lanes", "[flash_decode]") {
  problem const p{70, [](int r, int s) { return s == 11 ? 900 : s % 7 == r ? 0 : s % 13; }};
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {2, 1, 64}, 70, 32, 29);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    d.run(op, p);
  });
}

TEST_CASE("flash_decode: the same bits on every rank and in every run, with one shot or two", "[flash_decode]") {
  constexpr int ranks = 4, runs = 4;
  auto const results = on_decode_ranks(ranks, [&](rank_of_test& r) {  // of every rank: all runs' bytes
    decode_rank<bf16> d(r, {6, 2, 64}, 2, 16, 40);
    channel ch(r.heap, decode_channel());
    d.shots = reduce_algorithm::one_shot;
    flash_decode<bf16> one_shot(ch, d.options());
    d.shots = reduce_algorithm::two_shot;
    flash_decode<bf16> two_shot(ch, d.options());
    d.fill({2, [](int rank, int s) { return 600 - 100 * rank - 250 * s; }});
    for (int i = 0; i < runs; ++i) {
      d.poison();
      (i < 2 ? one_shot : two_shot)(r.stream, d.call(2));
      r.world.check(r.stream);
      auto const out = r.download(d.out);
      auto const lse = r.download(d.lse);
      r.note.append(reinterpret_cast<char const*>(out.data()), out.size() * sizeof(bf16));
      r.note.append(reinterpret_cast<char const*>(lse.data()), lse.size() * sizeof(float));
    }
  });
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::size_t const bytes = results[i].size() / runs;
    REQUIRE(bytes > 0);
    for (std::size_t run = 0; run < runs; ++run) {
      CAPTURE(run, i);
      CHECK(results[i].compare(run * bytes, bytes, results[0], 0, bytes) == 0);
    }
  }
}

TEST_CASE("flash_decode: many launches on one channel, batch and lengths drawn at random, operators of two shapes, a "
          "straggler",
          "[flash_decode][channel]") {
  on_decode_ranks(3, [&](rank_of_test& r) {
    decode_rank<bf16> a(r, {4, 2, 64}, 5, 4, 40);
    decode_rank<f16> b(r, {3, 3, 128}, 3, 16, 10, 0, reduce_algorithm::two_shot);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op_a(ch, a.options());
    flash_decode<f16> op_b(ch, b.options());
    decode_rank<bf16> c(r, {4, 2, 64}, 3, 4, 40);
    c.output = output::heads;
    flash_decode<bf16> op_c(ch, c.options());
    lcg random{5};
    for (unsigned i = 0; i < 30; ++i) {
      if (random.below(4) == 0 && random.below(3) == r.rank())
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      auto const length = [i](int rank, int s) { return any_length(i % 5 == 0 ? 150 : 40, i, rank, s); };
      if (i % 3 == 2) b.run(op_b, {1 + random.below(3), length, problem::random, i});
      else if (i % 4 == 1) c.run(op_c, {1 + random.below(3), length, problem::random, i});
      else a.run(op_a, {1 + random.below(5), length, problem::random, i});
    }
  });
}

TEST_CASE("flash_decode: what is left in an inbox is no result 2^32 launches later", "[flash_decode][channel][long]") {
  auto const [ranks, how, form] =
      GENERATE(table<int, reduce_algorithm, output>({{1, reduce_algorithm::automatic, output::replicated},
                                                     {2, reduce_algorithm::one_shot, output::replicated},
                                                     {2, reduce_algorithm::one_shot, output::heads},
                                                     {2, reduce_algorithm::two_shot, output::replicated},
                                                     {8, reduce_algorithm::automatic, output::replicated}}));
  CAPTURE(ranks, int(how), int(form));
  on_decode_ranks(ranks, [&, ranks = ranks, how = how, form = form](rank_of_test& r) {
    bool const by_turns = ranks == 8;  // one sequence takes one shot, all take two and leave records of those unused
    int const batch = 4, kv_heads = by_turns ? 2 : 1, few = by_turns ? batch : 1, many = by_turns ? 1 : batch;
    decode_rank<bf16> d(r, {by_turns ? 32 : 2, kv_heads, by_turns ? 128 : 64}, batch, 4, 10, 0, how);
    d.output = form;
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    auto const behind = r.heap.allocate<flag>(128);  // more than a slot has for one rank
    load_kernel(r.world, spend<>, 64);
    auto const length = [](int, int) { return 20; };
    int const before = 2;  // launches: what both slots are left with
    for (int i = 0; i < before; ++i) d.run(op, {many, length, problem::random, unsigned(i)});
    d.fill({few, length});
    for (epoch_t const e : turns_of(unsigned(batch * kv_heads * ranks), 16)) {
      skip_to(r, ch, e - 1);
      op(r.stream, d.call(few));
      r.world.check(r.stream);
    }
    skip_to(r, ch, epoch_t(1) << 32);
    for (int i = 0; i < before; ++i) {  // of the same half epochs as the first ones
      problem const p{many, length, problem::random, 7 + unsigned(i)};
      d.fill(p);
      // Of eight the last to come owns neither item, nor does the second to last own the other's.
      double const late = by_turns ? (r.rank() == 2 ? 0.6 : r.rank() == 0 ? 0.3 : 0) : r.rank() == 1 ? 0.05 : 0;
      if (late > 0) r.launch({1, 64}, spend<>, r.view(), ns_of(late));
      op(r.stream, d.call(many));
      r.world.check(r.stream);
      d.compare(p);
    }
    for (flag const& f : r.download(behind))
      r.found.expect(f.value == 0 && f.note[0] == 0, "what lies behind the inbox was written");
  });
}

TEMPLATE_TEST_CASE_SIG("flash_decode: what is left of a split is no part 2^32 launches later",
                       "[flash_decode][channel][long]", ((bool Invariant), Invariant), false, true) {
  on_decode_ranks(1, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {16, 1, 128}, 1, 16, 80);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16, decode_features{.batch_invariant = Invariant}> op(ch, d.options());
    auto const splits = [&](unsigned seed) { d.run(op, {1, [](int, int) { return 1280; }, problem::random, seed}); };
    for (unsigned i = 0; i < 2; ++i) splits(i);
    // Head items of one split, while each record has its turn
    problem const whole{1, [](int, int) { return 20; }};
    d.fill(whole);
    int const blocks = kv_schedule::of({1, 1280, 1, {16, 128}}, 1, decode_policy_for(128), {1000, 1000}).blocks;
    int const records =
        Invariant ? decode_lengths::pieces_that_pay({1, 1280, 1, {16, 128}}, decode_policy_for(128)) : 2 * blocks;
    for (epoch_t const e : turns_of(unsigned(records), 16)) {
      skip_to(r, ch, e - 1);
      op(r.stream, d.call(1));
      r.world.check(r.stream);
    }
    skip_to(r, ch, epoch_t(1) << 32);
    for (unsigned i = 0; i < 2; ++i) splits(7 + i);  // of the same half epochs as the first ones
  });
}

TEST_CASE("flash_decode: a record that is refreshed is no result of the next launch in its slot",
          "[flash_decode][channel][long]") {
  auto const [how, form] =
      GENERATE(table<reduce_algorithm, output>({{reduce_algorithm::one_shot, output::replicated},
                                                {reduce_algorithm::automatic, output::heads},
                                                {reduce_algorithm::two_shot, output::replicated}}));
  CAPTURE(int(how), int(form));
  on_decode_ranks(2, [&, how = how, form = form](rank_of_test& r) {
    constexpr int batch = 4;
    decode_rank<bf16> d(r, {2, 1, 64}, batch, 4, 10, 0, how);
    d.output = form;
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    load_kernel(r.world, spend<>, 64);
    // One sequence, while one of the others' records is refreshed; then twice all
    unsigned seed = 0;
    for (epoch_t const e : turns_of(2 * batch, 16)) {
      skip_to(r, ch, e - 1);
      for (int const now : {1, batch, batch}) {
        problem const p{now, [](int, int) { return 20; }, problem::random, ++seed};
        d.fill(p);
        if (r.rank() == 1) r.launch({1, 64}, spend<>, r.view(), ns_of(0.05));
        op(r.stream, d.call(p.batch));
        r.world.check(r.stream);
        d.compare(p);
      }
    }
  });
}

TEST_CASE("flash_decode: a new operator's inbox holds no result, whatever its channel's epoch",
          "[flash_decode][channel]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {2, 2, 64}, 2, 4, 10);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    load_kernel(r.world, spend<>, 64);
    skip_to(r, ch, (epoch_t(1) << 32) - 2);  // its half and the next two: -1, 0, 1
    for (unsigned i = 0; i < 3; ++i) {
      problem const p{2, [](int, int) { return 20; }, problem::random, i};
      d.fill(p);
      if (r.rank() == 1) r.launch({1, 64}, spend<>, r.view(), ns_of(0.05));
      op(r.stream, d.call(2));
      r.world.check(r.stream);
      d.compare(p);
    }
  });
}

TEST_CASE("flash_decode: launches on both sides of 2^32", "[flash_decode][channel]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_decode_ranks(3, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {2, 1, 64}, 3, 4, 10, 0, how);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    on_both_sides_of_2_to_32(
        r, ch, [&](int i) { d.run(op, {1 + i % 3, [](int, int) { return 20; }, problem::random, unsigned(i)}); },
        3 * 3);
  });
}

TEST_CASE("flash_decode: a result that never comes is reported with whole epochs", "[flash_decode][channel][errors]") {
  auto const said = on_ranks(
      2,
      [&](rank_of_test& r) {
        decode_rank<bf16> d(r, {2, 1, 64}, 1, 4, 10, 0, reduce_algorithm::one_shot);
        channel ch(r.heap, decode_channel());
        flash_decode<bf16> op(ch, d.options());
        problem const p{1, [](int, int) { return 20; }, problem::random, 1};
        skip_to(r, ch, (epoch_t(1) << 32) + 6);
        for (int i = 0; i < 3; ++i) d.run(op, p);
        if (r.rank() == 0) {
          d.fill(p);
          op(r.stream, d.call(1));
          r.note = verdict(r);
        }
        r.world.barrier();
        ch.reset();
      },
      short_waits());
  CHECK(contains(said[0], "epoch 4294967304 found, 4294967306 wanted"));
}

TEST_CASE("flash_decode: one shot and two by turns, as the batch asks for them", "[flash_decode][channel]") {
  on_decode_ranks(8, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {16, 1, 128}, 8, 4, 10);  // all records: 12 x 8 x 16.6 KB
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    for (unsigned i = 0; i < 6; ++i)
      d.run(op, {i % 3 == 1 ? 1 : 8, [i](int rank, int s) { return any_length(40, i, rank, s); }, problem::random, i});
  });
}

TEST_CASE("flash_decode: many launches without a host wait in between", "[flash_decode][channel][soak]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    constexpr int launches = 200, batch = 2;
    decode_rank<bf16> d(r, {2, 1, 64}, batch, 16, 10);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    d.fill({batch, [](int rank, int s) { return 140 - 100 * rank - 30 * s; }});
    auto const all = r.heap.allocate<bf16>(launches * d.out.count);
    for (int i = 0; i < launches; ++i) {
      auto c = d.call(1 + i % batch);
      c.out = r.here(all) + std::size_t(i) * d.out.count;
      c.lse = nullptr;
      c.kv_is_ready = i % 4 > 0;
      op(r.stream, c);
    }
    op(r.stream, d.call(batch));
    r.world.check(r.stream);
    d.compare({batch, [](int rank, int s) { return 140 - 100 * rank - 30 * s; }});
    auto const wanted = r.download(d.out), found = r.download(all);
    for (std::size_t i = 0; i < launches; ++i)
      for (std::size_t e = 0; e < d.out.count / (i % batch ? 1 : 2); ++e)
        if (!r.found.expect(std::abs(float(found[i * d.out.count + e]) - float(wanted[e])) <= 0.01f, "launch ", i,
                            ", element ", e))
          return;
  });
}

TEST_CASE("flash_decode: a captured call is one kernel node, and its replays see changed lengths and tables",
          "[flash_decode][graph]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {4, 2, 64}, 3, 4, 60);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    graph const captured(r, [&] { op(r.stream, d.call(3)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    for (unsigned i = 0; i < 12; ++i) {
      problem const p{3, [i](int rank, int s) { return any_length(i % 4 == 3 ? 240 : 60, i, rank, s); },
                      problem::random, i};
      d.fill(p);
      captured.launch(r.stream);
      r.world.check(r.stream);
      d.compare(p);
    }
  });
}

TEST_CASE("flash_decode: what the stream writes just before, where the rest is constant", "[flash_decode]") {
  int const ranks = GENERATE(1, 2), d = GENERATE(64, 128);
  CAPTURE(ranks, d);
  on_decode_ranks(ranks, [&](rank_of_test& r) {
    constexpr int tokens = 512, page = 16, pages = tokens / page, steps = 6, batch = 2;
    decode_rank<f16> x(r, {4, 2, d}, batch, page, pages);
    channel ch(r.heap, decode_channel());
    flash_decode<f16> op(ch, x.options());
    std::vector<std::int32_t> table(batch * pages);
    std::iota(table.rbegin(), table.rend(), 0);
    r.upload(table, x.table);
    r.upload(std::vector<std::int32_t>(batch, tokens), x.lengths);
    r.fill(x.k, 0);
    r.fill(x.v, 0);
    auto const outs = r.heap.template allocate<f16>(steps * x.out.count);
    auto const newest = [&](float query, float key, float value) {
      r.launch({1, 128}, write_newest, r.here(x.q), r.here(x.k), r.here(x.v),
               decode_lengths(r.here(x.lengths), batch, tokens, 2, 1), r.here(x.table), int(x.q.count), page, pages, d,
               query, key, value);
    };
    for (int i = 0; i < steps; ++i) {
      newest(NAN, NAN, NAN);
      newest(1, 0, float(tokens * (i + 1)));  // all keys weigh the same
      auto call = x.call(batch);
      call.out = r.here(outs) + std::size_t(i) * x.out.count;
      call.kv_is_ready = true;
      op(r.stream, call);
    }
    r.world.check(r.stream);
    auto const found = r.download(outs);
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!r.found.expect(float(found[i]) == float(i / x.out.count + 1), "output ", i, " is ", float(found[i]),
                          ", wanted ", i / x.out.count + 1))
        return;
  });
}

TEST_CASE("flash_decode: ranks that call with different batches get an error that says in what",
          "[flash_decode][errors]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {2, 1, 64}, 3, 4, 20);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    problem const p{3, [](int, int) { return 40; }};
    d.fill(p);
    op(r.stream, d.call(r.rank() == 0 ? 2 : 3));
    r.found.throws<rank_mismatch>("different batch",
                                  {"flash_decode bf16, head_dim = 64, batch = 2, q_heads = 2", "batch = 3"},
                                  [&] { r.world.check(r.stream); });
    ch.reset();
    d.run(op, p);
    r.found.throws<rank_mismatch>("different capacity", {"flash_decode", "max_batch"}, [&] {
      auto o = d.options();
      o.max_batch = 1 + r.rank();
      flash_decode<bf16> other(ch, o);
    });
  });
}

TEST_CASE("flash_decode refuses what it cannot do, and says what it can", "[flash_decode][errors]") {
  on_decode_ranks(2, [&](rank_of_test& r) {
    decode_rank<bf16> d(r, {6, 2, 64}, 2, 4, 20);
    channel ch(r.heap, decode_channel());
    std::size_t const allocations = r.heap.allocations();
    auto refuses = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto o = d.options();
      change(o);
      r.found.throws<error>(what, pieces, [&] { flash_decode<bf16> op(ch, o); });
    };
    using options = flash_decode_options;
    refuses("max_batch", {"max_batch = 0", "at least 1"}, [](options& o) { o.max_batch = 0; });
    refuses("kv_heads", {"kv_heads = 0", "1 to 1048576"}, [](options& o) { o.kv_heads = 0; });
    refuses("q_heads not a multiple", {"q_heads = 7", "kv_heads = 2"}, [](options& o) { o.q_heads = 7; });
    refuses("q_heads too many", {"q_heads = 34", "1 to 16 times"}, [](options& o) { o.q_heads = 34; });
    refuses("q_heads = 0", {"q_heads = 0"}, [](options& o) { o.q_heads = 0; });
    refuses("head_dim", {"head_dim = 112", "64, 96, 128, 192 or 256"}, [](options& o) { o.head_dim = 112; });
    refuses("MLA", {"head_dim = 576", "no kernel for multi-head latent attention"},
            [](options& o) { o.head_dim = 576; });
    if (int const most = decode_shared::most_heads(256); most < 16)
      refuses("group of large heads", {"of head_dim = 256", text("up to ", most, " times kv_heads = 2")},
              [&](options& o) { o.head_dim = 256, o.q_heads = 2 * most + 2; });
    refuses("page_size", {"page_size = 12", "power of two"}, [](options& o) { o.page_size = 12; });
    refuses("page_size = 0", {"page_size = 0", "power of two"}, [](options& o) { o.page_size = 0; });
    refuses("max_pages", {"max_pages = 0", "268435456"}, [](options& o) { o.max_pages = 0; });
    refuses("max_pages too many", {"max_pages = 268435457", "268435456"}, [](options& o) { o.max_pages = 268435457; });
    refuses("scale", {"scale = nan", "finite"}, [](options& o) { o.scale = NAN; });
    refuses("shots", {"shots = 3", "expected a value of fusewire::reduce_algorithm"},
            [](options& o) { o.shots = reduce_algorithm(3); });
    refuses("shots below 0", {"shots = -1"}, [](options& o) { o.shots = reduce_algorithm(-1); });
    refuses("shots that differ", {"shots"},
            [&](options& o) { o.shots = r.rank() % 2 ? reduce_algorithm::two_shot : reduce_algorithm::one_shot; });
    refuses("output", {"output = 2", "a value of fusewire::output"}, [](options& o) { o.output = output(2); });
    refuses("output that differs", {"output"},
            [&](options& o) { o.output = r.rank() % 2 ? output::heads : output::replicated; });
    refuses("heads with two shots", {"output::heads with two shots", "expected one shot"},
            [](options& o) { o.output = output::heads, o.shots = reduce_algorithm::two_shot; });
    refuses("lse_base", {"lse_base = 2", "a value of fusewire::lse_base"},
            [](options& o) { o.lse_base = lse_base(2); });
    refuses("reserved_cus", {"reserved_cus = 100000"}, [](options& o) { o.reserved_cus = 100000; });
    refuses("signal segment", {"bytes wanted in the signal segment", "is enough for this"},
            [](options& o) { o.max_batch = 1300; });
    refuses("table", {"max_batch = 5", "max_pages = 268435456", "up to 1073741824 entries"},
            [](options& o) { o.max_batch = 5, o.max_pages = 268435456; });
    refuses("units", {"up to 1073741824 units"},
            [](options& o) { o.max_batch = 512, o.max_pages = 2097152, o.page_size = 512; });

    flash_decode<bf16> op(ch, d.options());
    problem const p{2, [](int, int) { return 50; }};
    d.fill(p);
    auto refuses_call = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = d.call(2);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { op(r.stream, c); });
    };
    using call = flash_decode_call<bf16>;
    refuses_call("batch = 0", {"batch = 0", "max_batch = 2"}, [](call& c) { c.batch = 0; });
    refuses_call("batch too large", {"batch = 3", "max_batch = 2"}, [](call& c) { c.batch = 3; });
    refuses_call("q null", {"q is null"}, [](call& c) { c.q = nullptr; });
    refuses_call("k null", {"k_cache is null"}, [](call& c) { c.k_cache = nullptr; });
    refuses_call("v null", {"v_cache is null"}, [](call& c) { c.v_cache = nullptr; });
    refuses_call("table null", {"block_table is null"}, [](call& c) { c.block_table = nullptr; });
    refuses_call("lengths null", {"lengths is null"}, [](call& c) { c.lengths = nullptr; });
    refuses_call("out null", {"out is null"}, [](call& c) { c.out = nullptr; });
    refuses_call("q misaligned", {"q = ", "multiple of 16"}, [](call& c) { c.q += 4; });
    refuses_call("k misaligned", {"k_cache = ", "multiple of 16"}, [](call& c) { c.k_cache += 1; });
    refuses_call("v misaligned", {"v_cache = ", "multiple of 16"}, [](call& c) { c.v_cache += 1; });
    refuses_call("out misaligned", {"out = ", "multiple of 8"}, [](call& c) { c.out += 1; });
    refuses_call("window", {"window_begins without its kernel"}, [&](call& c) { c.window_begins = r.here(d.window); });
    refuses_call("cap", {"soft_cap = 30 without its kernel"}, [](call& c) { c.soft_cap = 30; });
    refuses_call("cap below 0", {"soft_cap = -1", "positive"}, [](call& c) { c.soft_cap = -1; });
    refuses_call("cap of NaN", {"soft_cap = nan", "positive"}, [](call& c) { c.soft_cap = NAN; });
    op(r.stream, d.call(2));
    r.world.check(r.stream);
    d.compare(p);
    r.found.expect(r.heap.allocations() == allocations + 2, "a refused call left memory allocated");

    refuses_call("pages", {"pages = -1"}, [](call& c) { c.pages = -1; });
    refuses_call("rows of a cache", {"pages = 536870913", "536870912"}, [](call& c) { c.pages = 536870913; });
    refuses_call("out over q", {"out = ", "overlaps q"}, [](call& c) { c.out = const_cast<bf16*>(c.q) + 4; });
    refuses_call("out over lengths", {"out = ", "overlaps lengths"},
                 [](call& c) { c.lengths = reinterpret_cast<std::int32_t const*>(c.out) + 5; });
    refuses_call("out over the end of k", {"out = ", "overlaps k_cache"},
                 [&](call& c) { c.pages = d.pages, c.out = const_cast<bf16*>(c.k_cache) + d.k.count - 4; });
    refuses_call("lse over out", {"out = ", "overlaps lse"}, [](call& c) { c.lse = reinterpret_cast<float*>(c.out); });
    std::vector<bf16> on_host(4096);
    if (simulator_stats())
      refuses_call("host memory", {"q = ", "memory of the host"}, [&](call& c) {
        c.q = on_host.data() + (8 - reinterpret_cast<std::uintptr_t>(on_host.data()) / 2 % 8) % 8;
      });
  });
}

TEST_CASE("flash_decode: a page that does not exist is named before it is read", "[flash_decode][errors]") {
  if (!simulator_stats()) SKIP("only a checked build and fusewire-sim look");
  auto const [page, entry, how] =
      GENERATE(table<std::int32_t, int, reduce_algorithm>({{43, 22, reduce_algorithm::one_shot},
                                                           {-1, 0, reduce_algorithm::one_shot},
                                                           {0x7fffffff, 24, reduce_algorithm::two_shot}}));
  CAPTURE(page, entry, int(how));
  auto const verdicts = on_ranks(
      2,
      [&, page = page, entry = entry, how = how](rank_of_test& r) {
        decode_rank<bf16> d(r, {6, 2, 64}, 2, 4, 20, 0, how);
        channel ch(r.heap, decode_channel());
        flash_decode<bf16> op(ch, d.options());
        problem const p{2, [](int, int s) { return 52 - 35 * s; }};  // tokens of the last pages: 4, all of it, and 1
        d.fill(p);
        auto c = d.call(2);
        c.pages = d.pages;
        op(r.stream, c);
        r.world.check(r.stream);
        d.compare(p);
        r.meet();
        auto table = r.download(d.table);
        if (r.rank() == 1) table[std::size_t(entry)] = page;
        r.upload(table, d.table);
        op(r.stream, c);
        try {
          r.world.check(r.stream);
        } catch (error const& e) {
          r.note = e.what();
        }
        ch.reset();
        d.fill(p);
        op(r.stream, c);
        r.world.check(r.stream);
        d.compare(p);
      },
      short_waits());
  CHECK(contains(verdicts[1],
                 text("flash_decode: entry ", entry, " of the block table is page ", page, "; expected 0 to 42")));
}

TEST_CASE("flash_decode: a length that the table has no room for is named before a page is followed",
          "[flash_decode][errors]") {
  if (!simulator_stats()) SKIP("only a checked build and fusewire-sim look");
  bool const said = GENERATE(false, true);
  auto const [batch, sequence, length, how] =
      GENERATE(table<int, int, std::int32_t, reduce_algorithm>({{1, 0, 81, reduce_algorithm::one_shot},
                                                                {3, 2, 200, reduce_algorithm::one_shot},
                                                                {3, 1, 0x7fffffff, reduce_algorithm::two_shot},
                                                                {2, 1, 1000000, reduce_algorithm::automatic}}));
  CAPTURE(said, batch, sequence, length, int(how));
  auto const verdicts = on_ranks(
      2,
      [&, said, batch = batch, sequence = sequence, length = length, how = how](rank_of_test& r) {
        decode_rank<bf16> d(r, {6, 2, 64}, batch, 4, 20, 0, how);
        channel ch(r.heap, decode_channel());
        flash_decode<bf16> op(ch, d.options());
        problem const p{batch, [](int, int s) { return 80 - 35 * s; }};  // all pages, or -1 behind them
        d.fill(p);
        auto table = r.download(d.table);
        for (std::int32_t& page : table)
          if (page == 0x7ffffff0) page = -1;
        r.upload(table, d.table);
        auto c = d.call(batch);
        c.pages = said ? d.pages : 0;
        op(r.stream, c);
        r.world.check(r.stream);
        d.compare(p);
        r.meet();
        auto lengths = r.download(d.lengths);
        if (r.rank() == 1) lengths[std::size_t(sequence)] = length;
        r.upload(lengths, d.lengths);
        op(r.stream, c);
        try {
          r.world.check(r.stream);
        } catch (error const& e) {
          r.note = e.what();
        }
        ch.reset();
        d.fill(p);
        op(r.stream, c);
        r.world.check(r.stream);
        d.compare(p);
      },
      short_waits());
  CHECK(contains(verdicts[1], text("flash_decode: length ", length, " of sequence ", sequence,
                                   "; expected 0 to max_pages x page_size = 80")));
}

TEST_CASE("flash_decode: a negative length is no tokens", "[flash_decode]") {
  on_decode_ranks(3, [](rank_of_test& r) {
    decode_rank<bf16> d(r, {4, 2, 64}, 4, 4, 20);
    channel ch(r.heap, decode_channel());
    flash_decode<bf16> op(ch, d.options());
    auto const empty = [](int rank, int s) { return s == 3 || rank == s; };  // the last sequence on every rank
    problem const p{4, [&](int rank, int s) { return empty(rank, s) ? 0 : 70 - 11 * s; }};
    d.fill(p);
    auto lengths = r.download(d.lengths);
    for (int s = 0; s < 4; ++s)
      if (empty(r.rank(), s)) lengths[std::size_t(s)] = s % 2 ? INT32_MIN : -1;
    r.upload(lengths, d.lengths);
    for (int i = 0; i < 2; ++i) op(r.stream, d.call(4));
    r.world.check(r.stream);
    d.compare(p);
  });
}

TEST_CASE("flash_decode: as many blocks as there can be runs", "[flash_decode]") {
  if (!simulator_stats()) SKIP("only the simulator counts blocks");
  on_ranks(
      1,
      [](rank_of_test& r) {
        decode_rank<bf16> d(r, {1, 1, 64}, 4, 256, 40);
        channel ch(r.heap, decode_channel());
        flash_decode<bf16> op(ch, d.options());
        problem const p{4, [](int, int s) { return 100 * s; }};
        d.fill(p);
        auto const before = simulator_stats()->workgroups;
        d.run(op, p);
        auto const blocks = simulator_stats()->workgroups - before;
        r.found.expect(blocks == std::uint64_t(decode_lengths::max_blocks(1) + decode_policy_for(64).spare_blocks) ||
                           r.world.compute_units() < 264,
                       blocks, " blocks");
      },
      decode_heap());
}
