// The totals that a program can read, for one kernel whose traffic is known.
#include <dlfcn.h>

#include "check.hpp"
#include "fusewire_sim.h"

__global__ void move(float const* from, float* to, unsigned* count) {
  to[threadIdx.x] = from[threadIdx.x];
  if (threadIdx.x == 0) __hip_atomic_fetch_add(count, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

int main() {
  auto const stats = reinterpret_cast<fusewire_sim_stats_function>(dlsym(RTLD_DEFAULT, "fusewireSimStats"));
  auto const reset = reinterpret_cast<fusewire_sim_reset_function>(dlsym(RTLD_DEFAULT, "fusewireSimReset"));
  CHECK(stats && reset);
  float *from, *to;
  unsigned* count;
  HIP(hipSetDevice(1));
  HIP(hipMalloc(&from, 4096));
  HIP(hipMalloc(&count, 4));
  HIP(hipSetDevice(2));
  HIP(hipMalloc(&to, 4096));
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  HIP(hipDeviceEnablePeerAccess(2, 0));
  for (int round = 0; round < 2; ++round) {
    CHECK(reset() == 0);
    move<<<1, 256>>>(from, to, count);
    HIP(hipDeviceSynchronize());
    fusewire_sim_stats s{};
    CHECK(stats(&s) == -1);
    s.size = sizeof s;
    CHECK(stats(&s) == 0);
    CHECK(s.launches == 1 && s.workgroups == 1 && s.instructions > 20 && s.cycles > 0);
    CHECK(s.links[0][1].load_bytes == 1024 && s.links[0][1].store_bytes == 0 && s.links[0][1].atomic_bytes == 4);
    CHECK(s.links[0][2].store_bytes == 1024 && s.links[1][0].load_bytes == 0);
  }
  std::printf("done\n");
}
