#pragma once
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

/// Ends the program when a HIP call fails or a condition does not hold.
#define HIP(call)                                                                     \
  do {                                                                                \
    if (hipError_t const e_ = (call); e_ != hipSuccess) {                             \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, hipGetErrorName(e_)); \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (0)
#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                       \
    }                                                                     \
  } while (0)
#define CHECK_ERROR(call, error) CHECK((call) == (error))

/// A release store as LLVM's memory model has it. Up to LLVM 22 the compiler drops the wait behind the writeback.
__device__ inline void release_store(unsigned* p, unsigned value) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
  __hip_atomic_store(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

struct test_case {
  char const* name;
  void (*run)();
};

template <std::size_t N>
int run_case(test_case const (&cases)[N], int argc, char** argv) {
  for (test_case const& c : cases)
    if (argc > 1 && std::strcmp(c.name, argv[1]) == 0) {
      c.run();
      std::printf("done\n");
      return 0;
    }
  for (test_case const& c : cases) std::printf("%s\n", c.name);
  return argc > 1;
}
