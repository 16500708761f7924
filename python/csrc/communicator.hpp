// One group of ranks, as the binding of torch sees it: no GPU runtime and no torch in here, so that any C++ compiler
// takes it, and a change of the binding compiles no kernel again.
//
//   torch_library.cpp, c_interface.cpp --product_call, decode_call--> communicator --> ag_gemm.cu, gemm_rs.cu, ...
//   --> fusewire's headers
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace fusewire {
struct kernel_parameter;
}

namespace fusewire::binding {

/// Element types.
enum class element : int { bf16, f16, f32 };
/// Operators that multiply.
enum class product_kind : int { ag_gemm, gemm_rs, gemm_ar, gemm_all_scatter };
/// Collectives.
enum class collective_kind : int { all_gather, reduce_scatter, all_to_all, all_reduce };
/// What rms_norm stores beside its result: nothing, int8, or the GPU's e4m3.
enum class quantised_type : int { none, int8, fp8 };

/// Row-major: element (r, c) is data[r * ld + c].
struct matrix_of_torch {
  void* data;
  std::int64_t rows, cols, ld;
};

/// An epilogue of the caller's.
struct custom_epilogue {
  int number;               // by which find_kernel knows it; 0: none
  std::int64_t values[16];  // what its kernels get: its fields, one after the other
};

/// One product y = x w^T, with what its operator sends before or after. Read by ctypes, too.
struct product_call {
  void* stream;
  element type;
  matrix_of_torch x, w, y;
  matrix_of_torch gathered;  // of ag_gemm, which stores gather(x) there, too; no data: nobody wants it
  void* scratch;             // communicator::scratch_bytes() of the call
  custom_epilogue custom;
  bool w_is_transposed;  // w is [K, N], the transpose of what nn.Linear keeps; else [N, K]
  bool w_is_constant;    // no unfinished work on the stream writes w
};

/// Compiles a kernel, or finds that it was compiled: the address of &KERNEL<T, mainloop, epilogue>. Null: `why` says
/// why not, in up to `size` bytes. Called by: product(), for calls with a custom epilogue.
using find_kernel_function = void const* (*)(int number, element type, char const* kernel, char const* mainloop,
                                             char* why, std::size_t size);
/// Of all communicators. Until it is called, such calls are refused.
void set_find_kernel(find_kernel_function f);
/// Fails: bad_argument.
void const* find_kernel(int number, element type, std::string const& kernel, std::string const& mainloop);

/// What a flash_decode operator is made for; see flash_decode_options. Read by ctypes, too.
struct decode_shape {
  int type;  // an element
  int max_batch, q_heads, kv_heads, head_dim, page_size, max_pages;
  float scale;
  bool by_heads;         // a rank gets the results of the heads that it owns
  bool masked;           // calls may have a window and a soft cap
  bool batch_invariant;  // a sequence's bits depend on no other one
};

/// One call of flash_decode; see flash_decode_call.
struct decode_call {
  void* stream;
  void const *q, *k_cache, *v_cache;
  std::int32_t const *block_table, *lengths;
  void* out;
  float* lse;
  int batch, pages;
  bool kv_is_ready;
  std::int32_t const* window_begins;
  float soft_cap;
};

/// One call of a collective. Read by ctypes, too.
struct collective_call {
  void* stream;
  element type;  // of sums
  void const* in;
  void* out;
  std::int64_t count;  // of a slice, or of an all_reduce: elements of sums; bytes of copies
};
/// One call of all_to_all_v; see all_to_all_v_call. Read by ctypes, too.
struct rows_call {
  void* stream;
  void const* in;
  void* out;
  std::int64_t in_rows, out_rows, row_bytes;
  void const *in_counts, *in_offsets;
  void *out_counts, *out_offsets;
  bool wide;  // counts and offsets have 64 bits, else 32
};
/// One call of all_reduce with rms_norm; see there. What has no data is left out. Read by ctypes, too.
struct norm_call {
  void* stream;
  element type;
  quantised_type quantised;
  matrix_of_torch x, residual, residual_out, norm_out, quantised_out;
  void const* gamma;
  float const* scale;
  float* row_scales;
  float eps;
};

/// A layer of experts that init() makes room for; see moe_options. Read by ctypes, too.
struct expert_shape {
  int max_tokens;  // of a rank; 0: no experts
  int experts;     // of all ranks
  int top_k;
  int max_cols;   // of a token's row
  int max_rows;   // that a rank receives; 0: the most that can come
  int alignment;  // of an expert's first row
};
/// What a routing, which is bytes for torch, has where, in bytes from its begin. Read by ctypes, too.
struct routing_layout {
  std::int64_t bytes;  // of all of it; 0 at first
  std::int64_t rows;   // that a rank receives at most
  std::int64_t expert_rows, expert_begins, row_weights;
};
/// One call of moe_dispatch; see moe_dispatch_call. Read by ctypes, too.
struct dispatch_call {
  void* stream;
  element type;
  matrix_of_torch x, out;
  void const* experts;  // [tokens, top_k], of 32 or 64 bits
  bool wide;            // 64
  float const* weights;
  void* routing;
  bool routed;  // `routing` is read
};
/// One call of moe_combine; see moe_combine_call. Read by ctypes, too.
struct combine_call {
  void* stream;
  element type;
  matrix_of_torch in, out;
  void* routing;
  bool weighted;  // by the weights of the dispatch
};
/// One call of grouped_gemm: rows [begins[g], ends[g]) of y = those of x times w [g] [N, K] transposed. Read by ctypes,
/// too.
struct grouped_call {
  void* stream;
  element type;
  matrix_of_torch x, w, y;  // w: of group 0
  std::int64_t w_stride;    // elements from one group's w to the next
  std::int64_t groups, rows_of_group;
  std::int32_t const *begins, *ends;
  bool gated;  // rows of w are in turn gate and up; y = silu(gate) up
};

/// A kernel of the caller's, compiled elsewhere, and its channel. Read by ctypes, too.
struct kernel_options {
  void const* kernel;  // its address; null: this rank has failed to compile it
  kernel_parameter const* parameters;
  char const* name;        // for messages
  std::uint64_t source;    // a hash of its text
  std::int64_t max_bytes;  // of channel_options
  int flags_per_source;    // likewise
  bool programmatic;       // of launch_shape
};
/// One launch of it. Read by ctypes, too.
struct kernel_call {
  void* stream;
  int number;  // which make_kernel() has returned
  int blocks, threads, shared_bytes;
  matrix_of_torch const *reads, *writes;  // for each parameter that is a pointer or a matrix, of what is const or not
  std::int64_t const* integers;           // for each that is an integer or a bool
  double const* floats;                   // for each that is another number
  int read_count, write_count, integer_count, float_count;
  std::uint64_t extents[4];  // equal on all ranks
};

/// How ranks meet. Made by Python, over torch's store.
struct host_functions {
  /// Every rank's `bytes` bytes into `all`, in rank order. Returns 0; 1 when a rank has not come, or 2 when ranks
  /// gather different things, and then `why` says so, in up to `size` bytes.
  int (*all_gather)(void const* mine, std::size_t bytes, void* all, char* why, std::size_t size);
  /// Tells all ranks that this one comes no more.
  void (*fail)(char const* why);
};

/// What a communicator is made for: the same on every rank, but for rank and device. Read by ctypes, too.
struct communicator_options {
  int rank, size, device;
  int max_m;                     // rows that one launch takes: of the gathered x of ag_gemm; of x of the others
  int max_k;                     // columns of x of ag_gemm; 0: no ag_gemm
  int max_n;                     // columns of y of the others; 0: none of them
  int reduce_rows, reduce_cols;  // that one launch of all_reduce takes; 0: no all_reduce
  std::int64_t max_bytes;        // of a slice that one launch of the other collectives takes; 0: none of them
  double wait_seconds;
  host_functions host;
  decode_shape const* decode;  // one for each flash_decode
  int decodes;
  expert_shape experts;
  bool batch_invariant;      // of products: a row's bits depend on no other row
  std::int64_t spare_bytes;  // of the heap, for allocate()
  void* const* data_at;      // memory of each rank that torch has mapped; null: memory of the heap's own
};

/// World, heap, channel and operators of one rank of a group. One thread at a time calls it.
class communicator {
 public:
  /// Collective. Fails: as heap and channel do; with flash_decode, as its constructor does.
  explicit communicator(communicator_options const& o);
  communicator(communicator const&) = delete;
  /// Bytes of each data_at that a communicator with these options wants.
  static std::size_t bytes_of_data(communicator_options const& o);
  /// Waits for no other rank.
  ~communicator();

