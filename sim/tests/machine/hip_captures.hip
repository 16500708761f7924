// What HIP refuses while a stream captures, call by call. Run under fusewire-sim with --gpus 2.
#include "check.hpp"

#include <functional>
#include <string>
#include <thread>
#include <vector>

__device__ int variable;
__global__ void increment(int* p) { *p += 1; }

constexpr hipStreamCaptureMode modes[] = {hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal,
                                          hipStreamCaptureModeRelaxed};

hipStream_t stream() {
  hipStream_t s;
  HIP(hipStreamCreateWithFlags(&s, hipStreamNonBlocking));
  return s;
}
hipEvent_t event() {
  hipEvent_t e;
  HIP(hipEventCreateWithFlags(&e, hipEventDisableTiming));
  return e;
}

/// Memory and handles that the calls use. Made before a capture begins.
struct things {
  int *device, *other, *host;
  int ordinary[16] = {};
  hipStream_t idle = stream();
  hipEvent_t recorded = event();
  things() {
    HIP(hipMalloc(&device, 64));
    HIP(hipMalloc(&other, 64));
    HIP(hipHostMalloc(&host, 64, 0));
    HIP(hipEventRecord(recorded, idle));
    HIP(hipStreamSynchronize(idle));
  }
};

using call = std::function<hipError_t(things&)>;
struct named {
  char const* name;
  call make;
};

template <class F>
named all(char const* name, F f) {
  return {name, f};
}
#define CALL(...)                   \
  all(#__VA_ARGS__, [](things& t) { \
    (void)t;                        \
    return __VA_ARGS__;             \
  })

void* taken;
std::size_t pitch;
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
hipError_t malloc_host() { return hipMallocHost(&taken, 64); }
#pragma clang diagnostic pop

std::vector<named> const allocating = {CALL(hipMalloc(&taken, 64)),
                                       CALL(hipExtMallocWithFlags(&taken, 64, hipDeviceMallocUncached)),
                                       CALL(hipMallocPitch(&taken, &pitch, 4, 4)),
                                       CALL(hipHostMalloc(&taken, 64, 0)),
                                       CALL(hipHostAlloc(&taken, 64, 0)),
                                       all("hipMallocHost", [](things&) { return malloc_host(); }),
                                       CALL(hipMallocManaged(&taken, 64, 1)),
                                       CALL(hipFree(t.other)),
                                       CALL(hipFree(nullptr)),
                                       CALL(hipHostFree(t.host)),
                                       CALL(hipFreeHost(t.host)),
                                       all("hipHostRegister",
                                           [](things& t) {
                                             hipError_t const e = hipHostRegister(t.ordinary, sizeof t.ordinary, 0);
                                             if (e == hipSuccess) HIP(hipHostUnregister(t.ordinary));
                                             return e;
                                           }),
                                       all("hipHostUnregister", [](things& t) {
                                         hipError_t const e = hipHostUnregister(t.ordinary);
                                         return e == hipErrorHostMemoryNotRegistered ? hipSuccess : e;
                                       })};

std::vector<named> const copying = {CALL(hipMemcpy(t.device, t.ordinary, 4, hipMemcpyHostToDevice)),
                                    CALL(hipMemcpy(t.device, t.ordinary, 0, hipMemcpyHostToDevice)),
                                    CALL(hipMemcpyHtoD(t.device, t.ordinary, 4)),
                                    CALL(hipMemcpyDtoH(t.ordinary, t.device, 4)),
                                    CALL(hipMemcpyDtoD(t.other, t.device, 4)),
                                    CALL(hipMemcpyPeer(t.other, 0, t.device, 0, 4)),
                                    CALL(hipMemcpy2D(t.device, 4, t.ordinary, 4, 4, 1, hipMemcpyHostToDevice)),
                                    CALL(hipMemcpyToSymbol(HIP_SYMBOL(variable), t.ordinary, 4)),
                                    CALL(hipMemcpyFromSymbol(t.ordinary, HIP_SYMBOL(variable), 4)),
                                    CALL(hipMemset(t.device, 0, 4)),
                                    CALL(hipMemset(t.device, 0, 0)),
                                    CALL(hipMemsetD8(t.device, 0, 4)),
                                    CALL(hipMemsetD16(t.device, 0, 2)),
                                    CALL(hipMemsetD32(t.device, 0, 1)),
                                    CALL(hipMemset2D(t.device, 4, 0, 4, 1))};

