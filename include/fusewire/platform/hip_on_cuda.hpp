// HIP's runtime API on CUDA: functions, types and constants in a namespace, no macros.
// It has the names that fusewire, its tests and examples use; other HIP names are left to the user.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

namespace fusewire::hip {

using hipError_t = cudaError_t;
using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
using hipGraph_t = cudaGraph_t;
using hipGraphExec_t = cudaGraphExec_t;
using hipGraphNode_t = cudaGraphNode_t;
using hipGraphNodeType = cudaGraphNodeType;
using hipDeviceProp_t = cudaDeviceProp;
using hipPointerAttribute_t = cudaPointerAttributes;
using hipFuncAttributes = cudaFuncAttributes;
using hipHostFn_t = cudaHostFn_t;
using hipMemcpyKind = cudaMemcpyKind;
using hipStreamCaptureMode = cudaStreamCaptureMode;
using hipStreamCaptureStatus = cudaStreamCaptureStatus;
using hipDeviceAttribute_t = cudaDeviceAttr;
using hipIpcMemHandle_t = cudaIpcMemHandle_t;

inline constexpr auto hipSuccess = cudaSuccess;
inline constexpr auto hipErrorInvalidValue = cudaErrorInvalidValue;
inline constexpr auto hipErrorNotSupported = cudaErrorNotSupported;
inline constexpr auto hipErrorNotReady = cudaErrorNotReady;
inline constexpr auto hipErrorOutOfMemory = cudaErrorMemoryAllocation;
inline constexpr auto hipErrorPeerAccessAlreadyEnabled = cudaErrorPeerAccessAlreadyEnabled;
inline constexpr auto hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr auto hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr auto hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
inline constexpr auto hipMemcpyDefault = cudaMemcpyDefault;
inline constexpr unsigned hipIpcMemLazyEnablePeerAccess = cudaIpcMemLazyEnablePeerAccess;
inline constexpr unsigned hipStreamNonBlocking = cudaStreamNonBlocking;
inline constexpr unsigned hipEventDisableTiming = cudaEventDisableTiming;
inline constexpr unsigned hipHostMallocDefault = cudaHostAllocDefault;
inline constexpr unsigned hipHostMallocMapped = cudaHostAllocMapped;
inline constexpr unsigned hipHostMallocCoherent = 0;  // all host memory is coherent
inline constexpr auto hipStreamCaptureModeGlobal = cudaStreamCaptureModeGlobal;
inline constexpr auto hipStreamCaptureModeThreadLocal = cudaStreamCaptureModeThreadLocal;
inline constexpr auto hipStreamCaptureModeRelaxed = cudaStreamCaptureModeRelaxed;
inline constexpr auto hipStreamCaptureStatusNone = cudaStreamCaptureStatusNone;
inline constexpr auto hipErrorStreamCaptureImplicit = cudaErrorStreamCaptureImplicit;
inline constexpr auto hipGraphNodeTypeKernel = cudaGraphNodeTypeKernel;
inline constexpr auto hipDeviceAttributeMultiprocessorCount = cudaDevAttrMultiProcessorCount;

inline hipError_t hipGetDeviceCount(int* n) { return cudaGetDeviceCount(n); }
inline hipError_t hipSetDevice(int d) { return cudaSetDevice(d); }
inline hipError_t hipGetDevice(int* d) { return cudaGetDevice(d); }
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* p, int d) { return cudaGetDeviceProperties(p, d); }
inline hipError_t hipDeviceGetAttribute(int* v, hipDeviceAttribute_t a, int d) {
  return cudaDeviceGetAttribute(v, a, d);
}
inline hipError_t hipDeviceGetPCIBusId(char* bus, int n, int d) { return cudaDeviceGetPCIBusId(bus, n, d); }
inline hipError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }
inline hipError_t hipDeviceCanAccessPeer(int* can, int d, int peer) { return cudaDeviceCanAccessPeer(can, d, peer); }
inline hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return cudaDeviceEnablePeerAccess(peer, flags);
}
inline hipError_t hipGetLastError() { return cudaGetLastError(); }
inline hipError_t hipPeekAtLastError() { return cudaPeekAtLastError(); }
inline char const* hipGetErrorName(hipError_t e) { return cudaGetErrorName(e); }
inline char const* hipGetErrorString(hipError_t e) { return cudaGetErrorString(e); }
inline hipError_t hipRuntimeGetVersion(int* v) { return cudaRuntimeGetVersion(v); }
inline hipError_t hipDriverGetVersion(int* v) { return cudaDriverGetVersion(v); }

