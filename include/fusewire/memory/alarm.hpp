// Between this rank's kernels and its host.
//
//   kernel --word--> host      check() has something to throw
//   host   --copy--> kernel    a rank has failed or died: all waits of this rank end
#pragma once
#include <atomic>
#include <mutex>
#include <source_location>
#include <span>
#include <string>

#include <fusewire/device/flag_layout.hpp>
#include <fusewire/ranks/bootstrap.hpp>
#include <fusewire/ranks/error.hpp>
#include <fusewire/ranks/thread_state.hpp>

namespace fusewire::detail {

/// What watch::abandoned becomes when the host ends the waits.
inline constexpr unsigned by_host = ~0u;

class alarm final : public failure_listener {
 public:
  /// `mine`: this rank's watch, there until detach(). The calling thread's device is this rank's.
  alarm(watch* mine, int device, std::source_location where) : abandoned_(&mine->abandoned), device_(device) {
    check_hip(hipHostMalloc(&words_, sizeof *words_, hipHostMallocMapped | hipHostMallocCoherent),
              "hipHostMalloc(alarm)", where);
    *words_ = {0, by_host, 0};
    hipError_t const e = hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking);
    if (e != hipSuccess) ignore_hip(hipHostFree(words_));
    check_hip(e, "hipStreamCreateWithFlags(alarm)", where);
  }
  alarm(alarm const&) = delete;
  ~alarm() {
    ignore_hip(hipStreamDestroy(stream_));
    ignore_hip(hipHostFree(words_));
  }

  bool raised() const { return std::atomic_ref(words_->raised).load(std::memory_order_relaxed) != 0; }
  void lower() const { std::atomic_ref(words_->raised).store(0, std::memory_order_relaxed); }
  unsigned* word() const { return &words_->raised; }

  /// A rank has failed: ends the waits of this rank's kernels. The copy runs concurrently, on its own stream and
  /// from pinned memory. If it cannot, the waits last until their limit.
  void failed(std::string const& why) override {
    std::lock_guard const lock(m_);
    why_ = why;
    copy(&words_->abandoned, {&abandoned_, 1});
  }
  /// Ends the waits of other ranks' kernels: these words of their watches become 1 + `rank`, a rank of the heap. May be
  /// called by any thread.
  void end_waits_of(std::span<unsigned* const> abandoned, int rank) {
    std::lock_guard const lock(m_);
    words_->by_rank = unsigned(rank + 1);
    copy(&words_->by_rank, abandoned);
  }
  /// The watch is about to be freed.
  void detach() {
    std::lock_guard const lock(m_);
    abandoned_ = nullptr;
  }
  /// Why the group of ranks has failed; "" if it has not.
  std::string failure() const {
    std::lock_guard const lock(m_);
    return why_;
  }

 private:
  struct words {
    unsigned raised, abandoned, by_rank;  // by kernels; what is copied to them
  };
  /// Requires: the lock.
  void copy(unsigned const* value, std::span<unsigned* const> to) const {
    if (!abandoned_) return;
    outside_captures const copying;
    int before = device_;
    ignore_hip(hipGetDevice(&before));
    ignore_hip(hipSetDevice(device_));
    for (unsigned* word : to) ignore_hip(hipMemcpyAsync(word, value, sizeof *word, hipMemcpyHostToDevice, stream_));
    ignore_hip(hipSetDevice(before));
  }
  unsigned* abandoned_;  // of the watch; null when that is gone
  int const device_;
  words* words_ = nullptr;
  hipStream_t stream_ = nullptr;
  mutable std::mutex m_;
  std::string why_;
};

}  // namespace fusewire::detail
