// AG+GEMM on the Hopper mainloop: built for NVIDIA only.
#include <fusewire/kernels/ag_gemm_sm90.hpp>

#include "../gemm.hpp"

namespace soak {
namespace {

template <class T, gather By>
class hopper_subject final : public gemm_subject<T> {
  using base = gemm_subject<T>;

 public:
  explicit hopper_subject(rank_state& r) : base(r, By) {
    load<layout::row_major>();
    load<layout::column_major>();
  }
  std::string name() const override { return text("ag_gemm (Hopper) push", base::gathered(), base::type()); }

 private:
  template <layout Order>
  void load() const {
    load_kernel(base::r_.world, &ag_gemm_push_sm90<T, sm90_tile, Order, identity>, sm90_tile::config.threads(), sm90_tile::config.shared_bytes());
  }
  template <layout Order>
  void start(ag_gemm_call<T> const& call) {
    gather_map const map{By, call.m, base::k_, base::r_.world.size(), sm90_tile::config.block_m, 512};
    launch_ag_gemm_push_sm90<sm90_tile, Order, T>(base::r_.channel, base::r_.stream(), call, map, 8);
  }
  void multiply(ag_gemm_call<T> const& call) override {
    if (call.b_layout == layout::row_major) start<layout::row_major>(call);
    else start<layout::column_major>(call);
  }
};

template <class T, gather By>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<hopper_subject<T, By>>(r);
}

bool const added = [] {
  for (factory const f : {make<bf16, gather::k>, make<bf16, gather::m>, make<f16, gather::k>}) factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