std::vector<named> const device_waiting = {CALL(hipDeviceSynchronize())};

std::vector<named> const stream_waiting = {CALL(hipStreamSynchronize(t.idle)),
                                           CALL(hipStreamQuery(t.idle)),
                                           CALL(hipStreamSynchronize(hipStreamPerThread)),
                                           CALL(hipEventSynchronize(t.recorded)),
                                           CALL(hipEventQuery(t.recorded)),
                                           CALL(hipMemcpyWithStream(t.device, t.host, 4, hipMemcpyDefault, t.idle))};

std::vector<named> const configuring = {CALL(hipDeviceSetCacheConfig(hipFuncCachePreferNone)),
                                        CALL(hipDeviceSetSharedMemConfig(hipSharedMemBankSizeDefault))};

/// Calls that HIP makes in any capture.
std::vector<named> const harmless = {
    CALL(hipMemcpyAsync(t.device, t.host, 4, hipMemcpyDefault, t.idle)), CALL(hipMemsetAsync(t.device, 0, 4, t.idle)),
    CALL(hipEventRecord(t.recorded, t.idle)), CALL(hipGetLastError()), all("a kernel on another stream", [](things& t) {
      increment<<<1, 1, 0, t.idle>>>(t.device);
      return hipGetLastError();
    })};

/// Captures a kernel in the mode and makes the call, here or on another thread.
void expect(named const& c, hipStreamCaptureMode mode, bool here, hipError_t want, bool survives,
            hipStreamCaptureMode of_thread = hipStreamCaptureModeGlobal) {
  things t;
  hipStream_t const s = stream();
  HIP(hipStreamBeginCapture(s, mode));
  increment<<<1, 1, 0, s>>>(t.device);
  HIP(hipGetLastError());
  hipError_t got = hipSuccess;
  auto const make = [&] {
    HIP(hipThreadExchangeStreamCaptureMode(&of_thread));
    got = c.make(t);
    HIP(hipThreadExchangeStreamCaptureMode(&of_thread));
  };
  if (here) make();
  else std::thread(make).join();
  hipGraph_t g = nullptr;
  hipError_t const end = hipStreamEndCapture(s, &g);
  if (got != want || (end == hipSuccess) != survives || (g != nullptr) != survives ||
      (!survives && end != hipErrorStreamCaptureInvalidated)) {
    std::printf("%s in mode %d, %s, thread mode %d: %s, then %s\n", c.name, int(mode), here ? "here" : "elsewhere",
                int(of_thread), hipGetErrorName(got), hipGetErrorName(end));
    std::exit(1);
  }
  (void)hipGetLastError();
  HIP(hipStreamDestroy(s));
}

