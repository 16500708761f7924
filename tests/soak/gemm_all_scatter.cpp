// The operator gemm_all_scatter.
#include <fusewire/ops/gemm_all_scatter.hpp>

#include "products.hpp"

namespace soak {
namespace {

template <class T, gemm_tile Tile>
class scatter_subject final : public gemm_subject<T> {
  using base = gemm_subject<T>;
  using base::r_, base::m_, base::n_, base::k_, base::a_, base::c_;

 public:
  explicit scatter_subject(rank_state& r)
      : base(r, gather::k), max_n_(r.size.n / r.world.size() / 8 * 8),
        op_(r.channel, {.max_m = r.size.m, .max_n = max_n_, .k = k_, .tile = Tile}) {}
  std::string name() const override { return text("gemm_all_scatter", base::type(), tile_name(Tile)); }
  void draw(random_source& random) override {
    base::draw(random);
    n_ = std::min(n_, max_n_);
  }

  long long step(int number) override {
    int const ranks = r_.world.size();
    r_.local(64, 256, fill_a<T>, a_, m_, k_, 0, 0, r_.now);
    multiply(base::call(m_));
    for (int rank = 0; rank < ranks; ++rank)
      base::check({c_ + rank * n_, m_, n_, ranks * n_}, 0, first_column(rank), number);
    return static_cast<long long>(m_) * n_ * ranks;
  }

 private:
  /// Of the rank's columns in what all subjects have as B: as well aligned on one rank as on another.
  int first_column(int rank) const { return rank * ceil_div(n_, 8) * 8; }

  void multiply(ag_gemm_call<T> const& whole) override {
    int const ranks = r_.world.size();
    matrix<T const> b = whole.b;
    b.data += first_column(r_.world.rank()) * (whole.b_layout == layout::row_major ? 1 : b.ld);
    op_(r_.stream(), {.a = {a_, whole.m, k_, k_},
                      .b = b,
                      .c = {c_, whole.m, ranks * n_, ranks * n_},
                      .m = whole.m,
                      .b_layout = whole.b_layout,
                      .b_is_constant = whole.b_is_constant});
  }

  int max_n_;
  gemm_all_scatter<T> op_;
};

bool const added = add_products(
    {make_product<scatter_subject<bf16, gemm_tile::automatic>>, make_product<scatter_subject<f16, gemm_tile::small>>});

}  // namespace
}  // namespace soak
