// What check_order.py has to find, and beside each mistake what is right.
#include <fusewire/device/flag.hpp>

using namespace fusewire;

namespace {

__device__ void write_back() { asm volatile("buffer_wbl2 sc0 sc1" ::: "memory"); }
__device__ void raise(flag* f) { platform::atomic_store<order::relaxed, scope::system>(&f->value, epoch_t(1)); }
__device__ void poll(flag const* f) {
  while (platform::atomic_load<order::relaxed, scope::system>(&f->value) != 1) platform::backoff();
}

}  // namespace

__global__ void planted_writeback_not_waited_for(int* data, flag* f) {
  *data = 1;
  platform::wait_for_memory();
  write_back();
  raise(f);
}
__global__ void planted_writeback_waited_for_on_one_way(int* data, flag* f, int way) {
  *data = 1;
  write_back();
  if (way == 0) {
    data[1] = 2;
    platform::wait_for_memory();
  }
  raise(f);
}
__global__ void planted_writeback_behind_a_barrier(int* data, flag* f) {
  if (threadIdx.x >= 64) {
    *data = 1;
    write_back();
  }
  __syncthreads();
  if (threadIdx.x < 64) raise(f);
}
__global__ void right_writeback(int* data, flag* f) {
  *data = 1;
  write_back();
  platform::wait_for_memory();
  raise(f);
}

__global__ void planted_invalidate_missing(int const* data, flag const* f, int* out) {
  poll(f);
  *out = *data;
}
__global__ void planted_invalidate_before_the_look(int const* data, flag const* f, int* out) {
  platform::acquire_polled<scope::system>(&f->value);
  poll(f);
  *out = *data;
}
__global__ void planted_invalidate_on_one_way(int const* data, flag const* f, int* out, int way) {
  poll(f);
  if (way == 0) platform::acquire_polled<scope::system>(&f->value);
  *out = *data;
}
__global__ void right_invalidate(int const* data, flag const* f, int* out) {
  poll(f);
  platform::acquire_polled<scope::system>(&f->value);
  *out = *data;
}

/// All waves of the block meet; this one waits until at most Left of its LDS instructions are in flight.
template <int Left>
__device__ void meet() {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  __builtin_amdgcn_s_waitcnt(0xc07f | Left << 8);
  __builtin_amdgcn_s_barrier();
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
/// Writes a word to LDS, then reads two others.
template <int Left>
__device__ void write_read_meet(int* out) {
  __shared__ int mine[256], others[256];
  mine[threadIdx.x] = int(blockIdx.x);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  int const a = others[threadIdx.x], b = others[threadIdx.x ^ 64];
  meet<Left>();
  out[threadIdx.x] = a + b + mine[threadIdx.x ^ 64];
}
__global__ void planted_lds_write_not_waited_for(int* out) { write_read_meet<3>(out); }
__global__ void planted_lds_write_waited_for_on_one_way(int* out) {
  __shared__ int mine[256];
  mine[threadIdx.x] = int(blockIdx.x);
  if (threadIdx.x < 64) __builtin_amdgcn_s_waitcnt(0);
  meet<15>();
  out[threadIdx.x] = mine[threadIdx.x ^ 64];
}
__global__ void right_lds_reads_under_way(int* out) { write_read_meet<2>(out); }

__global__ void planted_barrier_in_a_loop_of_some_lanes(int* out) {
  for (unsigned i = 0; i < threadIdx.x; ++i) {
    __syncthreads();
    out[i] = int(i);
  }
}
__global__ void planted_barrier_for_half_a_wave(int* out) {
  __shared__ int x;
  if (threadIdx.x < 32) {
    x = out[threadIdx.x];
    __syncthreads();
    out[0] = x;
  }
  out[threadIdx.x] = 1;
}
__global__ void right_barrier_for_whole_waves(int* out) {
  __shared__ int x;
  if (threadIdx.x < 128) {
    x = out[threadIdx.x];
    __syncthreads();
    out[0] = x;
  }
}
__global__ void right_barrier_after_a_loop_of_some_lanes(int* out) {
  for (unsigned i = 0; i < threadIdx.x; ++i) out[i] = int(i);
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void right_barrier_in_a_loop_by_a_word_of_all(int* out) {
  __shared__ int x;
  for (;;) {
    if (threadIdx.x == 0) x = atomicAdd(out, 1);
    __syncthreads();
    int const t = x;
    __syncthreads();
    if (t > 100) break;
    out[t] = t;
  }
}
