// Checks before the launch: the memory that a call of an operator reads and writes, and whether its blocks fit.
#pragma once
#include <cstdint>
#include <span>

#include <fusewire/device/channel_view.hpp>
#include <fusewire/memory/simulator.hpp>
#include <fusewire/ranks/error.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire::detail {

/// `rows` rows of `row` bytes, `pitch` bytes from one to the next. Empty without rows or data.
struct operand {
  char const* name;
  void const* data;
  std::uint64_t rows, row, pitch;

  bool empty() const { return data == nullptr || rows == 0 || row == 0; }
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(data); }
  std::uintptr_t end() const { return begin() + (rows - 1) * pitch + row; }
};

inline bool overlap(operand const& x, operand const& y) {
  if (x.empty() || y.empty() || x.end() <= y.begin() || y.end() <= x.begin()) return false;
  if (x.pitch != y.pitch) return true;
  // Parts of one matrix may lie side by side
  std::uint64_t const apart = x.begin() <= y.begin() ? (y.begin() - x.begin()) % x.pitch
                                                     : (x.pitch - (x.begin() - y.begin()) % x.pitch) % x.pitch;
  return apart < x.row || apart + y.row > x.pitch;
}

/// Whether HIP knows the memory: it allocated it, or it is the host's and was registered.
inline bool is_known(void const* p, std::source_location where) {
  hipPointerAttribute_t a{};
  hipError_t const e = hipPointerGetAttributes(&a, p);
  if (e != hipErrorInvalidValue) check_hip(e, "hipPointerGetAttributes", where);
  ignore_hip(e);
  return e == hipSuccess && a.devicePointer != nullptr;
}

/// Fails: bad_argument when memory that the call writes overlaps other memory that it uses. In a checked build
/// (FUSEWIRE_CHECKED) and under fusewire-sim also when HIP does not know some of the memory: that question takes longer
/// than all the other checks of a call.
inline void check_operands(char const* call, std::span<operand const> written, std::span<operand const> read,
                           std::source_location where) {
  for (operand const& w : written) {
    for (operand const& r : read)
      require(!overlap(w, r), where, call, ": ", w.name, " = ", w.data, " overlaps ", r.name, " = ", r.data,
              "; expected memory that nothing else of the call lies in");
    for (operand const& other : written)
      require(&other == &w || !overlap(w, other), where, call, ": ", w.name, " = ", w.data, " overlaps ", other.name,
              " = ", other.data, "; expected memory of its own");
  }
  if (!checked && !simulator::get().there()) return;
  for (auto const& all : {written, read})
    for (operand const& o : all)
      require(o.empty() || is_known(o.data, where), where, call, ": ", o.name, " = ", o.data,
              " is memory of the host; expected what HIP allocated or registered");
}

/// Checks the option reserved_cus of an operator. Fails: bad_argument, beginning with `name`.
inline void require_reserved(char const* name, world const& w, int reserved_cus, std::source_location where) {
  require(reserved_cus >= 0 && reserved_cus < w.compute_units(), where, name, ": reserved_cus = ", reserved_cus,
          "; expected 0 to ", w.compute_units() - 1);
}
/// Checks that blocks of an operator's kernel fit; `fit` of them are co-resident. Fails: bad_argument, beginning with
/// `name`.
inline void require_resident(char const* name, world const& w, int fit, int threads, int shared_bytes, int reserved_cus,
                             std::source_location where) {
  require(fit >= 1, where, name, ": no block of ", threads, " threads and ", shared_bytes,
          " bytes of shared memory fits on this rank's part of the device (", w.compute_units(), " units, ",
          reserved_cus, " reserved, ", w.ranks_on_device(), " ranks)");
}
/// Whether an operator launches its kernel ahead of what the stream did before: blocks that wait for their turn would
/// take the compute units that are left to other work.
constexpr bool may_be_early(int reserved_cus) { return reserved_cus == 0; }

}  // namespace fusewire::detail
