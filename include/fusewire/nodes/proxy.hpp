// The host thread of a rank that reaches other nodes: it takes descriptors out of the rank's ring, has an engine make
// the puts, and tells far ranks and this rank's kernels of failures.
//
//   ring --> pending --> engine.put() --> engine.progress(): its source may be written again --> done, in order
//   a kernel of this rank gave up (its alarm) --> mail to far ranks
//   mail, or a rank that cannot be reached --> all waits of this rank's kernels end
//
// On fusewire-sim's clock there is no thread: its turns are calls at times of the machine (simulated_turns).
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fusewire/memory/alarm.hpp>
#include <fusewire/nodes/engine.hpp>
#include <fusewire/nodes/put_ring.hpp>
#include <fusewire/nodes/simulated_turns.hpp>

namespace fusewire::detail {

/// What a proxy works on; all of it lives longer. Memory of the host, but for what descriptors name.
struct proxy_parts {
  fusewire::engine* engine;
  put_descriptor* ring;  // [size]
  int size;
  flag* done;
  std::uint64_t* mail;     // [ranks of all nodes]: what each of them has written to this rank
  int mail_region;         // its number for the engine
  std::vector<int> peers;  // far ranks that the engine is connected to
  int rank;                // this rank, among those of all nodes
  std::shared_ptr<fusewire::detail::alarm> alarm;
  std::vector<unsigned*> waits_of_near;  // watch::abandoned of the other ranks of this node
  int near_rank;                         // this rank, among those of the heap
};

class proxy {
 public:
  explicit proxy(proxy_parts p)
      : parts_(std::move(p)),
        turns_(parts_.engine->is_simulated(), parts_.ring, std::size_t(parts_.size) * sizeof(put_descriptor),
               [this] { return turn_on_clock(); }) {
    if (!turns_.on()) thread_ = std::thread([this] { run(); });
  }
  proxy(proxy const&) = delete;
  /// Tells far ranks that this one leaves. Lets what is under way arrive, for at most `limit`.
  void leave(std::chrono::nanoseconds limit) {
    {
      std::lock_guard const lock(m_);
      send_mail(gone);
    }
    (void)drain(limit);
  }
  ~proxy() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Waits until everything that kernels have asked for has arrived, for at most `limit`. Returns whether it has.
  /// Requires: no kernel asks for more.
  bool drain(std::chrono::nanoseconds limit) {
    auto const start = std::chrono::steady_clock::now();
    for (;;) {
      {
        std::lock_guard const lock(m_);
        if (!broken_.empty()) return false;
        if (turns_.on()) parts_.engine->hurry(true), (void)turn(), parts_.engine->hurry(false);
        if (!has_work() && parts_.engine->settled()) return true;
      }
      if (std::chrono::steady_clock::now() - start > limit) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  /// f(), while the thread does nothing.
  template <class F>
  auto locked(F const& f) {
    std::lock_guard const lock(m_);
    return f();
  }
  /// Neither sends nor reads mail until renew().
  void pause() {
    std::lock_guard const lock(m_);
    paused_ = true;
  }
  /// The ring is empty and its tickets begin with 0; no far rank has written. Requires: nothing is under way.
  void renew() {
    std::lock_guard const lock(m_);
    for (int i = 0; i < parts_.size; ++i) std::atomic_ref(parts_.ring[i].number).store(0, std::memory_order_relaxed);
    for (int p : parts_.peers) std::atomic_ref(parts_.mail[p]).store(0, std::memory_order_relaxed);
    std::atomic_ref(parts_.done->value).store(0, std::memory_order_release);
    pending_.clear(), over_.clear(), mail_out_.clear(), gone_.clear();
    next_ = left_ = 0;
    told_ = paused_ = false;
  }
  /// Puts that the engine has taken so far.
  std::uint64_t puts() const { return puts_; }

 private:
  static constexpr std::uint64_t gave_up = 1, gone = 2;             // mail
  static constexpr std::uint64_t is_mail = std::uint64_t(1) << 63;  // in a put's ticket

  void run() {
    auto const outside = simulator::get().outside;
    if (outside) outside(1);
    for (int idle = 0; !stop_;) {
      std::unique_lock lock(m_);
      bool const worked = guarded_turn();
      lock.unlock();
      idle = worked ? 0 : idle + 1;
      // It shares the cores with threads that launch
      if (idle > 200) std::this_thread::sleep_for(std::chrono::microseconds(20));
      else if (idle > 20) std::this_thread::yield();
    }
    if (outside) outside(-1);
  }

  /// As the next, with the lock. Returns whether there is more to do.
  bool turn_on_clock() {
    std::lock_guard const lock(m_);
    (void)guarded_turn();
    return broken_.empty() && (has_work() || !parts_.engine->settled());
  }
  /// turn(); what it throws ends the waits of all kernels.
  bool guarded_turn() {
    try {
      return turn();
    } catch (std::exception const& e) {
      broken_ = text("the thread of rank ", parts_.rank, " for other nodes has failed: ", e.what());
      end_waits(broken_);
      return false;
    }
  }
  /// Returns whether anything went on. Requires: the lock.
  bool turn() {
    if (!broken_.empty()) return end_waits(broken_), false;
    bool worked = take();
    while (!pending_.empty() && parts_.engine->put(pending_.front())) pending_.pop_front(), ++puts_, worked = true;
    while (!mail_out_.empty() && parts_.engine->put(mail_out_.front())) mail_out_.pop_front(), worked = true;
    done_.clear();
    parts_.engine->progress(done_);
    for (auto const ticket : done_)
      if (!(ticket & is_mail)) over_.insert(ticket);
    std::uint64_t const before = left_;
    while (over_.erase(left_)) ++left_;
    if (left_ != before) std::atomic_ref(parts_.done->value).store(left_, std::memory_order_release);
    look_for_failures();
    return worked || !done_.empty();
  }
  bool take() {
    bool any = false;
    for (;;) {
      put_descriptor& d = parts_.ring[next_ % unsigned(parts_.size)];
      if (std::atomic_ref(d.number).load(std::memory_order_acquire) != next_ + 1) return any;
      pending_.push_back({.ticket = next_++,
                          .peer = int(d.where & 0xffff),
                          .region = int(d.where >> 16 & 0xffff),
                          .flag_region = int(d.where >> 32 & 0xffff),
                          .from = reinterpret_cast<void const*>(d.from),
                          .bytes = d.bytes,
                          .to = d.to,
                          .flag = d.flag,
                          .value = d.value});
      any = true;
    }
  }
  bool has_work() {
    auto const& d = parts_.ring[next_ % unsigned(parts_.size)];
    return !pending_.empty() || !mail_out_.empty() || left_ != next_ ||
           std::atomic_ref(const_cast<std::uint64_t&>(d.number)).load(std::memory_order_acquire) == next_ + 1;
  }

  void look_for_failures() {
    if (paused_) return;
    for (int p : parts_.peers) {
      auto const word = std::atomic_ref(parts_.mail[p]).load(std::memory_order_acquire);
      if (word == gone) gone_.insert(p);
      if (word == gave_up)
        end_waits(text("a launch of rank ", p, ", on another node, has failed, and its error says why"));
    }
    while (auto const f = parts_.engine->failure())
      if (!gone_.contains(f->peer))
        end_waits(text("rank ", f->peer, " cannot be reached any more by ", parts_.engine->name(), ": ", f->why));
    if (!told_ && parts_.alarm->raised()) told_ = true, send_mail(gave_up);
  }
  void end_waits(std::string const& why) {
    if (std::exchange(told_, true)) return;
    parts_.alarm->failed(why);
    parts_.alarm->end_waits_of(parts_.waits_of_near, parts_.near_rank);
  }
  void send_mail(std::uint64_t word) {
    for (int p : parts_.peers)
      if (!gone_.contains(p))
        mail_out_.push_back({.ticket = is_mail,
                             .peer = p,
                             .flag_region = parts_.mail_region,
                             .flag = std::uint64_t(parts_.rank) * sizeof word,
                             .value = word});
  }

  proxy_parts parts_;
  std::mutex m_;
  std::deque<engine_put> pending_, mail_out_;
  std::uint64_t next_ = 0, left_ = 0;  // tickets: to take next; the first that has not left
  std::set<std::uint64_t> over_;       // left, while an earlier one has not
  std::set<int> gone_;                 // far ranks that have left
  std::vector<std::uint64_t> done_;
  bool told_ = false;  // far ranks, or this rank's kernels, that a launch has failed
  bool paused_ = false;
  std::string broken_;  // why it does nothing any more
  std::atomic<std::uint64_t> puts_ = 0;
  std::atomic<bool> stop_ = false;
  simulated_turns turns_;
  std::thread thread_;  // the last: it uses all others
};

}  // namespace fusewire::detail
