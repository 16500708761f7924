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
      want(m % ranks == 0, "gemm_rs", "x", x, ("rows that " + std::to_string(ranks) + " ranks can share").c_str());
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
  want(x.size(1) == w.size(1), op, "w", w, ("as many columns as x " + shape_of(x)).c_str());
  element const type = type_of(x, op);
  auto const fits = [&](Tensor const& t) {
    return t.scalar_type() == x.scalar_type() && t.get_device_index() == x.get_device_index();
  };
  if (!fits(w)) refuse(std::string(op) + ": expected x and w of one type on one device");
  auto const [rows, cols] = shape_of_result(kind, x, w, c.size());
  if (!y) y = torch::stable::new_empty(x, {rows, cols});
  want(y->dim() == 2 && y->size(0) == rows && y->size(1) == cols && is_dense(*y, 1) && fits(*y), op, "out", *y,
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
/// gather(x), by a product with as few columns as there are: with x's own first rows.
Tensor all_gather(Tensor const& x, std::string const& group) {
  return alone([&] {
    want(x.dim() == 2, "all_gather", "x", x, "two dimensions");
    if (x.size(0) == 0) return torch::stable::new_empty(x, {0, x.size(1)});
    Tensor gathered, rows = x;
    rows = torch::stable::narrow(rows, 0, 0, std::min<std::int64_t>(x.size(0), 8));
    (void)product(product_kind::ag_gemm, x, rows, group, false, {}, &gathered);
    return gathered;
  });
}

std::tuple<Tensor, Tensor> flash_decode(Tensor const& q, Tensor const& k_cache, Tensor const& v_cache,
                                        Tensor const& block_table, Tensor const& lengths, std::string const& group,
                                        double scale, bool kv_is_ready) {
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
    Tensor out = torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2)}),
           lse = torch::stable::new_empty(q, {q.size(0), q.size(1)}, ScalarType::Float);
    c.decode({.type = int(type),
              .max_batch = 0,
              .q_heads = int(q.size(1)),
              .kv_heads = int(k_cache.size(2)),
              .head_dim = int(q.size(2)),
              .page_size = int(k_cache.size(1)),
              .max_pages = int(block_table.size(1)),
              .scale = float(scale)},
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
              .kv_is_ready = kv_is_ready});
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
  m.impl("all_gather", TORCH_BOX(&fusewire::binding::all_gather));
  m.impl("flash_decode", TORCH_BOX(&flash_decode));
}
