// Where a rank runs: host, process and device. This decides what it can share with another rank.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

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
  int shared_by_processes = 0;    // kernels of several processes run on the device at once
};

/// Whether both are on one machine, by its boot id.
inline bool same_host(place const& a, place const& b) { return std::strcmp(a.host, b.host) == 0; }
/// Whether both are threads of one process.
inline bool same_process(place const& a, place const& b) {
  return same_host(a, b) && std::memcmp(a.process, b.process, sizeof a.process) == 0;
}
/// Whether both name a device with one address on one host: a GPU, or partitions of it.
inline bool same_address(place const& a, place const& b) {
  return same_host(a, b) && std::strcmp(a.bus, b.bus) == 0 && std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0;
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
inline std::uint64_t random_bits() {
  std::uint64_t bits;
  if (::getentropy(&bits, sizeof bits) != 0) throw std::system_error(errno, std::generic_category(), "getentropy");
  return bits;
}

/// A text that all processes of one running system have in common, and no process of another has; "" on a system
/// without one. Fails: runtime_failure.
inline std::string boot_id(std::source_location where = std::source_location::current()) {
  constexpr char path[] = "/proc/sys/kernel/random/boot_id";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen(path, "re"), &std::fclose);
  require<runtime_failure>(file || errno == ENOENT, where, "which host this is cannot be read from ", path, ": ",
                           std::strerror(errno));
  char id[40] = {};
  return file && std::fscanf(file.get(), "%39s", id) == 1 ? id : "";
}

/// The place of the calling process on `device`.
inline place find_place(int device, std::source_location where) {
  place p;
  static std::uint64_t const once = random_bits();  // process ids repeat where containers have their own
  std::string const id = boot_id(where);
  ::gethostname(p.host_name, sizeof p.host_name - 1);
  std::snprintf(p.host, sizeof p.host, "%s", id.empty() ? p.host_name : id.c_str());
  p.process[0] = once;
  p.process[1] = std::uint64_t(::getpid());  // a forked child has the same `once`
  p.device = device;
  check_hip(hipDeviceGetPCIBusId(p.bus, sizeof p.bus, device), "hipDeviceGetPCIBusId", where);
  check_hip(platform::device_uuid(p.uuid, device), "hipDeviceGetUuid", where);
  check_hip(platform::may_be_partition(&p.may_be_partition, device), "hipDeviceGetAttribute(compute units)", where);
  check_hip(platform::processes_share_device(&p.shared_by_processes, device),
            "hipDeviceGetAttribute(whether processes share it)", where);
  return p;
}

/// The number of that device in this process; -1 if this process has none, or if several may be it.
inline int device_at(place const& p) {
  int devices = 0, found = -1;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
  for (int d = 0; d < devices; ++d) {
    place mine;
    check_hip(hipDeviceGetPCIBusId(mine.bus, sizeof mine.bus, d), "hipDeviceGetPCIBusId");
    check_hip(platform::device_uuid(mine.uuid, d), "hipDeviceGetUuid");
    if (std::strcmp(p.bus, mine.bus) != 0 || std::memcmp(p.uuid, mine.uuid, sizeof mine.uuid) != 0) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

}  // namespace fusewire
