// The operators' kernels for torch, by its stable ABI (torch 2.10 and newer, any Python). The schemas are in
// fusewire/_operators.py. Compiled by the host's compiler.
//
// An exception leaves with its kind in front: "fusewire::wait_timeout: ...". Python makes a class of it.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

#include "groups.hpp"

// torch's header has it only where CUDA's headers are included, too; its name is the same in ROCm's torch
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace fusewire::binding {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string shape_of(Tensor const& t) {
  std::string s = "[";
  for (std::int64_t i = 0; i < t.dim(); ++i) s += (i ? ", " : "") + std::to_string(t.size(i));
  return s + "]";
}
void want(bool ok, char const* op, char const* name, Tensor const& t, char const* expected) {
  if (!ok) refuse(std::string(op) + ": " + name + " is " + shape_of(t) + "; expected " + expected);
}
element type_of(Tensor const& t, char const* op) {
  if (t.scalar_type() == ScalarType::BFloat16) return element::bf16;
  if (t.scalar_type() == ScalarType::Half) return element::f16;
  refuse(std::string(op) + ": expected tensors of bfloat16 or float16");
}
void* stream_of(Tensor const& t) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(t.get_device_index(), &stream));
  return stream;
}
/// Whether elements lie side by side along the dimension. One alone does.
bool is_dense(Tensor const& t, int dim) { return t.stride(dim) == 1 || t.size(dim) <= 1; }
/// Elements from one row to the next; of one row alone torch may say anything.
std::int64_t pitch(Tensor const& t, int rows, int cols) {
  return t.size(rows) <= 1 ? std::max<std::int64_t>(t.size(cols), t.stride(rows)) : t.stride(rows);
}

char const* name_of(product_kind kind) {
  static constexpr char const* names[] = {"ag_gemm", "gemm_rs", "gemm_ar", "gemm_all_scatter"};
  return names[int(kind)];
}
/// Rows and columns of y for x [rows, K] and w [N, K].
std::array<std::int64_t, 2> shape_of_result(product_kind kind, Tensor const& x, Tensor const& w, int ranks) {
  std::int64_t const m = x.size(0), n = w.size(0);
  switch (kind) {
    case product_kind::ag_gemm: return {m * ranks, n};
    case product_kind::gemm_rs:
      if (m % ranks != 0)
        want(false, "gemm_rs", "x", x, ("rows that " + std::to_string(ranks) + " ranks can share").c_str());
      return {m / ranks, n};
    case product_kind::gemm_ar: return {m, n};
    case product_kind::gemm_all_scatter: return {m, n * ranks};
  }
  return {};
}
matrix_of_torch rows_of(Tensor const& t) { return {t.data_ptr(), t.size(0), t.size(1), pitch(t, 0, 1)}; }

/// The product of x and w [N, K]. Called by: alone(). `y`, if it is given, takes the result; `gathered`, if it is
/// there, gather(x).
Tensor product(product_kind kind, Tensor const& x, Tensor const& w, std::string const& group, bool w_is_constant,
               std::optional<Tensor> y = {}, Tensor* gathered = nullptr, custom_epilogue const& custom = {}) {
  char const* const op = name_of(kind);
  communicator& c = group_of(group);
  want(x.dim() == 2 && is_dense(x, 1), op, "x", x, "two dimensions, and columns side by side");
  want(w.dim() == 2 && (is_dense(w, 0) || is_dense(w, 1)), op, "w", w,
       "two dimensions, [N, K], and one of them side by side");
  if (x.size(1) != w.size(1)) want(false, op, "w", w, ("as many columns as x " + shape_of(x)).c_str());
  element const type = type_of(x, op);
  auto const fits = [&](Tensor const& t) {
    return t.scalar_type() == x.scalar_type() && t.get_device_index() == x.get_device_index();
  };
  if (!fits(w)) refuse(std::string(op) + ": expected x and w of one type on one device");
  auto const [rows, cols] = shape_of_result(kind, x, w, c.size());
  if (!y) y = torch::stable::new_empty(x, {rows, cols});
  if (!(y->dim() == 2 && y->size(0) == rows && y->size(1) == cols && is_dense(*y, 1) && fits(*y)))
    want(false, op, "out", *y,
         ("[" + std::to_string(rows) + ", " + std::to_string(cols) + "], x's type and device, and columns side by side")
             .c_str());
  if (gathered) *gathered = torch::stable::new_empty(x, {rows, x.size(1)});
  bool const transposed = !is_dense(w, 1);
  product_call call{.stream = stream_of(x),
                    .type = type,
                    .x = rows_of(x),
                    .w = {w.data_ptr(), w.size(transposed), w.size(!transposed), pitch(w, transposed, !transposed)},
                    .y = rows_of(*y),
                    .gathered = gathered ? rows_of(*gathered) : matrix_of_torch{},
                    .scratch = nullptr,
                    .custom = custom,
                    .w_is_transposed = transposed,
                    .w_is_constant = w_is_constant};
  std::size_t const bytes = c.scratch_bytes(kind, call);
  Tensor scratch;  // of the current stream: torch gives it to nobody before the stream has done the call
  if (bytes > 0) scratch = torch::stable::new_empty(x, {std::int64_t(bytes / 2)}), call.scratch = scratch.data_ptr();
  c.product(kind, call);
  return *y;
}

