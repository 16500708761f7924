// The operator gemm_ar.
#include <fusewire/ops/gemm_ar.hpp>

#include "products.hpp"

namespace soak {
namespace {

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

bool const added = add_products({make_product<ar_subject<bf16, gemm_tile::automatic, reduce_algorithm::automatic>>,
                                 make_product<ar_subject<bf16, gemm_tile::small, reduce_algorithm::one_shot>>,
                                 make_product<ar_subject<f16, gemm_tile::large, reduce_algorithm::two_shot>>});

}  // namespace
}  // namespace soak
