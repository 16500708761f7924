// The plan of moe_dispatch and moe_combine: chunks have every token once, the flags and the inbox that the operators
// say they need hold every call within their options, and a routing's arrays have memory of their own.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <random>

using namespace fusewire;

namespace {

/// Small numbers as often as large ones.
int up_to(std::mt19937& random, int most) {
  int const scale = most >> random() % 12;
  return 1 + int(random() % unsigned(std::max(1, scale)));
}

moe_options any_options(std::mt19937& random, int ranks) {
  moe_options o{.max_tokens = up_to(random, 10000),
                .experts = ranks * up_to(random, 128),
                .top_k = up_to(random, moe_shape::most_top_k),
                .max_row_bytes = 15 + up_to(random, 20000)};
  o.layout = moe_layout(random() % 2);
  o.alignment = o.layout == moe_layout::by_expert ? 1 << random() % 8 : 1;
  return o;
}
moe_shape shape_of(int ranks, moe_options const& o) {
  return detail::moe_shape_of("moe", ranks, o, std::source_location::current());
}

/// Pieces of memory that follow each other.
struct pieces {
  std::uintptr_t end = 0;

  template <class T>
  void follows(T const* p, std::size_t count) {
    auto const begin = reinterpret_cast<std::uintptr_t>(p);
    CHECK(begin >= end);
    CHECK(begin % alignof(T) == 0);
    end = begin + count * sizeof(T);
  }
};

}  // namespace

TEST_CASE("moe_chunks: every token is in one chunk, whose flag exists") {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    int const max_tokens = up_to(random, moe_shape::most_tokens), tokens = int(random() % unsigned(max_tokens + 1)),
              row_bytes = 16 * up_to(random, 2000);
    auto const c = moe_chunks::of(tokens, row_bytes);
    CAPTURE(max_tokens, tokens, row_bytes, c.tokens_each, c.count);
    CHECK(c.tokens_each >= 1);
    CHECK(c.tokens_each <= moe_chunks::most_tokens);
    CHECK(c.count <= moe_chunks::most_of(max_tokens));
    CHECK((c.count == 0) == (tokens == 0));
    if (tokens == 0) continue;
    CHECK(c.end(c.count - 1, tokens) == tokens);
    CHECK((c.count - 1) * c.tokens_each < tokens);
  }
}

TEST_CASE("moe_blocks: both kinds have a block, and all fit") {
  for (int const fit : {1, 2, 3, 7, 528, 1216})
    for (int const sent : {0, 1, 5, 10000})
      for (int const received : {0, 1, 5, 10000}) {
        auto const b = moe_blocks::of(sent, received, fit);
        CAPTURE(fit, sent, received, b.all, b.senders);
        CHECK(b.all >= 1);
        CHECK(b.all <= fit);
        CHECK((fit < 2 ? b.senders == 0 : b.senders >= 1 && b.senders < b.all));
        CHECK(b.senders <= std::max(1, sent));
        CHECK(b.all - b.senders <= std::max(1, received));
      }
}