template <product_kind Kind>
Tensor multiply(Tensor const& x, Tensor const& w, std::string const& group, bool w_is_constant) {
  return alone([&] { return product(Kind, x, w, group, w_is_constant); });
}
template <product_kind Kind>
void multiply_out(Tensor const& x, Tensor const& w, Tensor const& out, std::string const& group, bool w_is_constant) {
  alone([&] { (void)product(Kind, x, w, group, w_is_constant, out); });
}
/// With the epilogue of that number, whose fields are the tensors' addresses, then the numbers as float.
template <product_kind Kind>
Tensor multiply_custom(Tensor const& x, Tensor const& w, std::string const& group, std::int64_t number,
                       std::vector<Tensor> const& tensors, std::vector<double> const& numbers, bool w_is_constant) {
  return alone([&] {
    custom_epilogue custom{int(number), {}};
    std::size_t at = 0;
    auto const put = [&](auto const& value) {
      if (at + sizeof value > sizeof custom.values)
        refuse(std::string(name_of(Kind)) + ": too many fields of an epilogue");
      std::memcpy(reinterpret_cast<std::byte*>(custom.values) + at, &value, sizeof value);
      at += sizeof value;
    };
    for (Tensor const& t : tensors) {
      want(t.scalar_type() == x.scalar_type() && t.get_device_index() == x.get_device_index() && t.is_contiguous(),
           name_of(Kind), "a field of the epilogue", t, "x's type and device, contiguous");
      put(static_cast<void const*>(t.data_ptr()));
    }
    for (double const n : numbers) put(float(n));
    return product(Kind, x, w, group, w_is_constant, {}, nullptr, custom);
  });
}
/// y, and gather(x).
std::tuple<Tensor, Tensor> ag_gemm_with_x(Tensor const& x, Tensor const& w, std::string const& group,
                                          bool w_is_constant) {
  return alone([&] {
    Tensor gathered;
    Tensor const y = product(product_kind::ag_gemm, x, w, group, w_is_constant, {}, &gathered);
    return std::tuple(y, gathered);
  });
}
/// Of sums, which float32 may have, too.
element type_of_sum(Tensor const& t, char const* op) {
  if (t.scalar_type() == ScalarType::Float) return element::f32;
  return type_of(t, op);
}
bool is_like(Tensor const& t, Tensor const& x) {
  return t.scalar_type() == x.scalar_type() && t.get_device_index() == x.get_device_index();
}
/// A collective of dense tensors, whose first dimension the ranks share. Called by: alone(). `y`, if it is given, takes
/// the result.
Tensor collective(collective_kind kind, Tensor const& x, std::string const& group, std::optional<Tensor> y = {}) {
  static constexpr char const* names[] = {"all_gather", "reduce_scatter", "all_to_all", "all_reduce"};
  char const* const op = names[int(kind)];
  communicator& c = group_of(group);
  std::int64_t const ranks = c.size();
  bool const adds = kind == collective_kind::reduce_scatter || kind == collective_kind::all_reduce,
             parts = kind == collective_kind::reduce_scatter || kind == collective_kind::all_to_all;
  want(x.is_contiguous() && (x.dim() > 0 || kind == collective_kind::all_reduce), op, "x", x,
       "a contiguous tensor of one or more dimensions");
  std::vector<std::int64_t> shape;
  for (std::int64_t i = 0; i < x.dim(); ++i) shape.push_back(x.size(i));
  if (parts)
    want(shape[0] % ranks == 0, op, "x", x, ("rows that " + std::to_string(ranks) + " ranks can share").c_str());
  if (kind == collective_kind::all_gather) shape[0] *= ranks;
  if (kind == collective_kind::reduce_scatter) shape[0] /= ranks;
  if (!y) y = torch::stable::new_empty(x, shape);
  bool fits = y->dim() == x.dim() && is_like(*y, x) && y->is_contiguous();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = y->size(std::int64_t(i)) == shape[i];
  want(fits, op, "out", *y, "the shape of the result, x's type and device, contiguous");
  element const type = adds ? type_of_sum(x, op) : element::bf16;
  c.collective(kind, {.stream = stream_of(x),
                      .type = type,
                      .in = x.data_ptr(),
                      .out = y->data_ptr(),
                      .count = x.numel() * std::int64_t(adds ? 1 : x.element_size()) / (parts ? ranks : 1)});
  return *y;
}
template <collective_kind Kind>
Tensor collect(Tensor const& x, std::string const& group) {
  return alone([&] { return collective(Kind, x, group); });
}
template <collective_kind Kind>
void collect_out(Tensor const& x, Tensor out, std::string const& group) {
  alone([&] { (void)collective(Kind, x, group, out); });
}

