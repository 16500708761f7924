// Operators whose products are AG+GEMM's C. gemm_rs and gemm_ar sum over ranks what shards of A along k and the same
// rows of B give; gemm_all_scatter's ranks have columns of B each, and all of A.
#pragma once
#include "gemm.hpp"

namespace soak {

inline std::string tile_name(gemm_tile const& tile) {
  return tile == gemm_tile::small ? " small" : tile == gemm_tile::large ? " large" : "";
}

/// Sums over the ranks of their products.
template <class T>
class sum_subject : public gemm_subject<T> {
 protected:
  using base = gemm_subject<T>;
  using base::r_;

  explicit sum_subject(rank_state& r) : base(r, gather::k) {}
  void disagree(bool wrong) override { multiply(base::call(base::m_of(wrong))); }

  /// B's rows that this rank multiplies by.
  matrix<T const> b_of_rank(ag_gemm_call<T> const& whole) const {
    matrix<T const> b = whole.b;
    b.rows = whole.a.cols;
    b.data += r_.world.rank() * std::int64_t(b.rows) * (whole.b_layout == layout::row_major ? b.ld : 1);
    return b;
  }
  void multiply(ag_gemm_call<T> const& whole) override = 0;
};

template <class Subject>
std::unique_ptr<subject> make_product(rank_state& r) {
  return std::make_unique<Subject>(r);
}
/// Adds the factories of subjects.
inline bool add_products(std::initializer_list<factory> all) {
  factories().insert(factories().end(), all);
  return true;
}

}  // namespace soak
