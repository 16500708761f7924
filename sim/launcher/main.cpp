// fusewire-sim: runs a HIP program on simulated GPUs. It sets the environment and replaces itself by the program, or
// starts it as several processes.
#include <arpa/inet.h>
#include <elf.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fusewire/version.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr char usage[] = R"(usage: fusewire-sim [options] program [arguments]

Runs a HIP program that was compiled for gfx942 on simulated MI300X, on the CPU.

  --gpus N               GPUs of the node, 1 to 16 (default 8)
  --cus N                compute units per GPU, 1 to 304 (default 304); few make co-residency deadlocks show
  --partitions N         each GPU shows itself as N devices, 1, 2, 4 or 8 (DPX, QPX, CPX), with as many XCDs
                         and compute units fewer
  --seed N               of the interleaving and of the memory system's delays (default 1)
  --memory weak|strong   weak: as gfx942's memory model allows, caches and all (default)
                         strong: every access reaches memory at once, in order
  --time                 runs with a clock: what programs and --stats say of time are simulated microseconds, a
                         projection of what an MI300X would take (docs/simulator.md); takes the place of --memory, and
                         of --processes
  --mhz N                engine clock of --time (default 2100)
  --timing NAME=VALUE,...  other constants for the clock than those in sim/machine/timing.hpp
  --trace FILE           with --time: kernels, workgroups and links over time, for ui.perfetto.dev
  --processes N          starts N processes of the program that share the GPUs' memory, with RANK, WORLD_SIZE,
                         LOCAL_RANK, MASTER_ADDR and MASTER_PORT set as torchrun does; when one fails, the others have
                         20 s to say so
  --stats                at exit, print launches, instructions and bytes over links; with --time also where the
                         time of each kernel went
  --stats-json FILE      the same of --time, for programs
  --count-calls          at exit, print how often each HIP call was made that can fail
  --fail-call N[:NAME]   the N-th of these calls fails (the N-th of that name), with an error that it may have
  --leaks                at exit, print what the program did not give back; exit status 86 if there is anything
  --races                report accesses of two kernels, or of two workgroups, to the same bytes that nothing orders,
                         whether or not this run reads wrong values: no flag, stream, event or wait of the host
                         (docs/simulator.md, "Races"); excludes --time and --processes
  --patience MS          how long nothing may move before it is a time-out or a deadlock, while other host threads
                         sleep (default 3000); excludes --processes, whose time-outs take the time that they name
  --livelock N           after N instructions in which no workgroup began or ended, print where every wave stands, and
                         go on (default 2000000000)
  --help, --version

SIGINT prints where every wave stands, and ends the program.
The same can be set as FUSEWIRE_SIM_GPUS, _CUS, _PARTITIONS, _SEED, _MEMORY, _TIME, _MHZ, _TIMING, _TRACE, _STATS,
_STATS_JSON, _COUNT_CALLS, _FAIL_CALL, _LEAKS, _RACES, _PATIENCE and _LIVELOCK for a program
that is started directly with the simulator's libamdhip64.so.7 on LD_LIBRARY_PATH.
A fault, a broken barrier or a deadlock on a simulated GPU ends the program with a report and exit status 86.
)";

[[noreturn]] void fail(std::string const& text, int status = 2) {
  std::fprintf(stderr, "fusewire-sim: %s\n", text.c_str());
  std::exit(status);
}

/// As execvp would find it.
fs::path find_program(std::string const& name) {
  if (name.find('/') != name.npos) return fs::exists(name) ? fs::path(name) : fs::path();
  std::string const path = std::getenv("PATH") ? std::getenv("PATH") : "";
  for (size_t at = 0; at <= path.size();) {
    size_t const end = std::min(path.find(':', at), path.size());
    fs::path const candidate = fs::path(path.substr(at, end - at)) / name;
    if (access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate)) return candidate;
    at = end + 1;
  }
  return {};
}

bool contains(fs::path const& file, std::string const& text) {
  std::ifstream in(file, std::ios::binary);
  std::string window;
  std::vector<char> block(1 << 20);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0) {
    window.append(block.data(), static_cast<size_t>(in.gcount()));
    if (window.find(text) != window.npos) return true;
    window.erase(0, window.size() > text.size() ? window.size() - text.size() : 0);
  }
  return false;
}

