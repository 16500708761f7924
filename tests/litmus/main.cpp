// The table of questions, and the program that asks them and prints every answer.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "questions.hpp"

namespace litmus {

std::vector<question> const& questions() {
  static std::vector<question> const all{
      {"kernel_end_reaches_peers",
       "Kernel 1 writes its own GPU's memory on all XCDs. Kernel 2 follows it on the stream, and releases and signals "
       "from one block. Does a peer that waits for the signal read what kernel 1 wrote?",
       "HIP ends a dispatch with a release at agent scope (ROCclr, AMD_OPT_FLUSH=1). LLVM's memory model then promises "
       "the lines to the same GPU; no source says whether a read over xGMI finds them.",
       "yes", "no: kernel 2 writes back the L2 of its own XCD only, and lines of the other XCDs are stale at the peer",
       "device/channel_view.hpp: begin_readable releases from each XCD what earlier kernels wrote, for ag_gemm's "
       "pulls; with the strong answer begin() would do",
       answer::weak, kernel_end_reaches_peers},
      {"kernel_end_pushes_to_peers",
       "Kernel 1 stores into a peer's memory from all XCDs. Kernel 2 follows it on the stream, and releases and "
       "signals "
       "from one block. Does the peer see what kernel 1 stored?",
       "An agent-scope release does not write back lines of other GPUs' memory (LLVM: buffer_wbl2 sc1), and "
       "AMD_OPT_FLUSH=1 is agent scope.",
       "yes", "no: lines of the peer stay in the L2s of the XCDs that stored them",
       "device/channel_view.hpp: a kernel signals what it has stored itself; device/flag.hpp: signal", answer::weak,
       kernel_end_pushes_to_peers},
      {"shared_lines",
       "Two writers share lines of 128 bytes; each writes every second byte. Do all bytes arrive, even if one writer "
       "still holds its own bytes, not written back, when those of the other arrive?",
       "C++ lets threads write neighbouring bytes, so L2s need masks. LLVM says that probes keep lines of local memory "
       "right. No source says so about a line with dirty bytes that a peer writes.",
       "all bytes arrive", "bytes are lost, or stale after an acquire",
       "ops/detail/ag_gemm_kernel.hpp: pieces of an inbox are cut at 16 bytes; comm/all_gather/gather_map.hpp; "
       "device/memory.hpp: copy_bytes",
       answer::strong, shared_lines},
      {"uncached_through_ipc",
       "Is hipDeviceMallocUncached memory uncached in a peer's mapping, too: by peer access, and by an IPC handle?",
       "No source says which memory type the mapping of hipIpcOpenMemHandle has; an allocator has been seen to drop "
       "the flag.",
       "yes: even agent-scope loads and stores of the peer bypass its L2",
       "no: its L2 keeps lines, and only accesses at system scope bypass it",
       "device/flag.hpp, device/ll.hpp, device/channel_view.hpp: system scope at every access; memory/heap.hpp: "
       "checked when a heap is made",
       answer::weak, uncached_through_ipc},
      {"counted_stores",
       "A block stores at device scope, waits until the stores are counted (vmcnt), and raises a flag at device scope, "
       "without a writeback. Do loads at device scope on another XCD bring what it stored?",
       "LLVM: a store at agent scope is written through (sc1), but every release has a writeback, too. CDNA3: vmcnt "
       "counts a store that is in the L2.",
       "yes", "no: the flag overtakes stores", "gemm/gfx942/split_k_workspace.hpp: sums of blocks that share a tile",
       answer::strong, counted_stores},
      {"writeback_delay",
       "A flag is stored right after buffer_wbl2, without a wait. Does it overtake the lines that are being written "
       "back?",
       "LLVM: a writeback is complete when vmcnt says so, and not before; no source says how late that is.",
       "no: the flag arrives after the lines", "yes: words are stale when the flag is seen",
       "platform/amd/: fence, atomic_store and read-modify-writes wait behind each writeback", answer::weak,
       writeback_delay},
      {"late_atomics",
       "All waves add to a peer's words without asking for the result. After s_barrier the leader alone releases. Can "
       "atomics of the other waves be late?",
       "CDNA3: s_barrier waits for no memory operation. LLVM: a release of one wave covers no other wave's operations.",
       "no", "yes: atomics are missing when the flag is seen",
       "device/flag.hpp: signal and signal_all drain every wave (platform::drain_stores)", answer::weak, late_atomics},
      {"late_loads",
       "All waves load. After s_barrier the leader says that there is room, and the owner writes new values. Can loads "
       "of the other waves bring the new values?",
       "CDNA3: a load returns when vmcnt says so; s_barrier does not wait for it.", "no",
       "yes: loads bring what was written after the leader's word",
       "device/flag.hpp: signal; device/channel_pull.hpp: acknowledge drains every wave", answer::weak, late_loads},
      {"first_xcd", "Which XCD gets block 0, and does block i go to the XCD after that of block i-1?",
       "AMD says that XCDs take blocks in turn; no source promises which XCD is first.", "block i on XCD i mod 8",
       "the turn begins on any XCD", "ranks/world.hpp: cus_per_rank relies on the turn, not on where it begins",
       answer::weak, first_xcd},
      {"dispatch_order", "Do blocks start in order, and are all blocks that fit co-resident?",
       "No source promises an order.", "in order", "in any order; those that fit are co-resident nevertheless",
       "launch/launch.hpp: launch relies on all blocks that fit being co-resident", answer::weak, dispatch_order},
      {"clocks", "Do s_memrealtime's readings compare across XCDs and GPUs, and how many ticks does a second have?",
       "CDNA3: a constant clock, 100 MHz on MI300X; no source says that the counters of XCDs or GPUs "
       "start together.",
       "they compare", "they differ by more than a round trip explains",
       "device/watchdog.hpp: bounded_spin compares readings of one wave only; platform/amd/execution.hpp: clock_ns "
       "takes a tick "
       "for "
       "10 "
       "ns",
       answer::weak, clocks},
      {"scalar_cache", "Does a scalar load after an acquire see memory that changed during the kernel?",
       "LLVM: scalar and vector L1 are not coherent, and scalar loads are used for memory that is constant during a "
       "kernel.",
       "yes", "no: the old value stays",
       "core/matrix.hpp: views of memory that a peer writes are never const __restrict__", answer::weak, scalar_cache},
      {"flag_round_trip", "Does a flag of each peer arrive in polled signal memory, and how long is a round trip?",
       "No source is needed: everything depends on it.", "it arrives", "it does not",
       "device/flag.hpp: signal and wait; memory/heap.hpp: checked when a heap is made", answer::strong,
       flag_round_trip},
  };
  return all;
}

namespace {

struct options {
  std::string only, json, expect;
  int ranks = 0, rounds = 0;
  bool help = false, list = false;
};

constexpr char const* usage =
    R"(usage: fusewire_litmus [--only NAME] [--rounds N] [--ranks N] [--json FILE] [--expect weak|strong] [--list]

Asks the machine what no primary source promises. Prints for each question the answer of this machine, both possible
answers, and what in fusewire depends on it. One rank per GPU, as threads; processes where a launcher starts them
(scripts/run-ranks, fusewire-sim --processes).

