// All-reduces of fp16 as the published ones work.   all_reduce pull|counter|push GPUS BYTES
//
//   pull, 2 GPUs or few bytes   flags | every rank reads all inputs, adds, writes its output | flags
//   pull, more                  flags | rank r adds part r of all inputs | flags | every rank reads all parts | flags
//
//     as vLLM's on ROCm: 16 blocks of 512 threads, 16 bytes per thread in a grid loop; inputs lie in uncached memory,
//     as vLLM's registered buffers do: no L2 keeps a peer's
//     per rank and launch, bytes into a GPU through its links: one stage (W - 1) x n; two stages 2 (W - 1) / W x n,
//     n / W from each peer and stage
//
//   counter   one block of 512 threads: a counter in host memory says that all are there | every rank adds all inputs
//
//     as muiLLM's for few bytes: a launch's inputs lie in the one or the other of two ordinary buffers, so that there
//     is no second meeting
//     per rank and launch, bytes into a GPU through its links: (W - 1) x n
//
//   push   a block has a tile of 32 KB: part p goes to rank p | flag | sum of own part | sum goes to all | flag | write
//
//     as quickreduce's two-shot: 256 threads, 8 x 16 bytes each, through uncached inboxes; up to 4 blocks per CU, then
//     a block takes further tiles
//     per rank and launch: 2 (W - 1) / W x n out of a GPU, n / W to each peer and shot
#include "point.hpp"

using namespace calibration;

namespace {

constexpr char const* how = "all_reduce pull|counter|push GPUS BYTES";
constexpr int pull_blocks = 16, pull_threads = 512, push_blocks = 304 * 4, push_threads = 256, atoms = 8,
              tile_words = atoms * push_threads;

/// One of these per rank, in uncached memory. A launch's meetings have flags of their own: a fast peer that comes to
/// one again has met everybody in between, so it overwrites no flag that is still awaited.
struct pull_flags {
  unsigned flag[4][pull_blocks][node::most];
};

struct pull_arguments {
  halves const* input[node::most];
  halves* part[node::most];
  pull_flags* flags[node::most];
  halves* output;
  int rank, gpus;
  std::int64_t count;  // of 16 bytes
};

/// The blocks with this index of all ranks meet. `publish`: what each stored is there for all.
__device__ void meet(pull_arguments const& a, unsigned turn, bool publish) {
  __syncthreads();
  if (int const peer = int(threadIdx.x); peer < a.gpus) {
    if (publish) __builtin_amdgcn_fence(__ATOMIC_RELEASE, ""), __builtin_amdgcn_s_waitcnt(0x0f70);
    __hip_atomic_store(&a.flags[peer]->flag[turn % 4][blockIdx.x][a.rank], turn, __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_SYSTEM);
    while (__hip_atomic_load(&a.flags[a.rank]->flag[turn % 4][blockIdx.x][peer], __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_SYSTEM) != turn) {}
    if (publish) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  }
  __syncthreads();
}

template <int W, class Arguments>
__device__ halves sum(Arguments const& a, std::int64_t i) {
  halves all[W];
#pragma unroll
  for (int r = 0; r < W; ++r) all[r] = a.input[r][i];
#pragma unroll
  for (int r = 1; r < W; ++r) all[0] += all[r];
  return all[0];
}

template <int W>
__global__ void __launch_bounds__(pull_threads) pull_one_stage(pull_arguments a, unsigned turn) {
  meet(a, turn, false);
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count;
       i += std::int64_t(gridDim.x) * blockDim.x)
    a.output[i] = sum<W>(a, i);
  meet(a, turn + 1, false);
}

template <int W>
__global__ void __launch_bounds__(pull_threads) pull_two_stage(pull_arguments a, unsigned turn) {
  std::int64_t const part = a.count / W, first = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x,
                     step = std::int64_t(gridDim.x) * blockDim.x;
  meet(a, turn, false);
  for (std::int64_t i = first; i < part; i += step) a.part[a.rank][i] = sum<W>(a, a.rank * part + i);
  meet(a, turn + 1, true);
  for (std::int64_t i = first; i < part; i += step)
#pragma unroll
    for (int r = 0; r < W; ++r) {
      int const from = (a.rank + r) % W;
      a.output[from * part + i] = a.part[from][i];
    }
  meet(a, turn + 2, false);
}

struct counter_arguments {
  halves const* input[node::most];
  halves* output;
  unsigned* counter;  // in host memory
  std::int64_t count;
};

