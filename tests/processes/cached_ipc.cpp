// A node that maps uncached memory with caches through IPC handles: making a heap fails on every rank, with a sentence
// that says so. Run with FUSEWIRE_SIM_CACHED_IPC=1; ends with 0 when every rank was told.
#include <fusewire/fusewire.hpp>

#include <chrono>
#include <cstdio>

using namespace fusewire;

int main() {
  try {
    run_processes([](world& w) {
      try {
        heap const h(w, {.bulk = 1_MiB, .signal = 64_KiB, .wait_limit = std::chrono::milliseconds(100)});
      } catch (runtime_failure const& e) {
        std::string const said = e.what();
        std::printf("rank %d: %s\n", w.rank(), said.c_str());
        for (char const* piece : {"polled its signal segment for 2000 ms", "saw nothing of what rank",
                                  "cached where it must not be (through IPC", "cached_ipc.cpp"})
          if (said.find(piece) == said.npos) throw error(text("'", piece, "' is not in: ", said));
        return;
      }
      throw error("the heap was made");
    });
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
