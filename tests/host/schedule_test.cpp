// Tile orders and the cutting of A are plain arithmetic: every tile exactly once, every element of A in exactly one
// chunk.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/comm/all_gather/gather_map.hpp>
#include <fusewire/gemm/grouped_scheduler.hpp>
#include <fusewire/gemm/raster_order.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

using namespace fusewire;

TEST_CASE("raster_order takes every tile once, the first group of rows first", "[grid]") {
  int const m_tiles = GENERATE(1, 2, 7, 8, 9, 33), n_tiles = GENERATE(1, 3, 28), group_m = GENERATE(1, 3, 8),
            first_group = GENERATE(0, 1, 2, 9);
  for (int first = 0; first < m_tiles; ++first) {
    raster_order const order{m_tiles, n_tiles, first, group_m, first_group};
    int const most = std::min(group_m, m_tiles),
              rows = first_group > 0 ? std::min(first_group, most) : most;  // of the first group
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < order.count(); ++i) {
      tile_coord const t = order[i];
      REQUIRE((i < rows * n_tiles) == ((t.m - first + m_tiles) % m_tiles < rows));
      REQUIRE((t.m >= 0 && t.m < m_tiles && t.n >= 0 && t.n < n_tiles));
      seen.insert({t.m, t.n});
    }
    REQUIRE(int(seen.size()) == m_tiles * n_tiles);
    REQUIRE(order[0].m == first);
  }
}

TEST_CASE("tile_in_group takes every tile of a group once, as raster_order does", "[grid]") {
  int const m_tiles = GENERATE(1, 2, 7, 8, 9, 33), n_tiles = GENERATE(1, 3, 28), group_m = GENERATE(1, 3, 8);
  raster_order const order{m_tiles, n_tiles, 0, group_m};
  for (int j = 0; j < order.count(); ++j) {
    tile_coord const t = tile_in_group(5, j, m_tiles, divisor(n_tiles), group_m);
    REQUIRE((t.m == order[j].m && t.n == order[j].n && t.group == 5));
  }
}

TEST_CASE("max_grouped_m_tiles: no division of rows takes more", "[grid]") {
  int const groups = GENERATE(1, 2, 3, 4), max_rows = GENERATE(1, 2, 5, 8, 11), tile_m = GENERATE(1, 2, 4);
  // All divisions of up to max_rows rows, as digits of a number
  int divisions = 1, most = 0, of_one = max_rows + 1;
  for (int g = 0; g < groups; ++g) divisions *= of_one;
  for (int d = 0; d < divisions; ++d) {
    int rows = 0, tiles = 0;
    for (int digits = d, g = 0; g < groups; ++g, digits /= of_one)
      rows += digits % of_one, tiles += ceil_div(digits % of_one, tile_m);
    if (rows <= max_rows) most = std::max(most, tiles);
  }
  REQUIRE(max_grouped_m_tiles(groups, max_rows, tile_m) >= most);
  REQUIRE(max_grouped_m_tiles(groups, max_rows, tile_m) <= most + groups);
}

TEST_CASE("round_robin gives every number to exactly one worker", "[grid]") {
  int const count = GENERATE(0, 1, 5, 64), workers = GENERATE(1, 2, 7, 100);
  std::vector<int> taken(static_cast<std::size_t>(count));
  for (int w = 0; w < workers; ++w)
    for (int const i : round_robin(count, w, workers)) ++taken[static_cast<std::size_t>(i)];
  REQUIRE(taken == std::vector<int>(static_cast<std::size_t>(count), 1));
}

TEST_CASE("a divisor divides as the operator does", "[grid]") {
  constexpr int most = 2147483647;
  for (int d : {1,        2,   3,   5,    7,    8,     10,    28,    63,      64,
                65,       127, 641, 1000, 4096, 65535, 65536, 65537, 1 << 30, (1 << 30) + 1,
                most - 1, most}) {
    divisor const by(d);
    for (int n : {0, 1, 2, d - 1, d, d == most ? d : d + 1, d <= most / 3 ? 3 * d - 1 : 5, d <= most / 3 ? 3 * d : 6,
                  12345, 99999999, (1 << 30) - 1, 1 << 30, most / d * d - 1, most / d * d, most - 1, most}) {
      REQUIRE(n / by == n / d);
      REQUIRE(n % by == n % d);
    }
  }
}