/// What came, in the order of ranks; how many rows from each, and where they begin.
std::tuple<Tensor, Tensor, Tensor> all_to_all_v(Tensor const& x, Tensor const& counts, std::optional<Tensor> offsets,
                                                std::int64_t rows, std::string const& group) {
  return alone([&] {
    char const* const op = "all_to_all_v";
    communicator& c = group_of(group);
    want(x.dim() > 0 && x.is_contiguous() && x.numel() >= x.size(0), op, "x", x, "rows, contiguous");
    want(counts.dim() == 1 && counts.size(0) == c.size() && counts.is_contiguous() &&
             counts.get_device_index() == x.get_device_index() &&
             (counts.scalar_type() == ScalarType::Int || counts.scalar_type() == ScalarType::Long),
         op, "counts", counts, "a number of each rank, int32 or int64, on x's device");
    if (offsets)
      want(offsets->dim() == 1 && offsets->size(0) == c.size() && offsets->is_contiguous() && is_like(*offsets, counts),
           op, "offsets", *offsets, "what counts is");
    if (rows < 0) refuse("all_to_all_v: rows = " + std::to_string(rows) + "; expected 0 or more");
    std::vector<std::int64_t> shape{rows};
    std::int64_t row = std::int64_t(x.element_size());
    for (std::int64_t i = 1; i < x.dim(); ++i) shape.push_back(x.size(i)), row *= x.size(i);
    Tensor y = torch::stable::new_empty(x, shape), came = torch::stable::new_empty(counts, {counts.size(0)}),
           first = torch::stable::new_empty(counts, {counts.size(0)});
    c.exchange_rows({.stream = stream_of(x),
                     .in = x.data_ptr(),
                     .out = y.data_ptr(),
                     .in_rows = x.size(0),
                     .out_rows = rows,
                     .row_bytes = row,
                     .in_counts = counts.data_ptr(),
                     .in_offsets = offsets ? offsets->data_ptr() : nullptr,
                     .out_counts = came.data_ptr(),
                     .out_offsets = first.data_ptr(),
                     .wide = counts.scalar_type() == ScalarType::Long});
    return std::tuple(y, came, first);
  });
}

