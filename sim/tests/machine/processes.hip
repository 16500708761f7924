// Several processes on one node: memory that is shared by handles, atomics on it, and what is refused. Cases run in
// every process.
#include "check.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

__global__ void add(unsigned long long* sum, int times) {
  for (int i = 0; i < times; ++i) __hip_atomic_fetch_add(sum, 1ull, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
/// Data, then the flag that says so; `token` is different every time.
__global__ void pass_on(unsigned* data, unsigned* flag, unsigned const* mine, unsigned const* my_flag, unsigned token,
                        int first, unsigned* wrong) {
  if (!first) {
    while (__hip_atomic_load(my_flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) != token)
      __builtin_amdgcn_s_sleep(1);
    for (int i = 0; i < 64; ++i) *wrong += mine[i] != token;
  }
  for (int i = 0; i < 64; ++i) data[i] = token;
  release_store(flag, token);
  if (first)
    while (__hip_atomic_load(my_flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) != token)
      __builtin_amdgcn_s_sleep(1);
}
__global__ void read(unsigned const* from, unsigned* to) { *to = *from; }
__global__ void wait_for_ever(unsigned const* flag) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) != 1) __builtin_amdgcn_s_sleep(1);
}

int number(char const* name) { return std::atoi(std::getenv(name)); }
int const rank = number("RANK"), size = number("WORLD_SIZE");

/// Every process's handle. Processes meet by files, which stay: a port comes again, a port and a launcher's pid
/// together do not.
std::vector<hipIpcMemHandle_t> exchange(hipIpcMemHandle_t const& mine, int round) {
  auto const name = [&](int r) {
    return "/tmp/fusewire-sim-test-" + std::to_string(getppid()) + "." + std::getenv("MASTER_PORT") + "." +
           std::to_string(round) + "." + std::to_string(r);
  };
  std::ofstream(name(rank) + ".new", std::ios::binary).write(mine.reserved, sizeof mine.reserved);
  std::rename((name(rank) + ".new").c_str(), name(rank).c_str());
  std::vector<hipIpcMemHandle_t> all(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r)
    while (!std::ifstream(name(r), std::ios::binary).read(all[static_cast<size_t>(r)].reserved, sizeof mine.reserved))
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return all;
}
void meet(int round) { exchange({}, round); }

struct segment {
  unsigned* own = nullptr;
  std::vector<unsigned*> of;
  explicit segment(unsigned flags) {
    HIP(hipSetDevice(rank));
    HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&own), 4096, flags));
    HIP(hipMemset(own, 0, 4096));
    HIP(hipDeviceSynchronize());
    hipIpcMemHandle_t mine;
    HIP(hipIpcGetMemHandle(&mine, own));
    auto const all = exchange(mine, int(flags) * 2);
    for (int r = 0; r < size; ++r) {
      of.push_back(own);
      if (r != rank)
        HIP(hipIpcOpenMemHandle(reinterpret_cast<void**>(&of.back()), all[static_cast<size_t>(r)],
                                hipIpcMemLazyEnablePeerAccess));
    }
  }
};

void atomics() {
  segment s(hipDeviceMallocUncached);
  add<<<8, 64>>>(reinterpret_cast<unsigned long long*>(s.of[0]), 20);
  HIP(hipDeviceSynchronize());
  meet(100);
  unsigned long long sum = 0;
  HIP(hipMemcpy(&sum, s.own, sizeof sum, hipMemcpyDeviceToHost));
  CHECK(sum == (rank == 0 ? 8ull * 64 * 20 * static_cast<unsigned long long>(size) : 0));
}

void messages() {
  segment data(hipDeviceMallocDefault), flags(hipDeviceMallocUncached);
  int const next = (rank + 1) % size;
  for (unsigned token = 1; token <= 50; ++token)
    pass_on<<<1, 1>>>(data.of[static_cast<size_t>(next)], flags.of[static_cast<size_t>(next)], data.own, flags.own,
                      token, rank == 0, flags.own + 64);
  HIP(hipDeviceSynchronize());
  unsigned wrong = 1;
  HIP(hipMemcpy(&wrong, flags.own + 64, 4, hipMemcpyDeviceToHost));
  CHECK(wrong == 0);
  meet(101);
}

void refusals() {
  segment s(hipDeviceMallocDefault);
  hipIpcMemHandle_t h;
  // Not an allocation's start
  CHECK_ERROR(hipIpcGetMemHandle(&h, s.own + 4), hipErrorInvalidValue);
  CHECK_ERROR(hipIpcGetMemHandle(&h, s.of[static_cast<size_t>(!rank)]), hipErrorInvalidValue);  // somebody else's
  HIP(hipIpcGetMemHandle(&h, s.own));
  void* p = nullptr;
  CHECK_ERROR(hipIpcOpenMemHandle(&p, h, hipIpcMemLazyEnablePeerAccess), hipErrorInvalidContext);  // its own
  CHECK_ERROR(hipIpcOpenMemHandle(&p, {}, hipIpcMemLazyEnablePeerAccess), hipErrorInvalidValue);   // nobody's
  CHECK_ERROR(hipIpcCloseMemHandle(s.own), hipErrorInvalidValue);
  CHECK_ERROR(hipFree(s.of[static_cast<size_t>(!rank)]), hipErrorInvalidValue);
  meet(102);
  HIP(hipIpcCloseMemHandle(s.of[static_cast<size_t>(!rank)]));
  CHECK_ERROR(hipIpcCloseMemHandle(s.of[static_cast<size_t>(!rank)]), hipErrorInvalidValue);
  meet(103);
  HIP(hipFree(s.own));
}

void closed() {
  segment s(hipDeviceMallocDefault);
  if (rank) HIP(hipIpcCloseMemHandle(s.of[0]));
  if (rank) read<<<1, 1>>>(s.of[0], s.own);
  HIP(hipDeviceSynchronize());
  meet(104);
}

/// A process frees memory that the other one has open, whose kernels may use it at any time.
void freed_open() {
  segment s(hipDeviceMallocDefault);
  meet(108);
  if (rank) HIP(hipFree(s.own));
  meet(105);
}
void freed_open_in_stream() {
  segment s(hipDeviceMallocUncached);
  meet(109);
  if (rank) HIP(hipFreeAsync(s.own, nullptr));
  HIP(hipDeviceSynchronize());
  meet(106);
}
/// A process that has died has nothing open.
void freed_of_dead() {
  segment s(hipDeviceMallocDefault);
  hipIpcMemHandle_t mine{};
  pid_t pid = getpid();
  std::memcpy(mine.reserved, &pid, sizeof pid);
  auto const all = exchange(mine, 107);
  if (rank) _exit(0);
  std::memcpy(&pid, all[1].reserved, sizeof pid);
  while (kill(pid, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  HIP(hipFree(s.own));
}

void deadlock() {
  segment s(hipDeviceMallocUncached);
  wait_for_ever<<<1, 64>>>(s.own);
  HIP(hipDeviceSynchronize());
}

int main(int argc, char** argv) {
  test_case const cases[] = {{"atomics", atomics},
                             {"messages", messages},
                             {"refusals", refusals},
                             {"closed", closed},
                             {"freed_open", freed_open},
                             {"freed_open_in_stream", freed_open_in_stream},
                             {"freed_of_dead", freed_of_dead},
                             {"deadlock", deadlock}};
  return run_case(cases, argc, argv);
}
