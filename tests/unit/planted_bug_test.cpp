// Bugs planted in a kernel: the checks of this suite must notice them. Bugs in memory order show on the simulator,
// whose memory is as weak as gfx942's model allows; on a GPU they may not show.
#include "channel_kernels.hpp"

#include <dlfcn.h>

#include <cstdlib>

using namespace support;

namespace {

bool memory_is_simulated_and_weak() {
  char const* const memory = std::getenv("FUSEWIRE_SIM_MEMORY");
  return dlsym(RTLD_DEFAULT, "fusewireSimStats") != nullptr && !(memory && std::string(memory) == "strong");
}

/// How many words were wrong on all ranks, over `launches` launches; -1 when a wait expired.
template <planted Bug>
long long wrong_words(int ranks, int launches, ownership const& own, int straggler) {
  heap_options o = small_heap();
  o.wait_limit = std::chrono::milliseconds(300);
  auto const wrong_of = on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, gather_channel(600));
        auto const wrong = r.heap.allocate<unsigned>(1);
        r.fill(wrong, 0);
        load_kernel(r.world, gather_words<Bug>, 256);
        r.meet();
        try {
          for (int i = 0; i < launches; ++i) {
            gather_words_args const a{
                .own = own, .wrong = r.here(wrong), .delay_ns = r.rank() == straggler ? 100'000u : 0u};
            r.launch({2, 256}, gather_words<Bug>, ch.view(header_of(a.own)), a);
          }
          r.world.check(r.stream);
          r.note = text(r.download(wrong)[0]);
        } catch (wait_timeout const&) {
          r.note = "-1";
        }
        r.meet();
      },
      o);
  long long all = 0;
  for (auto const& n : wrong_of) {
    if (n == "-1") return -1;
    all += std::stoll(n);
  }
  return all;
}

/// Whether any of ten attempts shows wrong words. One attempt is enough if the seed decides; with several processes the
/// system decides how they interleave.
template <planted Bug>
bool is_noticed(ownership const& own) {
  long long wrong = 0;
  for (int attempt = 0; attempt < 10 && wrong == 0; ++attempt) wrong = wrong_words<Bug>(2, 40, own, -1);
  return wrong > 0;
}

ownership shares(std::initializer_list<int> counts) {
  ownership o;
  int r = 0;
  for (int n : counts) o.count[r++] = n;
  for (r = 0; r < 8; ++r) o.before[r + 1] = o.before[r] + o.count[r];
  return o;
}

}  // namespace

TEST_CASE("planted bug: none, and nothing is wrong") {
  CHECK(wrong_words<planted::nothing>(2, 40, shares({600, 600}), -1) == 0);
  CHECK(wrong_words<planted::nothing>(2, 20, shares({600, 0}), 1) == 0);
}

TEST_CASE("planted bug: a leader that signals before the block's stores have arrived") {
  if (!memory_is_simulated_and_weak()) SKIP("needs fusewire-sim with weak memory");
  CHECK(is_noticed<planted::no_drain>(shares({600, 600})));
}

TEST_CASE("planted bug: a wait without an acquire") {
  if (!memory_is_simulated_and_weak()) SKIP("needs fusewire-sim with weak memory");
  CHECK(is_noticed<planted::no_acquire>(shares({600, 600})));
}

TEST_CASE("planted bug: no credit, so a fast rank laps one that owns nothing") {
  CHECK(wrong_words<planted::no_credit>(2, 20, shares({600, 0}), 1) != 0);
}