/// The new residual, its norm, the norm in 8 bits and the scales of rows; the last two are empty where nobody wants
/// them.
std::tuple<Tensor, Tensor, Tensor, Tensor> sum_and_normalise(Tensor const& x, std::optional<Tensor> const& residual,
                                                             Tensor const& gamma, std::optional<Tensor> const& scale,
                                                             std::optional<ScalarType> dtype, std::string const& group,
                                                             double eps) {
  char const* const op = "all_reduce_norm";
  communicator& c = group_of(group);
  want(x.dim() == 2 && is_dense(x, 1), op, "x", x, "two dimensions, and columns side by side");
  std::int64_t const rows = x.size(0), cols = x.size(1);
  if (residual)
    want(residual->dim() == 2 && residual->size(0) == rows && residual->size(1) == cols && is_dense(*residual, 1) &&
             is_like(*residual, x),
         op, "residual", *residual, "what x is");
  want(gamma.dim() == 1 && gamma.size(0) == cols && gamma.is_contiguous() && is_like(gamma, x), op, "gamma", gamma,
       "a number for each column, of x's type");
  if (scale)
    want(scale->numel() == 1 && scale->scalar_type() == ScalarType::Float &&
             scale->get_device_index() == x.get_device_index(),
         op, "scale", *scale, "one float32 on x's device");
  Tensor h = torch::stable::new_empty(x, {rows, cols}), y = torch::stable::new_empty(x, {rows, cols}),
         q = torch::stable::new_empty(x, {dtype ? rows : 0, cols}, dtype ? *dtype : ScalarType::Char),
         scales = torch::stable::new_empty(x, {dtype && !scale ? rows : 0}, ScalarType::Float);
  c.norm({.stream = stream_of(x),
          .type = type_of(x, op),
          .quantised = !dtype                       ? quantised_type::none
                       : *dtype == ScalarType::Char ? quantised_type::int8
                                                    : quantised_type::fp8,
          .x = rows_of(x),
          .residual = residual ? rows_of(*residual) : matrix_of_torch{},
          .residual_out = rows_of(h),
          .norm_out = rows_of(y),
          .quantised_out = dtype ? rows_of(q) : matrix_of_torch{},
          .gamma = gamma.data_ptr(),
          .scale = scale ? static_cast<float const*>(scale->data_ptr()) : nullptr,
          .row_scales = dtype && !scale ? static_cast<float*>(scales.data_ptr()) : nullptr,
          .eps = float(eps)});
  return {h, y, q, scales};
}
std::tuple<Tensor, Tensor> all_reduce_norm(Tensor const& x, std::optional<Tensor> residual, Tensor const& gamma,
                                           std::string const& group, double eps) {
  return alone([&] {
    auto const [h, y, q, scales] = sum_and_normalise(x, residual, gamma, {}, {}, group, eps);
    return std::tuple(h, y);
  });
}
std::tuple<Tensor, Tensor, Tensor, Tensor> all_reduce_norm_quantised(Tensor const& x, std::optional<Tensor> residual,
                                                                     Tensor const& gamma, std::optional<Tensor> scale,
                                                                     ScalarType dtype, std::string const& group,
                                                                     double eps) {
  return alone([&] {
#ifdef FUSEWIRE_FOR_ROCM
    constexpr auto fp8 = ScalarType::Float8_e4m3fnuz;
    constexpr char const* const known = "all_reduce_norm: expected int8 or float8_e4m3fnuz";
#else
    constexpr auto fp8 = ScalarType::Float8_e4m3fn;
    constexpr char const* const known = "all_reduce_norm: expected int8 or float8_e4m3fn";
#endif
    if (dtype != ScalarType::Char && dtype != fp8) refuse(known);
    return sum_and_normalise(x, residual, gamma, scale, dtype, group, eps);
  });
}

