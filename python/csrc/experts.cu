// torch.ops.fusewire.moe_dispatch, grouped_gemm and moe_combine: a layer of experts, which the ranks share.
#include <fusewire/ops/grouped_gemm.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include "operators.hpp"

namespace fusewire::binding {

template <class T>
class layer_of_experts final : public expert_layer {
 public:
  static moe_options options_of(communicator_options const& o) {
    return {.max_tokens = o.experts.max_tokens,
            .experts = o.experts.experts,
            .top_k = o.experts.top_k,
            .max_row_bytes = o.experts.max_cols * int(sizeof(T)),
            .layout = moe_layout::by_expert,
            .alignment = o.experts.alignment,
            .max_rows = o.experts.max_rows};
  }
  layer_of_experts(channel& ch, communicator_options const& o)
      : shape_(shape_of(ch.world().size(), o)), dispatch_(ch, options_of(o)), combine_(ch, options_of(o)),
        multiply_(ch.world(), {.tile = tile_of(o)}) {}

  static routing_layout routing(int ranks, communicator_options const& o) {
    moe_shape const s = shape_of(ranks, o);
    moe_routing_view const r = moe_routing_view::at(nullptr, s);
    auto const at = [](void const* p) { return std::int64_t(reinterpret_cast<std::uintptr_t>(p)); };
    return {std::int64_t(moe_routing_view::bytes(s)), s.max_rows, at(r.expert_rows), at(r.expert_begins),
            at(r.row_weights)};
  }

  void dispatch(dispatch_call const& c) override {
    dispatch_(static_cast<hipStream_t>(c.stream),
              {.x = view<T const>(c.x),
               .out = view<T>(c.out),
               .experts = c.wide ? nullptr : static_cast<std::int32_t const*>(c.experts),
               .wide_experts = c.wide ? static_cast<std::int64_t const*>(c.experts) : nullptr,
               .weights = c.weights,
               .tokens = extent(c.x.rows),
               .routing = moe_routing_view::at(c.routing, shape_),
               .routed = c.routed});
  }
  void combine(combine_call const& c) override {
    moe_routing_view const routing = moe_routing_view::at(c.routing, shape_);
    combine_(static_cast<hipStream_t>(c.stream), {.in = view<T const>(c.in),
                                                  .out = view<T>(c.out),
                                                  .weights = c.weighted ? routing.row_weights : nullptr,
                                                  .routing = routing});
  }
  void multiply(grouped_call const& c) override {
    if (c.gated) multiply(c, swiglu{});
    else multiply(c, identity{});
  }

 private:
  template <class Epilogue>
  void multiply(grouped_call const& c, Epilogue const& e) {
    multiply_(static_cast<hipStream_t>(c.stream),
              {.a = view<T const>(c.x),
               .b = {static_cast<T const*>(c.w.data), extent(c.w.cols), extent(c.w.rows), c.w.ld},
               .b_group_stride = c.w_stride,
               .c = view<T>(c.y),
               .offsets = c.begins,
               .ends = c.ends,
               .groups = extent(c.groups),
               .b_layout = layout::column_major,
               .rows_of_group = extent(c.rows_of_group)},
              e);
  }
  static moe_shape shape_of(int ranks, communicator_options const& o) {
    return detail::moe_shape_of("init", ranks, options_of(o), std::source_location::current());
  }

  moe_shape shape_;
  moe_dispatch dispatch_;
  moe_combine<T> combine_;
  grouped_gemm<T> multiply_;
};

template <class T>
expert_maker maker_of_experts() {
  using layer = layer_of_experts<T>;
  return {[](int ranks, communicator_options const& o) {
            return moe_dispatch::requirements(ranks, layer::options_of(o)) +
                   moe_combine<T>::requirements(ranks, layer::options_of(o));
          },
          [](channel& ch, communicator_options const& o) -> std::unique_ptr<expert_layer> {
            return std::make_unique<layer>(ch, o);
          },
          layer::routing};
}
template expert_maker maker_of_experts<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
