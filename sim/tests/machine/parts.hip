// Parts of an allocation with bounds of their own: parts CASE. Every case but "right" must end with a report.
#include <dlfcn.h>
#include <fusewire_sim.h>

#include <string>

#include "check.hpp"

__global__ void store_at(char* p, long offset, int* last) {
  if (threadIdx.x == 0) *reinterpret_cast<int*>(p + offset) = 1;
  if (threadIdx.x == 0 && last) *last = 2;
}
__global__ void store_wide(char* p, long offset) { *reinterpret_cast<int4*>(p + offset) = make_int4(1, 2, 3, 4); }
/// Every block but the last `missing` adds `times` times to the ticket.
__global__ void take_tickets(unsigned* ticket, int times, int missing, unsigned const* until) {
  if (threadIdx.x == 0) ticket[-1] = 1;
  while (until && __hip_atomic_load(until, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0)
    __builtin_amdgcn_s_sleep(1);
  if (threadIdx.x == 0 && blockIdx.x + missing < gridDim.x)
    for (int i = 0; i < times; ++i) __hip_atomic_fetch_add(ticket, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ __noinline__ void spin(unsigned* p) {
  __hip_atomic_fetch_add(p, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__global__ void never_ends(unsigned* p) {
  while (__hip_atomic_load(p + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0) spin(p);
}

int main(int argc, char** argv) {
  std::string const name = argc > 1 ? argv[1] : "";
  auto const name_part = reinterpret_cast<fusewire_sim_name_part_function>(dlsym(RTLD_DEFAULT, "fusewireSimNamePart"));
  auto const forget =
      reinterpret_cast<fusewire_sim_forget_parts_function>(dlsym(RTLD_DEFAULT, "fusewireSimForgetParts"));
  auto const name_ticket =
      reinterpret_cast<fusewire_sim_name_ticket_function>(dlsym(RTLD_DEFAULT, "fusewireSimNameTicket"));
  auto const name_rows = reinterpret_cast<fusewire_sim_name_rows_function>(dlsym(RTLD_DEFAULT, "fusewireSimNameRows"));
  char* p;
  HIP(hipMalloc(&p, 65536));
  HIP(hipMemset(p, 0, 65536));
  if (name == "never_ends") {
    never_ends<<<2, 64>>>(reinterpret_cast<unsigned*>(p));
    HIP(hipDeviceSynchronize());
  }
  CHECK(name_part(p + 1024, 100, "the first") == 0);
  CHECK(name_part(p + 2048, 256, "the second") == 0);
  CHECK(name_part(p + 2048, 256, "the second, named again") == 0);
  CHECK(name_part(p + 70000, 4, "beyond") == -1);
  fusewire_sim_rows const rows{40, 64, {3, 2, 2}}, long_rows{65, 64, {3, 2, 2}};
  CHECK(name_rows(p + 4096, &rows, "row {0} of {1} of {2}, of 40") == 0);
  CHECK(name_rows(p + 65536 - 64 * 11, &rows, "beyond") == -1);
  CHECK(name_rows(p + 4096, &long_rows, "rows that overlap") == -1);
  auto* const ticket = reinterpret_cast<unsigned*>(p + 2052);
  auto const name_least =
      reinterpret_cast<fusewire_sim_name_least_function>(dlsym(RTLD_DEFAULT, "fusewireSimNameLeast"));
  CHECK(name_least(p + 2048, ticket, 2, "begin()") == -1);  // it has no ticket yet
  if (name == "right") {
    store_at<<<1, 64>>>(p, 1120, nullptr);
    store_wide<<<1, 1>>>(p, 2048 + 240);
    for (int row = 0; row < 12; ++row) store_at<<<1, 64>>>(p, 4096 + row * 64 + 36 * (row % 2), nullptr);
    HIP(hipDeviceSynchronize());
    CHECK(name_ticket(p + 1, p + 1, "take") == -1);
    CHECK(name_ticket(p + 2048, ticket, "take()") == 0);
    CHECK(name_least(p + 2048, p + 2048 + 256, 6, "begin()") == -1);
    CHECK(name_least(p + 2048, ticket, 6, "begin()") == 0);
    for (int i = 0; i < 3; ++i) take_tickets<<<dim3(3, 2), 64>>>(ticket, 1, 0, nullptr);
    HIP(hipDeviceSynchronize());
    std::puts("done");
    return 0;
  }
  if (name == "gap") store_at<<<1, 64>>>(p, 1124, nullptr);
  if (name == "before") store_at<<<1, 64>>>(p, 2040, nullptr);
  if (name == "nothing_there") store_at<<<1, 64>>>(p, 40000, reinterpret_cast<int*>(p + 1024));
  if (name == "past_all") store_at<<<1, 64>>>(p, 65536 + 100, nullptr);
  if (name == "row_gap") store_at<<<1, 64>>>(p, 4096 + 5 * 64 + 48, nullptr);
  if (name == "row_straddle") store_wide<<<1, 1>>>(p, 4096 + 7 * 64 + 32);
  if (name == "past_rows") store_at<<<1, 64>>>(p, 4096 + 12 * 64, nullptr);
  if (name == "straddle") store_wide<<<1, 1>>>(p, 1024 + 96);
  if (name == "given_back") {
    CHECK(forget(p + 1024, 512) == 0);
    store_at<<<1, 64>>>(p, 1024, nullptr);
  }
  if (name == "replaced") {
    CHECK(name_part(p + 1024, 50, "a smaller one") == 0);
    store_at<<<1, 64>>>(p, 1076, nullptr);
  }
  CHECK(name_ticket(p + 2048, ticket, "take()") == 0);
  if (name == "twice") take_tickets<<<3, 64>>>(ticket, 2, 0, nullptr);
  if (name == "missing") take_tickets<<<3, 64>>>(ticket, 1, 1, nullptr);
  if (name == "few") {
    CHECK(name_least(p + 2048, ticket, 4, "begin()") == 0);
    take_tickets<<<3, 64>>>(ticket, 1, 0, nullptr);
  }
  if (name == "two_launches") {
    hipStream_t other;
    HIP(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
    unsigned* until;
    HIP(hipMalloc(&until, 4));
    HIP(hipMemset(until, 0, 4));
    take_tickets<<<1, 64, 0, other>>>(ticket, 1, 0, until);
    take_tickets<<<1, 64>>>(ticket, 1, 0, until);
  }
  HIP(hipDeviceSynchronize());
  return 1;
}
