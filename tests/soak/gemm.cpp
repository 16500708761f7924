// The operator ag_gemm: pull and push, both gathers, both types, both tiles.
#include <fusewire/ops/ag_gemm.hpp>

#include "gemm.hpp"

namespace soak {
namespace {

template <class T, gather By, method How, gemm_tile Tile>
class operator_subject final : public gemm_subject<T> {
  using base = gemm_subject<T>;

 public:
  explicit operator_subject(rank_state& r)
      : base(r, By), op_(r.channel, {.max_m = r.size.m,
                                     .k = base::k_,
                                     .gather = By,
                                     .method = How,
                                     .tile = Tile,
                                     .chunk_k = r.size.k >= 1024 ? 512 : 16}) {}
  std::string name() const override {
    return text("ag_gemm ", How == method::push ? "push" : "pull", base::gathered(), base::type(),
                Tile == gemm_tile::small   ? " small"
                : Tile == gemm_tile::large ? " large"
                                           : "");
  }

 private:
  void multiply(ag_gemm_call<T> const& call) override { op_(base::r_.stream(), call); }

  ag_gemm<T> op_;
};

template <class T, gather By, method How, gemm_tile Tile>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<operator_subject<T, By, How, Tile>>(r);
}

bool const added = [] {
  for (factory const f :
       {make<bf16, gather::k, method::push, gemm_tile::automatic>,
        make<bf16, gather::m, method::push, gemm_tile::large>,
        make<bf16, gather::k, method::pull, gemm_tile::automatic>,
        make<bf16, gather::m, method::pull, gemm_tile::small>, make<f16, gather::k, method::push, gemm_tile::small>,
        make<f16, gather::m, method::push, gemm_tile::automatic>, make<f16, gather::k, method::pull, gemm_tile::large>,
        make<f16, gather::m, method::pull, gemm_tile::automatic>})
    factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
