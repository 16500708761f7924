// The Hopper kernels: built for NVIDIA only. Small integers, so sums are exact and results that 8 bits hold are exact in bf16.
#include <fusewire/kernels/ag_gemm_sm90.hpp>

#include "../support.hpp"

using namespace support;

namespace {

struct problem {
  int m, n, k, chunk_k, comm_blocks;
  unsigned seed;

  float a(int i, int j) const { return float((unsigned(i) * 7 + unsigned(j) * 3 + seed) % 5) - 2; }
  float b(int j, int c) const { return float((unsigned(j) * 5 + unsigned(c) * 3) % 3) - 1; }
};

/// Launches `epochs` times with changing A, each time overwritten right after the launch, and compares all of C.
template <class Tile, layout BOrder>
void check_push(rank_of_test& r, channel& ch, problem p, gather by, int epochs) {
  gather_map const map{by, p.m, p.k, r.size(), Tile::config.block_m, p.chunk_k};
  int const rows = map.rows(r.rank()), cols = map.cols();
  bool const row_major = BOrder == layout::row_major;
  std::int64_t const ldb = row_major ? (p.n + 7) / 8 * 8 : p.k;
  auto const a = r.heap.allocate<bf16>(std::size_t(map.rows(0) * cols)), b = r.heap.allocate<bf16>(std::size_t(ldb) * std::size_t(row_major ? p.k : p.n));
  auto const c = r.heap.allocate<bf16>(std::size_t(p.m * p.n));
  std::vector<bf16> b_values(b.count, bf16(0.0f));
  for (int j = 0; j < p.k; ++j)
    for (int col = 0; col < p.n; ++col) b_values[std::size_t(row_major ? j * ldb + col : col * ldb + j)] = bf16(p.b(j, col));
  r.upload(b_values, b);
  for (int e = 0; e < epochs; ++e) {
    p.seed = unsigned(e);
    std::vector<bf16> a_values(a.count, bf16(0.0f));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) a_values[std::size_t(i * cols + j)] = bf16(p.a(map.first_row(r.rank()) + i, map.first_col(r.rank()) + j));
    r.upload(a_values, a);
    r.fill(c, 0xff);
    launch_ag_gemm_push_sm90<Tile, BOrder, bf16>(
        ch, r.stream, {.a = {r.here(a), rows, cols, cols}, .b = {r.here(b), p.k, p.n, ldb}, .c = {r.here(c), p.m, p.n, p.n}, .m = p.m, .b_layout = BOrder}, map, p.comm_blocks);
    check_hip(hipMemsetAsync(r.here(a), 0x7f, a.count * sizeof(bf16), r.stream), "hipMemsetAsync");
    r.world.check(r.stream);
    auto const found = r.download(c);
    // Rows and columns of the formulas repeat: every 5 rows and 3 columns.
    float wanted[5][3] = {};
    for (int i = 0; i < 5; ++i)
      for (int col = 0; col < 3; ++col)
        for (int j = 0; j < p.k; ++j) wanted[i][col] += p.a(i, j) * p.b(j, col);
    for (int i = 0; i < p.m; ++i)
      for (int col = 0; col < p.n; ++col)
        if (!r.found.expect(found[std::size_t(i * p.n + col)].bits == bf16(wanted[i % 5][col % 3]).bits, "m ", p.m, " n ", p.n, " k ", p.k, " epoch ", e, ": c(", i, ", ", col, ") = ",
                            float(found[std::size_t(i * p.n + col)]), ", wanted ", wanted[i % 5][col % 3]))
          return;
  }
  r.heap.free(c);
  r.heap.free(b);
  r.heap.free(a);
}

}  // namespace

TEST_CASE("ag_gemm_push_sm90: ragged shapes, both gathers, both layouts of B", "[ag_gemm][sm90]") {
  auto const by = GENERATE(gather::k, gather::m);
  on_ranks(GENERATE(1, 2, 3, 4), [&](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 8_MiB, .flags_per_source = 256});
    int const unit = 8 * r.size();
    for (problem const& p : {problem{128, 224, 192, 64, 1, 0}, problem{512, 500, 768, 128, 2, 0}, problem{1000, 1111, 1152, 200, 4, 0}, problem{300, 700, 240, 512, 3, 0}, problem{5, 330, 64, 64, 1, 0}}) {
      problem q = p;
      q.k = p.k / unit * unit;
      check_push<sm90_narrow_tile, layout::row_major>(r, ch, q, by, 3);
      check_push<sm90_tile, layout::column_major>(r, ch, q, by, 3);
    }
  }, {.bulk = 64_MiB, .signal = 8_MiB, .wait_limit = std::chrono::seconds(5)});
}