template <int W>
__global__ void __launch_bounds__(pull_threads) counter_one_stage(counter_arguments a, unsigned turn) {
  if (threadIdx.x == 0) {
    unsigned there = __hip_atomic_fetch_add(a.counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) + 1;
    __threadfence_system();
    while (there < turn * W) {
      there = __hip_atomic_load(a.counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
      __threadfence_system();
    }
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < a.count; i += blockDim.x) a.output[i] = sum<W>(a, i);
}

struct push_arguments {
  halves const* input;
  halves* output;
  halves* inbox[node::most];   // uncached: [2 shots][blocks][W][atoms / W][threads]
  unsigned* flag[node::most];  // uncached: [2 shots][blocks][W]
  int rank, tiles;
};

/// Shot `shot` of this block's tile is with every peer.
template <int W>
__device__ void raise(push_arguments const& a, int shot, unsigned turn) {
  __builtin_amdgcn_s_waitcnt(0x0f70);
  __syncthreads();
  if (int const peer = int(threadIdx.x); peer < W) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    __builtin_amdgcn_s_waitcnt(0x0f70);
    __hip_atomic_store(a.flag[peer] + (shot * int(gridDim.x) + int(blockIdx.x)) * W + a.rank, turn, __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_SYSTEM);
  }
}
template <int W>
__device__ void await(push_arguments const& a, int shot, int from, unsigned turn) {
  if (threadIdx.x == 0)
    while (__hip_atomic_load(a.flag[a.rank] + (shot * int(gridDim.x) + int(blockIdx.x)) * W + from, __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_SYSTEM) != turn) {}
  __syncthreads();
}

template <int W>
__global__ void __launch_bounds__(push_threads) push_two_shot(push_arguments a, unsigned turn) {
  constexpr int mine = atoms / W;
  int const t = int(threadIdx.x), rank = a.rank;
  auto const inbox = [&](int of, int shot, int from) {
    return a.inbox[of] + (((std::int64_t(shot) * gridDim.x + blockIdx.x) * W + from) * mine) * push_threads + t;
  };
  for (int tile = int(blockIdx.x); tile < a.tiles; tile += int(gridDim.x), ++turn) {
    halves x[atoms], total[mine];
#pragma unroll
    for (int i = 0; i < atoms; ++i) x[i] = a.input[std::int64_t(tile) * tile_words + i * push_threads + t];
#pragma unroll
    for (int r = 0; r < W; ++r)
#pragma unroll
      for (int i = 0; i < mine; ++i) __builtin_nontemporal_store(x[r * mine + i], inbox(r, 0, rank) + i * push_threads);
    raise<W>(a, 0, turn);
#pragma unroll
    for (int r = 0; r < W; ++r) {
      await<W>(a, 0, r, turn);
#pragma unroll
      for (int i = 0; i < mine; ++i) {
        halves const theirs = __builtin_nontemporal_load(inbox(rank, 0, r) + i * push_threads);
        total[i] = r == 0 ? theirs : total[i] + theirs;
      }
    }
#pragma unroll
    for (int r = 0; r < W; ++r)
#pragma unroll
      for (int i = 0; i < mine; ++i) __builtin_nontemporal_store(total[i], inbox(r, 1, rank) + i * push_threads);
    raise<W>(a, 1, turn);
#pragma unroll
    for (int r = 0; r < W; ++r) {
      await<W>(a, 1, r, turn);
#pragma unroll
      for (int i = 0; i < mine; ++i) x[r * mine + i] = __builtin_nontemporal_load(inbox(rank, 1, r) + i * push_threads);
    }
#pragma unroll
    for (int i = 0; i < atoms; ++i) a.output[std::int64_t(tile) * tile_words + i * push_threads + t] = x[i];
  }
}

template <class F>
void for_gpus(int gpus, F f) {
  if (gpus == 2) f(std::integral_constant<int, 2>());
  else if (gpus == 4) f(std::integral_constant<int, 4>());
  else if (gpus == 8) f(std::integral_constant<int, 8>());
  else usage(how);
}

}  // namespace

