// The operator gemm_rs: the sum over ranks of shards of A by shards of B, along k, is AG+GEMM's C, of which each rank
// gets its rows.
#include <fusewire/kernels/gemm_rs.hpp>

#include "gemm.hpp"

namespace soak {
namespace {

template <class T, gemm_tile Tile>
class rs_subject final : public gemm_subject<T> {
  using base = gemm_subject<T>;
  using base::r_, base::m_, base::n_, base::c_;

 public:
  explicit rs_subject(rank_state& r)
      : base(r, gather::k),
        op_(r.channel, {.max_m = r.size.m, .max_n = r.size.n, .k = base::k_ / r.world.size(), .tile = Tile}) {}
  std::string name() const override {
    return text("gemm_rs", base::type(),
                Tile == gemm_tile::small   ? " small"
                : Tile == gemm_tile::large ? " large"
                                           : "");
  }

  long long step(int number) override {
    int const rows = op_.rows(m_);
    base::fill();
    reduce(m_);
    base::check({c_, rows, n_, n_}, row_shards(m_, r_.world.size(), 1).first_row(r_.world.rank()), number);
    return static_cast<long long>(rows) * n_;
  }
  void disagree(bool wrong) override { reduce(base::m_of(wrong)); }

 private:
  void multiply(ag_gemm_call<T> const&) override {}
  void reduce(int m) {
    ag_gemm_call<T> const whole = base::call(m);
    matrix<T const> b = whole.b;
    b.rows = whole.a.cols;
    b.data += r_.world.rank() * std::int64_t(b.rows) * (whole.b_layout == layout::row_major ? b.ld : 1);
    op_(r_.stream(), {.a = whole.a, .b = b, .c = {c_, op_.rows(m), n_, n_}, .m = m, .b_layout = whole.b_layout});
  }

  gemm_rs<T> op_;
};

template <class T, gemm_tile Tile>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<rs_subject<T, Tile>>(r);
}

bool const added = [] {
  for (factory const f : {make<bf16, gemm_tile::automatic>, make<bf16, gemm_tile::large>, make<f16, gemm_tile::small>})
    factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
