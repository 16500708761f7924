// What a heap is made with, and what its ranks must agree on.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <fusewire/core/math.hpp>
#include <fusewire/core/world_view.hpp>
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

/// Memory of every rank that the program has mapped already, in the order of ranks: where this rank's device reaches
/// it.
struct mapped_memory {
  std::byte* of[max_ranks] = {};  // null: none

  /// Whether there is any.
  explicit operator bool() const { return of[0] != nullptr; }
};

/// Options of a heap; the same on every rank.
struct heap_options {
  std::size_t bulk = 256_MiB;  // bytes per rank
  std::size_t signal = 8_MiB;  // bytes per rank
  /// Limit of one wait inside a kernel: longer than a rank may be late. Waits for two-shot results get a quarter of a
  /// second more
  std::chrono::nanoseconds wait_limit = std::chrono::minutes(5);
  sharing share = sharing::handle;  // how processes map each other's memory
  /// Where data lies, `bulk` bytes from a multiple of 4096 on: another library's symmetric memory. It outlives all that
  /// uses the heap, on every rank, and the heap neither maps nor frees it. Empty: memory of the heap's own, as it
  /// always is for signals. All ranks give it, or none; only its addresses differ
  mapped_memory bulk_at = {};

  /// A heap that holds all of r, and what it keeps for itself.
  static heap_options of(requirements const& r) {
    return {.bulk = std::max(1_MiB, r.bulk()),
            .signal = std::max(64_KiB, detail::added(reserved_signal_bytes, r.signal()))};
  }
  /// Segments begin at a page, so no array is aligned to more bytes.
  static constexpr std::size_t max_alignment = 4096;
  /// What a heap keeps of the signal segment: what its launches report.
  static constexpr std::size_t reserved_signal_bytes = round_up(sizeof(watch), detail::heap_unit);
};

namespace detail {
/// Fails: bad_argument, out_of_space.
inline void check(heap_options const& options, int ranks, std::source_location where) {
  require(options.bulk >= 1_MiB, where, "heap: bulk segment of ", options.bulk, " bytes; expected at least ", 1_MiB);
  require(options.signal >= 64_KiB, where, "heap: signal segment of ", options.signal, " bytes; expected at least ",
          64_KiB);
  for (std::size_t const bytes : {options.bulk, options.signal})
    require<out_of_space>(bytes <= SIZE_MAX / 4, where, "heap: a segment of ", bytes, " bytes; at most ", SIZE_MAX / 4,
                          " have addresses");
  require(options.wait_limit.count() > 0, where, "heap: wait_limit of ", options.wait_limit.count(),
          " ns; expected more than 0");
  for (int r = 0; options.bulk_at && r < ranks; ++r) {
    std::byte const* const at = options.bulk_at.of[r];
    require(at && reinterpret_cast<std::uintptr_t>(at) % heap_options::max_alignment == 0, where,
            "heap: bulk_at of rank ", r, " is ", static_cast<void const*>(at),
            "; expected an address that is a multiple of ", heap_options::max_alignment);
  }
}
}  // namespace detail

/// A value that must be equal on all ranks, and its name.
struct agreed_value {
  char const* name;     // for the message
  std::uint64_t value;  // to compare
};

}  // namespace fusewire
