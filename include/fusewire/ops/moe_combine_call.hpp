// What moe_combine adds up.
#pragma once
#include <fusewire/comm/moe_routing_view.hpp>
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// One call. All ranks pass the same columns, and the routing of the same call of moe_dispatch.
template <class T>
struct moe_combine_call {
  matrix<T const> in;  // [max_rows, cols]: rows in the routing's layout; cols, ld: multiples of 16 bytes
  /// [tokens, cols]: a sum for each token of this rank, 0 for one without experts; those after out.rows are left out
  matrix<T> out;
  /// [max_received, top_k] as the routing's row_weights, by_expert: rows are multiplied by them; null: by 1
  float const* weights = nullptr;
  moe_routing_view routing;  // of the dispatch
};

}  // namespace fusewire
