// Bodies of place.hpp.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

#include <fusewire/ranks/place.hpp>

namespace fusewire {

FUSEWIRE_HOST std::uint64_t random_bits() {
  std::uint64_t bits;
  if (::getentropy(&bits, sizeof bits) != 0) throw std::system_error(errno, std::generic_category(), "getentropy");
  return bits;
}

FUSEWIRE_HOST std::string boot_id(std::source_location where) {
  constexpr char path[] = "/proc/sys/kernel/random/boot_id";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen(path, "re"), &std::fclose);
  require<runtime_failure>(file || errno == ENOENT, where, "which host this is cannot be read from ", path, ": ",
                           std::strerror(errno));
  char id[40] = {};
  return file && std::fscanf(file.get(), "%39s", id) == 1 ? id : "";
}

FUSEWIRE_HOST place find_place(int device, std::source_location where) {
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

FUSEWIRE_HOST int device_at(place const& p) {
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
