// The C functions that Python calls by ctypes: a group's life, and calls on plain memory, for programs without torch.
// Compiled by the host's compiler.
//
// A function returns null, or a text with the kind of what went wrong in front: "fusewire::wait_timeout: ...".
#include <cstring>

#include "groups.hpp"

namespace fusewire::binding {
namespace {

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

#define FUSEWIRE_EXPORT extern "C" __attribute__((visibility("default")))

FUSEWIRE_EXPORT int fusewire_version() { return fusewire::binding::version(); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_options() { return sizeof(fusewire::binding::communicator_options); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_product_call() { return sizeof(fusewire::binding::product_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_decode_call() { return sizeof(fusewire::binding::decode_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_collective_call() { return sizeof(fusewire::binding::collective_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_rows_call() { return sizeof(fusewire::binding::rows_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_norm_call() { return sizeof(fusewire::binding::norm_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_routing_layout() { return sizeof(fusewire::binding::routing_layout); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_dispatch_call() { return sizeof(fusewire::binding::dispatch_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_combine_call() { return sizeof(fusewire::binding::combine_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_grouped_call() { return sizeof(fusewire::binding::grouped_call); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_kernel_options() { return sizeof(fusewire::binding::kernel_options); }
FUSEWIRE_EXPORT std::size_t fusewire_size_of_kernel_call() { return sizeof(fusewire::binding::kernel_call); }

namespace fusewire::binding {

FUSEWIRE_EXPORT char const* fusewire_init(char const* group, communicator_options const* o) {
  return tried([&] {
    if (all().groups.contains(group)) refuse("init: the group has a communicator already; expected destroy() before");
    auto c = std::make_unique<communicator>(*o);
    all().groups[group] = std::move(c);
  });
}
FUSEWIRE_EXPORT char const* fusewire_bytes_of_data(communicator_options const* o, std::size_t* bytes) {
  return tried([&] { *bytes = communicator::bytes_of_data(*o); });
}
FUSEWIRE_EXPORT char const* fusewire_allocate(char const* group, std::size_t bytes, void** data) {
  return tried([&] { *data = group_of(group).allocate(bytes); });
}
FUSEWIRE_EXPORT char const* fusewire_free(char const* group, void* data) {
  return tried([&] { group_of(group).free(data); });
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
FUSEWIRE_EXPORT char const* fusewire_product(char const* group, int kind, product_call const* c) {
  return tried([&] { group_of(group).product(product_kind(kind), *c); });
}
FUSEWIRE_EXPORT void fusewire_set_find_kernel(find_kernel_function f) { set_find_kernel(f); }
FUSEWIRE_EXPORT char const* fusewire_scratch_bytes(char const* group, int kind, product_call const* c,
                                                   std::size_t* bytes) {
  return tried([&] { *bytes = group_of(group).scratch_bytes(product_kind(kind), *c); });
}
FUSEWIRE_EXPORT char const* fusewire_decode(char const* group, decode_shape const* s, decode_call const* c) {
  return tried([&] { group_of(group).decode(*s, *c); });
}
FUSEWIRE_EXPORT char const* fusewire_collective(char const* group, int kind, collective_call const* c) {
  return tried([&] { group_of(group).collective(collective_kind(kind), *c); });
}
FUSEWIRE_EXPORT char const* fusewire_exchange_rows(char const* group, rows_call const* c) {
  return tried([&] { group_of(group).exchange_rows(*c); });
}
FUSEWIRE_EXPORT char const* fusewire_norm(char const* group, norm_call const* c) {
  return tried([&] { group_of(group).norm(*c); });
}
FUSEWIRE_EXPORT char const* fusewire_moe_dispatch(char const* group, dispatch_call const* c) {
  return tried([&] { group_of(group).dispatch(*c); });
}
FUSEWIRE_EXPORT char const* fusewire_moe_combine(char const* group, combine_call const* c) {
  return tried([&] { group_of(group).combine(*c); });
}
FUSEWIRE_EXPORT char const* fusewire_grouped_gemm(char const* group, grouped_call const* c) {
  return tried([&] { group_of(group).multiply_groups(*c); });
}
FUSEWIRE_EXPORT char const* fusewire_make_kernel(char const* group, kernel_options const* o, int* number) {
  return tried([&] { *number = group_of(group).make_kernel(*o); });
}
FUSEWIRE_EXPORT char const* fusewire_launch_kernel(char const* group, kernel_call const* c) {
  return tried([&] { group_of(group).launch_kernel(*c); });
}
FUSEWIRE_EXPORT char const* fusewire_end_kernel(char const* group, int number) {
  return tried([&] { group_of(group).end_kernel(number); });
}
FUSEWIRE_EXPORT char const* fusewire_layout_of_routing(char const* group, routing_layout* l) {
  return tried([&] { *l = group_of(group).layout_of_routing(); });
}
/// x is [x_rows, k] and w is [n, k], dense; y has y_rows rows.
FUSEWIRE_EXPORT char const* fusewire_describe(char const* group, int kind, int type, std::int64_t x_rows,
                                              std::int64_t n, std::int64_t k, std::int64_t y_rows, char* text,
                                              std::size_t size) {
  return tried([&] {
    communicator& c = group_of(group);
    auto const somewhere = [](std::uintptr_t n) { return reinterpret_cast<void*>(n << 40); };  // apart from each other
    std::int64_t const cols = product_kind(kind) == product_kind::gemm_all_scatter ? n * c.size() : n;
    std::string const s = c.describe(product_kind(kind), {.stream = nullptr,
                                                          .type = element(type),
                                                          .x = {somewhere(1), x_rows, k, k},
                                                          .w = {somewhere(2), n, k, k},
                                                          .y = {somewhere(3), y_rows, cols, cols},
                                                          .gathered = {},
                                                          .scratch = somewhere(4),
                                                          .custom = {},
                                                          .w_is_transposed = false,
                                                          .w_is_constant = true});
    std::strncpy(text, s.c_str(), size - 1);
    text[size - 1] = 0;
  });
}

}  // namespace fusewire::binding
