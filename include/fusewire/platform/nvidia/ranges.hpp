// NVTX, a library of headers that comes with CUDA.
#pragma once
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define FUSEWIRE_HAS_NVTX 1
#endif

namespace fusewire::platform {

/// Why has_ranges() is false
inline constexpr char const* why_no_ranges = "CUDA's headers have no nvtx3/nvToolsExt.h";

#ifdef FUSEWIRE_HAS_NVTX
/// Whether push_range() marks anything.
inline bool has_ranges() { return true; }
/// Begins a range on this thread. Requires: has_ranges().
inline void push_range(char const* name) { nvtxRangePushA(name); }
/// Ends the range that this thread began last.
inline void pop_range() { nvtxRangePop(); }
#undef FUSEWIRE_HAS_NVTX
#else
inline bool has_ranges() { return false; }
inline void push_range(char const*) {}
inline void pop_range() {}
#endif

}  // namespace fusewire::platform