TEST_CASE("the chunks of all ranks cover the gathered A once, each with a flag of its own", "[gather_map]") {
  auto const by = GENERATE(gather::k, gather::m);
  int const ranks = GENERATE(1, 2, 3, 5, 8), m = GENERATE(1, 2, 7, 31, 32, 33, 130), tile_m = GENERATE(16, 32, 128),
            chunk_k = GENERATE(8, 24, 512);
  int const k = 16 * ranks;
  gather_map const map{by, m, k, ranks, tile_m, chunk_k};
  std::vector<int> covered(static_cast<std::size_t>(m * k));
  for (int r = 0; r < ranks; ++r) {
    REQUIRE(map.chunks(r) <= map.max_chunks());
    std::set<int> flags;
    for (int i = 0; i < map.chunks(r); ++i) {
      gather_chunk const p = map.chunk(r, i);
      REQUIRE((p.rows > 0 && p.cols > 0));
      REQUIRE(p.row / tile_m == (p.row + p.rows - 1) / tile_m);  // one row of tiles waits for it
      REQUIRE((p.row >= map.first_row(r) && p.row + p.rows <= map.first_row(r) + map.rows(r)));
      REQUIRE((p.flag >= 0 && p.flag < map.flags_per_source()));
      REQUIRE(p.flag == map.flag(p.row / tile_m, (p.col - map.first_col(r)) / chunk_k));
      flags.insert(p.flag);
      for (int y = p.row; y < p.row + p.rows; ++y)
        for (int x = p.col; x < p.col + p.cols; ++x) ++covered[static_cast<std::size_t>(y * k + x)];
    }
    REQUIRE(int(flags.size()) == map.chunks(r));
  }
  REQUIRE(covered == std::vector<int>(covered.size(), 1));
}

TEST_CASE("the owners of a row of tiles are the ranks that hold its rows", "[gather_map]") {
  int const ranks = GENERATE(1, 2, 3, 8), m = GENERATE(1, 5, 64, 129), tile_m = GENERATE(16, 32);
  gather_map const map{gather::m, m, 8 * ranks, ranks, tile_m, 64};
  for (int t = 0; t < map.m_tiles(); ++t)
    for (int r = 0; r < ranks; ++r) {
      int const begin = map.first_row(r), end = begin + map.rows(r);
      bool const holds = begin < end && begin < (t + 1) * tile_m && end > t * tile_m;
      REQUIRE(holds == (r >= map.first_owner(t) && r <= map.last_owner(t)));
    }
}

TEST_CASE("chunk_order takes every chunk once, and the first M tiles' before the last's", "[gather_map]") {
  using nest = chunk_order::nest;
  auto const by = GENERATE(nest::by_peer, nest::by_group, nest::by_k_chunk, nest::by_row);
  int const first_turn = GENERATE(0, 1), turns = GENERATE(1, 3, 4), rows = GENERATE(0, 1, 5, 8),
            chunks = GENERATE(1, 6), group_m = GENERATE(1, 3, 8), split_k = GENERATE(1, 2, 4);
  chunk_order const order{by, turns, rows, chunks, group_m, split_k, first_turn};
  std::set<std::tuple<int, int, int>> seen;
  for (int i = 0; i < order.count(); ++i) {
    chunk_position const p = order[i];
    REQUIRE((p.turn >= first_turn && p.turn <= turns && p.row >= 0 && p.row < rows && p.k_chunk >= 0 &&
             p.k_chunk < chunks));
    seen.insert({p.turn, p.row, p.k_chunk});
    if (i == 0) continue;
    chunk_position const q = order[i - 1];
    if (by == nest::by_peer) REQUIRE(p.turn >= q.turn);
    if (by == nest::by_group) REQUIRE(p.row / group_m >= q.row / group_m);
    if ((by == nest::by_k_chunk || by == nest::by_row) && split_k == 1) REQUIRE(p.k_chunk >= q.k_chunk);
  }
  REQUIRE(int(seen.size()) == order.count());
}

TEST_CASE("chunk_order, by_row: each turn takes the rows of a chunk in a round, and no row is behind", "[gather_map]") {
  int const turns = GENERATE(1, 2, 3, 7), rows = GENERATE(1, 2, 4, 8, 11), chunks = 3;
  chunk_order const order{chunk_order::nest::by_row, turns, rows, chunks, 8};
  // When the turns bring the rows' first chunks
  std::map<std::pair<int, int>, int> when;  // of a row and a turn
  for (int i = 0; i < order.count(); ++i) {
    chunk_position const p = order[i];
    REQUIRE(p.turn == 1 + i % turns);  // every turns-th chunk is of one turn
    REQUIRE(p.k_chunk == i / (turns * rows));
    if (p.k_chunk == 0) when[{p.row, p.turn - 1}] = i / turns;
  }
  for (int row = 0; row < rows; ++row) {
    int const first = first_turn_of_row(row, rows, turns);
    for (int n = 1; n < turns; ++n)
      REQUIRE(when.at({row, (first + n - 1) % turns}) <= when.at({row, (first + n) % turns}));
    REQUIRE(when.at({row, first % turns}) <= rows / turns);
  }
}

TEST_CASE("chunk_order: where parts share a tile, the first chunks of their ranges come first", "[gather_map]") {
  auto const chunks_of = [](int chunks, int split_k) {
    chunk_order const order{chunk_order::nest::by_group, 1, 1, chunks, 8, split_k};
    std::vector<int> of;
    for (int i = 0; i < order.count(); ++i) of.push_back(order[i].k_chunk);
    return of;
  };
  REQUIRE(chunks_of(8, 4) == std::vector{0, 2, 4, 6, 1, 3, 5, 7});
  REQUIRE(chunks_of(8, 3) == std::vector{0, 3, 6, 1, 4, 7, 2, 5});
  REQUIRE(chunks_of(2, 4) == std::vector{0, 1});
}
