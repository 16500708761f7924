#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "machine/config.hpp"

namespace fusewire::sim {

/// A node that several processes simulate together. Each process runs the kernels that it launches. The GPUs' memory is
/// one file, which every process maps at the same addresses. The file also has notes on what each process is doing; by
/// these the others know whether to wait.
class shared_node {
 public:
  /// The node in the file FUSEWIRE_SIM_SHARED; null when the variable is not set. Ends the process with a message when
  /// the file cannot be used.
  static std::unique_ptr<shared_node> from_environment(int gpus);

  static constexpr int most_processes = 64;  // over the life of the file
  int process() const { return process_; }   // this one's number, in order of arrival
  int file() const { return file_; }
  u64 id() const { return id_; }                  // of the file
  static constexpr u64 memory_at = u64{1} << 18;  // bytes from the start of the file

  /// Notes that this process has opened another's memory, until note_closed(). Returns false when the node has no room
  /// for more such notes.
  bool note_open(u64 base);
  void note_closed(u64 base);
  /// A living process that has the memory open; -1 when there is none.
  int opened_by(u64 base) const;

  enum class doing : u32 { host_code, running, stalled };  // stalled: every wave waits
  void note(doing d) { mine().what.store(d, std::memory_order_relaxed); }
  /// No other process runs waves or computes, so whatever this process waits for takes time and not work.
  bool others_rest() const;
  /// Every living process waits in waves of its own.
  bool all_stalled() const;

 private:
  struct slot {
    std::atomic<u32> pid;
    std::atomic<doing> what;
  };
  static constexpr int most_open = 1 << 14;
  static constexpr u64 most_of_page = 4095;  // a base is at a page, so its low bits can be 1 + the process
  static_assert(most_processes < most_of_page);
  static_assert(std::atomic<u32>::is_always_lock_free && std::atomic<u64>::is_always_lock_free &&
                std::atomic<doing>::is_always_lock_free);
  struct header {
    slot slots[most_processes];
    std::atomic<u64> opened[most_open];  // 0: free
  };
  shared_node() = default;
  slot& mine() { return header_->slots[process_]; }
  u64 opened_here(u64 base) const { return base | static_cast<u64>(process_ + 1); }

  int file_ = -1, process_ = 0;
  u64 id_ = 0;
  header* header_ = nullptr;
};

/// Whether other threads than those in `but` compute in the process at this moment; false when the process is dead.
bool computes(int pid, std::span<int const> but = {});

}  // namespace fusewire::sim
