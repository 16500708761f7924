// What takes the place of a thread that polls where time is fusewire-sim's.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include <fusewire/memory/simulator.hpp>

namespace fusewire::detail {

/// Turns of a thread that polls, on fusewire-sim's clock: one a while after each store to the ring, and then one each
/// such while for as long as there is something to do.
class simulated_turns {
 public:
  static constexpr double us = 0.5;  // from a store to the turn that finds it, and from turn to turn; an assumption

  /// Does nothing without that clock, or if not `wanted`. turn(): returns whether there is more to do.
  simulated_turns(bool wanted, void const* ring, std::size_t bytes, std::function<bool()> turn)
      : ring_(ring), bytes_(bytes), shared_(std::make_shared<shared>(std::move(turn))) {
    auto const& sim = simulator::get();
    on_ = wanted && sim.watch &&
          sim.watch(ring, bytes, [](void* s) { stored(*static_cast<shared*>(s)); }, shared_.get()) == 0;
  }
  simulated_turns(simulated_turns const&) = delete;
  ~simulated_turns() {
    if (on_) (void)simulator::get().watch(ring_, bytes_, nullptr, nullptr);
    std::lock_guard const lock(shared_->m);
    shared_->turn = nullptr;
  }
  bool on() const { return on_; }

 private:
  struct shared : std::enable_shared_from_this<shared> {
    explicit shared(std::function<bool()> f) : turn(std::move(f)) {}
    std::mutex m;
    std::function<bool()> turn;  // none: its owner is no more
    bool comes = false;          // a turn
  };

  static void stored(shared& s) {
    std::lock_guard const lock(s.m);
    if (std::exchange(s.comes, true)) return;
    simulator::get().after(us, take, new std::shared_ptr(s.shared_from_this()));
  }
  static void take(void* context) {
    std::unique_ptr<std::shared_ptr<shared>> const owner(static_cast<std::shared_ptr<shared>*>(context));
    shared& s = **owner;
    std::lock_guard const lock(s.m);
    s.comes = s.turn && s.turn();
    if (s.comes) simulator::get().after(us, take, new std::shared_ptr(*owner));
  }

  void const* ring_;
  std::size_t bytes_;
  std::shared_ptr<shared> shared_;
  bool on_ = false;
};

}  // namespace fusewire::detail
