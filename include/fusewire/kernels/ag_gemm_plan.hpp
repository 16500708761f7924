// What the AG+GEMM operator launches for a shape.
#pragma once
#include <fusewire/kernels/gather_map.hpp>
#include <fusewire/kernels/gemm_plan.hpp>

namespace fusewire {

struct ag_gemm_plan {
  gemm_plan gemm;
  int chunk_k = k_step;  // columns of A per flag
  piece_order::nest pieces = piece_order::nest::by_band;
  bool starts_together = false;  // gather::m: tiles of own rows wait until those of a peer's can start
};

/// The shape of a call: m rows of the gathered A.
inline gemm_shape shape_of_gather(int m, int n, int k, int ranks, gather by, layout b_layout) {
  return {m, 1, n, k, by == gather::k ? ranks : 1, b_layout};
}

}  // namespace fusewire