/// By thread: what a call gets beside a capture in modes global, thread-local and relaxed.
void rules() {
  constexpr hipError_t unsupported = hipErrorStreamCaptureUnsupported, implicit = hipErrorStreamCaptureImplicit;
  struct {
    std::vector<named> const& calls;
    hipError_t here[3], elsewhere[3];
    bool survives;
  } const table[] = {
      {allocating, {unsupported, unsupported, hipSuccess}, {unsupported, hipSuccess, hipSuccess}, false},
      {copying, {implicit, implicit, implicit}, {implicit, implicit, implicit}, false},
      {device_waiting, {unsupported, unsupported, unsupported}, {unsupported, unsupported, unsupported}, false},
      {stream_waiting, {unsupported, unsupported, hipSuccess}, {unsupported, hipSuccess, hipSuccess}, false},
      {configuring, {unsupported, unsupported, hipSuccess}, {unsupported, hipSuccess, hipSuccess}, true},
      {harmless, {hipSuccess, hipSuccess, hipSuccess}, {hipSuccess, hipSuccess, hipSuccess}, true}};
  for (auto const& row : table)
    for (named const& c : row.calls)
      for (int m = 0; m < 3; ++m) {
        expect(c, modes[m], true, row.here[m], row.here[m] == hipSuccess || row.survives);
        expect(c, modes[m], false, row.elsewhere[m], row.elsewhere[m] == hipSuccess || row.survives);
      }
  auto const global = hipStreamCaptureModeGlobal, local = hipStreamCaptureModeThreadLocal,
             relaxed = hipStreamCaptureModeRelaxed;
  for (named const& c : allocating) {  // a thread may say that it knows what it does
    expect(c, global, true, hipSuccess, true, relaxed);
    expect(c, global, false, hipSuccess, true, local);
    expect(c, global, true, unsupported, false, local);
  }
  for (named const& c : stream_waiting) {
    expect(c, global, true, hipSuccess, true, relaxed);
    expect(c, global, false, unsupported, false, local);
  }
  for (named const& c : copying) expect(c, local, false, implicit, false, relaxed);
  for (named const& c : device_waiting) expect(c, local, false, unsupported, false, relaxed);
}

hipGraph_t graph;
/// Ends the capture of the stream, and checks the answer.
void ends(hipStream_t s, hipError_t want) {
  CHECK_ERROR(hipStreamEndCapture(s, &graph), want);
  CHECK((graph != nullptr) == (want == hipSuccess));
}

/// What the capturing stream itself, and its events, may not do.
void the_stream() {
  things t;
  hipStream_t forked = stream();
  hipEvent_t e = event();
  hipGraphExec_t empty;
  HIP(hipGraphCreate(&graph, 0));
  HIP(hipGraphInstantiate(&empty, graph, nullptr, nullptr, 0));
  for (auto const mode : modes) {
    struct {
      std::function<hipError_t(hipStream_t)> call;
      hipError_t want;
    } const cases[] = {
        {[&](hipStream_t s) { return hipStreamSynchronize(s); }, hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipStreamQuery(s); }, hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t) { return hipEventQuery(e); }, hipErrorCapturedEvent},
        {[&](hipStream_t) { return hipEventSynchronize(e); }, hipErrorCapturedEvent},
        {[&](hipStream_t s) { return hipGraphLaunch(empty, s); }, hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipMallocAsync(&taken, 4, s); }, hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipFreeAsync(t.other, s); }, hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipMemcpyPeerAsync(t.other, 0, t.device, 0, 4, s); },
         hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipMemcpyWithStream(t.other, t.device, 4, hipMemcpyDefault, s); },
         hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipStreamAddCallback(s, [](hipStream_t, hipError_t, void*) {}, nullptr, 0); },
         hipErrorStreamCaptureUnsupported},
        {[&](hipStream_t s) { return hipStreamWaitEvent(s, t.recorded, 0); }, hipErrorStreamCaptureIsolation}};
    for (auto const& c : cases) {
      hipStream_t const s = stream();
      HIP(hipStreamBeginCapture(s, mode));
      CHECK_ERROR(hipStreamBeginCapture(s, mode), hipErrorIllegalState);
      HIP(hipEventRecord(e, s));
      CHECK_ERROR(c.call(s), c.want);
      increment<<<1, 1, 0, s>>>(t.device);
      CHECK_ERROR(hipGetLastError(), hipErrorStreamCaptureInvalidated);
      CHECK_ERROR(hipEventRecord(e, s), hipErrorStreamCaptureInvalidated);
      CHECK_ERROR(hipStreamWaitEvent(forked, e, 0), hipErrorStreamCaptureInvalidated);
      ends(s, hipErrorStreamCaptureInvalidated);
      HIP(hipEventQuery(e));  // of no capture any more
      HIP(hipStreamDestroy(s));
    }
  }
}

