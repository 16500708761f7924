#pragma once
#include <map>
#include <string>
#include <vector>

#include "machine/profile.hpp"
#include "machine/timing.hpp"

namespace fusewire::sim {

/// The events of a run, for a file that ui.perfetto.dev shows. Each GPU is a process there, with a track for its
/// kernels and one for each workgroup's place on a CU. A workgroup's track shows the spans that its first wave marks,
/// and that wave's long waits. Each link has a counter.
class trace_log {
 public:
  void kernel(int gpu, std::string const& name, u64 begin, u64 end) {
    spans_.push_back({gpu, kernels_track, name_number(name), begin, end});
  }
  /// `place`: of those that the CU has.
  void workgroup(int gpu, int cu, u32 place, std::string const& kernel, u64 begin, u64 end) {
    spans_.push_back({gpu, track_of(cu, place), name_number(kernel), begin, end});
  }
  void wait(int gpu, int cu, u32 place, stall why, u64 begin, u64 end) {
    if (end - begin >= shortest_wait)
      spans_.push_back({gpu, track_of(cu, place), name_number(std::string("waits: ") + name_of(why)), begin, end});
  }
  /// A span that a kernel has marked.
  void span_of(int gpu, int cu, u32 place, std::string const& name, u64 begin, u64 end) {
    spans_.push_back({gpu, track_of(cu, place), name_number(name), begin, end});
  }
  void link(int from, int to, u64 time, u64 bytes) { links_[{from, to}][time / link_step] += bytes; }

  static constexpr u64 shortest_wait = 400;  // cycles
  /// False when the file cannot be written.
  bool write(std::string const& file, timing const&) const;

 private:
  static constexpr u32 kernels_track = 0, places = 32;
  static constexpr u64 link_step = 2048;  // cycles
  static u32 track_of(int cu, u32 place) { return 1 + static_cast<u32>(cu) * places + place; }
  u32 name_number(std::string const& name) {
    return names_.try_emplace(name, static_cast<u32>(names_.size())).first->second;
  }

  struct span {
    int gpu;
    u32 track, name;
    u64 begin, end;
  };
  std::vector<span> spans_;
  std::map<std::string, u32> names_;
  std::map<std::pair<int, int>, std::map<u64, u64>> links_;
};

}  // namespace fusewire::sim
