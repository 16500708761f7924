// What one source per operator gives to the communicator. FUSEWIRE_ELEMENT names the type that it is compiled for.
#pragma once
#include <cstring>
#include <memory>
#include <string>

#include <fusewire/gemm/compiled_epilogue.hpp>
#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/launch/channel.hpp>

#include "communicator.hpp"

namespace fusewire::binding {

/// An operator that multiplies, with one number of columns of x.
class product_operator {
 public:
  virtual ~product_operator() = default;
  /// Launches one kernel.
  virtual void call(product_call const& c) = 0;
  /// The call's plan in words.
  virtual std::string describe(product_call const& c) = 0;
};

/// How a product_operator is made, and what it takes of the heap and of the channel. `k`: columns of x.
struct product_maker {
  requirements (*room)(int ranks, communicator_options const& o, int k);
  std::unique_ptr<product_operator> (*make)(channel& ch, communicator_options const& o, int k);
};
template <class T>
product_maker maker_of_ag_gemm();
template <class T>
product_maker maker_of_gemm_rs();
template <class T>
product_maker maker_of_gemm_ar();
template <class T>
product_maker maker_of_gemm_all_scatter();

/// flash_decode of one shape.
class decode_operator {
 public:
  virtual ~decode_operator() = default;
  /// Launches one kernel.
  virtual void call(decode_call const& c) = 0;
};

/// How a decode_operator is made. make() is collective.
struct decode_maker {
  requirements (*room)(int ranks, decode_shape const& s);
  std::unique_ptr<decode_operator> (*make)(channel& ch, decode_shape const& s);
};
template <class T>
decode_maker maker_of_flash_decode();

/// all_gather, reduce_scatter, all_to_all, or all_reduce, of one type.
class collective_operator {
 public:
  virtual ~collective_operator() = default;
  /// Launches one kernel, or several for a call that one launch does not take.
  virtual void call(collective_call const& c) = 0;
  /// Likewise; of all_reduce alone.
  virtual void norm(norm_call const&) { refuse("expected an all_reduce"); }
};
/// How a collective_operator is made. make() is collective.
struct collective_maker {
  requirements (*room)(int ranks, communicator_options const& o);
  std::unique_ptr<collective_operator> (*make)(channel& ch, communicator_options const& o);
};
/// reduce_scatter and all_reduce.
template <class T>
collective_maker maker_of_sum(collective_kind kind);
template <>
collective_maker maker_of_sum<float>(collective_kind kind);
/// all_gather and all_to_all.
collective_maker maker_of_copy(collective_kind kind);

/// all_to_all_v.
class rows_operator {
 public:
  virtual ~rows_operator() = default;
  /// Launches one kernel.
  virtual void call(rows_call const& c) = 0;
};
/// How a rows_operator is made. make() is collective.
struct rows_maker {
  requirements (*room)(int ranks, communicator_options const& o);
  std::unique_ptr<rows_operator> (*make)(channel& ch, communicator_options const& o);
};
rows_maker maker_of_rows();

/// moe_dispatch, moe_combine and grouped_gemm of one type.
class expert_layer {
 public:
  virtual ~expert_layer() = default;
  /// Each launches one kernel.
  virtual void dispatch(dispatch_call const& c) = 0;
  virtual void combine(combine_call const& c) = 0;
  virtual void multiply(grouped_call const& c) = 0;
};
/// How an expert_layer is made. make() is collective.
struct expert_maker {
  requirements (*room)(int ranks, communicator_options const& o);
  std::unique_ptr<expert_layer> (*make)(channel& ch, communicator_options const& o);
  routing_layout (*routing)(int ranks, communicator_options const& o);
};
template <class T>
expert_maker maker_of_experts();

/// An extent of torch as fusewire counts. Fails: bad_argument.
inline int extent(std::int64_t n) {
  require(n >= 0 && n <= 1 << 30, std::source_location::current(), "an extent of ", n, "; expected 0 to 2^30");
  return int(n);
}
/// The tile of products.
inline gemm_tile tile_of(communicator_options const& o) {
  return o.batch_invariant ? gemm_tile::batch_invariant : gemm_tile::automatic;
}
template <class T>
matrix<T> view(matrix_of_torch const& m) {
  return {static_cast<T*>(m.data), extent(m.rows), extent(m.cols), m.ld};
}

/// Any operator with a, b, c, m, b_layout and b_is_constant in its call.
template <class T, class Operator, class Call>
class product_of : public product_operator {
 public:
  template <class Options>
  product_of(channel& ch, Options const& o) : operator_(ch, o) {}
  void call(product_call const& c) override {
    auto const stream = static_cast<hipStream_t>(c.stream);
    if (c.custom.number == 0) return operator_(stream, call_of(c));
    compiled_epilogue e;
    e.find = [&](std::string const& kernel, std::string const& mainloop) {
      return find_kernel(c.custom.number, c.type, kernel, mainloop);
    };
    static_assert(sizeof e.value == sizeof c.custom.values);
    std::memcpy(&e.value, c.custom.values, sizeof e.value);
    operator_(stream, call_of(c), e);
  }
  std::string describe(product_call const& c) override { return operator_.describe(call_of(c)); }

 private:
  static Call call_of(product_call const& c) {
    matrix<T const> b = view<T const>(c.w);
    if (!c.w_is_transposed) std::swap(b.rows, b.cols);
    return {.a = view<T const>(c.x),
            .b = b,
            .c = view<T>(c.y),
            .m = extent(std::max(c.x.rows, c.y.rows)),
            .b_layout = c.w_is_transposed ? layout::row_major : layout::column_major,
            .b_is_constant = c.w_is_constant};
  }

  Operator operator_;
};

/// The maker of an operator whose options are Options(o, k).
template <class T, class Operator, class Call, auto Options>
constexpr product_maker maker_of() {
  return {[](int ranks, communicator_options const& o, int k) { return Operator::requirements(ranks, Options(o, k)); },
          [](channel& ch, communicator_options const& o, int k) -> std::unique_ptr<product_operator> {
            return std::make_unique<product_of<T, Operator, Call>>(ch, Options(o, k));
          }};
}

}  // namespace fusewire::binding
