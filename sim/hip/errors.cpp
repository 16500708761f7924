#include "hip/runtime.hpp"

using namespace fusewire::sim;

namespace {

struct entry {
  hipError_t code;
  char const *name, *text;
};

constexpr entry entries[] = {
#define ENTRY(code, text) {code, #code, text}
    ENTRY(hipSuccess, "no error"),
    ENTRY(hipErrorInvalidValue, "invalid argument"),
    ENTRY(hipErrorOutOfMemory, "out of memory"),
    ENTRY(hipErrorNotInitialized, "initialization error"),
    ENTRY(hipErrorInvalidConfiguration, "invalid configuration argument"),
    ENTRY(hipErrorInvalidSymbol, "invalid device symbol"),
    ENTRY(hipErrorMissingConfiguration, "__global__ function call is not configured"),
    ENTRY(hipErrorInvalidDeviceFunction, "invalid device function"),
    ENTRY(hipErrorNoDevice, "no ROCm-capable device is detected"),
    ENTRY(hipErrorInvalidDevice, "invalid device ordinal"),
    ENTRY(hipErrorInvalidImage, "device kernel image is invalid"),
    ENTRY(hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device"),
    ENTRY(hipErrorUnsupportedLimit, "limit is not supported on this architecture"),
    ENTRY(hipErrorFileNotFound, "file not found"),
    ENTRY(hipErrorInvalidHandle, "invalid resource handle"),
    ENTRY(hipErrorIllegalState, "the operation cannot be performed in the present state"),
    ENTRY(hipErrorNotFound, "named symbol not found"),
    ENTRY(hipErrorNotReady, "device not ready"),
    ENTRY(hipErrorLaunchOutOfResources, "out of resources"),
    ENTRY(hipErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ENTRY(hipErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ENTRY(hipErrorContextIsDestroyed, "context is destroyed"),
    ENTRY(hipErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ENTRY(hipErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ENTRY(hipErrorLaunchFailure, "unspecified launch failure"),
    ENTRY(hipErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    ENTRY(hipErrorNotSupported, "operation not supported"),
    ENTRY(hipErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ENTRY(hipErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ENTRY(hipErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    ENTRY(hipErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ENTRY(hipErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ENTRY(hipErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ENTRY(hipErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ENTRY(hipErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    ENTRY(hipErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"),
    ENTRY(hipErrorGraphExecUpdateFailure, "the graph update was not performed because it included changes which "
                                          "violated constraints specific to instantiated graph update"),
    ENTRY(hipErrorUnknown, "unknown error"),
#undef ENTRY
};

entry const& find(hipError_t e) {
  for (entry const& x : entries)
    if (x.code == e) return x;
  return entries[std::size(entries) - 1];
}

}  // namespace

extern "C" {

char const* hipGetErrorName(hipError_t e) { return find(e).name; }
char const* hipGetErrorString(hipError_t e) { return find(e).text; }
hipError_t hipDrvGetErrorName(hipError_t e, char const** s) {
  return s ? (*s = find(e).name, hipSuccess) : hipErrorInvalidValue;
}
hipError_t hipDrvGetErrorString(hipError_t e, char const** s) {
  return s ? (*s = find(e).text, hipSuccess) : hipErrorInvalidValue;
}
hipError_t hipPeekAtLastError() { return this_thread().error; }
hipError_t hipGetLastError() { return std::exchange(this_thread().error, hipSuccess); }
hipError_t hipExtGetLastError() { return hipGetLastError(); }

}  // extern "C"
