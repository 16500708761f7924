// torch.ops.fusewire.ag_gemm: x [M / W, K] of every rank, gathered, times this rank's w.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/copy_gathered.hpp>

#include "operators.hpp"

namespace fusewire::binding {

static ag_gemm_options options_of(communicator_options const& o, int k) {
  return {.max_m = o.max_m, .k = k, .gather = gather::m, .tile = tile_of(o), .agreed = true};
}

/// With a second kernel where the gathered x is wanted.
template <class T>
class gathering_product final : public product_of<T, ag_gemm<T>, ag_gemm_call<T>> {
  using base = product_of<T, ag_gemm<T>, ag_gemm_call<T>>;

 public:
  gathering_product(channel& ch, ag_gemm_options const& o) : base(ch, o), ch_(ch) { prepare_copy_gathered<T>(ch); }
  void call(product_call const& c) override {
    base::call(c);
    if (!c.gathered.data) return;
    int const peers = ch_.world().size() - 1;
    std::int64_t const pitch = peers > 0 ? (c.gathered.rows - c.x.rows) / peers : c.x.rows;
    copy_gathered(ch_, static_cast<hipStream_t>(c.stream), view<T const>(c.x), view<T>(c.gathered), extent(pitch));
  }

 private:
  channel& ch_;
};

template <class T>
product_maker maker_of_ag_gemm() {
  product_maker m = maker_of<T, ag_gemm<T>, ag_gemm_call<T>, options_of>();
  m.make = [](channel& ch, communicator_options const& o, int k) -> std::unique_ptr<product_operator> {
    return std::make_unique<gathering_product<T>>(ch, options_of(o, k));
  };
  return m;
}
template product_maker maker_of_ag_gemm<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
