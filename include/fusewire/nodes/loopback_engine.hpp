// An engine without a network, for tests: ranks of one process copy into each other's memory. What it delays, reorders
// and loses is drawn from a seed, within what an engine promises.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>

#include <fusewire/memory/simulator.hpp>
#include <fusewire/nodes/engine.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire {

/// What a loopback_engine does with puts.
struct loopback_options {
  /// Of all that is drawn; each rank draws something else
  unsigned seed = 1;
  /// Most calls of progress() until a put's bytes leave, and again until they arrive. Puts overtake each other
  int delay = 0;
  /// This put of the rank is lost: its number from 0 on; -1: none
  std::int64_t lose = -1;
  /// Puts with bytes and a value that is a multiple of 3 take so many calls more to arrive
  int hold = 0;
  /// From this put on nothing leaves; -1: never
  std::int64_t stall = -1;
  /// On fusewire-sim's clock, a NIC for each rank: bytes per us and direction, us from a byte's leaving to its arrival,
  /// and us of the thread for each put. 0 bytes per us: no such clock, and `delay` counts
  double bytes_per_us = 0, one_way_us = 0, post_us = 0;
  /// Breaks promise 1 of an engine, for tests that must notice: a flag arrives before its bytes
  bool flag_first = false;
  /// Breaks promise 2: later puts overtake those that progress() has named
  bool overtakes_done = false;
};

/// The memory that ranks of one process have exposed to each other.
class loopback_network {
 public:
  /// All ranks are one program's.
  loopback_network() = default;
  loopback_network(loopback_network const&) = delete;

 private:
  friend class loopback_engine;
  struct region {
    std::byte* at;
    std::size_t bytes;
  };
  std::mutex m_;
  std::map<int, std::vector<region>> exposed_;  // by rank
  std::map<int, double> receives_until_;        // by rank: us of the clock
};

/// A rank's end. Requires: the host can write exposed memory: memory of the host or, under fusewire-sim, any.
class loopback_engine final : public engine {
 public:
  /// `rank`: this rank among those of all nodes.
  loopback_engine(std::shared_ptr<loopback_network> network, int rank, loopback_options const& o = {})
      : network_(std::move(network)), rank_(rank), options_(o), random_(o.seed * 2654435761u + unsigned(rank)) {}
  ~loopback_engine() override {
    std::lock_guard const lock(network_->m_);
    network_->exposed_.erase(rank_);
  }
  std::string name() const override { return "the loopback engine"; }

  std::vector<std::byte> address() override {
    std::vector<std::byte> mine(sizeof(whereabouts));
    whereabouts const here{::getpid(), network_.get()};
    std::memcpy(mine.data(), &here, sizeof here);
    return mine;
  }
  void connect(int peer, std::span<std::byte const> address) override {
    whereabouts there{};
    std::memcpy(&there, address.data(), std::min(address.size(), sizeof there));
    require<runtime_failure>(there.process == ::getpid() && there.network == network_.get(),
                             std::source_location::current(), "loopback_engine: rank ", peer,
                             " is not on this loopback_network of this process; expected an engine over a network");
  }
  int expose(void* at, std::size_t bytes) override {
    std::lock_guard const lock(network_->m_);
    auto& mine = network_->exposed_[rank_];
    mine.push_back({static_cast<std::byte*>(at), bytes});
    return int(mine.size()) - 1;
  }
  std::vector<std::byte> key(int) override { return {}; }
  void accept_key(int, int, std::span<std::byte const>) override {}

