// Questions about kernels: attributes and occupancy.
#include <algorithm>

#include "hip/runtime.hpp"

using namespace fusewire::sim;

namespace {

kernel const* kernel_at(runtime& r, void const* stub) {
  function const* f = r.modules().find_function(stub);
  return f ? r.modules().kernel_of(*f, this_thread().device) : nullptr;
}
kernel const* kernel_at(runtime& r, hipFunction_t f) {
  return f ? r.modules().kernel_of(*reinterpret_cast<function const*>(f), this_thread().device) : nullptr;
}

int registers(kernel const& k) { return k.vgprs + k.agprs; }

template <class Handle>
hipError_t active_blocks(int* blocks, Handle f, int threads, size_t lds, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!blocks) return hipErrorInvalidValue;
        kernel const* k = kernel_at(r, f);
        if (!k) return hipErrorInvalidDeviceFunction;
        if (threads <= 0 || threads > k->max_threads) return *blocks = 0, hipErrorInvalidValue;
        *blocks = lds > lds_per_cu
                      ? 0
                      : static_cast<int>(groups_per_cu(*k, static_cast<u32>(threads),
                                                       static_cast<u32>(static_cast<size_t>(k->lds) + lds)));
        return hipSuccess;
      },
      call);
}

/// The block size with the most threads per CU; of equal ones the largest.
template <class Handle>
hipError_t best_block(int* grid, int* block, Handle f, size_t lds, int limit, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!grid || !block) return hipErrorInvalidValue;
        kernel const* k = kernel_at(r, f);
        if (!k) return hipErrorInvalidDeviceFunction;
        int best = 0, groups = 0;
        int const most = std::min(limit > 0 ? limit : 1024, k->max_threads);
        for (int threads = lanes; threads <= most; threads += lanes) {
          int const n = static_cast<int>(
              groups_per_cu(*k, static_cast<u32>(threads), static_cast<u32>(static_cast<size_t>(k->lds) + lds)));
          if (n && n * threads >= best * groups) best = threads, groups = n;
        }
        *block = best, *grid = groups * r.machine().settings.cus;
        return best ? hipSuccess : hipErrorLaunchOutOfResources;
      },
      call);
}

}  // namespace

extern "C" {

hipError_t hipFuncGetAttributes(hipFuncAttributes* a, void const* stub) {
  return api([&](runtime& r, lock&) {
    if (!a) return hipErrorInvalidValue;
    kernel const* k = kernel_at(r, stub);
    if (!k) return hipErrorInvalidDeviceFunction;
    *a = {};
    a->binaryVersion = a->ptxVersion = 94;
    a->numRegs = registers(*k);
    a->sharedSizeBytes = static_cast<size_t>(k->lds);
    a->localSizeBytes = static_cast<size_t>(k->scratch);
    a->maxDynamicSharedSizeBytes = static_cast<int>(lds_per_cu) - k->lds;
    a->maxThreadsPerBlock = k->max_threads;
    return hipSuccess;
  });
}

hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute a, hipFunction_t f) {
  return api([&](runtime& r, lock&) {
    kernel const* k = kernel_at(r, f);
    if (!value) return hipErrorInvalidValue;
    if (!k) return hipErrorInvalidDeviceFunction;
    switch (a) {
      case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = k->max_threads; break;
      case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = k->lds; break;
      case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = k->scratch; break;
      case HIP_FUNC_ATTRIBUTE_NUM_REGS: *value = registers(*k); break;
      case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = static_cast<int>(lds_per_cu) - k->lds; break;
      default: return hipErrorInvalidValue;
    }
    return hipSuccess;
  });
}

hipError_t hipFuncSetAttribute(void const* stub, hipFuncAttribute a, int value) {
  return api([&](runtime& r, lock&) {
    if (!r.modules().find_function(stub)) return hipErrorInvalidDeviceFunction;
    return a == hipFuncAttributeMaxDynamicSharedMemorySize && (value < 0 || value > static_cast<int>(lds_per_cu))
               ? hipErrorInvalidValue
               : hipSuccess;
  });
}

hipError_t hipFuncSetCacheConfig(void const*, hipFuncCache_t) { return hipSuccess; }
hipError_t hipFuncSetSharedMemConfig(void const*, hipSharedMemConfig) { return hipSuccess; }

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const* f, int threads, size_t lds) {
  return active_blocks(blocks, f, threads, lds);
}
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void const* f, int threads, size_t lds,
                                                                 unsigned) {
  return active_blocks(blocks, f, threads, lds);
}
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t f, int threads, size_t lds) {
  return active_blocks(blocks, f, threads, lds);
}
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, hipFunction_t f, int threads,
                                                                       size_t lds, unsigned) {
  return active_blocks(blocks, f, threads, lds);
}
hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, void const* f, size_t lds, int limit) {
  return best_block(grid, block, f, lds, limit);
}
hipError_t hipModuleOccupancyMaxPotentialBlockSize(int* grid, int* block, hipFunction_t f, size_t lds, int limit) {
  return best_block(grid, block, f, lds, limit);
}

char const* hipKernelNameRefByPtr(void const* stub, hipStream_t) {
  runtime& r = runtime::get();
  lock l = r.enter();
  function const* f = r.modules().find_function(stub);
  return f ? f->name.c_str() : nullptr;
}

}  // extern "C"
