// What no source promises, one program each: how often it is not so. A count of 0 in every run would mean that the
// simulator does more than it may.
//   fusewire-sim promises NAME     prints the count
#include "check.hpp"

#include <string>

constexpr unsigned old_value = 0xabcd, new_value = 7;

__device__ void wait_for(unsigned const* flag, unsigned value) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) != value) __builtin_amdgcn_s_sleep(1);
}
__device__ void count_if(bool weak, unsigned* count) {
  if (weak) __hip_atomic_fetch_add(count, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// A register holds what a load brings before the wave has waited for it.
__global__ void load_without_wait(unsigned const* p, unsigned* count) {
  unsigned x = old_value, seen;
  asm volatile("global_load_dword %0, %2, off\n v_mov_b32 %1, %0\n s_waitcnt vmcnt(0)"
               : "+&v"(x), "=&v"(seen)
               : "v"(p));
  count_if(seen == old_value, count);
}
__global__ void scalar_load_without_wait(unsigned const* p, unsigned* count) {
  unsigned x = old_value, seen;
  asm volatile("s_load_dword %0, %2, 0x0\n v_mov_b32 %1, %0\n s_waitcnt lgkmcnt(0)" : "+&s"(x), "=&v"(seen) : "s"(p));
  count_if(seen == old_value, count);
}
/// What a wave has written to LDS is there for others behind a barrier, without s_waitcnt lgkmcnt(0).
__global__ void lds_without_wait(unsigned const*, unsigned* count) {
  __shared__ unsigned words[64];
  unsigned const lane = threadIdx.x % 64;
  auto const at =
      static_cast<unsigned>(reinterpret_cast<size_t>((__attribute__((address_space(3))) unsigned*)&words[lane]));
  if (threadIdx.x < 64) words[lane] = old_value;
  __syncthreads();
  if (threadIdx.x < 64) {
    asm volatile("ds_write_b32 %0, %1\n s_barrier\n s_waitcnt lgkmcnt(0)" ::"v"(at), "v"(new_value) : "memory");
  } else {
    unsigned seen;
    asm volatile("s_barrier\n ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)" : "=v"(seen) : "v"(at) : "memory");
    count_if(seen == old_value, count);
  }
}

/// On GPU 1: each XCD reads x, which is GPU 0's.
__global__ void read_first(unsigned const* x, unsigned* read) {
  if (*static_cast<unsigned const volatile*>(x) != new_value) asm volatile("" ::: "memory");
  __syncthreads();
  __hip_atomic_fetch_add(read, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
__global__ void write_then(unsigned* x, unsigned const* read, unsigned readers, unsigned* flag) {
  wait_for(read, readers);
  *x = new_value;
  release_store(flag, 1);
}
/// The next kernel of the same stream, without an acquire of its own.
__global__ void read_again(unsigned const* x, unsigned const* flag, unsigned* count) {
  wait_for(flag, 1);
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  count_if(*x != new_value, count);
}

__global__ void tell(unsigned* flag) { release_store(flag, 1); }
__global__ void read_after(unsigned const* x, int n, unsigned const* flag, unsigned* count) {
  wait_for(flag, 1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  for (int i = 0; i < n; ++i) count_if(x[i * 32] != 0x01010101u, count);
}

int main(int argc, char** argv) {
  std::string const name = argc > 1 ? argv[1] : "";
  unsigned *flags, *x;  // flags[0], [32]: of GPU 1; [64]: the count
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  HIP(hipMalloc(&x, 65536));
  HIP(hipSetDevice(1));
  HIP(hipDeviceEnablePeerAccess(0, 0));
  HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&flags), 1024, hipDeviceMallocUncached));
  unsigned total = 0;
  for (int run = 0; run < 20; ++run) {
    HIP(hipSetDevice(1));
    HIP(hipMemset(flags, 0, 1024));
    HIP(hipDeviceSynchronize());
    HIP(hipSetDevice(0));
    HIP(hipMemset(x, 0, 65536));
    HIP(hipDeviceSynchronize());
    unsigned* const count = flags + 64;
    if (name == "load_without_wait") load_without_wait<<<8, 64>>>(x, count);
    else if (name == "scalar_load_without_wait") scalar_load_without_wait<<<8, 64>>>(x, count);
    else if (name == "lds_without_wait") lds_without_wait<<<8, 128>>>(x, count);
    else if (name == "kernel_start") {
      write_then<<<1, 1>>>(x, flags + 32, 16, flags);
      HIP(hipSetDevice(1));
      read_first<<<16, 1>>>(x, flags + 32);
      read_again<<<16, 1>>>(x, flags, count);
    } else if (name == "memset") {
      HIP(hipMemsetAsync(x, 1, 65536, nullptr));
      tell<<<1, 1>>>(flags);
      HIP(hipSetDevice(1));
      read_after<<<1, 1>>>(x, 512, flags, count);
    } else return 2;
    HIP(hipSetDevice(0));
    HIP(hipDeviceSynchronize());
    HIP(hipSetDevice(1));
    unsigned seen;
    HIP(hipMemcpy(&seen, count, 4, hipMemcpyDeviceToHost));
    total += seen;
  }
  std::printf("%u\n", total);
}
