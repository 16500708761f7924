// What fusewire-sim is told about a heap's memory: the bounds of each allocation, of each inbox and of a channel's
// flags. Without the simulator these calls do nothing.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace fusewire::detail {

/// fusewire_sim_rows of sim/fusewire_sim.h: an array [extent[2]][extent[1]][extent[0]] of rows.
struct simulator_rows {
  std::uint64_t bytes, stride;  // of a row; from a row to the next
  std::uint64_t extent[3];
};

/// Entry points of sim/fusewire_sim.h, which only the simulator's libamdhip64 has.
struct simulator {
  int (*annotate)(void const*, std::uint64_t, char const*) = find<decltype(annotate)>("fusewireSimNamePart");
  /// These two are null in a simulator of version 0.1.
  int (*name_rows)(void const*, simulator_rows const*, char const*) = find<decltype(name_rows)>("fusewireSimNameRows");
  int (*name_least)(void const*, void const*, std::uint64_t,
                    char const*) = find<decltype(name_least)>("fusewireSimNameLeast");
  int (*forget_regions)(void const*, std::uint64_t) = find<decltype(forget_regions)>("fusewireSimForgetParts");
  int (*name_ticket)(void const*, void const*, char const*) = find<decltype(name_ticket)>("fusewireSimNameTicket");

  /// Null in one before version 1: says that a thread may be woken from outside of the simulator.
  void (*outside)(int) = find<decltype(outside)>("fusewireSimOutside");

  /// Null in one before version 1, too; see sim/fusewire_sim.h.
  int (*watch)(void const*, std::uint64_t, void (*)(void*), void*) = find<decltype(watch)>("fusewireSimWatch");
  void (*after)(double, void (*)(void*), void*) = find<decltype(after)>("fusewireSimAfter");
  double (*now)() = find<decltype(now)>("fusewireSimNow");

  bool there() const { return annotate && forget_regions && name_ticket; }
  static simulator const& get() {
    static simulator const one;
    return one;
  }

 private:
  template <class F>
  static F find(char const* name) {
    return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
  }
};

/// The name of T, as the compiler spells it.
template <class T>
std::string type_name() {
  std::string_view const f = std::source_location::current().function_name();
  auto const at = f.find("T = ");
  return at == f.npos ? "?" : std::string(f.substr(at + 4, f.find_first_of(";]", at) - at - 4));
}

/// "file.cpp:12"
inline std::string short_place(std::source_location where) {
  std::string_view const file = where.file_name();
  return std::string(file.substr(file.find_last_of('/') + 1)) + ":" + std::to_string(where.line());
}

}  // namespace fusewire::detail
