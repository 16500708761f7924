// Sums over ranks for torch: reduce_scatter and all_reduce, with rms_norm behind it.
#pragma once
#include <fusewire/ops/all_reduce.hpp>
#include <fusewire/ops/reduce_scatter.hpp>

#include "operators.hpp"

namespace fusewire::binding {

/// A collective of slices: calls of more than one launch takes are cut into launches.
template <template <class> class Op, class T>
class sliced final : public collective_operator {
 public:
  sliced(channel& ch, std::int64_t max_count) : operator_(ch, {.max_count = max_count}), max_count_(max_count) {}
  void call(collective_call const& c) override {
    auto const* const in = static_cast<T const*>(c.in);
    auto* const out = static_cast<T*>(c.out);
    std::int64_t at = 0;
    do {
      operator_(static_cast<hipStream_t>(c.stream),
                {.in = in + at, .out = out + at, .count = std::min(max_count_, c.count - at), .pitch = c.count});
      at += max_count_;
    } while (at < c.count);
  }

 private:
  Op<T> operator_;
  std::int64_t max_count_;
};
/// Elements of a slice that one launch takes.
template <class T>
std::int64_t max_count(communicator_options const& o) {
  return std::max<std::int64_t>(1, o.max_bytes / std::int64_t(sizeof(T)));
}
template <template <class> class Op, class T>
constexpr collective_maker maker_of_slices() {
  return {[](int ranks, communicator_options const& o) {
            return Op<T>::requirements(ranks, {.max_count = max_count<T>(o)});
          },
          [](channel& ch, communicator_options const& o) -> std::unique_ptr<collective_operator> {
            return std::make_unique<sliced<Op, T>>(ch, max_count<T>(o));
          }};
}

/// all_reduce of arrays and, but for float, of rows with rms_norm.
template <class T>
class reduction final : public collective_operator {
 public:
  static all_reduce_options options_of(communicator_options const& o) {
    return {.max_rows = o.reduce_rows, .max_cols = o.reduce_cols};
  }
  reduction(channel& ch, communicator_options const& o) : operator_(ch, options_of(o)), o_(options_of(o)) {}

  void call(collective_call const& c) override {
    auto const* const in = static_cast<T const*>(c.in);
    auto* const out = static_cast<T*>(c.out);
    std::int64_t const most = std::int64_t(o_.max_rows) * o_.max_cols;
    std::int64_t at = 0;
    do {
      operator_(static_cast<hipStream_t>(c.stream),
                {.in = in + at, .out = out + at, .count = std::min(most, c.count - at)});
      at += most;
    } while (at < c.count);
  }
  void norm(norm_call const& c) override {
    if constexpr (std::is_same_v<T, float>) refuse("all_reduce_norm: expected bfloat16 or float16");
    else if (c.quantised == quantised_type::none) norm<not_quantised>(c);
    else if (c.quantised == quantised_type::int8) norm<std::int8_t>(c);
    else norm<std::conditional_t<compiled_for == architecture::sm90, fp8_e4m3fn, fp8_e4m3fnuz>>(c);
  }

 private:
  template <class Quantised>
  void norm(norm_call const& c) {
    int const rows = extent(c.x.rows);
    int at = 0;
    do {
      int const n = std::min(o_.max_rows, rows - at);
      auto const part = [&]<class E>(matrix_of_torch const& m, E*) {
        matrix<E> x = view<E>(m);
        if (x.data) x.data += at * x.ld, x.rows = n;
        return x;
      };
      rms_norm<T, Quantised> e{.residual = part(c.residual, static_cast<T const*>(nullptr)),
                               .gamma = static_cast<T const*>(c.gamma),
                               .eps = c.eps,
                               .residual_out = part(c.residual_out, static_cast<T*>(nullptr)),
                               .norm_out = part(c.norm_out, static_cast<T*>(nullptr))};
      if constexpr (!std::is_same_v<Quantised, not_quantised>) {
        e.quantised_out = part(c.quantised_out, static_cast<Quantised*>(nullptr));
        e.scale = c.scale;
        e.row_scales = c.row_scales ? c.row_scales + at : nullptr;
      }
      operator_(static_cast<hipStream_t>(c.stream), part(c.x, static_cast<T const*>(nullptr)), e);
      at += o_.max_rows;
    } while (at < rows);
  }

  all_reduce<T> operator_;
  all_reduce_options o_;
};
template <class T>
constexpr collective_maker maker_of_reduction() {
  return {[](int ranks, communicator_options const& o) {
            return all_reduce<T>::requirements(ranks, reduction<T>::options_of(o));
          },
          [](channel& ch, communicator_options const& o) -> std::unique_ptr<collective_operator> {
            return std::make_unique<reduction<T>>(ch, o);
          }};
}

}  // namespace fusewire::binding
