// GPU 0 writes 256 values into memory of GPU 1 and raises a flag; GPU 1 waits for the flag and reads them. One right
// version and
// ways to get it wrong.   fusewire-sim races <producer> <consumer> <runs>     prints how many runs read wrong values
#include "check.hpp"

#include <string>

constexpr int n = 256;

enum class send { right, no_wait, no_drain, no_barrier, relaxed, agent_release, drained_scoped_stores };
enum class receive { right, acquire_load, relaxed, no_barrier, agent_acquire, block_acquire, no_wait };

__device__ void drain() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
}

template <send How>
__global__ void producer(float* data, unsigned* flag, float const* in, unsigned epoch) {
  auto const i = threadIdx.x;
  if constexpr (How == send::drained_scoped_stores)
    __hip_atomic_store(&data[i], in[i] * 2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  else data[i] = in[i] * 2;
  if constexpr (How != send::no_drain) drain();
  if constexpr (How != send::no_barrier) __syncthreads();
  if (i != 0) return;
  if constexpr (How == send::relaxed || How == send::drained_scoped_stores)
    __hip_atomic_store(flag, epoch, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  else if constexpr (How == send::agent_release) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    __builtin_amdgcn_s_waitcnt(0x0f70);
    __hip_atomic_store(flag, epoch, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  } else if constexpr (How == send::no_wait) {
    asm volatile("buffer_wbl2 sc0 sc1");
    __hip_atomic_store(flag, epoch, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  } else release_store(flag, epoch);
}

template <receive How>
__global__ void consumer(float* data, unsigned* flag, float* out, unsigned epoch, bool looks) {
  auto const i = threadIdx.x;
  float const before = looks ? data[i] : 0;  // so that old lines are in the caches
  if (How != receive::no_wait && i == 0) {
    while (__hip_atomic_load(flag, How == receive::acquire_load ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_SYSTEM) != epoch)
      __builtin_amdgcn_s_sleep(1);
    if constexpr (How == receive::agent_acquire) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    // As in tgsplit mode, which this is not
    if constexpr (How == receive::block_acquire) asm volatile("buffer_inv sc0" ::: "memory");
    if constexpr (How == receive::right || How == receive::no_barrier) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  }
  if constexpr (How != receive::no_barrier) __syncthreads();
  out[i] = data[i] + before * 0;
}

using producer_kernel = void (*)(float*, unsigned*, float const*, unsigned);
using consumer_kernel = void (*)(float*, unsigned*, float*, unsigned, bool);

producer_kernel producer_named(std::string const& name) {
  if (name == "right") return producer<send::right>;
  if (name == "no_wait") return producer<send::no_wait>;
  if (name == "no_drain") return producer<send::no_drain>;
  if (name == "no_barrier") return producer<send::no_barrier>;
  if (name == "relaxed") return producer<send::relaxed>;
  if (name == "agent_release") return producer<send::agent_release>;
  if (name == "drained_scoped_stores") return producer<send::drained_scoped_stores>;
  std::exit(2);
}
consumer_kernel consumer_named(std::string const& name) {
  if (name == "right") return consumer<receive::right>;
  if (name == "acquire_load") return consumer<receive::acquire_load>;
  if (name == "relaxed") return consumer<receive::relaxed>;
  if (name == "no_barrier") return consumer<receive::no_barrier>;
  if (name == "agent_acquire") return consumer<receive::agent_acquire>;
  if (name == "no_wait") return consumer<receive::no_wait>;
  if (name == "block_acquire") return consumer<receive::block_acquire>;
  std::exit(2);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  producer_kernel const produce = producer_named(argv[1]);
  consumer_kernel const consume = consumer_named(argv[2]);
  int const runs = std::atoi(argv[3]);
  bool const looks = !std::getenv("FUSEWIRE_SIM_RACES");  // that is a race
  bool const remote_data = argc > 4;                      // the data stays with the producer and is pulled
  float *in, *data, *out, host[n];
  unsigned* flag;
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  HIP(hipMalloc(&in, sizeof host));
  HIP(hipSetDevice(1));
  HIP(hipDeviceEnablePeerAccess(0, 0));
  HIP(hipMalloc(&out, sizeof host));
  HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&flag), 128, hipDeviceMallocUncached));
  HIP(hipMemset(flag, 0, 128));
  HIP(hipSetDevice(remote_data ? 0 : 1));
  HIP(hipMalloc(&data, sizeof host));
  int wrong = 0;
  for (int r = 1; r <= runs; ++r) {
    for (int i = 0; i < n; ++i) host[i] = static_cast<float>(i + r);
    HIP(hipMemcpy(in, host, sizeof host, hipMemcpyHostToDevice));
    HIP(hipSetDevice(1));
    consume<<<1, n>>>(data, flag, out, static_cast<unsigned>(r), looks);
    HIP(hipSetDevice(0));
    produce<<<1, n>>>(data, flag, in, static_cast<unsigned>(r));
    HIP(hipSetDevice(1));
    HIP(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
    HIP(hipSetDevice(0));
    HIP(hipDeviceSynchronize());
    bool bad = false;
    for (int i = 0; i < n; ++i) bad |= host[i] != static_cast<float>(2 * (i + r));
    wrong += bad;
  }
  std::printf("%d of %d wrong\n", wrong, runs);
}
