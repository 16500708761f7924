#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "hip/captures.hpp"
#include "hip/failures.hpp"
#include "hip/graph.hpp"
#include "hip/host_services.hpp"
#include "hip/modules.hpp"
#include "hip/work.hpp"

struct ihipStream_t {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool null = false;            // a device's legacy default stream
  fusewire::sim::cu_mask mask;  // of hipExtStreamCreateWithCUMask; none: all CUs
  bool destroyed = false;       // by the user; kept until its work is done
  std::deque<fusewire::sim::task> queue;
  fusewire::sim::u64 time = 0, kernel_end = 0;  // with a clock: when its finished work was done
  fusewire::sim::u32 number = 0;                // with --races, as the next two
  fusewire::sim::order known;                   // what comes before its next work, of all that has ended
  fusewire::sim::u64 host_knows = 0;            // the serial number of `known` when the host waited last
  fusewire::sim::capture* capturing = nullptr;
  bool spoiled = false;              // its last capture failed, and none has begun since
  std::vector<hipGraphNode_t> tail;  // of the capture: its latest nodes on this stream
  bool blocking() const { return !null && !(flags & hipStreamNonBlocking); }
};

struct ihipEvent_t {
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<fusewire::sim::event_state> state;  // of the latest record; null before the first
  ihipStream_t* recorded_on = nullptr;                // a stream that may be gone; null: the default stream, or none
  fusewire::sim::capture* captured_in = nullptr;
  std::vector<hipGraphNode_t> captured_after;
};

namespace fusewire::sim {

using lock = std::unique_lock<std::mutex>;

/// Streams, and the thread that runs them. There is no thread per GPU. The host thread that waits first runs all GPUs;
/// the others sleep until what they wait for has happened, or until the running thread leaves. With a single host
/// thread that waits in the ordinary ways, execution is a function of the seed. If a host only polls memory, a
/// background thread runs the machine.
class runtime {
 public:
  static runtime& get();

  lock enter();  // every API call but the trivial ones
  node& machine() { return node_; }
  scheduler& waves() { return scheduler_; }
  module_registry& modules() { return modules_; }
  int gpus() const { return node_.settings.gpus; }
  /// The GPU of a device's ordinal, or -1; and the other way round, for GPUs that this process need not see.
  int gpu_of(int ordinal) const;
  int ordinal_of(int gpu) const;

  /// The stream of a handle; for the default stream, the one of `device`. Null when the handle is unknown.
  ihipStream_t* stream_of(hipStream_t, int device);
  ihipStream_t* create_stream(int device, unsigned flags, int priority);
  /// The CUs that kernels in the stream may use: those in both ROC_GLOBAL_CU_MASK and the stream's mask, or, if there
  /// are none in both, those in the former.
  cu_mask cus_of(ihipStream_t const&) const;
  void destroy_stream(ihipStream_t&);
  bool has(ihipStream_t const*) const;
  bool known(hipEvent_t e) const { return events_.contains(e); }
  std::unordered_set<ihipEvent_t*>& events() { return events_; }
  std::set<capture*>& captures() { return captures_; }
  std::unordered_set<ihipGraph*>& graphs() { return graphs_; }
  std::unordered_set<hipGraphExec*>& execs() { return execs_; }
  bool known(hipGraph_t g) const;
  bool known(hipGraphNode_t n) const;

  void enqueue(ihipStream_t&, std::shared_ptr<work_list const>, bool graph = false);
  void enqueue(ihipStream_t&, work);
  void wait(lock&, std::function<bool()> const& until);
  /// The effect on the device's caches of the host's waiting for it, or copying. -1: on those of all devices.
  void system_scope(int device);
  void waited_for(event_state const&, ihipStream_t&);
  void host_waited();                 // or has looked
  void poll(lock&);                   // a query lets the machine run for a moment
  u64 device_time(int device) const;  // when all finished work in its streams was done
  void host_reaches(u64 time);        // with a clock: this thread has waited for something that happened at that time
  u64 last_sequence() const { return sequence_; }
  /// Whether everything up to `sequence` is done in the device's streams (or only in those that the default stream
  /// waits for).
  bool reached(int device, u64 sequence, bool all_streams) const;
  bool pending() const;
  /// Threads that something outside of this machine may wake; see fusewireSimOutside().
  void outside(int more) { outside_ += more; }

