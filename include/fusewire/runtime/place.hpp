// Where a rank runs: host, process, device. What it can share with another rank follows from that.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

struct place {
  char host[40] = {};            // the same for all processes of one running system
  char host_name[24] = {};       // for people
  std::uint64_t process[2] = {};
  int device = 0;                // as its process numbers devices
  char bus[20] = {};             // the device's PCI address
  int shared_by_processes = 0;   // kernels of several processes run on the device at once
};

inline bool same_host(place const& a, place const& b) { return std::strcmp(a.host, b.host) == 0; }
inline bool same_process(place const& a, place const& b) { return same_host(a, b) && std::memcmp(a.process, b.process, sizeof a.process) == 0; }
inline bool same_device(place const& a, place const& b) { return same_host(a, b) && std::strcmp(a.bus, b.bus) == 0; }

/// From the operating system. Fails: std::system_error.
inline std::uint64_t random_bits() {
  std::uint64_t bits;
  if (::getentropy(&bits, sizeof bits) != 0) throw std::system_error(errno, std::generic_category(), "getentropy");
  return bits;
}

/// The calling process on `device`.
inline hipError_t find_place(place& p, int device) {
  static std::uint64_t const once = random_bits();  // process ids repeat where containers number theirs apart
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  ::gethostname(p.host_name, sizeof p.host_name - 1);
  std::snprintf(p.host, sizeof p.host, "%s", id.empty() ? p.host_name : id.c_str());
  p.process[0] = once;
  p.process[1] = std::uint64_t(::getpid());  // a child that did not start anew has the same `once`
  p.device = device;
  if (hipError_t const e = hipDeviceGetPCIBusId(p.bus, sizeof p.bus, device); e != hipSuccess) return e;
  return platform::processes_share_device(&p.shared_by_processes, device);
}

/// Which of this process's devices it is, -1 if none.
inline int device_at(place const& p) {
  int device = -1;
  if (hipDeviceGetByPCIBusId(&device, p.bus) == hipSuccess) return device;
  (void)hipGetLastError();
  return -1;
}

}  // namespace fusewire
