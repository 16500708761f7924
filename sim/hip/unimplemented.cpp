// Weak definitions of the whole interface. Those that other files define replace them; a call of one that is left ends
// the process with its name.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "machine/config.hpp"

[[noreturn]] static void unimplemented(char const* name) {
  std::fflush(stdout);
  std::fprintf(stderr, "fusewire-sim: %s is not implemented\n", name);
  _exit(fusewire::sim::exit_code_of_a_report);
}

#define SYMBOL(name) \
  extern "C" [[gnu::weak, noreturn]] void name() { unimplemented(#name); }
#include "hip/symbols.inc"
#undef SYMBOL
