// A rank that unmaps its peers' memory late: nobody frees what it still has open, neither where all ranks have ended a
// heap, nor with the world, nor where a rank leaves one by an exception. Started as processes under fusewire-sim, which
// reports memory that is freed too early.
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>
#include <fusewire/ranks/tcp_options.hpp>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace fusewire;

namespace {

/// Another bootstrap, whose collectives return late on this rank once it is asked to be late.
class late_bootstrap final : public bootstrap {
 public:
  late_bootstrap(std::unique_ptr<bootstrap> b, bool const& late) : b_(std::move(b)), late_(late) {}
  int rank() const override { return b_->rank(); }
  int size() const override { return b_->size(); }
  using bootstrap::all_gather;
  std::vector<std::byte> all_gather(void const* mine, std::size_t bytes) override {
    auto all = b_->all_gather(mine, bytes);
    if (late_) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return all;
  }
  std::unique_ptr<bootstrap> split(int color) override { return b_->split(color); }
  void fail(std::string const& why) override { b_->fail(why); }
  void keep(std::shared_ptr<void> what) override { b_->keep(std::move(what)); }

 private:
  std::unique_ptr<bootstrap> b_;
  bool const& late_;
};

constexpr heap_options small{.bulk = 1_MiB, .signal = 64_KiB};

}  // namespace

int main() {
  try {
    platform::prepare_runtime(false);
    auto const session = std::make_shared<tcp_session>(tcp_options::from_environment());
    bool late = false;
    world w(std::make_unique<late_bootstrap>(std::make_unique<tcp_bootstrap>(session), late), session->rank());
    { heap const h(w, small); }
    late = w.rank() == 1;
    w.collect();
    late = false;
    {
      world part = w.split(0);
      heap const h(part, small);
    }
    try {
      heap const h(w, small);
      late = w.rank() == 1;
      if (w.rank() == 0) {
        w.exchange().fail("rank 0 leaves");
        throw error("rank 0 leaves");
      }
    } catch (error const& e) {
      std::printf("rank %d: %s\n", w.rank(), e.what());
    }
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