  --only NAME    one question
  --rounds N     how often each is asked (100; 8 under fusewire-sim)
  --ranks N      ranks, where they are threads (one per GPU, at most 8)
  --json FILE    the answers as JSON
  --expect WHICH the exit status is 0 if the questions asked are answered so, 3 if not
  --list         the names of the questions

Exit status without --expect: 0 when the library is right on this machine, 1 when an answer breaks it or a run went
wrong. 77: nothing could be asked.
)";

options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    std::string const a = argv[i];
    auto const value = [&]() -> std::string {
      if (i + 1 == argc) throw error(a + ": a value is missing");
      return argv[++i];
    };
    auto const number = [&] {
      std::string const v = value();
      int const n = std::atoi(v.c_str());
      if (n < 1) throw error(text(a, " ", v, "; expected a number from 1 on"));
      return n;
    };
    if (a == "--help" || a == "-h") o.help = true;
    else if (a == "--list") o.list = true;
    else if (a == "--only") o.only = value();
    else if (a == "--json") o.json = value();
    else if (a == "--expect") o.expect = value();
    else if (a == "--rounds") o.rounds = number();
    else if (a == "--ranks") o.ranks = number();
    else throw error(a + ": unknown; --help says what there is");
  }
  if (!o.expect.empty() && o.expect != "weak" && o.expect != "strong")
    throw error("--expect " + o.expect + "; expected weak or strong");
  if (!o.only.empty() && std::ranges::none_of(questions(), [&](question const& q) { return q.name == o.only; }))
    throw error("--only " + o.only + ": no such question; --list says what there is");
  return o;
}

char const* name_of(answer a) {
  switch (a) {
    case answer::strong: return "strong";
    case answer::weak: return "weak";
    case answer::skipped: return "skipped";
    case answer::broken: return "broken";
  }
  return "";
}

struct row {
  question const* q;
  outcome said;
};

bool holds(row const& r) {
  return r.said.is == answer::skipped || r.said.is == answer::strong ||
         (r.said.is == answer::weak && r.q->needed == answer::weak);
}