  bool put(engine_put const& p) override {
    flight f{.put = p, .number = puts_++, .leaves_in = draw(), .arrives_in = draw()};
    if (is_timed()) time(f);
    if (options_.hold && p.bytes && p.value % 3 == 0) f.arrives_in += options_.hold;
    if (options_.flag_first && p.bytes) f.arrives_in += 1 + draw();
    for (flight const& before : flying_)
      if (before.put.peer == p.peer && before.left && !options_.overtakes_done) f.behind.push_back(before.number);
    flying_.push_back(std::move(f));
    return true;
  }
  void progress(std::vector<std::uint64_t>& done) override {
    for (flight& f : flying_) {
      if (options_.stall >= 0 && f.number >= options_.stall) continue;
      if (!f.left) {
        if (is_timed() ? now() < f.leaves_at : f.leaves_in-- > 0) continue;
        auto const* from = static_cast<std::byte const*>(f.put.from);
        f.bytes.assign(from, from + f.put.bytes);
        f.left = true;
        if (f.number != options_.lose && options_.flag_first && f.put.bytes) raise(f.put);
        done.push_back(f.put.ticket);
      }
      if ((is_timed() ? now() < f.arrives_at : f.arrives_in-- > 0) ||
          std::ranges::any_of(f.behind, [&](auto n) { return flies(n); }))
        continue;
      if (f.number != options_.lose) arrive(f);
      f.over = true;
    }
    std::erase_if(flying_, [](flight const& f) { return f.over; });
  }
  bool is_simulated() const override { return true; }
  void hurry(bool on) override { hurry_ = on; }
  bool settled() override { return flying_.empty(); }
  std::optional<engine_failure> failure() override { return std::nullopt; }

 private:
  struct whereabouts {
    pid_t process;
    loopback_network const* network;
  };
  struct flight {
    engine_put put;
    std::int64_t number;
    int leaves_in, arrives_in;             // calls of progress()
    double leaves_at = 0, arrives_at = 0;  // us of the clock
    bool left = false, over = false;
    std::vector<std::byte> bytes = {};
    std::vector<std::int64_t> behind = {};  // these arrive first
  };

  bool is_timed() const { return options_.bytes_per_us > 0; }
  double now() const { return hurry_ ? HUGE_VAL : detail::simulator::get().now(); }
  /// A put's bytes follow those of earlier ones out of this rank's NIC, and of whatever comes before them into the
  /// peer's.
  void time(flight& f) {
    if (hurry_) return;
    double const wire = double(f.put.bytes) / options_.bytes_per_us;
    posted_until_ = std::max(posted_until_, now()) + options_.post_us;
    double const begin = std::max(posted_until_, sends_until_);
    sends_until_ = f.leaves_at = begin + wire;
    std::lock_guard const lock(network_->m_);
    double& receives_until = network_->receives_until_[f.put.peer];
    receives_until = f.arrives_at = std::max(begin + options_.one_way_us, receives_until) + wire;
  }
  int draw() { return options_.delay ? int(random_() % unsigned(options_.delay + 1)) : 0; }
  bool flies(std::int64_t number) const {
    return std::ranges::any_of(flying_, [&](flight const& f) { return f.number == number && !f.over; });
  }
  /// `bytes` bytes of the peer; null when the peer has gone. Requires: the lock.
  std::byte* at(int peer, int region, std::uint64_t offset, std::size_t bytes) const {
    auto const theirs = network_->exposed_.find(peer);
    if (theirs == network_->exposed_.end()) return nullptr;
    auto const& r = theirs->second.at(std::size_t(region));
    require<out_of_space>(offset <= r.bytes && bytes <= r.bytes - offset, std::source_location::current(),
                          "loopback_engine: a put of ", bytes, " bytes to byte ", offset, " of region ", region,
                          " of rank ", peer, ", which has ", r.bytes);
    return r.at + offset;
  }
  void arrive(flight const& f) const {
    {
      std::lock_guard const lock(network_->m_);
      auto* const to = f.bytes.empty() ? nullptr : at(f.put.peer, f.put.region, f.put.to, f.bytes.size());
      if (to) std::memcpy(to, f.bytes.data(), f.bytes.size());
    }
    if (!options_.flag_first || f.bytes.empty()) raise(f.put);
  }
  void raise(engine_put const& p) const {
    std::lock_guard const lock(network_->m_);
    if (auto* const word = at(p.peer, p.flag_region, p.flag, sizeof p.value))
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word)).store(p.value, std::memory_order_release);
  }

  std::shared_ptr<loopback_network> network_;
  int rank_;
  loopback_options options_;
  std::mt19937 random_;
  std::vector<flight> flying_;
  std::int64_t puts_ = 0;
  bool hurry_ = false;
  double posted_until_ = 0, sends_until_ = 0;  // us of the clock
};

}  // namespace fusewire