bool is_on(Tensor const& t, Tensor const& x, ScalarType type) {
  return t.scalar_type() == type && t.get_device_index() == x.get_device_index() && t.is_contiguous();
}
void want_routing(communicator& c, char const* op, Tensor const& routing, Tensor const& x) {
  std::int64_t const bytes = c.layout_of_routing().bytes;
  want(routing.numel() == bytes && is_on(routing, x, ScalarType::Byte), op, "routing", routing,
       ("a tensor of moe_routing(), of " + std::to_string(bytes) + " bytes").c_str());
}
/// What comes to this rank, by expert.
Tensor dispatch(Tensor const& x, Tensor const& experts, std::optional<Tensor> weights, Tensor const& routing,
                std::int64_t rows, std::string const& group, bool routed) {
  return alone([&] {
    char const* const op = "moe_dispatch";
    communicator& c = group_of(group);
    want(x.dim() == 2 && is_dense(x, 1), op, "x", x, "[tokens, columns], and columns side by side");
    want(experts.dim() == 2 && experts.size(0) == x.size(0) &&
             (is_on(experts, x, ScalarType::Int) || is_on(experts, x, ScalarType::Long)),
         op, "experts", experts, "[tokens, top_k], int32 or int64, on x's device, contiguous");
    if (weights)
      want(weights->dim() == 2 && shape_of(*weights) == shape_of(experts) && is_on(*weights, x, ScalarType::Float), op,
           "weights", *weights, "float32, as many as experts");
    want_routing(c, op, routing, x);
    if (rows != c.layout_of_routing().rows)
      refuse("moe_dispatch: rows = " + std::to_string(rows) + "; expected " +
             std::to_string(c.layout_of_routing().rows) + ", as init() has made room for");
    Tensor out = torch::stable::new_empty(x, {rows, x.size(1)});
    c.dispatch({.stream = stream_of(x),
                .type = type_of(x, op),
                .x = rows_of(x),
                .out = rows_of(out),
                .experts = experts.data_ptr(),
                .wide = experts.scalar_type() == ScalarType::Long,
                .weights = weights ? static_cast<float const*>(weights->data_ptr()) : nullptr,
                .routing = routing.data_ptr(),
                .routed = routed});
    return out;
  });
}
Tensor combine(Tensor const& y, Tensor const& routing, std::int64_t tokens, std::string const& group, bool weighted) {
  return alone([&] {
    char const* const op = "moe_combine";
    communicator& c = group_of(group);
    want(y.dim() == 2 && is_dense(y, 1), op, "y", y, "[rows, columns], and columns side by side");
    want_routing(c, op, routing, y);
    Tensor out = torch::stable::new_empty(y, {tokens, y.size(1)});
    c.combine({.stream = stream_of(y),
               .type = type_of(y, op),
               .in = rows_of(y),
               .out = rows_of(out),
               .routing = routing.data_ptr(),
               .weighted = weighted});
    return out;
  });
}
Tensor grouped_gemm(Tensor const& x, Tensor const& w, Tensor const& begins, Tensor const& ends,
                    std::string const& group, bool gated, std::int64_t rows_of_group) {
  return alone([&] {
    char const* const op = "grouped_gemm";
    communicator& c = group_of(group);
    want(x.dim() == 2 && is_dense(x, 1), op, "x", x, "[rows, K], and columns side by side");
    want(w.dim() == 3 && w.is_contiguous() && is_like(w, x) && w.size(2) == x.size(1) &&
             w.size(1) % (gated ? 2 : 1) == 0,
         op, "w", w, "[groups, N, K], of x's type and columns, contiguous; gated: N even");
    for (Tensor const* const t : {&begins, &ends})
      want(t->dim() == 1 && t->size(0) == w.size(0) && is_on(*t, x, ScalarType::Int), op,
           t == &begins ? "begins" : "ends", *t, "a number for each group, int32, on x's device");
    Tensor y = torch::stable::new_empty(x, {x.size(0), w.size(1) / (gated ? 2 : 1)});
    c.multiply_groups({.stream = stream_of(x),
                       .type = type_of(x, op),
                       .x = rows_of(x),
                       .w = {w.data_ptr(), w.size(1), w.size(2), w.size(2)},
                       .y = rows_of(y),
                       .w_stride = w.size(1) * w.size(2),
                       .groups = w.size(0),
                       .rows_of_group = rows_of_group,
                       .begins = static_cast<std::int32_t const*>(begins.data_ptr()),
                       .ends = static_cast<std::int32_t const*>(ends.data_ptr()),
                       .gated = gated});
    return y;
  });
}

