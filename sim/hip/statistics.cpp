#include <cinttypes>
#include <cstdio>

#include "hip/runtime.hpp"
#include "machine/profile_report.hpp"

using namespace fusewire::sim;

extern "C" {

int fusewireSimStats(fusewire_sim_stats* out) {
  if (!out || out->size < sizeof *out) return -1;
  runtime& r = runtime::get();
  lock l = r.enter();
  u64 const size = out->size;
  *out = r.machine().stats;
  out->size = size;
  out->cycles = r.machine().cycles;
  out->gpus = static_cast<u64>(r.gpus());
  return 0;
}

int fusewireSimReset() {
  runtime& r = runtime::get();
  lock l = r.enter();
  r.machine().stats = {};
  return 0;
}

}  // extern "C"

namespace {

void write_files(config const& c) {
  timeline const& time = *runtime::get().waves().time();
  auto const failed = [](std::string const& file) {
    std::fprintf(stderr, "fusewire-sim: %s cannot be written\n", file.c_str());
  };
  if (time.trace() && !time.trace()->write(c.trace, c.rates)) failed(c.trace);
  if (c.stats_file.empty()) return;
  std::FILE* const f = std::fopen(c.stats_file.c_str(), "w");
  if (!f) return failed(c.stats_file);
  std::fputs(profile_json(time, runtime::get().machine()).c_str(), f);
  std::fclose(f);
}

struct at_exit {
  ~at_exit() {
    config const c = config::from_environment();
    if (c.time && !(c.trace.empty() && c.stats_file.empty())) write_files(c);
    if (!c.print_stats) return;
    fusewire_sim_stats s;
    s.size = sizeof s;
    fusewireSimStats(&s);
    std::fprintf(stderr, "fusewire-sim: %" PRIu64 " launches, %" PRIu64 " workgroups, %" PRIu64 " instructions\n",
                 s.launches, s.workgroups, s.instructions);
    if (timeline const* const time = runtime::get().waves().time(); time && s.launches)
      std::fputs(profile_text(*time, runtime::get().machine()).c_str(), stderr);
    for (u64 a = 0; a < s.gpus; ++a)
      for (u64 b = 0; b < s.gpus; ++b)
        if (fusewire_sim_link const& x = s.links[a][b]; x.load_bytes | x.store_bytes | x.atomic_bytes)
          std::fprintf(stderr,
                       "  GPU %" PRIu64 " on memory of GPU %" PRIu64 ": %" PRIu64 " bytes loaded, %" PRIu64
                       " stored, %" PRIu64 " by atomics\n",
                       a, b, x.load_bytes, x.store_bytes, x.atomic_bytes);
  }
} const print_totals;

}  // namespace