int main(int argc, char** argv) {
  std::string const method = argc > 1 ? argv[1] : "";
  int const gpus = int(number(argc, argv, 2, how));
  std::int64_t const bytes = number(argc, argv, 3, how), count = bytes / 16;
  if ((method != "pull" && method != "counter" && method != "push") || gpus > node::most || (bytes % 4096)) usage(how);
  node n(gpus);
  bool const small = bytes <= 4 << 20;
  int const warm_ups = small ? 2 : 1, launches = small ? 4 : 1;
  std::vector<halves*> input, output;
  for (int g = 0; g < gpus; ++g) {
    std::vector<_Float16> x(std::size_t(count) * 8);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = _Float16(small_number(i + std::size_t(g) * 977));
    input.push_back(n.allocate<halves>(g, std::size_t(std::max<std::int64_t>(count, tile_words)), method == "pull"));
    node::upload(reinterpret_cast<_Float16*>(input.back()), x);
    output.push_back(n.allocate<halves>(g, std::size_t(std::max<std::int64_t>(count, tile_words))));
  }
  double us = 0;
  if (method == "pull") {
    std::vector<pull_arguments> a(static_cast<std::size_t>(gpus));
    for (int g = 0; g < gpus; ++g) {
      auto* const flags = n.allocate<pull_flags>(g, 1, true);
      auto* const part = n.allocate<halves>(g, std::size_t(count / gpus), true);
      for (auto& of : a) {
        of.input[g] = input[std::size_t(g)];
        of.part[g] = part;
        of.flags[g] = flags;
      }
      a[std::size_t(g)].output = output[std::size_t(g)];
      a[std::size_t(g)].rank = g;
      a[std::size_t(g)].gpus = gpus;
      a[std::size_t(g)].count = count;
    }
    int const blocks = int(std::min<std::int64_t>(pull_blocks, (count + pull_threads - 1) / pull_threads));
    bool const one_stage = gpus == 2 || bytes < (gpus == 4 ? 512 : 256) << 10;
    us = n.time(warm_ups, launches, [&](int g, hipStream_t stream, int i) {
      unsigned const turn = unsigned(i) * 4 + 1;
      for_gpus(gpus, [&](auto w) {
        if (one_stage) pull_one_stage<w()><<<blocks, pull_threads, 0, stream>>>(a[std::size_t(g)], turn);
        else pull_two_stage<w()><<<blocks, pull_threads, 0, stream>>>(a[std::size_t(g)], turn);
      });
    });
  } else if (method == "counter") {
    std::vector<counter_arguments> a(static_cast<std::size_t>(gpus) * 2);  // of even launches, of odd ones
    unsigned* counter = nullptr;
    check(hipHostMalloc(reinterpret_cast<void**>(&counter), sizeof *counter, hipHostMallocPortable), "hipHostMalloc");
    *counter = 0;
    for (int g = 0; g < gpus; ++g) {
      auto* const second = n.allocate<halves>(g, std::size_t(count));
      check(hipMemcpy(second, input[std::size_t(g)], std::size_t(bytes), hipMemcpyDeviceToDevice), "hipMemcpy");
      for (std::size_t i = 0; i < a.size(); ++i) a[i].input[g] = i % 2 ? second : input[std::size_t(g)];
      for (std::size_t i = std::size_t(g) * 2; i < std::size_t(g) * 2 + 2; ++i)
        a[i].output = output[std::size_t(g)], a[i].counter = counter, a[i].count = count;
    }
    us = n.time(warm_ups, launches, [&](int g, hipStream_t stream, int i) {
      for_gpus(gpus, [&](auto w) {
        counter_one_stage<w()><<<1, pull_threads, 0, stream>>>(a[std::size_t(g * 2 + i % 2)], unsigned(i) + 1);
      });
    });
  } else {
    int const tiles = int((count + tile_words - 1) / tile_words), blocks = std::min(tiles, push_blocks);
    std::vector<push_arguments> a(static_cast<std::size_t>(gpus));
    for (int g = 0; g < gpus; ++g) {
      auto* const inbox = n.allocate<halves>(g, std::size_t(2) * std::size_t(blocks) * tile_words, true);
      auto* const flags = n.allocate<unsigned>(g, std::size_t(2 * blocks * gpus), true);
      for (auto& of : a) {
        of.inbox[g] = inbox;
        of.flag[g] = flags;
      }
      a[std::size_t(g)].input = input[std::size_t(g)];
      a[std::size_t(g)].output = output[std::size_t(g)];
      a[std::size_t(g)].rank = g;
      a[std::size_t(g)].tiles = tiles;
    }
    unsigned const turns = unsigned((tiles + blocks - 1) / blocks);
    us = n.time(warm_ups, launches, [&](int g, hipStream_t stream, int i) {
      for_gpus(gpus, [&](auto w) {
        push_two_shot<w()><<<blocks, push_threads, 0, stream>>>(a[std::size_t(g)], unsigned(i) * turns + 1);
      });
    });
  }
  bool right = true;
  for (int g = 0; g < gpus; ++g) {
    auto const got = node::download(reinterpret_cast<_Float16 const*>(output[std::size_t(g)]), std::size_t(count) * 8);
    for (std::size_t i = 0; i < got.size(); ++i) {
      int want = 0;
      for (int r = 0; r < gpus; ++r) want += small_number(i + std::size_t(r) * 977);
      right &= float(got[i]) == float(want);
    }
  }
  return report(us, right);
}
