#pragma once
#include <deque>

#include "machine/scheduler.hpp"
#include "machine/timed_memory.hpp"
#include "machine/wave_clock.hpp"

namespace fusewire::sim {

/// The clock: runs the waves of all launches in the order of simulated time. Nothing here loops over cycles: an
/// instruction asks when its unit, its registers and its waits allow it to issue, and the wave's time becomes that. A
/// CU's turn lasts a few hundred cycles, with its waves in exact order, until a wave needs a value that has not been
/// taken. Accesses take effect between turns, those of all CUs in exact order.
class timeline {
 public:
  timeline(node&, scheduler&);
  ~timeline();
  std::unique_ptr<node_memory> make_memory();

  void announce(std::shared_ptr<kernel_launch>);  // its workgroups may be placed from kernel_launch::begin on
  void placed(resident_group&);
  void drain(kernel_launch&);  // its last workgroup has ended
  /// Goes on until a launch has begun or ended, or for a while, but not past `limit`.
  scheduler::outcome step(u64 limit);
  void resolve_stall();
  /// Calls f(context) then, between the machine's events; see fusewireSimAfter().
  void call_at(u64 time, void (*f)(void*), void* context);
  u64 now() const { return node_.cycles; }
  bool idle() const { return events_.empty(); }

  std::map<std::pair<int, std::string>, kernel_profile> const& profiles() const { return profiles_; }
  std::map<program const*, hot_spots> const& hot() const { return hot_; }
  memory_paths const& paths() const { return memory_->paths; }
  trace_log const* trace() const { return trace_.get(); }  // null when no trace is wanted

 private:
  struct notice : timed_event {  // of a CU, a workgroup or a launch
    explicit notice(kind k) : timed_event(k) {}
    compute_unit_clock* cu = nullptr;
    resident_group* group = nullptr;
    std::shared_ptr<kernel_launch> launch;
  };
  struct outside_call : timed_event {
    void (*call)(void*);
    void* context;
  };
  notice& note(timed_event::kind);
  compute_unit_clock& cu_of(int gpu, int cu) { return cus_[static_cast<std::size_t>(gpu * node_.settings.cus + cu)]; }
  void wake(compute_unit_clock&);
  void run(compute_unit_clock&, u64 from);
  void handle(timed_event&);
  // Announces what comes soon, so that the host prefetches it: simulated memory and registers are larger than its
  // caches.
  void announce_next() const;
  void announce_turn(compute_unit_clock const&, u64 until) const;
  bool all_wait();

  // issue.cpp
  bool fetched(compute_unit_clock&, wave_clock&, op_time const&);
  u64 operands(wave_clock const&, op_time const&, u64 time) const;
  void issue(compute_unit_clock&, wave_clock&);
  void execute_one(compute_unit_clock&, wave_clock&, u64 time);
  void after(compute_unit_clock&, wave_clock&, op_time const&, u64 time, u64 next);
  void wait(wave_clock&, stall, u64 until);
  void release_barrier(compute_unit_clock&, resident_group&);
  void note_span(wave_clock&, u32 word, u64 time);
  std::string text_at(u64 address) const;
  void wave_ended(compute_unit_clock&, wave_clock&);
  double matrix_cycles(op_time const&) const;

  node& node_;
  scheduler& scheduler_;
  timing const& t_;
  event_wheel events_;
  timed_memory* memory_ = nullptr;  // the scheduler's
  std::deque<compute_unit_clock> cus_;
  std::vector<shared_caches> shared_;
  std::vector<std::unique_ptr<notice>> notices_;
  std::vector<notice*> spare_notices_;
  std::vector<std::unique_ptr<wave_clock>> clocks_;
  std::vector<wave_clock*> spare_clocks_;
  std::vector<std::array<double, max_xcds>> dispatcher_free_;
  std::map<std::pair<int, std::string>, kernel_profile> profiles_;
  std::map<program const*, hot_spots> hot_;
  std::unique_ptr<trace_log> trace_;
  struct marked_spans {  // of a wave, that it has begun
    struct one {
      std::string name;
      u64 begin;
    };
    std::vector<one> open;
    u32 low = 0;
    bool has_low = false;
  };
  std::map<wave_clock const*, marked_spans> marked_;
  u64 serial_ = 0;
  u64 looked_at_ = 0, changes_at_look_ = 0, reads_at_look_ = 0, jumped_ = 0;
  u64 outside_calls_ = 0;  // that are to come
  bool something_ended_ = false;
  bool released_ = false;  // waves of the CU in its turn: a barrier has let them go on
};

}  // namespace fusewire::sim
