#include "machine/trace.hpp"

#include <cstdio>
#include <set>

#include "machine/json.hpp"

namespace fusewire::sim {

bool trace_log::write(std::string const& file, timing const& t) const {
  std::FILE* const f = std::fopen(file.c_str(), "w");
  if (!f) return false;
  std::vector<std::string> names(names_.size());
  for (auto const& [name, number] : names_) names[number] = json_string(name);
  std::fprintf(f, "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"what\": \"a projection by fusewire-sim --time, in "
                  "simulated microseconds\"}, \"traceEvents\": [\n");
  char const* comma = "";
  std::set<std::pair<int, u32>> tracks;
  for (span const& s : spans_) {
    std::fprintf(f, "%s{\"name\": %s, \"ph\": \"X\", \"ts\": %.4f, \"dur\": %.4f, \"pid\": %d, \"tid\": %u}", comma,
                 names[s.name].c_str(), t.us(s.begin), t.us(s.end - s.begin), s.gpu, s.track);
    comma = ",\n";
    if (!tracks.insert({s.gpu, s.track}).second) continue;
    std::string const name = s.track == kernels_track ? "kernels"
                                                      : "CU " + std::to_string((s.track - 1) / places) + ", place " +
                                                            std::to_string((s.track - 1) % places);
    std::fprintf(
        f, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %u, \"args\": {\"name\": \"%s\"}}",
        s.gpu, s.track, name.c_str());
    std::fprintf(f, ",\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"GPU %d\"}}",
                 s.gpu, s.gpu);
  }
  for (auto const& [ends, steps] : links_) {
    u64 after = 0;
    auto const put = [&](u64 step, double gbs) {
      std::fprintf(f,
                   "%s{\"name\": \"link to GPU %d, GB/s\", \"ph\": \"C\", \"ts\": %.4f, \"pid\": %d, \"args\": "
                   "{\"GB/s\": %.2f}}",
                   comma, ends.second, t.us(step * link_step), ends.first, gbs);
      comma = ",\n";
    };
    for (auto const& [step, bytes] : steps) {
      if (after && step != after) put(after, 0);
      put(step, static_cast<double>(bytes) * t.mhz / 1e3 / static_cast<double>(link_step));
      after = step + 1;
    }
    put(after, 0);
  }
  std::fprintf(f, "\n]}\n");
  return std::fclose(f) == 0;
}

}  // namespace fusewire::sim
