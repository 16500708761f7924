// fusewire-sim: runs a HIP program on simulated GPUs. It sets the environment and replaces itself by the program.
#include <elf.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr char usage[] = R"(usage: fusewire-sim [options] program [arguments]

Runs a HIP program that was compiled for gfx942 on simulated MI300X, in one process on the CPU.

  --gpus N               GPUs of the node, 1 to 16 (default 8)
  --cus N                compute units per GPU, 1 to 304 (default 304); few make co-residency deadlocks show
  --seed N               of the interleaving and of the memory system's delays (default 1)
  --memory weak|strong   weak: as gfx942's memory model allows, caches and all (default)
                         strong: every access reaches memory at once, in order
  --stats                at exit, print launches, instructions and bytes over links
  --help

The same can be set as FUSEWIRE_SIM_GPUS, _CUS, _SEED, _MEMORY and _STATS for a program that is started directly with the
simulator's libamdhip64.so.7 on LD_LIBRARY_PATH.
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
  fail("its libamdhip64.so.7 is not beside it (looked in " + (here / "lib").string() + " and " + (here / "../lib/fusewire-sim").lexically_normal().string() + ")");
}

void check_number(std::string const& option, std::string const& value, unsigned long long low, unsigned long long high) {
  char* end = nullptr;
  errno = 0;
  unsigned long long const n = std::strtoull(value.c_str(), &end, 0);
  if (value.empty() || *end || errno || value[0] == '-' || n < low || n > high)
    fail(option + " " + value + ": expected a number from " + std::to_string(low) + " to " + std::to_string(high));
}

}  // namespace

int main(int argc, char** argv) {
  int i = 1;
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
    if (option == "--stats") {
      setenv("FUSEWIRE_SIM_STATS", "1", 1);
      continue;
    }
    if (size_t const equals = option.find('='); equals != option.npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else {
      if (option != "--gpus" && option != "--cus" && option != "--seed" && option != "--memory") fail("unknown option " + option + "; see --help");
      if (++i == argc) fail(option + " needs a value");
      value = argv[i];
    }
    if (option == "--gpus") check_number(option, value, 1, 16), setenv("FUSEWIRE_SIM_GPUS", value.c_str(), 1);
    else if (option == "--cus") check_number(option, value, 1, 304), setenv("FUSEWIRE_SIM_CUS", value.c_str(), 1);
    else if (option == "--seed") check_number(option, value, 0, ~0ull), setenv("FUSEWIRE_SIM_SEED", value.c_str(), 1);
    else if (option == "--memory" && (value == "weak" || value == "strong")) setenv("FUSEWIRE_SIM_MEMORY", value.c_str(), 1);
    else if (option == "--memory") fail("--memory " + value + ": expected weak or strong");
    else fail("unknown option " + option + "; see --help");
  }
  if (i >= argc) {
    std::fputs(usage, stderr);
    return 2;
  }
  fs::path const program = find_program(argv[i]);
  if (program.empty()) fail(std::string(argv[i]) + ": no such program", 127);
  if (access(program.c_str(), X_OK) != 0 || fs::is_directory(program)) fail(program.string() + " cannot be executed", 126);
  check_program(program);

  std::string libraries = library_directory().string();
  if (char const* before = std::getenv("LD_LIBRARY_PATH"); before && *before) libraries += std::string(":") + before;
  setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
  execv(program.c_str(), argv + i);
  fail(program.string() + ": " + std::strerror(errno), 126);
}
