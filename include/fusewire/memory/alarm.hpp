// A word through which kernels tell their host that check() has something to throw.
#pragma once
#include <atomic>
#include <source_location>

#include <fusewire/runtime/error.hpp>

namespace fusewire::detail {

/// A word in the host's memory that this rank's kernels raise.
class alarm {
 public:
  explicit alarm(std::source_location where) {
    check_hip(hipHostMalloc(&word_, sizeof *word_, hipHostMallocMapped | hipHostMallocCoherent), "hipHostMalloc(alarm)",
              where);
    lower();
  }
  alarm(alarm const&) = delete;
  ~alarm() { ignore_hip(hipHostFree(word_)); }

  bool raised() const { return std::atomic_ref(*word_).load(std::memory_order_relaxed) != 0; }
  void lower() const { std::atomic_ref(*word_).store(0, std::memory_order_relaxed); }
  unsigned* word() const { return word_; }

 private:
  unsigned* word_ = nullptr;
};

}  // namespace fusewire::detail
