// Where a rank runs: host, process and device. This decides what it can share with another rank.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include <fusewire/core/host_code.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire {

/// Where a rank runs. Ranks exchange it before they share memory.
struct place {
  char host[40] = {};             // the same for all processes of one running system
  char host_name[24] = {};        // for messages
  std::uint64_t process[2] = {};  // distinguishes the processes of a host
  int device = 0;                 // as its process numbers devices
  char bus[20] = {};              // the device's PCI address; partitions of a GPU may have the same
  char uuid[16] = {};             // the device's; partitions may have the same under some drivers
  int may_be_partition = 0;       // of a GPU, as far as its compute units tell
  int shared_by_processes = 0;    // kernels of several processes run on the device concurrently
  int part = 0;                   // of its host, where ranks of one host act as several nodes
};

/// Whether both are on one machine, by its boot id.
inline bool same_host(place const& a, place const& b) { return std::strcmp(a.host, b.host) == 0; }
/// Whether both are on one node: on one host or, where ranks of a host act as several nodes, in one part of it.
inline bool same_node(place const& a, place const& b) { return same_host(a, b) && a.part == b.part; }
/// Whether both are threads of one process.
inline bool same_process(place const& a, place const& b) {
  return same_host(a, b) && std::memcmp(a.process, b.process, sizeof a.process) == 0;
}
/// Whether both name a device with one address on one node: a GPU, or partitions of it.
inline bool same_address(place const& a, place const& b) {
  return same_node(a, b) && std::strcmp(a.bus, b.bus) == 0 && std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0;
}
/// Whether both use the same device.
inline bool same_device(place const& a, place const& b) {
  return same_process(a, b) ? a.device == b.device : same_address(a, b);
}
/// Whether a and b may be one device and may as well be two: partitions of a GPU to which the driver gives one PCI
/// address and one UUID.
inline bool cannot_tell_apart(place const& a, place const& b) {
  return !same_process(a, b) && same_address(a, b) && a.may_be_partition;
}

/// Random bits of the operating system. Fails: std::system_error.
std::uint64_t random_bits();

/// A text that all processes of one running system have in common, and no process of another has; "" on a system
/// without one. Fails: runtime_failure.
std::string boot_id(std::source_location where = std::source_location::current());

/// The place of the calling process on `device`.
place find_place(int device, std::source_location where);

/// The number of that device in this process; -1 if this process has none, or if several may be it.
int device_at(place const& p);

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/ranks/place.ipp>
#endif