/// Prints a line of the table: a title, and a text that is wrapped below itself.
void print(char const* what, std::string const& content) {
  constexpr std::size_t width = 104;
  std::printf("  %-11s", what);
  for (std::size_t at = 0; at < content.size();) {
    std::size_t end = content.size();
    if (end - at > width) {
      end = content.rfind(' ', at + width);
      if (end == content.npos || end <= at) end = at + width;
    }
    std::printf("%s%s\n", at ? "             " : "", content.substr(at, end - at).c_str());
    at = end + (end < content.size());
  }
}

void print(row const& r) {
  std::printf("\n%s: %s%s\n", r.q->name, name_of(r.said.is), holds(r) ? "" : "  <-- NOT RIGHT HERE");
  print("question", r.q->asks);
  print("sources", r.q->sources);
  print("here", r.said.text);
  print("strong", r.q->strong);
  print("weak", r.q->weak + std::string(r.q->needed == answer::weak ? " (the library is right with either)"
                                                                    : " (the library needs the strong answer)"));
  print("depends", r.q->depends);
  std::fflush(stdout);
}

std::string quoted(std::string const& s) {
  std::string q = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') q += '\\';
    q += c;
  }
  return q + '"';
}

void write_json(std::string const& path, std::string const& machine, std::vector<row> const& rows) {
  std::ofstream out(path);
  out << "{\n  \"machine\": " << quoted(machine) << ",\n  \"answers\": [";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    row const& r = rows[i];
    out << (i ? "," : "") << "\n    {\"name\": " << quoted(r.q->name) << ", \"answer\": " << quoted(name_of(r.said.is))
        << ", \"needed\": " << quoted(name_of(r.q->needed)) << ", \"seen\": " << quoted(r.said.text)
        << ", \"depends\": " << quoted(r.q->depends) << "}";
  }
  out << "\n  ]\n}\n";
  if (!out.flush()) throw error("cannot write " + path);
}

int run_all(options const& o) {
  bool const simulated = dlsym(RTLD_DEFAULT, "fusewireSimStats") != nullptr;
  int const devices = device_count();
  if (devices == 0) throw error("no GPU; without one, start the program with fusewire-sim");
  int const ranks = o.ranks ? o.ranks : std::min(devices, 8), rounds = o.rounds ? o.rounds : simulated ? 8 : 100;
  int status = 0;
  run(ranks, [&](world& w) {
    heap h(w, {.bulk = 2_MiB, .signal = 1_MiB});
    context c(w, h, rounds);
    hipDeviceProp_t p;
    check_hip(hipGetDeviceProperties(&p, w.device()), "hipGetDeviceProperties");
    char const* const flush = std::getenv("AMD_OPT_FLUSH");
    std::string const machine = text(w.size(), w.size() == 1 ? " rank" : " ranks",
                                     started_as_processes() ? ", a process each" : ", threads of a process", ", ",
                                     p.name, simulated ? ", simulated" : "", ", AMD_OPT_FLUSH ",
                                     flush ? flush : "as it is by default", ", ", rounds, " rounds");
    if (w.rank() == 0) std::printf("%s\n", machine.c_str());
    std::vector<row> rows;
    for (question const& q : questions()) {
      if (!o.only.empty() && o.only != q.name) continue;
      rows.push_back({&q, q.ask(c)});
      if (w.rank() == 0) print(rows.back());
      w.barrier();
    }
    if (w.rank() != 0) return;
    auto const count = [&](auto f) { return std::ranges::count_if(rows, f); };
    std::printf("\n%td asked: %td strong, %td weak, %td skipped, %td broken; the library is %s\n",
                std::ptrdiff_t(rows.size()), count([](row const& r) { return r.said.is == answer::strong; }),
                count([](row const& r) { return r.said.is == answer::weak; }),
                count([](row const& r) { return r.said.is == answer::skipped; }),
                count([](row const& r) { return r.said.is == answer::broken; }),
                std::ranges::all_of(rows, holds) ? "right with these answers" : "NOT RIGHT WITH THESE ANSWERS");
    if (!o.json.empty()) write_json(o.json, machine, rows);
    if (std::ranges::all_of(rows, [](row const& r) { return r.said.is == answer::skipped; })) status = 77;
    else if (o.expect.empty()) status = !std::ranges::all_of(rows, holds);
    else if (count([](row const& r) { return r.said.is == answer::broken; })) status = 1;
    else status = std::ranges::all_of(rows, [&](row const& r) { return name_of(r.said.is) == o.expect; }) ? 0 : 3;
  });
  return status;
}

}  // namespace
}  // namespace litmus

int main(int argc, char** argv) {
  try {
    litmus::options const o = litmus::parse(argc, argv);
    if (o.help) return std::printf("%s", litmus::usage), 0;
    if (o.list) {
      for (litmus::question const& q : litmus::questions()) std::printf("%s\n", q.name);
      return 0;
    }
    return litmus::run_all(o);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "fusewire_litmus: %s\n", e.what());
    return 2;
  }
}
