// The operators' kernels for torch, by its stable ABI (torch 2.10 and newer, any Python), and the C functions that
// Python calls by ctypes. The schemas are in fusewire/_operators.py. Compiled by the host's compiler.
//
// An exception leaves with its kind in front: "fusewire::wait_timeout: ...". Python makes a class of it.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>

#include "communicator.hpp"

// torch's header has it only where CUDA's headers are included, too; its name is the same in ROCm's torch
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace fusewire::binding {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

/// By the group's name. Never destroyed: at the end of a process the GPU's runtime ends before static objects do.
struct registry {
  std::recursive_mutex calls;  // one at a time, of all groups: autograd has threads of its own
  std::map<std::string, std::unique_ptr<communicator>, std::less<>> groups;
};
registry& all() {
  static registry* const r = new registry;
  return *r;
}
communicator& group_of(std::string const& name) {
  auto const it = all().groups.find(name);
  if (it == all().groups.end())
    refuse("no communicator for the group '" + name + "'; expected fusewire.init(group) before");
  return *it->second;
}

/// What the exception says, behind its kind, without the place in this source where the library was called.
std::string in_words(std::exception const& e) {
  std::string what = e.what();
  if (auto const at = what.rfind("  ["); at != what.npos && what.ends_with("]")) what.resize(at);
  return std::string("fusewire::") + kind_of(e) + ": " + what;
}
/// Calls f alone. torch makes a ValueError of what is invalid, and a RuntimeError of the rest.
template <class F>
auto alone(F const& f) {
  try {
    std::lock_guard const lock(all().calls);
    return f();
  } catch (std::exception const& e) {
    if (std::string_view(kind_of(e)) == "bad_argument") throw std::invalid_argument(in_words(e));
    throw std::runtime_error(in_words(e));
  }
}

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

/// y [m(rows of x, ranks), N] = the product of x and w [N, K].
template <class Rows>
Tensor product(product_kind kind, char const* op, Tensor const& x, Tensor const& w, std::string const& group,
               bool w_is_constant, Rows const& rows) {
  return alone([&] {
    communicator& c = group_of(group);
    want(x.dim() == 2 && is_dense(x, 1), op, "x", x, "two dimensions, and columns side by side");
    want(w.dim() == 2 && (is_dense(w, 0) || is_dense(w, 1)), op, "w", w,
         "two dimensions, [N, K], and one of them side by side");
    want(x.size(1) == w.size(1), op, "w", w, ("as many columns as x " + shape_of(x)).c_str());
    element const type = type_of(x, op);
    if (type_of(w, op) != type || w.get_device_index() != x.get_device_index())
      refuse(std::string(op) + ": expected x and w of one type on one device");
    bool const transposed = !is_dense(w, 1);
    std::int64_t const m = rows(x.size(0), c.size());
    Tensor y = torch::stable::new_empty(x, {m, w.size(0)});
    c.product(kind, {.stream = stream_of(x),
                     .type = type,
                     .x = {x.data_ptr(), x.size(0), x.size(1), pitch(x, 0, 1)},
                     .w = {w.data_ptr(), w.size(transposed), w.size(!transposed), pitch(w, transposed, !transposed)},
                     .y = {y.data_ptr(), m, w.size(0), w.size(0)},
                     .w_is_transposed = transposed,
                     .w_is_constant = w_is_constant});
    return y;
  });
}

Tensor ag_gemm(Tensor const& x, Tensor const& w, std::string const& group, bool w_is_constant) {
  return product(product_kind::ag_gemm, "ag_gemm", x, w, group, w_is_constant,
                 [](std::int64_t rows, int ranks) { return rows * ranks; });
}
Tensor gemm_rs(Tensor const& x, Tensor const& w, std::string const& group, bool w_is_constant) {
  return product(product_kind::gemm_rs, "gemm_rs", x, w, group, w_is_constant, [&](std::int64_t rows, int ranks) {
    want(rows % ranks == 0, "gemm_rs", "x", x, ("rows that " + std::to_string(ranks) + " ranks can share").c_str());
    return rows / ranks;
  });
}
Tensor gemm_ar(Tensor const& x, Tensor const& w, std::string const& group, bool w_is_constant) {
  return product(product_kind::gemm_ar, "gemm_ar", x, w, group, w_is_constant,
                 [](std::int64_t rows, int) { return rows; });
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

/// For ctypes: null, or what went wrong, until the thread's next call.
template <class F>
char const* tried(F const& f) {
  thread_local std::string why;
  try {
    alone(f);
    return nullptr;
  } catch (std::exception const& e) {
    why = e.what();
    return why.c_str();
  }
}

}  // namespace
}  // namespace fusewire::binding