/// A kernel of the caller's; Kernel of fusewire/_kernels.py has checked the tensors.
void launch_kernel(std::vector<Tensor> const& reads, std::vector<Tensor> const& writes,
                   std::vector<std::int64_t> const& integers, std::vector<double> const& floats,
                   std::string const& group, std::int64_t number, std::vector<std::int64_t> const& extents,
                   std::int64_t blocks, std::int64_t threads, std::int64_t shared_bytes) {
  alone([&] {
    communicator& c = group_of(group);
    auto const views = [](std::vector<Tensor> const& tensors) {
      std::vector<matrix_of_torch> all;
      for (Tensor const& t : tensors)
        all.push_back(t.dim() == 2 ? rows_of(t) : matrix_of_torch{t.data_ptr(), 1, t.numel(), t.numel()});
      return all;
    };
    auto const number_of = [](char const* what, std::int64_t n) {
      if (n != int(n)) refuse(std::string(what) + " = " + std::to_string(n) + "; expected fewer than 2^31");
      return int(n);
    };
    auto const read = views(reads), written = views(writes);
    kernel_call call{.stream = stream_of(writes.empty() ? reads.at(0) : writes[0]),
                     .number = int(number),
                     .blocks = number_of("blocks", blocks),
                     .threads = number_of("threads", threads),
                     .shared_bytes = number_of("shared_bytes", shared_bytes),
                     .reads = read.data(),
                     .writes = written.data(),
                     .integers = integers.data(),
                     .floats = floats.data(),
                     .read_count = int(read.size()),
                     .write_count = int(written.size()),
                     .integer_count = int(integers.size()),
                     .float_count = int(floats.size()),
                     .extents = {}};
    if (extents.size() > std::size(call.extents)) refuse("extents: expected up to 4 integers");
    std::copy(extents.begin(), extents.end(), call.extents);
    c.launch_kernel(call);
  });
}

std::tuple<Tensor, Tensor> flash_decode(Tensor const& q, Tensor const& k_cache, Tensor const& v_cache,
                                        Tensor const& block_table, Tensor const& lengths, std::string const& group,
                                        double scale, bool kv_is_ready, std::optional<Tensor> window_begins,
                                        double soft_cap, bool by_heads, bool batch_invariant) {
  return alone([&] {
    char const* const op = "flash_decode";
    communicator& c = group_of(group);
    element const type = type_of(q, op);
    want(q.dim() == 3 && q.is_contiguous(), op, "q", q, "[batch, q_heads, head_dim], contiguous");
    want(k_cache.dim() == 4 && k_cache.is_contiguous() && type_of(k_cache, op) == type, op, "k_cache", k_cache,
         "[pages, page_size, kv_heads, head_dim], contiguous, of q's type");
    want(v_cache.is_contiguous() && type_of(v_cache, op) == type && shape_of(v_cache) == shape_of(k_cache), op,
         "v_cache", v_cache, "what k_cache is");
    want(block_table.dim() == 2 && block_table.is_contiguous() && block_table.scalar_type() == ScalarType::Int &&
             block_table.size(0) == q.size(0),
         op, "block_table", block_table, "[batch, max_pages], contiguous, int32");
    want(lengths.dim() == 1 && lengths.is_contiguous() && lengths.scalar_type() == ScalarType::Int &&
             lengths.size(0) == q.size(0),
         op, "lengths", lengths, "[batch], contiguous, int32");
    want(k_cache.size(3) == q.size(2), op, "k_cache", k_cache, "q's head_dim");
    if (window_begins)
      want(
          window_begins->dim() == 1 && window_begins->size(0) == q.size(0) && is_on(*window_begins, q, ScalarType::Int),
          op, "window_begins", *window_begins, "[batch], contiguous, int32, on q's device");
    std::int64_t const heads = by_heads ? c.own_heads(int(q.size(1))) : q.size(1);
    Tensor out = torch::stable::new_empty(q, {q.size(0), heads, q.size(2)}),
           lse = torch::stable::new_empty(q, {q.size(0), heads}, ScalarType::Float);
    c.decode({.type = int(type),
              .max_batch = 0,
              .q_heads = int(q.size(1)),
              .kv_heads = int(k_cache.size(2)),
              .head_dim = int(q.size(2)),
              .page_size = int(k_cache.size(1)),
              .max_pages = int(block_table.size(1)),
              .scale = float(scale),
              .by_heads = by_heads,
              .masked = window_begins || soft_cap != 0,
              .batch_invariant = batch_invariant},
             {.stream = stream_of(q),
              .q = q.data_ptr(),
              .k_cache = k_cache.data_ptr(),
              .v_cache = v_cache.data_ptr(),
              .block_table = static_cast<std::int32_t const*>(block_table.data_ptr()),
              .lengths = static_cast<std::int32_t const*>(lengths.data_ptr()),
              .out = out.data_ptr(),
              .lse = static_cast<float*>(lse.data_ptr()),
              .batch = int(q.size(0)),
              .pages = int(k_cache.size(0)),
              .kv_is_ready = kv_is_ready,
              .window_begins = window_begins ? static_cast<std::int32_t const*>(window_begins->data_ptr()) : nullptr,
              .soft_cap = float(soft_cap)});
    return std::tuple(out, lse);
  });
}

}  // namespace
}  // namespace fusewire::binding

