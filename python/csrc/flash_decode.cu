// torch.ops.fusewire.flash_decode: one query token per sequence over a KV cache whose tokens the ranks share.
#include <fusewire/ops/flash_decode.hpp>

#include "operators.hpp"

namespace fusewire::binding {

static flash_decode_options options_of(decode_shape const& s) {
  return {.max_batch = s.max_batch,
          .q_heads = s.q_heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .page_size = s.page_size,
          .max_pages = s.max_pages,
          .scale = s.scale,
          .output = s.by_heads ? output::heads : output::replicated};
}

template <class T, decode_features Features>
class decode_of final : public decode_operator {
 public:
  decode_of(channel& ch, decode_shape const& s) : operator_(ch, options_of(s)) {}
  void call(decode_call const& c) override {
    operator_(static_cast<hipStream_t>(c.stream), {.q = static_cast<T const*>(c.q),
                                                   .k_cache = static_cast<T const*>(c.k_cache),
                                                   .v_cache = static_cast<T const*>(c.v_cache),
                                                   .block_table = c.block_table,
                                                   .lengths = c.lengths,
                                                   .out = static_cast<T*>(c.out),
                                                   .lse = c.lse,
                                                   .batch = c.batch,
                                                   .window_begins = c.window_begins,
                                                   .soft_cap = c.soft_cap,
                                                   .pages = c.pages,
                                                   .kv_is_ready = c.kv_is_ready});
  }

 private:
  flash_decode<T, Features> operator_;
};

/// Calls f with the features that the shape's calls may have, as a type's.
template <class F>
auto with_features(decode_shape const& s, F const& f) {
  auto const in_order = [&]<bool Masked>() {
    constexpr auto features = [](bool invariant) {
      return decode_features{.soft_cap = Masked, .sliding_window = Masked, .batch_invariant = invariant};
    };
    return s.batch_invariant ? f.template operator()<features(true)>() : f.template operator()<features(false)>();
  };
  return s.masked ? in_order.template operator()<true>() : in_order.template operator()<false>();
}

template <class T>
decode_maker maker_of_flash_decode() {
  return {[](int ranks, decode_shape const& s) {
            return with_features(s, [&]<decode_features Features>() {
              return flash_decode<T, Features>::requirements(ranks, options_of(s));
            });
          },
          [](channel& ch, decode_shape const& s) {
            return with_features(s, [&]<decode_features Features>() -> std::unique_ptr<decode_operator> {
              return std::make_unique<decode_of<T, Features>>(ch, s);
            });
          }};
}
template decode_maker maker_of_flash_decode<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
