// What every engine must do, whatever carries it: two ends, which two threads drive, or two processes.
#pragma once
#include <fusewire/nodes/engine.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace conformance {

using fusewire::engine;
using fusewire::engine_put;

/// How the two ends learn of each other, and meet: not by the engine. Gives back what the other end passes.
using swap_bytes = std::function<std::vector<std::byte>(std::vector<std::byte> const&)>;

struct shape {
  int rounds = 40, window = 8;    // rounds of so many puts, whose flags nobody waits for one by one
  std::size_t words = 1000;       // of a put
  std::uint64_t wrong_flags = 0;  // found: a flag whose bytes had not come
  std::uint64_t wrong_order = 0;  // found: an earlier put that came after a later one
};

/// One end, rank `me` of two. Both ends put to each other at once.
///   Promise 1: a put's flag is its number; who finds it finds the words of that put, or of a later one to the place.
///   Promise 2: a place is put to again when progress() has named the put before. Its flag never goes back.
/// Fails: std::runtime_error when a put does not come within 20 s.
inline void one_end(engine& e, int me, swap_bytes const& swap, shape& s) {
  int const peer = 1 - me;
  auto const theirs = swap(e.address());
  e.connect(peer, theirs);
  std::vector<std::uint64_t> inbox(s.words * std::size_t(s.window)), flags(std::size_t(s.window)), out = inbox;
  std::uint64_t* regions[] = {inbox.data(), flags.data()};
  std::size_t const bytes[] = {inbox.size() * 8, flags.size() * 8};
  for (int i = 0; i < 2; ++i) {
    int const region = e.expose(regions[i], bytes[i]);
    if (region != i) throw std::runtime_error("regions are numbered from 0 on");
    auto const key = swap(e.key(region));
    e.accept_key(peer, region, key);
  }
  (void)swap({});
  std::set<std::uint64_t> under_way;
  std::vector<std::uint64_t> done, seen(std::size_t(s.window)), most = seen;
  auto const start = std::chrono::steady_clock::now();
  auto const look = [&] {
    done.clear();
    e.progress(done);
    for (auto const t : done)
      if (under_way.erase(t) != 1) throw std::runtime_error("a ticket was named that is not under way");
    for (std::size_t i = 0; i < seen.size(); ++i) {
      auto const value = std::atomic_ref(flags[i]).load(std::memory_order_acquire);
      if (value < seen[i]) ++s.wrong_order;
      seen[i] = value, most[i] = std::max(most[i], value);
      if (value == 0) continue;
      // A later put may be on its way, so words may be newer than the flag, and never older
      for (std::size_t k : {std::size_t(0), s.words / 2, s.words - 1})
        if (std::atomic_ref(inbox[i * s.words + k]).load(std::memory_order_relaxed) < value) ++s.wrong_flags;
    }
    std::this_thread::yield();  // two ends may share a core
    if (auto const f = e.failure()) throw std::runtime_error("failure: " + f->why);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) throw std::runtime_error("no end");
  };
  std::uint64_t number = 0;
  for (int round = 1; round <= s.rounds; ++round)
    for (std::size_t i = 0; i < seen.size(); ++i) {
      std::uint64_t const ticket = std::uint64_t(i);
      while (under_way.contains(ticket)) look();
      number = std::uint64_t(round);
      for (std::size_t k = 0; k < s.words; ++k) out[i * s.words + k] = number;
      under_way.insert(ticket);
      while (!e.put({.ticket = ticket,
                     .peer = peer,
                     .region = 0,
                     .flag_region = 1,
                     .from = out.data() + i * s.words,
                     .bytes = s.words * 8,
                     .to = i * s.words * 8,
                     .flag = i * 8,
                     .value = number}))
        look();
    }
  while (!under_way.empty() || !e.settled()) look();
  for (bool all = false; !all;) {
    look();
    all = true;
    for (auto const v : most) all &= v == number;
  }
  // The flag alone
  auto const before = seen[0];
  while (!e.put({.ticket = 0, .peer = peer, .flag_region = 1, .flag = 0, .value = before})) look();
  under_way.insert(0);
  while (!under_way.empty() || !e.settled()) look();
  // The other end may need this one's progress until it is through
  auto met = std::async(std::launch::async, [&] { (void)swap({}); });
  while (met.wait_for(std::chrono::seconds(0)) != std::future_status::ready) look();
  met.get();
}

/// Two threads of this process, and how they swap.
class two_threads {
 public:
  swap_bytes end(int me) {
    return [this, me](std::vector<std::byte> const& mine) {
      std::unique_lock lock(m_);
      auto const round = rounds_[me]++;
      slots_[me].push_back(mine);
      news_.notify_all();
      if (!news_.wait_for(lock, std::chrono::seconds(30), [&] { return slots_[1 - me].size() > round; }))
        throw std::runtime_error("the other end is gone");
      return slots_[1 - me][round];
    };
  }

 private:
  std::mutex m_;
  std::condition_variable news_;
  std::size_t rounds_[2] = {};
  std::vector<std::vector<std::byte>> slots_[2];
};

/// Both ends, each driven by a thread. `make(rank)` makes one.
inline shape check(std::function<std::unique_ptr<engine>(int rank)> const& make, shape const& s) {
  two_threads wire;
  shape found[2] = {s, s};
  std::string failed[2];
  auto const end = [&](int me) {
    try {
      auto const e = make(me);
      one_end(*e, me, wire.end(me), found[me]);
    } catch (std::exception const& x) {
      failed[me] = x.what();
    }
  };
  std::thread other(end, 1);
  end(0);
  other.join();
  for (auto const& f : failed)
    if (!f.empty()) throw std::runtime_error(f);
  found[0].wrong_flags += found[1].wrong_flags;
  found[0].wrong_order += found[1].wrong_order;
  return found[0];
}

}  // namespace conformance