template <class T>
hipError_t hipMalloc(T** p, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(p), bytes);
}
inline hipError_t hipFree(void* p) { return cudaFree(p); }
inline hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* h, void* p) { return cudaIpcGetMemHandle(h, p); }
inline hipError_t hipIpcOpenMemHandle(void** p, hipIpcMemHandle_t h, unsigned flags) {
  return cudaIpcOpenMemHandle(p, h, flags);
}
inline hipError_t hipIpcCloseMemHandle(void* p) { return cudaIpcCloseMemHandle(p); }
template <class T>
hipError_t hipHostMalloc(T** p, std::size_t bytes, unsigned flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void**>(p), bytes, flags);
}
inline hipError_t hipHostFree(void* p) { return cudaFreeHost(p); }
inline hipError_t hipMemcpy(void* to, void const* from, std::size_t n, hipMemcpyKind k) {
  return cudaMemcpy(to, from, n, k);
}
inline hipError_t hipMemcpyAsync(void* to, void const* from, std::size_t n, hipMemcpyKind k, hipStream_t s) {
  return cudaMemcpyAsync(to, from, n, k, s);
}
inline hipError_t hipMemcpy2DAsync(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                                   std::size_t width, std::size_t height, hipMemcpyKind k, hipStream_t s) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, k, s);
}
inline hipError_t hipMemset(void* p, int v, std::size_t n) { return cudaMemset(p, v, n); }
inline hipError_t hipMemsetAsync(void* p, int v, std::size_t n, hipStream_t s) { return cudaMemsetAsync(p, v, n, s); }
inline hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total) { return cudaMemGetInfo(free, total); }
inline hipError_t hipPointerGetAttributes(hipPointerAttribute_t* a, void const* p) {
  return cudaPointerGetAttributes(a, p);
}

inline hipError_t hipStreamCreate(hipStream_t* s) { return cudaStreamCreate(s); }
inline hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned f) { return cudaStreamCreateWithFlags(s, f); }
inline hipError_t hipStreamDestroy(hipStream_t s) { return cudaStreamDestroy(s); }
inline hipError_t hipStreamSynchronize(hipStream_t s) { return cudaStreamSynchronize(s); }
inline hipError_t hipStreamQuery(hipStream_t s) { return cudaStreamQuery(s); }
inline hipError_t hipStreamWaitEvent(hipStream_t s, hipEvent_t e, unsigned f = 0) {
  return cudaStreamWaitEvent(s, e, f);
}
inline hipError_t hipStreamBeginCapture(hipStream_t s, hipStreamCaptureMode m) { return cudaStreamBeginCapture(s, m); }
inline hipError_t hipStreamEndCapture(hipStream_t s, hipGraph_t* g) { return cudaStreamEndCapture(s, g); }
inline hipError_t hipStreamIsCapturing(hipStream_t s, hipStreamCaptureStatus* st) {
  return cudaStreamIsCapturing(s, st);
}
inline hipError_t hipStreamGetCaptureInfo(hipStream_t s, hipStreamCaptureStatus* st, unsigned long long* id) {
  return cudaStreamGetCaptureInfo(s, st, id);
}
inline hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* m) {
  return cudaThreadExchangeStreamCaptureMode(m);
}
inline hipError_t hipLaunchHostFunc(hipStream_t s, hipHostFn_t f, void* p) { return cudaLaunchHostFunc(s, f, p); }

inline hipError_t hipEventCreate(hipEvent_t* e) { return cudaEventCreate(e); }
inline hipError_t hipEventCreateWithFlags(hipEvent_t* e, unsigned f) { return cudaEventCreateWithFlags(e, f); }
inline hipError_t hipEventDestroy(hipEvent_t e) { return cudaEventDestroy(e); }
inline hipError_t hipEventRecord(hipEvent_t e, hipStream_t s) { return cudaEventRecord(e, s); }
inline hipError_t hipEventSynchronize(hipEvent_t e) { return cudaEventSynchronize(e); }
inline hipError_t hipEventQuery(hipEvent_t e) { return cudaEventQuery(e); }
inline hipError_t hipEventElapsedTime(float* ms, hipEvent_t a, hipEvent_t b) { return cudaEventElapsedTime(ms, a, b); }

inline hipError_t hipGraphInstantiate(hipGraphExec_t* e, hipGraph_t g, hipGraphNode_t*, char*, std::size_t) {
  return cudaGraphInstantiate(e, g, 0);
}
inline hipError_t hipGraphLaunch(hipGraphExec_t e, hipStream_t s) { return cudaGraphLaunch(e, s); }
inline hipError_t hipGraphExecDestroy(hipGraphExec_t e) { return cudaGraphExecDestroy(e); }
inline hipError_t hipGraphDestroy(hipGraph_t g) { return cudaGraphDestroy(g); }
inline hipError_t hipGraphGetNodes(hipGraph_t g, hipGraphNode_t* nodes, std::size_t* n) {
  return cudaGraphGetNodes(g, nodes, n);
}
inline hipError_t hipGraphNodeGetType(hipGraphNode_t n, hipGraphNodeType* t) { return cudaGraphNodeGetType(n, t); }

inline hipError_t hipFuncGetAttributes(hipFuncAttributes* a, void const* f) { return cudaFuncGetAttributes(a, f); }
inline hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void const* f, int threads, std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, shared);
}
inline hipError_t hipLaunchKernel(void const* f, dim3 grid, dim3 block, void** args, std::size_t shared,
                                  hipStream_t s) {
  return cudaLaunchKernel(f, grid, block, args, shared, s);
}

}  // namespace fusewire::hip
