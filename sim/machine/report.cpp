#include "machine/report.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

namespace fusewire::sim {
namespace {

std::string id_of(resident_group const& g) {
  return "(" + std::to_string(g.id[0]) + "," + std::to_string(g.id[1]) + "," + std::to_string(g.id[2]) + ")";
}

/// Of a wave that stopped behind an instruction, or that faulted at one.
std::string place_of(wave& w) {
  if (!w.faulted) --w.pc;
  location const at = where(w);
  if (!w.faulted) ++w.pc;
  char offset[24];
  std::snprintf(offset, sizeof offset, "+0x%x", at.offset);
  return at.instruction + "  [" + offset + (at.source.empty() ? "" : ", " + at.source) + "]";
}

std::string who(resident_group const& g) {
  return "GPU " + std::to_string(g.from->gpu) + ", kernel " + g.from->kernel->demangled + ", workgroup " + id_of(g);
}

bool polls_memory(wave const& w) { return w.pending->polls.repeats != 0; }

[[noreturn]] void finish() {
  std::fflush(stdout);
  std::fflush(stderr);
  if (std::getenv("FUSEWIRE_SIM_ABORT")) std::abort();
  _exit(exit_code_of_a_report);
}

}  // namespace

void report_fault(resident_group const& g, wave& w) {
  std::fprintf(stderr, "fusewire-sim: %s\n  %s, wave %u of %zu\n  %s\n", w.fault_text->c_str(), who(g).c_str(), w.index, g.waves.size(), place_of(w).c_str());
  finish();
}

void report_broken_barrier(resident_group const& g) {
  std::fprintf(stderr, "fusewire-sim: barrier: a wave waits at a barrier that %zu of %zu waves of its workgroup left by ending\n  %s\n",
               g.waves.size() - static_cast<std::size_t>(g.running), g.waves.size(), who(g).c_str());
  for (wave* w : g.waves)
    if (w->state == wave_state::at_barrier) {
      std::fprintf(stderr, "  wave %u waits at %s\n", w->index, place_of(*w).c_str());
      break;
    }
  finish();
}

/// Waves that wait alike are one line; a few lines say what a machine full of waves is waiting for.
void report_deadlock(node& n, scheduler& s) {
  constexpr std::size_t most_lines = 16;
  std::fprintf(stderr, "fusewire-sim: deadlock: no memory changes any more and every wave waits\n");
  struct waiting {
    resident_group const* group;
    wave* first;
    int waves = 0;
  };
  std::map<std::string, waiting> kinds;
  for (resident_group* g : s.groups())
    for (wave* w : g->waves) {
      if (w->state == wave_state::ended) continue;
      bool const barrier = w->state == wave_state::at_barrier;
      auto const& poll = w->pending->polls.last;
      std::string const key = std::to_string(g->from->gpu) + g->from->kernel->name + (barrier ? "barrier" : polls_memory(*w) ? std::to_string(poll.address) : "silent");
      auto [it, fresh] = kinds.try_emplace(key, waiting{g, w});
      ++it->second.waves;
    }
  std::size_t lines = 0;
  for (auto& [key, k] : kinds) {
    if (++lines > most_lines) {
      std::fprintf(stderr, "  ... and %zu more\n", kinds.size() - most_lines);
      break;
    }
    std::fprintf(stderr, "  %s, wave %u", who(*k.group).c_str(), k.first->index);
    if (k.waves > 1) std::fprintf(stderr, " (and %d waves like it)", k.waves - 1);
    if (k.first->state == wave_state::at_barrier) {
      std::fprintf(stderr, " waits at a barrier\n    %s\n", place_of(*k.first).c_str());
      continue;
    }
    if (!polls_memory(*k.first)) {
      std::fprintf(stderr, " runs on without touching global memory\n    %s\n", place_of(*k.first).c_str());
      continue;
    }
    auto const& poll = k.first->pending->polls.last;
    allocation const* a = n.memory.find(poll.address);
    std::fprintf(stderr, " polls %s", describe(n.memory, poll.address, a).c_str());
    if (a && a->live) std::fprintf(stderr, "; memory holds 0x%x there", word_at(poll.address));
    k.first->pc = poll.pc;
    std::fprintf(stderr, "\n    %s\n", place_of(*k.first).c_str());
    if (std::string const why = s.memory().hidden(poll.address, k.group->memory); !why.empty()) std::fprintf(stderr, "    %s\n", why.c_str());
  }
  for (auto const& l : s.launches()) {
    u64 started = 0;
    for (int x = 0; x < n.xcds(); ++x) started += (l->next[static_cast<std::size_t>(x)] - static_cast<u64>(x)) / static_cast<u64>(n.xcds());
    if (started < l->total)
      std::fprintf(stderr, "  GPU %d, kernel %s: %llu of %llu workgroups have not started, because the %d CUs of the GPU are full: they are not co-resident\n", l->gpu,
                   l->kernel->demangled.c_str(), static_cast<unsigned long long>(l->total - started), static_cast<unsigned long long>(l->total), n.settings.cus);
  }
  finish();
}

}  // namespace fusewire::sim