STABLE_TORCH_LIBRARY_IMPL(fusewire, CUDA, m) {
  m.impl("ag_gemm", TORCH_BOX(&fusewire::binding::ag_gemm));
  m.impl("gemm_rs", TORCH_BOX(&fusewire::binding::gemm_rs));
  m.impl("gemm_ar", TORCH_BOX(&fusewire::binding::gemm_ar));
  m.impl("flash_decode", TORCH_BOX(&fusewire::binding::flash_decode));
}

#define FUSEWIRE_EXPORT extern "C" __attribute__((visibility("default")))

FUSEWIRE_EXPORT int fusewire_version() { return fusewire::binding::version(); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_options() { return sizeof(fusewire::binding::communicator_options); }

namespace fusewire::binding {

FUSEWIRE_EXPORT char const* fusewire_init(char const* group, communicator_options const* o) {
  return tried([&] {
    if (all().groups.contains(group)) refuse("init: the group has a communicator already; expected destroy() before");
    auto c = std::make_unique<communicator>(*o);
    all().groups[group] = std::move(c);
  });
}
FUSEWIRE_EXPORT char const* fusewire_destroy(char const* group) {
  return tried([&] {
    group_of(group).end();
    all().groups.erase(group);
  });
}
FUSEWIRE_EXPORT char const* fusewire_abandon(char const* group) {
  return tried([&] {
    group_of(group).abandon();
    all().groups.erase(group);
  });
}
FUSEWIRE_EXPORT char const* fusewire_check(char const* group, void* stream) {
  return tried([&] { group_of(group).check(stream); });
}
FUSEWIRE_EXPORT char const* fusewire_poll_errors(char const* group) {
  return tried([&] { group_of(group).poll_errors(); });
}
FUSEWIRE_EXPORT char const* fusewire_reset(char const* group) {
  return tried([&] { group_of(group).reset(); });
}
FUSEWIRE_EXPORT char const* fusewire_prepare(char const* group, int kind, int type, int k) {
  return tried([&] { group_of(group).prepare(product_kind(kind), element(type), k); });
}
/// x is [m, k] and w is [n, k], dense; y has y_rows rows.
FUSEWIRE_EXPORT char const* fusewire_describe(char const* group, int kind, int type, std::int64_t x_rows,
                                              std::int64_t n, std::int64_t k, std::int64_t y_rows, char* text,
                                              std::size_t size) {
  return tried([&] {
    auto const somewhere = [](std::uintptr_t n) { return reinterpret_cast<void*>(n << 40); };  // apart from each other
    std::string const s = group_of(group).describe(product_kind(kind), {.stream = nullptr,
                                                                        .type = element(type),
                                                                        .x = {somewhere(1), x_rows, k, k},
                                                                        .w = {somewhere(2), n, k, k},
                                                                        .y = {somewhere(3), y_rows, n, n},
                                                                        .w_is_transposed = false,
                                                                        .w_is_constant = true});
    std::strncpy(text, s.c_str(), size - 1);
    text[size - 1] = 0;
  });
}

}  // namespace fusewire::binding
