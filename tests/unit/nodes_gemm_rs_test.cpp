// GEMM + reduce-scatter over nodes.
#include <fusewire/ops/nodes_gemm_rs.hpp>

#include "nodes_sums.hpp"

using namespace support;

TEST_CASE("nodes_gemm_rs: products with a generic tile") {
  auto const l = GENERATE(spread{1, 4}, spread{2, 2}, spread{4, 2}, spread{2, 3}, spread{3, 1}, spread{1, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(reach));
  products_over_nodes<nodes_gemm_rs<bf16, float>, bf16, plus_row>(
      l, reach, gemm_rs_options{.max_m = 300, .max_n = 80, .k = 40, .tile = gemm_tile::small},
      {{300, 80}, {1, 8}, {67, 40, layout::row_major, 2}, {0, 8}, {128, 80, layout::column_major, 3}, {300, 77}});
}

TEST_CASE("nodes_gemm_rs: products with tuned mainloops") {
  auto const l = GENERATE(spread{2, 2}, spread{3, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(reach));
  products_over_nodes<nodes_gemm_rs<f16>, f16, identity>(
      l, reach, gemm_rs_options{.max_m = 260, .max_n = 256, .k = 128}, {{16, 256}, {260, 256}, {64, 128}, {33, 64}});
}