  /// Ranks of the group.
  int size() const;
  /// Launches one kernel for each max_m rows; one more copies what was gathered. Every rank makes its calls in the same
  /// order.
  void product(product_kind kind, product_call const& c);
  /// Bytes of memory that the call uses until the stream has done it; 0 where one launch is enough.
  std::size_t scratch_bytes(product_kind kind, product_call const& c);
  /// The same. Fails: bad_argument when there is no operator for the shape.
  void decode(decode_shape const& s, decode_call const& c);
  /// Query heads of `heads` that this rank owns.
  int own_heads(int heads) const;
  /// A collective. Fails: bad_argument when init() has had no room for any.
  void collective(collective_kind kind, collective_call const& c);
  /// all_to_all_v. Likewise.
  void exchange_rows(rows_call const& c);
  /// all_reduce with rms_norm. Likewise.
  void norm(norm_call const& c);
  /// Experts. Fail: bad_argument when init() has had no room for them.
  void dispatch(dispatch_call const& c);
  void combine(combine_call const& c);
  void multiply_groups(grouped_call const& c);
  routing_layout layout_of_routing() const;
  /// Collective: a kernel of the caller's, with a heap and a channel of its own. Returns its number, which no other
  /// kernel of the process gets. Fails: rank_mismatch, where ranks pass different things or one has no kernel; as heap.
  int make_kernel(kernel_options const& o);
  /// Launches it once. Fails: bad_argument, for arguments that its parameters do not take; as launch().
  void launch_kernel(kernel_call const& c);
  /// Collective: frees the memory of make_kernel().
  void end_kernel(int number);
  /// Loads what calls with that k need. Local.
  void prepare(product_kind kind, element type, int k);
  /// How a call would multiply, in words. Follows no address.
  std::string describe(product_kind kind, product_call const& c);

  /// Collective. `bytes` bytes of the heap on each rank; where they are on this rank. Fails: out_of_space.
  void* allocate(std::size_t bytes);
  /// Gives up what allocate() returned. Local; waits for nothing.
  void free(void* data);

  /// Waits for the stream; throws what went wrong on it.
  void check(void* stream);
  /// Throws what a launch has noted; waits for nothing.
  void poll_errors();
  /// Collective; waits for the device. After a launch was abandoned.
  void reset();
  /// Collective; waits for the device. Frees the memory of all ranks. Afterwards only the destructor is called.
  void end();
  /// The process ends without order: the other ranks are told, and nothing is waited for or freed.
  void abandon();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// The name of the exception's class in fusewire, "error" for any other.
char const* kind_of(std::exception const& e);
/// Throws fusewire's bad_argument.
[[noreturn]] void refuse(std::string const& why);
/// fusewire's version, as the library was compiled.
int version();

}  // namespace fusewire::binding
