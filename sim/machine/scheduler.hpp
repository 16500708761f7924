#pragma once
#include <functional>

#include "machine/profile.hpp"
#include "machine/residency.hpp"
#include "machine/weak_memory.hpp"

namespace fusewire::sim {

/// A kernel launch on its way through the machine.
struct kernel_launch : dispatch {
  u64 total = 0, started = 0, finished = 0;       // workgroups
  std::array<u64, max_xcds> next{};               // index of the next workgroup to choose from, per XCD
  std::array<std::vector<u64>, max_xcds> choice;  // those that may start next
  footprint takes;
  cu_mask cus;             // its workgroups may use these
  u64 begin = 0, end = 0;  // with a clock: when the first workgroup may be placed, when all is done
  kernel_profile profile;
  u32 stream = 0, race_note = 0;  // with --races, as the next two
  order before, after;            // what happened before it; what it knows when it ends
  bool ended = false;
  bool done() const { return ended; }
};

/// A workgroup that has a place on a CU.
struct resident_group : workgroup {
  kernel_launch* from = nullptr;
  group_memory memory;
  compute_unit::simds simds{};
  bool ended = false;
  u64 begin_time = 0, end_time = 0, barrier_time = 0;  // with a clock
  u32 trace_place = 0;                                 // with a trace: of its CU's
};

class timeline;

/// Runs the waves of all launches on all GPUs. They are interleaved at random, as a function of the seed and of the
/// order of the calls; with a clock, in the order of their times (timeline). Not thread-safe.
class scheduler {
 public:
  explicit scheduler(node&);
  ~scheduler();

  void start(std::shared_ptr<kernel_launch>);  // it joins the workgroups that run; the caller keeps its kernel alive
  enum class outcome { worked, idle, stalled };
  /// Lets one workgroup run for a while. `stalled`: for a long time every wave has been polling memory that does not
  /// change, or waiting at a barrier, and only the host can help.
  outcome step();
  /// Called when the host cannot help. Waves that watch the clock see it jump ahead, so that their time-outs expire. If
  /// no wave watches the clock, it ends the process with a report.
  void resolve_stall();
  /// Called when the host may help: goes on for a while, and lets this much time pass.
  void keep_waiting(u64 cycles);
  void host_did_something() { stuck_rounds_ = 0, jump_ = first_jump, jumped_ = 0; }
  bool running() const { return !launches_.empty(); }
  bool stuck() const { return stuck_rounds_ != 0; }  // the latest rounds changed nothing
  std::vector<std::shared_ptr<kernel_launch>> const& launches() const { return launches_; }
  std::vector<resident_group*> const& groups() const { return live_; }
  node_memory& memory() { return *memory_; }
  timeline* time() { return timeline_.get(); }  // null without a clock

 private:
  friend class timeline;
  struct xcd_state {
    std::vector<compute_unit> cus;
    u32 next_cu = 0;
    bool room = true;  // something was freed or launched since the last attempt to place
  };
  void admit(std::shared_ptr<kernel_launch>);
  void finish(kernel_launch&);
  void place_waiting();
  u64* choose(kernel_launch&, int xcd);
  bool place(kernel_launch&, int xcd);
  void run(resident_group&);
  void run_wave(resident_group&, wave&, u64 budget);
  void check_barrier(resident_group&);
  void end_group(resident_group&);
  void end_round();
  wave* take_wave();

  static constexpr u64 first_jump = core_mhz * 10;  // cycles: 10 us
  node& node_;
  std::unique_ptr<node_memory> memory_;
  weak_memory* weak_ = nullptr;  // memory_, when it is weak
  std::unique_ptr<timeline> timeline_;
  std::vector<std::array<xcd_state, max_xcds>> gpus_;
  std::vector<std::shared_ptr<kernel_launch>> launches_;
  std::vector<resident_group*> live_, round_;
  std::size_t at_ = 0;  // in round_
  bool room_ = false;
  std::vector<wave*> spare_waves_;
  u64 live_waves_ = 0, cycle_parts_ = 0;
  u64 changes_before_ = 0, clock_reads_before_ = 0, instructions_before_ = 0;
  u64 executed_ = 0, said_at_ = 0;  // instructions of all waves since a workgroup began or ended
  u32 stuck_rounds_ = 0;
  // How many workgroups may overtake one, how often the next is not placed yet; 0: never
  u32 window_ = 1, pause_one_in_ = 0;
  u64 jump_ = first_jump, jumped_ = 0;
};

}  // namespace fusewire::sim
