#include "machine/shared_node.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "machine/address_space.hpp"

namespace fusewire::sim {
namespace {

/// The letter that /proc gives a thread or process: R running, S sleeping, Z ended and not waited for, ...; 0 when it
/// does not exist.
char state_of(std::string const& directory) {
  std::ifstream stat(directory + "/stat");
  std::string line;
  std::getline(stat, line);
  auto const name_end = line.rfind(')');
  return name_end != std::string::npos && name_end + 2 < line.size() ? line[name_end + 2] : '\0';
}

bool lives(u32 pid) {
  char const s = state_of("/proc/" + std::to_string(pid));
  return s && s != 'Z' && s != 'X';
}

[[noreturn]] void refuse(char const* path, char const* why) {
  std::fprintf(stderr, "fusewire-sim: FUSEWIRE_SIM_SHARED=%s: %s\n", path, why);
  std::_Exit(exit_code_of_a_report);
}

}  // namespace

bool computes(int pid, std::span<int const> but) {
  std::string const tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* d = opendir(tasks.c_str());
  if (!d) return false;
  bool found = false;
  while (dirent const* entry = readdir(d)) {
    int const id = std::atoi(entry->d_name);
    if (id == 0 || std::ranges::find(but, id) != but.end()) continue;
    char const s = state_of(tasks + "/" + entry->d_name);
    found |= s == 'R' || s == 'D';
  }
  closedir(d);
  return found;
}

std::unique_ptr<shared_node> shared_node::from_environment(int gpus) {
  char const* const path = std::getenv("FUSEWIRE_SIM_SHARED");
  if (!path || !*path) return nullptr;
  std::unique_ptr<shared_node> n(new shared_node);
  n->file_ = open(path, O_RDWR | O_CLOEXEC);
  if (n->file_ < 0)
    refuse(path, "cannot be opened; fusewire-sim --processes makes such a file, and an empty one in /dev/shm will do");
  auto const bytes = static_cast<off_t>(memory_at + static_cast<u64>(gpus + 1) * address_space::region_bytes);
  struct stat s;
  if (fstat(n->file_, &s) != 0 || (s.st_size < bytes && ftruncate(n->file_, bytes) != 0))
    refuse(path, "cannot be made as large as the node's memory (it is sparse)");
  n->id_ = s.st_ino;
  void* const p = mmap(nullptr, memory_at, PROT_READ | PROT_WRITE, MAP_SHARED, n->file_, 0);
  if (p == MAP_FAILED) refuse(path, "cannot be mapped");
  n->header_ = static_cast<header*>(p);
  static_assert(sizeof(header) <= memory_at && memory_at % 4096 == 0);
  u32 nobody = 0;
  while (n->process_ < most_processes && !n->mine().pid.compare_exchange_strong(nobody, static_cast<u32>(getpid())))
    ++n->process_, nobody = 0;
  if (n->process_ == most_processes) refuse(path, "more than 64 processes have used it");
  return n;
}

bool shared_node::note_open(u64 base) {
  for (std::atomic<u64>& o : header_->opened)
    if (u64 nothing = 0;
        o.load(std::memory_order_relaxed) == 0 && o.compare_exchange_strong(nothing, opened_here(base)))
      return true;
  return false;
}

void shared_node::note_closed(u64 base) {
  for (std::atomic<u64>& o : header_->opened)
    if (u64 here = opened_here(base); o.compare_exchange_strong(here, 0)) return;
}

int shared_node::opened_by(u64 base) const {
  for (std::atomic<u64> const& o : header_->opened) {
    u64 const at = o.load();
    if (at == 0 || (at & ~most_of_page) != base) continue;
    int const process = static_cast<int>(at & most_of_page) - 1;
    if (lives(header_->slots[process].pid.load(std::memory_order_relaxed))) return process;
  }
  return -1;
}

bool shared_node::others_rest() const {
  for (int i = 0; i < most_processes; ++i) {
    slot const& s = header_->slots[i];
    u32 const pid = s.pid.load(std::memory_order_relaxed);
    if (!pid) break;
    if (i == process_) continue;
    doing const d = s.what.load(std::memory_order_relaxed);
    if (d == doing::running ? lives(pid) : d == doing::host_code && computes(static_cast<int>(pid))) return false;
  }
  return true;
}

bool shared_node::all_stalled() const {
  for (slot const& s : header_->slots) {
    u32 const pid = s.pid.load(std::memory_order_relaxed);
    if (!pid) break;
    if (s.what.load(std::memory_order_relaxed) != doing::stalled && lives(pid)) return false;
  }
  return true;
}

}  // namespace fusewire::sim