STABLE_TORCH_LIBRARY_IMPL(fusewire, CUDA, m) {
  using namespace fusewire::binding;
  m.impl("ag_gemm", TORCH_BOX(&multiply<product_kind::ag_gemm>));
  m.impl("gemm_rs", TORCH_BOX(&multiply<product_kind::gemm_rs>));
  m.impl("gemm_ar", TORCH_BOX(&multiply<product_kind::gemm_ar>));
  m.impl("gemm_all_scatter", TORCH_BOX(&multiply<product_kind::gemm_all_scatter>));
  m.impl("ag_gemm_out", TORCH_BOX(&multiply_out<product_kind::ag_gemm>));
  m.impl("gemm_rs_out", TORCH_BOX(&multiply_out<product_kind::gemm_rs>));
  m.impl("gemm_ar_out", TORCH_BOX(&multiply_out<product_kind::gemm_ar>));
  m.impl("gemm_all_scatter_out", TORCH_BOX(&multiply_out<product_kind::gemm_all_scatter>));
  m.impl("ag_gemm_custom", TORCH_BOX(&multiply_custom<product_kind::ag_gemm>));
  m.impl("gemm_rs_custom", TORCH_BOX(&multiply_custom<product_kind::gemm_rs>));
  m.impl("gemm_ar_custom", TORCH_BOX(&multiply_custom<product_kind::gemm_ar>));
  m.impl("gemm_all_scatter_custom", TORCH_BOX(&multiply_custom<product_kind::gemm_all_scatter>));
  m.impl("ag_gemm_with_x", TORCH_BOX(&ag_gemm_with_x));
  m.impl("all_gather", TORCH_BOX(&collect<collective_kind::all_gather>));
  m.impl("reduce_scatter", TORCH_BOX(&collect<collective_kind::reduce_scatter>));
  m.impl("all_to_all", TORCH_BOX(&collect<collective_kind::all_to_all>));
  m.impl("all_reduce", TORCH_BOX(&collect<collective_kind::all_reduce>));
  m.impl("all_gather_out", TORCH_BOX(&collect_out<collective_kind::all_gather>));
  m.impl("reduce_scatter_out", TORCH_BOX(&collect_out<collective_kind::reduce_scatter>));
  m.impl("all_to_all_out", TORCH_BOX(&collect_out<collective_kind::all_to_all>));
  m.impl("all_reduce_out", TORCH_BOX(&collect_out<collective_kind::all_reduce>));
  m.impl("all_to_all_v", TORCH_BOX(&fusewire::binding::all_to_all_v));
  m.impl("all_reduce_norm", TORCH_BOX(&fusewire::binding::all_reduce_norm));
  m.impl("all_reduce_norm_quantised", TORCH_BOX(&fusewire::binding::all_reduce_norm_quantised));
  m.impl("flash_decode", TORCH_BOX(&flash_decode));
  m.impl("launch_kernel", TORCH_BOX(&fusewire::binding::launch_kernel));
  m.impl("moe_dispatch", TORCH_BOX(&dispatch));
  m.impl("moe_combine", TORCH_BOX(&combine));
  m.impl("grouped_gemm", TORCH_BOX(&fusewire::binding::grouped_gemm));
}
