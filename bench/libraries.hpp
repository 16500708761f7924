// The vendor's GEMM and collectives, the baselines of every comparison. Names that differ per vendor are in
// vendor_*.hpp; RCCL has the names of NCCL.
#pragma once
#include <fusewire/fusewire.hpp>

#ifdef FUSEWIRE_BENCH_NVIDIA
#include "vendor_nvidia.hpp"
#else
#include "vendor_amd.hpp"
#endif

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace fusewire::bench {

inline void check_blas(bool ok, char const* what, std::source_location where = std::source_location::current()) {
  require<runtime_failure>(ok, where, vendor::blas_name, ": ", what, " failed");
}
inline void check_nccl(ncclResult_t r, char const* what, std::source_location where = std::source_location::current()) {
  require<runtime_failure>(r == ncclSuccess, where, vendor::collectives_name, ": ", what, ": ", ncclGetErrorString(r));
}

/// One shape of C [m, n] = A [m, k] B [k, n] (+ C), all row-major, or B column-major.
struct blas_shape {
  int m, n, k;
  std::int64_t lda, ldb, ldc;
  layout b_layout;
  bool accumulate;
};

/// The vendor's GEMM of one shape: its heuristics, all its algorithms where the library lists them, and the one that is
/// chosen.
template <class T>
class blas_gemm {
 public:
  static constexpr std::size_t workspace_bytes = 64_MiB;
  static constexpr int asked_for = 32;

  blas_gemm(vendor::blas_handle handle, void* workspace, blas_shape const& s)
      : handle_(handle), workspace_(workspace), beta_(s.accumulate ? 1.0f : 0.0f) {
    using namespace vendor;
    constexpr blas_type type = std::is_same_v<T, bf16> ? blas_bf16 : blas_f16;
    // The libraries are column-major: C^T [n, m] = B^T A^T, so B is their first operand.
    bool const transposed = s.b_layout == layout::column_major;
    check_blas(blas_operation_create(&operation_, blas_compute_f32, blas_f32) == blas_success, "operation");
    auto const op = blas_transposed;
    if (transposed)
      check_blas(blas_operation_set(operation_, blas_transpose_a, &op, sizeof op) == blas_success,
                 "operation's transpose");
    auto const rows = [](int n) { return std::uint64_t(n); };
    check_blas(blas_layout_create(&b_, type, rows(transposed ? s.k : s.n), rows(transposed ? s.n : s.k), s.ldb) ==
                   blas_success,
               "layout of B");
    check_blas(blas_layout_create(&a_, type, rows(s.k), rows(s.m), s.lda) == blas_success, "layout of A");
    check_blas(blas_layout_create(&c_, type, rows(s.n), rows(s.m), s.ldc) == blas_success, "layout of C");
    blas_preference preference;
    check_blas(blas_preference_create(&preference) == blas_success, "preference");
    std::size_t const most = workspace_bytes;
    check_blas(blas_preference_set(preference, blas_max_workspace, &most, sizeof most) == blas_success,
               "preference's workspace");
    blas_choice found[asked_for];
    int count = 0;
    bool const ok =
        blas_heuristics(handle_, operation_, b_, a_, c_, c_, preference, asked_for, found, &count) == blas_success;
    blas_preference_destroy(preference);
    check_blas(ok && count > 0, "heuristics");
    for (int i = 0; i < count; ++i) choices_.push_back({found[i]});
    other_choices(handle_, operation_, transposed, type, b_, a_, c_, beta_, workspace_bytes,
                  [&](blas_choice const& other) { choices_.push_back({other}); });
  }
  blas_gemm(blas_gemm const&) = delete;
  ~blas_gemm() {
    for (auto l : {a_, b_, c_}) vendor::blas_layout_destroy(l);
    vendor::blas_operation_destroy(operation_);
  }

  int choices() const { return int(choices_.size()); }
  void choose(int i) { chosen_ = i; }

  /// Enqueues the product; returns whether the chosen heuristic accepts it.
  bool operator()(hipStream_t stream, T const* a, T const* b, T* c) const {
    float const alpha = 1;
    auto const& choice = choices_[std::size_t(chosen_)];
    return vendor::blas_matmul(handle_, operation_, &alpha, b, b_, a, a_, &beta_, c, c_, c, c_, &choice.is.algo,
                               workspace_, workspace_bytes, stream) == vendor::blas_success;
  }

 private:
  struct choice {  // nvcc 13 stops at a vector of a struct without a name
    vendor::blas_choice is;
  };

  vendor::blas_handle handle_;
  void* workspace_;
  float beta_;
  vendor::blas_operation operation_{};
  vendor::blas_layout a_{}, b_{}, c_{};
  std::vector<choice> choices_;
  int chosen_ = 0;
};

#if defined(FUSEWIRE_BENCH_NVIDIA)
inline __global__ void nothing() {}
#endif

/// A communicator of the world's ranks, and memory registered with it: as symmetric windows, if the version has them.
class collectives {
 public:
  /// Collective.
  explicit collectives(world& w) {
    struct named {  // nvcc 13 stops at a vector of a struct without a name
      ncclUniqueId id;
    } first{};
    if (w.rank() == 0) check_nccl(ncclGetUniqueId(&first.id), "ncclGetUniqueId");
    first = w.exchange().all_gather(first)[0];
    check_nccl(ncclCommInitRank(&comm_, w.size(), first.id, w.rank()), "ncclCommInitRank");
  }
  collectives(collectives const&) = delete;
  ~collectives() {
    for (void* p : memory_) ncclMemFree(p);
    if (comm_) ncclCommDestroy(comm_);
  }

  /// Collective; the same number of bytes on every rank.
  std::byte* allocate(std::size_t bytes) {
    void* p = nullptr;
    bytes = round_up(std::max(bytes, std::size_t(1)), 2_MiB);
    check_nccl(ncclMemAlloc(&p, bytes), "ncclMemAlloc");
    memory_.push_back(p);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    ncclWindow_t window = nullptr;
    symmetric_ = ncclCommWindowRegister(comm_, p, bytes, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess &&
                 window != nullptr && symmetric_;
#else
    symmetric_ = false;
#endif
    return static_cast<std::byte*>(p);
  }
  bool symmetric() const { return symmetric_; }

  /// Ends what is enqueued before the next collective begins. The symmetric kernels of NCCL 2.28 to 2.30.6 are launched
  /// ahead of their predecessor's end and do not wait for it: they need this behind a kernel that lets others start
  /// early, as fusewire's do.
  void complete(hipStream_t stream) const {
#if defined(FUSEWIRE_BENCH_NVIDIA) && NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && \
    NCCL_VERSION_CODE < NCCL_VERSION(2, 30, 7)
    if (symmetric_) nothing<<<dim3(1), dim3(1), 0, stream>>>();
#else
    (void)stream;
#endif
  }

  void all_gather(hipStream_t stream, void const* mine, void* all, std::size_t bytes) const {
    check_nccl(ncclAllGather(mine, all, bytes, ncclInt8, comm_, stream), "ncclAllGather");
  }
  /// What this rank and a peer send each other.
  struct message {
    void const* mine;
    void* theirs;
    std::size_t bytes, their_bytes;
    int peer;
  };
  /// Sends and receives all messages together.
  void exchange(hipStream_t stream, std::vector<message> const& all) const {
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    for (message const& m : all) {
      check_nccl(ncclSend(m.mine, m.bytes, ncclInt8, m.peer, comm_, stream), "ncclSend");
      check_nccl(ncclRecv(m.theirs, m.their_bytes, ncclInt8, m.peer, comm_, stream), "ncclRecv");
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  }
  /// Sums of `count` elements; with reduce_scatter this rank gets only its count / W of them.
  template <class T>
  void all_reduce(hipStream_t stream, T const* mine, T* sum, std::size_t count) const {
    check_nccl(ncclAllReduce(mine, sum, count, type_of<T>(), ncclSum, comm_, stream), "ncclAllReduce");
  }
  template <class T>
  void reduce_scatter(hipStream_t stream, T const* mine, T* sum, std::size_t count) const {
    int ranks = 1;
    check_nccl(ncclCommCount(comm_, &ranks), "ncclCommCount");
    check_nccl(ncclReduceScatter(mine, sum, count / std::size_t(ranks), type_of<T>(), ncclSum, comm_, stream),
               "ncclReduceScatter");
  }

 private:
  template <class T>
  static ncclDataType_t type_of() {
    return std::is_same_v<T, bf16> ? ncclBfloat16 : std::is_same_v<T, f16> ? ncclFloat16 : ncclFloat32;
  }

  ncclComm_t comm_ = nullptr;
  std::vector<void*> memory_;
  bool symmetric_ = true;
};

}  // namespace fusewire::bench
