// torch.ops.fusewire.ag_gemm: x [M / W, K] of every rank, gathered, times this rank's w.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/copy_gathered.hpp>

#include <optional>

#include "operators.hpp"

namespace fusewire::binding {

static ag_gemm_options options_of(communicator_options const& o, int k) {
  return {.max_m = o.max_m, .k = k, .gather = gather::m, .tile = tile_of(o), .agreed = true};
}

/// With a second kernel where the gathered x is wanted. Peers may read an x on the heap, where that is faster.
template <class T>
class gathering_product final : public product_of<T, ag_gemm<T>, ag_gemm_call<T>> {
  using base = product_of<T, ag_gemm<T>, ag_gemm_call<T>>;

 public:
  gathering_product(channel& ch, ag_gemm_options const& o) : base(ch, o), ch_(ch), o_(o) {
    prepare_copy_gathered<T>(ch);
    o_.method = method::automatic;
  }
  void call(product_call const& c) override {
    if (is_on_heap(c.x)) {
      if (!pulling_) pulling_.emplace(ch_, o_);
      pulling_->call(c);
    } else {
      base::call(c);
    }
    if (!c.gathered.data) return;
    int const peers = ch_.world().size() - 1;
    std::int64_t const pitch = peers > 0 ? (c.gathered.rows - c.x.rows) / peers : c.x.rows;
    copy_gathered(ch_, static_cast<hipStream_t>(c.stream), view<T const>(c.x), view<T>(c.gathered), extent(pitch));
  }

 private:
  bool is_on_heap(matrix_of_torch const& x) const {
    world_view const& w = ch_.heap().view();
    std::uintptr_t const at =
        reinterpret_cast<std::uintptr_t>(x.data) - reinterpret_cast<std::uintptr_t>(w.bulk[w.rank()]);
    return at < w.bulk_bytes;
  }

  channel& ch_;
  ag_gemm_options o_;
  std::optional<base> pulling_;
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