TEST_CASE("moe_inbox: tables and rows have memory of their own, within what the operators say that they need") {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    int const ranks = 1 + int(random() % 8);
    moe_options const o = any_options(random, ranks);
    moe_shape const s = shape_of(ranks, o);
    int const most = int(round_up(std::size_t(o.max_row_bytes), 16)), row = 16 * up_to(random, most / 16),
              scales = random() % 2 ? (most - row) / 4 * 4 : 0;
    CAPTURE(ranks, o.max_tokens, o.experts, o.top_k, o.max_row_bytes, row, scales);
    moe_inbox const inbox{s, {row, scales}};
    auto* const begin = reinterpret_cast<std::byte*>(std::uintptr_t(1) << 20);
    auto const entries = std::size_t(s.max_tokens) * std::size_t(s.top_k);
    pieces p;
    for (int source = 0; source < ranks; ++source) {
      p.follows(inbox.tokens(begin, source), std::size_t(s.segments()));
      p.follows(inbox.experts(begin, source), entries);
      p.follows(inbox.weights(begin, source), entries);
    }
    for (int ahead = 1; ahead < ranks; ++ahead) {
      CHECK(std::size_t(inbox.row(begin, ahead, s.max_tokens - 1) - begin) % 16 == 0);
      p.follows(inbox.row(begin, ahead, 0), std::size_t(s.max_tokens) * std::size_t(inbox.token.pitch()));
    }
    CHECK(p.end - reinterpret_cast<std::uintptr_t>(begin) <= inbox.bytes());
    CHECK(inbox.bytes() <= moe_dispatch::max_bytes(ranks, o));
    CHECK(std::size_t(ranks - 1) * std::size_t(s.max_tokens) * std::size_t(row) <=
          moe_combine<bf16>::max_bytes(ranks, o));
    moe_dispatch_flags const flags{s.segments()};
    CHECK(flags.routed() >= s.segments());
    CHECK(flags.chunk(0) > flags.routed());
    for (int const tokens : {1, s.max_tokens / 2 + 1, s.max_tokens}) {
      int const chunks = moe_chunks::of(tokens, inbox.token.pitch()).count;
      CHECK(flags.chunk(chunks - 1) < moe_dispatch::flags_per_source(ranks, o));
      CHECK(moe_chunks::of(tokens, row).count <= moe_combine<bf16>::flags_per_source(ranks, o));
    }
  }
}

TEST_CASE("moe_pieces: each piece of an expert's rows has a number of its own") {
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    moe_options o = any_options(random, 2);
    o.layout = moe_layout::by_expert, o.max_tokens = std::min(o.max_tokens, 3000);
    moe_shape const s = shape_of(2, o);
    auto const p = moe_pieces::of(s);
    CAPTURE(s.max_rows, s.experts, p.log_rows, p.count);
    CHECK(1 << p.log_rows >= moe_pieces::least_rows);
    CHECK(p.count <= moe_pieces::most_of_rows + 1 + s.experts);
    bool each_once = true;
    for (int begin = 0, expert = 0, last = -1; expert < s.experts; ++expert) {
      int const left = s.max_rows - begin, rows = left == 0 ? 0 : int(random() % unsigned(std::min(left, 999) + 1));
      for (int row = 0; row < rows; row += 1 << p.log_rows) {
        int const number = p.number(begin, expert, row), end = std::min(rows, row + (1 << p.log_rows)) - 1;
        each_once &= number > last && number < p.count && p.number(begin, expert, end) == number;
        last = number;
      }
      begin += std::min(left, ceil_div(rows, s.alignment) * s.alignment);
    }
    CHECK(each_once);
  }
}

TEST_CASE("moe_routing_view: arrays have memory of their own") {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    int const ranks = 1 + int(random() % 8);
    moe_options o = any_options(random, ranks);
    if (random() % 2) o.max_rows = up_to(random, int(shape_of(ranks, o).worst_rows()));
    moe_shape const s = shape_of(ranks, o);
    auto const r = moe_routing_view::at(nullptr, s);
    auto const n = [](int x) { return std::size_t(x); };
    std::size_t const received = n(s.max_received()), k = n(s.top_k), sent = n(ranks) * n(s.max_tokens);
    pieces p;
    p.follows(r.tokens, n(ranks)), p.follows(r.source_rows, n(ranks) + 1);
    p.follows(r.expert_rows, n(s.experts)), p.follows(r.expert_begins, n(s.experts) + 1);
    p.follows(r.expert_ends, n(s.experts));
    p.follows(r.row_tokens, received), p.follows(r.row_experts, received * k);
    p.follows(r.row_weights, received * k), p.follows(r.row_places, received * k);
    p.follows(r.row_of, sent), p.follows(r.token_ranks, n(s.max_tokens));
    p.follows(r.counts, (n(s.experts) + 1) * n(s.counted())), p.follows(r.positions, sent * k);
    p.follows(r.ticket, 1);
    CHECK(p.end <= moe_routing_view::bytes(s));
    CHECK(r.counted(ranks - 1, s.segments() - 1) == s.counted() - 1);
  }
}
