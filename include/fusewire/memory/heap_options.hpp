// What a heap is made with, and what its ranks must agree on.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <fusewire/core/math.hpp>
#include <fusewire/device/flag_layout.hpp>
#include <fusewire/memory/requirements.hpp>
#include <fusewire/memory/sharing.hpp>

namespace fusewire {

inline namespace literals {
/// KiB as a literal: 64_KiB.
constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
/// MiB as a literal: 64_MiB.
constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
/// GiB as a literal: 1_GiB.
constexpr std::size_t operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

/// Options of a heap; the same on every rank.
struct heap_options {
  std::size_t bulk = 256_MiB;  // bytes per rank
  std::size_t signal = 8_MiB;  // bytes per rank
  /// Limit of one wait inside a kernel: longer than a rank may be late. Waits for two-shot results get a quarter of a
  /// second more
  std::chrono::nanoseconds wait_limit = std::chrono::minutes(5);
  sharing share = sharing::handle;  // how processes map each other's memory

  /// A heap that holds all of r, and what it keeps for itself.
  static heap_options of(requirements const& r) {
    return {.bulk = std::max(1_MiB, r.bulk()),
            .signal = std::max(64_KiB, detail::added(reserved_signal_bytes, r.signal()))};
  }
  /// What a heap keeps of the signal segment: what its launches report.
  static constexpr std::size_t reserved_signal_bytes = round_up(sizeof(watch), detail::heap_unit);
};

/// A value that must be equal on all ranks, and its name.
struct agreed_value {
  char const* name;     // for the message
  std::uint64_t value;  // to compare
};

}  // namespace fusewire
