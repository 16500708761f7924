#pragma once
#include <map>
#include <vector>

#include "machine/node.hpp"

namespace fusewire::sim {

/// Services that device code asks of the host while it runs: printf, and the message of a failed assert. clang makes
/// two kinds of printf for AMD GPUs:
///   -mprintf-kind=hostcall (the default): a wave leaves a packet per call in a buffer that the runtime passes as a
///     hidden argument, and polls the packet until the host has answered.
///   -mprintf-kind=buffered: a launch appends records to a buffer of its own. The host prints it when the kernel has
///     ended; records that do not fit are lost.
/// Layouts: ROCm's device libraries (ockl, hostcall) and ROCclr (devhostcall.hpp, rocprintf.cpp).
class host_services {
 public:
  explicit host_services(node& n) : node_(n), hostcalls_(static_cast<std::size_t>(n.settings.gpus)) {}

  /// Values of the hidden arguments.
  u64 hostcall_buffer(int gpu);
  u64 printf_buffer(dispatch const&);

  /// Answers the packets that wait. Returns whether there were any.
  bool serve();
  /// Prints what the launch has left in its buffer, if it has one.
  void ended(dispatch const&);

 private:
  struct hostcall;
  void answer(u64* slot, u32 service);

  node& node_;
  std::vector<allocation*> hostcalls_;  // per GPU; null until a kernel asks for it
  std::map<dispatch const*, allocation*> printing_;
  std::vector<allocation*> spare_buffers_;
  std::vector<std::vector<u64>> messages_;  // those that more packets will continue, by number
  std::vector<u64> spare_messages_;
};

/// Formats text as printf does. The arguments are a word each, strings in line, padded to words.
std::string formatted(std::string const& format, u64 const* argument, u64 const* end);

}  // namespace fusewire::sim
