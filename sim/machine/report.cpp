#include "machine/report.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

namespace fusewire::sim {
namespace {

std::string id_of(resident_group const& g) {
  return "(" + std::to_string(g.id[0]) + "," + std::to_string(g.id[1]) + "," + std::to_string(g.id[2]) + ")";
}

/// The place of a wave that has stopped after an instruction, or faulted at one.
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

constexpr u64 silence = 4'000'000;  // instructions of a wave that touches no global memory

bool polls_memory(wave const& w) { return w.pending->polls.repeats != 0; }

[[noreturn]] void finish() {
  std::fflush(stdout);
  std::fflush(stderr);
  if (std::getenv("FUSEWIRE_SIM_ABORT")) std::abort();
  _exit(exit_code_of_a_report);
}

}  // namespace

void report_fault(resident_group const& g, wave& w) {
  std::fprintf(stderr, "fusewire-sim: %s\n  %s, wave %u of %zu\n  %s\n", w.fault_text->c_str(), who(g).c_str(), w.index,
               g.waves.size(), place_of(w).c_str());
  finish();
}

void report_launch(kernel_launch const& l, std::string const& why) {
  std::fprintf(stderr, "fusewire-sim: %s\n  GPU %d, kernel %s\n", why.c_str(), l.gpu, l.kernel->demangled.c_str());
  finish();
}

void report_call(std::string const& why) {
  std::fprintf(stderr, "fusewire-sim: %s\n", why.c_str());
  finish();
}

void report_broken_barrier(resident_group const& g) {
  std::fprintf(
      stderr,
      "fusewire-sim: barrier: a wave waits at a barrier that %zu of %zu waves of its workgroup left by ending\n  %s\n",
      g.waves.size() - static_cast<std::size_t>(g.running), g.waves.size(), who(g).c_str());
  for (wave* w : g.waves)
    if (w->state == wave_state::at_barrier) {
      std::fprintf(stderr, "  wave %u waits at %s\n", w->index, place_of(*w).c_str());
      break;
    }
  finish();
}

namespace {

constexpr std::size_t most_lines = 16;

enum class standing { at_barrier, polls, silent, runs };

standing standing_of(wave const& w) {
  if (w.state == wave_state::at_barrier) return standing::at_barrier;
  if (polls_memory(w) && !w.pending->group->kernarg.covers(w.pending->polls.last.address, 1)) return standing::polls;
  return w.executed - w.pending->active_at > silence ? standing::silent : standing::runs;
}

/// Waves in the same state share one line, so a few lines say what a full machine is doing.
void print_waves(node& n, scheduler& s, bool all_wait) {
  struct alike {
    resident_group const* group;
    wave* first;
    standing how;
    int waves = 0;
  };
  std::map<std::string, alike> kinds;
  for (resident_group* g : s.groups())
    for (wave* w : g->waves) {
      if (w->state == wave_state::ended) continue;
      standing how = standing_of(*w);
      if (all_wait && how == standing::runs) how = standing::silent;
      std::string const what = how == standing::polls  ? std::to_string(w->pending->polls.last.address)
                               : how == standing::runs ? std::to_string(w->pc)
                                                       : "";
      std::string const key =
          std::to_string(g->from->gpu) + g->from->kernel->name + std::to_string(static_cast<int>(how)) + "." + what;
      auto [it, fresh] = kinds.try_emplace(key, alike{g, w, how});
      ++it->second.waves;
    }
  std::size_t lines = 0;
  for (auto& [key, k] : kinds) {
    if (++lines > most_lines) {
      std::fprintf(stderr, "  ... and %zu more\n", kinds.size() - most_lines);
      break;
    }
    wave& w = *k.first;
    std::fprintf(stderr, "  %s, wave %u", who(*k.group).c_str(), w.index);
    if (k.waves > 1) std::fprintf(stderr, " (and %d waves like it)", k.waves - 1);
    if (k.how != standing::polls) {
      char const* const does = k.how == standing::at_barrier ? " waits at a barrier"
                               : k.how == standing::silent   ? " runs on without touching global memory"
                                                             : " runs";
      std::fprintf(stderr, "%s\n    %s\n", does, place_of(w).c_str());
      continue;
    }
    auto const& poll = w.pending->polls.last;
    allocation const* a = n.memory.find(poll.address);
    std::fprintf(stderr, " polls %s", describe(n.memory, poll.address, a).c_str());
    if (a && a->live) std::fprintf(stderr, "; memory holds 0x%x there", word_at(poll.address));
    u32 const pc = std::exchange(w.pc, poll.pc);
    std::fprintf(stderr, "\n    %s\n", place_of(w).c_str());
    w.pc = pc;
    if (std::string const why = s.memory().hidden(poll.address, k.group->memory); !why.empty())
      std::fprintf(stderr, "    %s\n", why.c_str());
  }
  for (auto const& l : s.launches()) {
    u64 const started = l->started;
    if (started < l->total)
      std::fprintf(stderr,
                   "  GPU %d, kernel %s: %llu of %llu workgroups have not started, because the %d CUs of the GPU%s are "
                   "full: they are not co-resident\n",
                   l->gpu, l->kernel->demangled.c_str(), static_cast<unsigned long long>(l->total - started),
                   static_cast<unsigned long long>(l->total), static_cast<int>(l->cus.count()),
                   static_cast<int>(l->cus.count()) < n.settings.cus ? " that its mask leaves" : "");
  }
}

}  // namespace

void report_deadlock(node& n, scheduler& s) {
  std::fprintf(stderr, "fusewire-sim: deadlock: no memory changes any more and every wave waits\n");
  print_waves(n, s, true);
  finish();
}

void report_livelock(node& n, scheduler& s, u64 instructions) {
  std::fprintf(
      stderr,
      "fusewire-sim: no workgroup has begun or ended for %llu instructions, which may be a livelock; it goes on\n",
      static_cast<unsigned long long>(instructions));
  print_waves(n, s, false);
}

void report_interrupt(node& n, scheduler& s) {
  std::fprintf(stderr, "fusewire-sim: interrupted\n");
  print_waves(n, s, false);
}

}  // namespace fusewire::sim
