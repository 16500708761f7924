// make_world(): a world that outlives the call. A rank that cannot make it, or that fails in it, ends the others at
// once with its reason. Started as processes under fusewire-sim.
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_options.hpp>

#include <chrono>
#include <cstdio>

using namespace fusewire;

namespace {

void expect(bool ok, std::string const& what) {
  if (!ok) throw std::logic_error("wrong: " + what);
}

/// Calls f, which must throw peer_failed with `piece` on every rank but `cause`, which throws `Cause`. It takes less
/// than 20 s, and not the minutes that ranks wait for each other.
template <class Cause, class F>
void fails_everywhere(int rank, int cause, std::string const& piece, F f) {
  auto const start = std::chrono::steady_clock::now();
  try {
    f();
    throw std::logic_error("nothing was thrown");
  } catch (peer_failed const& e) {
    expect(rank != cause, text("the rank that failed was told of another: ", e.what()));
    expect(std::string(e.what()).find(piece) != std::string::npos, text("'", piece, "' is not in: ", e.what()));
  } catch (Cause const&) {
    expect(rank == cause, "a rank that did not fail threw what the other did");
  }
  expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(20), "the others were told late");
}

/// The session of all, to which further bootstraps are added by split().
std::unique_ptr<bootstrap> again(bootstrap& all) { return all.split(0); }

}  // namespace

int main() {
  try {
    tcp_options const o = tcp_options::from_environment();
    int const last = o.size - 1;
    world w = make_world();
    expect(w.rank() == o.rank && w.size() == o.size, "the rank and the size");
    expect(w.device() == o.local_rank, text("device ", w.device()));
    w.barrier();
    world moved = std::move(w);
    expect(moved.exchange().all_gather(moved.rank()).size() == std::size_t(o.size), "a world that has been moved");

    bootstrap& all = moved.exchange();
    {  // of one's own bootstrap
      world other = make_world(again(all), moved.device());
      other.barrier();
    }
    // A device that does not exist, on the last rank alone; the others wait for it in the constructor
    fails_everywhere<bad_argument>(o.rank, last, text("rank ", last, ": world: device 1000"),
                                   [&] { make_world(again(all), o.rank == last ? 1000 : moved.device()); });
    // A failure later on, which the caller tells
    fails_everywhere<std::runtime_error>(o.rank, last, text("rank ", last, ": no tokens"), [&] {
      world other = make_world(again(all), moved.device());
      try {
        if (o.rank == last) throw std::runtime_error("no tokens");
        other.barrier();
      } catch (std::runtime_error const& e) {
        if (o.rank == last) other.fail(e.what());
        throw;
      }
    });
    try {
      make_world(nullptr, 0);
      throw std::logic_error("no bootstrap was accepted");
    } catch (bad_argument const&) {}
    moved.barrier();  // all is well for the others
    if (o.rank == 0) std::puts("passed");
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
