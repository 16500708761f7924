#pragma once
#include <string>
#include <vector>

namespace fusewire::sim {

/// Which of the node's GPUs a process sees, and in which order.
struct visible_devices {
  std::vector<int> gpus;  // by ordinal
  std::string note = {};  // where a list ended early: which entry ended it

  /// Reads the variables as ROCr (RvdFilter) and then ROCclr (Device::init) do; null where one is not set.
  static visible_devices among(int gpus, char const* rocr, char const* hip, char const* cuda);
};

/// 16 hexadecimal digits. A list names the GPU by "GPU-" and these.
std::string unique_id(int gpu);

}  // namespace fusewire::sim
