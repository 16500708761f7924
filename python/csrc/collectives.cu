// torch.ops.fusewire.all_gather, all_to_all, all_to_all_v, which copy bytes, and sums of float32.
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_to_all.hpp>
#include <fusewire/ops/all_to_all_v.hpp>

#include "reductions.hpp"

namespace fusewire::binding {

template <>
collective_maker maker_of_sum<float>(collective_kind kind) {
  return kind == collective_kind::all_reduce ? maker_of_reduction<float>() : maker_of_slices<reduce_scatter, float>();
}
collective_maker maker_of_copy(collective_kind kind) {
  return kind == collective_kind::all_gather ? maker_of_slices<all_gather, std::byte>()
                                             : maker_of_slices<all_to_all, std::byte>();
}

/// all_to_all_v of rows of bytes.
class exchange_of_rows final : public rows_operator {
 public:
  exchange_of_rows(channel& ch, communicator_options const& o) : operator_(ch, {.max_count = o.max_bytes}) {}
  void call(rows_call const& c) override {
    if (c.wide) launch<std::int64_t>(c);
    else launch<std::int32_t>(c);
  }

 private:
  template <class Index>
  void launch(rows_call const& c) {
    operator_(static_cast<hipStream_t>(c.stream),
              all_to_all_v_call<std::byte, Index>{.in = static_cast<std::byte const*>(c.in),
                                                  .in_rows = extent(c.in_rows),
                                                  .out = static_cast<std::byte*>(c.out),
                                                  .out_rows = extent(c.out_rows),
                                                  .cols = extent(c.row_bytes),
                                                  .in_counts = static_cast<Index const*>(c.in_counts),
                                                  .in_offsets = static_cast<Index const*>(c.in_offsets),
                                                  .out_counts = static_cast<Index*>(c.out_counts),
                                                  .out_offsets = static_cast<Index*>(c.out_offsets)});
  }

  all_to_all_v<std::byte> operator_;
};
static requirements room_for_rows(int ranks, communicator_options const& o) {
  return all_to_all_v<std::byte>::requirements(ranks, {.max_count = o.max_bytes});
}
static std::unique_ptr<rows_operator> make_rows(channel& ch, communicator_options const& o) {
  return std::make_unique<exchange_of_rows>(ch, o);
}
rows_maker maker_of_rows() { return {room_for_rows, make_rows}; }

}  // namespace fusewire::binding