/// Only a program that was linked with the HIP runtime, or a script that starts one, can be meant.
void check_program(fs::path const& program) {
  char head[5] = {};
  std::ifstream(program, std::ios::binary).read(head, 4);
  if (std::memcmp(head, "#!", 2) == 0) return;
  if (std::memcmp(head, ELFMAG, SELFMAG) != 0) fail(program.string() + " is not an executable");
  if (!contains(program, "libamdhip64.so.6") || contains(program, "libamdhip64.so.7")) return;
  fail(program.string() + " needs libamdhip64.so.6; the simulator stands in for libamdhip64.so.7 (ROCm 7)");
}

fs::path library_directory() {
  fs::path const here = fs::read_symlink("/proc/self/exe").parent_path();
  for (char const* candidate : {"lib", "../lib/fusewire-sim"}) {
    fs::path const directory = fs::weakly_canonical(here / candidate);
    if (fs::exists(directory / "libamdhip64.so.7")) return directory;
  }
  fail("its libamdhip64.so.7 is not beside it (looked in " + (here / "lib").string() + " and " +
       (here / "../lib/fusewire-sim").lexically_normal().string() + ")");
}

void check_number(std::string const& option, std::string const& value, unsigned long long low,
                  unsigned long long high) {
  char* end = nullptr;
  errno = 0;
  unsigned long long const n = std::strtoull(value.c_str(), &end, 0);
  if (value.empty() || *end || errno || value[0] == '-' || n < low || n > high)
    fail(option + " " + value + ": expected a number from " + std::to_string(low) + " to " + std::to_string(high));
}

int free_port() {
  int const s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  if (s < 0 || bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 ||
      getsockname(s, reinterpret_cast<sockaddr*>(&a), &n) != 0)
    fail("no free port", 1);
  close(s);
  return ntohs(a.sin_port);
}

/// What only the processes of one job know: they take no other for one of theirs.
std::string job_secret() {
  unsigned char bits[16];
  if (getentropy(bits, sizeof bits) != 0) fail(std::string("getentropy: ") + std::strerror(errno), 1);
  std::string digits;
  for (unsigned char b : bits) digits += {"0123456789abcdef"[b >> 4], "0123456789abcdef"[b & 15]};
  return digits;
}

