// The guards for HIP 6: what only HIP 7 has is not named.
#include <hip/hip_runtime.h>
#undef HIP_VERSION_MAJOR
#define HIP_VERSION_MAJOR 6
#pragma GCC poison hipDeviceAttributeNumberOfXccs
#include <fusewire/fusewire.hpp>