/// Who may end a capture, and what a capture leaves behind that failed.
void ending() {
  things t;
  hipStream_t const s = stream(), forked = stream();
  hipEvent_t const fork = event(), join = event();
  hipStreamCaptureStatus status;
  CHECK_ERROR(hipStreamEndCapture(nullptr, &graph), hipErrorIllegalState);
  CHECK_ERROR(hipStreamEndCapture(s, nullptr), hipErrorInvalidValue);
  ends(s, hipErrorIllegalState);
  CHECK_ERROR(hipStreamBeginCapture(s, hipStreamCaptureMode(3)), hipErrorInvalidValue);
  for (auto const mode : modes) {
    HIP(hipStreamBeginCapture(s, mode));
    std::thread([&] {
      CHECK_ERROR(hipStreamEndCapture(s, &graph),
                  mode == hipStreamCaptureModeRelaxed ? hipSuccess : hipErrorStreamCaptureWrongThread);
    }).join();
    ends(s, mode == hipStreamCaptureModeRelaxed ? hipErrorIllegalState : hipSuccess);
  }
  auto const begin = [&] {
    HIP(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal));
    HIP(hipEventRecord(fork, s));
    HIP(hipStreamWaitEvent(forked, fork, 0));
    increment<<<1, 1, 0, forked>>>(t.device);
  };
  begin();
  CHECK_ERROR(hipStreamEndCapture(forked, &graph), hipErrorStreamCaptureUnmatched);
  ends(s, hipErrorStreamCaptureUnjoined);
  for (hipStream_t const spoiled : {s, forked}) {  // until they capture again
    HIP(hipStreamIsCapturing(spoiled, &status));
    CHECK(status == hipStreamCaptureStatusInvalidated);
    increment<<<1, 1, 0, spoiled>>>(t.device);
    CHECK_ERROR(hipGetLastError(), hipErrorStreamCaptureInvalidated);
    CHECK_ERROR(hipStreamSynchronize(spoiled), hipErrorStreamCaptureUnsupported);
    CHECK_ERROR(hipMemcpyAsync(t.device, t.host, 4, hipMemcpyDefault, spoiled), hipErrorStreamCaptureInvalidated);
  }
  begin();
  HIP(hipEventRecord(join, forked));
  HIP(hipStreamWaitEvent(s, join, 0));
  ends(s, hipSuccess);
  (void)hipGetLastError();
  for (hipStream_t const well : {s, forked}) {
    increment<<<1, 1, 0, well>>>(t.device);
    HIP(hipGetLastError());
    HIP(hipStreamSynchronize(well));
  }
  begin();
  HIP(hipStreamDestroy(forked));  // what it has captured stays, joined to nothing
  ends(s, hipErrorStreamCaptureUnjoined);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  HIP(hipStreamDestroy(s));
  ends(s, hipErrorContextIsDestroyed);
  HIP(hipMalloc(&taken, 4));  // no capture is left
}

