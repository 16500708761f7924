// The operator gemm_rs.
#include <fusewire/ops/gemm_rs.hpp>

#include "products.hpp"

namespace soak {
namespace {

template <class T, gemm_tile Tile>
class rs_subject final : public sum_subject<T> {
  using base = sum_subject<T>;
  using base::r_, base::m_, base::n_, base::c_;

 public:
  explicit rs_subject(rank_state& r)
      : base(r), op_(r.channel, {.max_m = r.size.m, .max_n = r.size.n, .k = base::k_ / r.world.size(), .tile = Tile}) {}
  std::string name() const override { return text("gemm_rs", base::type(), tile_name(Tile)); }

  long long step(int number) override {
    int const rows = op_.rows(m_);
    base::fill();
    multiply(base::call(m_));
    base::check({c_, rows, n_, n_}, row_shards(m_, r_.world.size(), 1).first_row(r_.world.rank()), 0, number,
                r_.world.size());
    return static_cast<long long>(rows) * n_;
  }

 private:
  void multiply(ag_gemm_call<T> const& whole) override {
    op_(r_.stream(), {.a = whole.a,
                      .b = base::b_of_rank(whole),
                      .c = {c_, op_.rows(whole.m), n_, n_},
                      .m = whole.m,
                      .b_layout = whole.b_layout,
                      .b_is_constant = whole.b_is_constant});
  }

  gemm_rs<T> op_;
};

bool const added =
    add_products({make_product<rs_subject<bf16, gemm_tile::automatic>>,
                  make_product<rs_subject<bf16, gemm_tile::large>>, make_product<rs_subject<f16, gemm_tile::small>>});

}  // namespace
}  // namespace soak
