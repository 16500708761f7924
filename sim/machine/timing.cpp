#include "machine/timing.hpp"

#include <cstdio>
#include <cstdlib>

namespace fusewire::sim {

std::string timing::set(std::string const& text) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = std::min(text.find(',', at), text.size());
    std::string const entry = text.substr(at, end - at), name = entry.substr(0, entry.find('='));
    at = end + 1;
    char* rest = nullptr;
    double const value = entry.size() > name.size() + 1 ? std::strtod(entry.c_str() + name.size() + 1, &rest) : 0;
    if (!rest || *rest || value < 0) return entry + ": expected name=value";
    bool known = false;
#define FUSEWIRE_SIM_FIELD(field, otherwise, unit, kind, source) \
  if (name == #field) field = value, known = true;
    FUSEWIRE_SIM_TIMING(FUSEWIRE_SIM_FIELD)
#undef FUSEWIRE_SIM_FIELD
    if (!known) return name + ": no such constant; they stand in sim/machine/timing.hpp";
  }
  return {};
}

std::string timing::table() const {
  std::string text;
#define FUSEWIRE_SIM_FIELD(field, otherwise, unit, kind, source)                                       \
  {                                                                                                    \
    char line[400];                                                                                    \
    std::snprintf(line, sizeof line, "%-18s %10g %-8s %-9s %s\n", #field, field, unit, #kind, source); \
    text += line;                                                                                      \
  }
  FUSEWIRE_SIM_TIMING(FUSEWIRE_SIM_FIELD)
#undef FUSEWIRE_SIM_FIELD
  return text;
}

}  // namespace fusewire::sim
