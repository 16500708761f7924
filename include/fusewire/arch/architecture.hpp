// The architecture that is compiled for, as a value: tables for all of them then stand side by side, and host tests see
// each.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// What fusewire has kernels for.
enum class architecture { gfx942, sm90 };

/// The one that this translation unit is compiled for.
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
inline constexpr architecture compiled_for = architecture::sm90;
#else
inline constexpr architecture compiled_for = architecture::gfx942;
#endif

}  // namespace fusewire