/// One process per rank. The first that fails decides the result; the others may still report before they are killed.
int run_processes(int count, fs::path const& program, char** arguments) {
  int const memory = memfd_create("fusewire-sim", MFD_CLOEXEC);
  if (memory < 0) fail(std::string("memfd_create: ") + std::strerror(errno), 1);
  setenv("FUSEWIRE_SIM_SHARED", ("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory)).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(count).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(free_port()).c_str(), 1);
  setenv("FUSEWIRE_JOB", job_secret().c_str(), 1);
  pid_t const parent = getpid();
  sigset_t child_ended, before;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ended, &before);
  std::vector<pid_t> ranks;
  for (int r = 0; r < count; ++r) {
    pid_t const p = fork();
    if (p < 0) {
      for (pid_t q : ranks) kill(q, SIGKILL);
      fail(std::string("fork: ") + std::strerror(errno), 1);
    }
    if (p == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      sigprocmask(SIG_SETMASK, &before, nullptr);
      setenv("RANK", std::to_string(r).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(r).c_str(), 1);
      execv(program.c_str(), arguments);
      fail(program.string() + ": " + std::strerror(errno), 126);
    }
    ranks.push_back(p);
  }
  std::signal(SIGINT, SIG_IGN);  // the ranks say where they stand, and end by it
  int result = 0, left = count;
  time_t kill_at = 0;
  while (left) {
    int status = 0;
    for (pid_t p; left && (p = waitpid(-1, &status, WNOHANG)) > 0; --left) {
      int const code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code && !result) result = code, kill_at = time(nullptr) + 20;
      std::erase(ranks, p);
    }
    if (!left) break;
    if (kill_at && time(nullptr) >= kill_at)
      for (pid_t p : ranks) kill(p, SIGKILL);
    timespec const moment{1, 0};
    sigtimedwait(&child_ended, nullptr, &moment);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  int i = 1, processes = 0;
  for (; i < argc && argv[i][0] == '-'; ++i) {
    std::string option = argv[i], value;
    if (option == "--") {
      ++i;
      break;
    }
    if (option == "--help" || option == "-h") {
      std::fputs(usage, stdout);
      return 0;
    }
    if (option == "--version") {
      std::printf("fusewire-sim %d.%d.%d\n", FUSEWIRE_VERSION / 10000, FUSEWIRE_VERSION / 100 % 100,
                  FUSEWIRE_VERSION % 100);
      return 0;
    }
    if (option == "--time" || option == "--races") {
      setenv(option == "--time" ? "FUSEWIRE_SIM_TIME" : "FUSEWIRE_SIM_RACES", "1", 1);
      continue;
    }
    if (option == "--stats" || option == "--count-calls" || option == "--leaks") {
      setenv(option == "--stats"   ? "FUSEWIRE_SIM_STATS"
             : option == "--leaks" ? "FUSEWIRE_SIM_LEAKS"
                                   : "FUSEWIRE_SIM_COUNT_CALLS",
             "1", 1);
      continue;
    }
    if (size_t const equals = option.find('='); equals != option.npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else {
      static std::set<std::string> const with_value = {
          "--gpus",     "--cus",      "--partitions", "--seed",   "--memory", "--processes", "--fail-call",
          "--patience", "--livelock", "--mhz",        "--timing", "--trace",  "--stats-json"};
      if (!with_value.contains(option)) fail("unknown option " + option + "; see --help");
      if (++i == argc) fail(option + " needs a value");
      value = argv[i];
    }
    if (option == "--gpus") check_number(option, value, 1, 16), setenv("FUSEWIRE_SIM_GPUS", value.c_str(), 1);
    else if (option == "--cus") check_number(option, value, 1, 304), setenv("FUSEWIRE_SIM_CUS", value.c_str(), 1);
    else if (option == "--partitions")
      check_number(option, value, 1, 8), setenv("FUSEWIRE_SIM_PARTITIONS", value.c_str(), 1);
    else if (option == "--seed") check_number(option, value, 0, ~0ull), setenv("FUSEWIRE_SIM_SEED", value.c_str(), 1);
    else if (option == "--processes") check_number(option, value, 1, 64), processes = std::stoi(value);
    else if (option == "--memory" && (value == "weak" || value == "strong"))
      setenv("FUSEWIRE_SIM_MEMORY", value.c_str(), 1);
    else if (option == "--patience")
      check_number(option, value, 1, 3'600'000), setenv("FUSEWIRE_SIM_PATIENCE", value.c_str(), 1);
    else if (option == "--mhz") check_number(option, value, 100, 10'000), setenv("FUSEWIRE_SIM_MHZ", value.c_str(), 1);
    else if (option == "--timing") setenv("FUSEWIRE_SIM_TIMING", value.c_str(), 1);
    else if (option == "--stats-json") setenv("FUSEWIRE_SIM_STATS_JSON", value.c_str(), 1);
    else if (option == "--trace") setenv("FUSEWIRE_SIM_TRACE", value.c_str(), 1);
    else if (option == "--livelock")
      check_number(option, value, 1, ~0ull), setenv("FUSEWIRE_SIM_LIVELOCK", value.c_str(), 1);
    else if (option == "--fail-call")
      check_number(option, value.substr(0, value.find(':')), 1, ~0ull),
          setenv("FUSEWIRE_SIM_FAIL_CALL", value.c_str(), 1);
    else if (option == "--memory") fail("--memory " + value + ": expected weak or strong");
    else fail("unknown option " + option + "; see --help");
  }
  if (i >= argc) {
    std::fputs(usage, stderr);
    return 2;
  }
  fs::path const program = find_program(argv[i]);
  if (program.empty() && fs::exists(argv[i]))
    fail(std::string(argv[i]) + ": not in PATH; is ./" + argv[i] + " meant?", 127);
  if (program.empty()) fail(std::string(argv[i]) + ": no such program", 127);
  if (access(program.c_str(), X_OK) != 0 || fs::is_directory(program))
    fail(program.string() + " cannot be executed", 126);
  check_program(program);

  if (processes && std::getenv("FUSEWIRE_SIM_PATIENCE"))
    fail("--patience has no effect with --processes: time-outs take the time that they name there, and a deadlock is "
         "one after 10 s; expected one of the two options");

  std::string libraries = library_directory().string();
  if (char const* before = std::getenv("LD_LIBRARY_PATH"); before && *before) libraries += std::string(":") + before;
  setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
  if (processes) return run_processes(processes, program, argv + i);
  execv(program.c_str(), argv + i);
  fail(program.string() + ": " + std::strerror(errno), 126);
}
