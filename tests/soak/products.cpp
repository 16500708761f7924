// The operators gemm_rs, gemm_ar and gemm_all_scatter. Their products are AG+GEMM's C: the first two sum over ranks
// what shards of A along k and the same rows of B give; the third's ranks have columns of B each, and all of A.
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>

#include "gemm.hpp"

namespace soak {
namespace {

std::string tile_name(gemm_tile const& tile) {
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

template <class T, gemm_tile Tile, reduce_algorithm Shots>
class ar_subject final : public sum_subject<T> {
  using base = sum_subject<T>;

 public:
  explicit ar_subject(rank_state& r)
      : base(r), op_(r.channel, {.max_m = Shots == reduce_algorithm::one_shot ? std::min(r.size.m, 256) : r.size.m,
                                 .max_n = r.size.n,
                                 .k = base::k_ / r.world.size(),
                                 .shots = Shots,
                                 .tile = Tile}) {}
  std::string name() const override {
    return text("gemm_ar", base::type(), tile_name(Tile),
                Shots == reduce_algorithm::one_shot   ? " one-shot"
                : Shots == reduce_algorithm::two_shot ? " two-shot"
                                                      : "");
  }
  void draw(random_source& random) override {
    base::draw(random);
    if (Shots == reduce_algorithm::one_shot) base::m_ = std::min(base::m_, 256);
  }
  long long step(int number) override {
    base::fill();
    multiply(base::call(base::m_));
    base::check({base::c_, base::m_, base::n_, base::n_}, 0, 0, number, base::r_.world.size());
    return static_cast<long long>(base::m_) * base::n_;
  }

 private:
  void multiply(ag_gemm_call<T> const& whole) override {
    op_(base::r_.stream(), {.a = whole.a,
                            .b = base::b_of_rank(whole),
                            .c = whole.c,
                            .m = whole.m,
                            .b_layout = whole.b_layout,
                            .b_is_constant = whole.b_is_constant});
  }

  gemm_ar<T> op_;
};

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

template <class Subject>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<Subject>(r);
}

bool const added = [] {
  for (factory const f :
       {make<rs_subject<bf16, gemm_tile::automatic>>, make<rs_subject<bf16, gemm_tile::large>>,
        make<rs_subject<f16, gemm_tile::small>>,
        make<ar_subject<bf16, gemm_tile::automatic, reduce_algorithm::automatic>>,
        make<ar_subject<bf16, gemm_tile::small, reduce_algorithm::one_shot>>,
        make<ar_subject<f16, gemm_tile::large, reduce_algorithm::two_shot>>,
        make<scatter_subject<bf16, gemm_tile::automatic>>, make<scatter_subject<f16, gemm_tile::small>>})
    factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