/// Events between captures and what is outside of them, and the default stream.
void outside() {
  things t;
  hipStream_t s = stream(), other = stream(), blocking;
  HIP(hipStreamCreate(&blocking));
  hipEvent_t const before = event(), inside = event();
  hipStreamCaptureStatus status;
  HIP(hipEventRecord(before, s));
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal));
  CHECK_ERROR(hipStreamWaitEvent(other, before, 0), hipErrorStreamCaptureIsolation);
  HIP(hipEventRecord(inside, s));
  CHECK_ERROR(hipStreamWaitEvent(nullptr, inside, 0), hipErrorInvalidHandle);
  CHECK_ERROR(hipStreamWaitEvent(s, inside, hipEventWaitExternal), hipErrorNotSupported);
  CHECK_ERROR(hipStreamWaitEvent(other, inside, hipEventWaitExternal), hipErrorInvalidHandle);
  CHECK_ERROR(hipStreamWaitEvent(other, inside, 2), hipErrorInvalidValue);
  CHECK_ERROR(hipEventRecordWithFlags(inside, s, hipEventRecordExternal), hipErrorNotSupported);
  CHECK_ERROR(hipEventRecordWithFlags(inside, s, 2), hipErrorInvalidValue);
  HIP(hipStreamIsCapturing(nullptr, &status));
  CHECK(status == hipStreamCaptureStatusNone);
  HIP(hipMallocAsync(&taken, 4, other));
  ends(s, hipSuccess);

  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
  HIP(hipStreamBeginCapture(other, hipStreamCaptureModeRelaxed));
  HIP(hipEventRecord(inside, s));
  CHECK_ERROR(hipStreamWaitEvent(other, inside, 0), hipErrorStreamCaptureMerge);
  ends(s, hipErrorStreamCaptureInvalidated);
  ends(other, hipErrorStreamCaptureInvalidated);

  HIP(hipStreamBeginCapture(blocking, hipStreamCaptureModeThreadLocal));
  CHECK_ERROR(hipStreamIsCapturing(nullptr, &status), hipErrorStreamCaptureImplicit);
  CHECK_ERROR(hipStreamGetCaptureInfo(nullptr, &status, nullptr), hipErrorStreamCaptureImplicit);
  CHECK_ERROR(hipMallocAsync(&taken, 4, t.idle), hipErrorStreamCaptureUnsupported);
  CHECK_ERROR(hipFreeAsync(t.other, t.idle), hipErrorStreamCaptureUnsupported);
  ends(blocking, hipSuccess);
  std::function<void()> const on_default[] = {
      [&] { increment<<<1, 1>>>(t.device); },
      [&] {
        CHECK_ERROR(hipMemcpyAsync(t.device, t.host, 4, hipMemcpyDefault, nullptr), hipErrorStreamCaptureImplicit);
      },
      [&] { CHECK_ERROR(hipEventRecord(before, nullptr), hipErrorStreamCaptureImplicit); },
      [&] {
        CHECK_ERROR(hipStreamAddCallback(
                        nullptr, [](hipStream_t, hipError_t, void*) {}, nullptr, 0),
                    hipErrorStreamCaptureImplicit);
      }};
  for (auto const& use : on_default) {
    HIP(hipStreamBeginCapture(blocking, hipStreamCaptureModeThreadLocal));
    use();
    CHECK_ERROR(hipGetLastError(), hipErrorStreamCaptureImplicit);
    ends(blocking, hipErrorStreamCaptureInvalidated);
  }
  hipStreamCaptureMode wrong = hipStreamCaptureMode(7);
  CHECK_ERROR(hipThreadExchangeStreamCaptureMode(&wrong), hipErrorInvalidValue);
}

/// Rank 1 copies while rank 0 captures, each on a thread of its own: prints both calls.
void both_calls() {
  things t;
  hipStream_t const s = stream();
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal));
  increment<<<1, 1, 0, s>>>(t.device);
  std::thread([&] {
    HIP(hipSetDevice(1));
    CHECK_ERROR(hipMemcpy(t.ordinary, t.device, 4, hipMemcpyDeviceToHost), hipErrorStreamCaptureImplicit);
  }).join();
  ends(s, hipErrorStreamCaptureInvalidated);
}

int main(int argc, char** argv) {
  test_case const cases[] = {{"rules", rules},
                             {"the_stream", the_stream},
                             {"ending", ending},
                             {"outside", outside},
                             {"both_calls", both_calls}};
  return run_case(cases, argc, argv);
}