 private:
  runtime();
  bool advance(lock&);
  bool may_start(ihipStream_t const&, task const&) const;
  bool progress(lock&, ihipStream_t&, task&);
  u64 earliest(ihipStream_t const&, task const&, std::size_t node, bool is_kernel) const;
  order before(ihipStream_t const&, task const&) const;
  bool hosts_rest(lock&);
  void poll_in_time(lock&);
  std::shared_ptr<kernel_launch> launch(ihipStream_t const&, kernel_work const&);
  bool turn(lock&, bool patient);  // false: nothing to do
  void stalled(lock&, bool patient);
  void stalled_together(lock&);
  void note(shared_node::doing d) {
    if (node_.shared) node_.shared->note(d);
  }
  bool others_compute() const;
  void set_running(bool);
  void give_way(lock&);
  void start_background();
  void background();

  node node_;
  scheduler scheduler_;
  module_registry modules_;
  host_services services_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> entering_{0};
  std::atomic<u64> entries_{0};
  std::vector<std::unique_ptr<ihipStream_t>> streams_;
  std::vector<ihipStream_t*> null_streams_;
  std::unordered_set<ihipEvent_t*> events_;
  std::set<capture*> captures_;
  order host_;  // with --races: what has ended before the host's latest wait; all threads count as one
  std::unordered_set<ihipGraph*> graphs_;
  std::unordered_set<hipGraphExec*> execs_;
  u64 sequence_ = 0;
  bool running_ = false, attention_ = false, background_started_ = false;
  int waiting_ = 0;
  std::vector<int> waiters_;                         // threads in wait()
  std::vector<std::function<bool()> const*> until_;  // what each waits for
  bool pausing_ = false;                             // entries_ when they rested; when they were seen to rest once
  u64 rest_entries_ = 0, quiet_entries_ = 0;         // entries_ when they rested, and when they were last seen to rest
  std::chrono::steady_clock::time_point unrest_since_;
  std::chrono::steady_clock::time_point last_activity_, stall_since_;
  u64 stall_entries_ = 0, seen_at_look_ = 0;
  std::chrono::steady_clock::time_point last_look_, all_stalled_since_;
  bool stalling_ = false;
  std::atomic<int> outside_{0};  // threads; see outside()
};

/// This thread's GPU, and its last error.
struct thread_state {
  int device = -1;   // a GPU of the node, whatever its ordinal is; -1: the process sees none
  u64 number = 0;    // threads are counted as they come
  char const* call;  // the API call that it is in, or was in last
  u64 now = 0;       // with a clock: the thread's time, which passes in HIP calls alone
  hipError_t error = hipSuccess;
  hipStreamCaptureMode capture_mode = hipStreamCaptureModeGlobal;
  std::vector<ihipStream_t*> own_streams;  // hipStreamPerThread, per device
};
thread_state& this_thread();

hipError_t remember(hipError_t);

/// Body of an API function that needs no lock: it fails when a test wants that, and remembers the error. `call` is the
/// name of the function that evaluates this default argument; helpers that several functions share pass theirs on.
template <class F>
hipError_t unlocked_api(F&& body, char const* call = __builtin_FUNCTION()) {
  hipError_t const planted = planted_failure(call);
  if (planted != hipSuccess && !gives_back(call)) return remember(planted);
  hipError_t const e = body();
  return remember(planted != hipSuccess ? planted : e);
}

/// Body of an API function: the same, under the lock.
template <class F>
hipError_t api(F&& body, char const* call = __builtin_FUNCTION()) {
  return unlocked_api(
      [&] {
        runtime& r = runtime::get();
        lock l = r.enter();
        this_thread().call = call;
        return this_thread().device < 0 ? hipErrorNoDevice : body(r, l);
      },
      call);
}

}  // namespace fusewire::sim
