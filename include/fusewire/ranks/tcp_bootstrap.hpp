// Ranks that are processes: they find each other over TCP, by the environment variables of torchrun.
#pragma once
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <fusewire/ranks/failure_listeners.hpp>
#include <fusewire/ranks/tcp_join.hpp>

namespace fusewire {

/// One process's place among its peers, from the time when all of them have come until all of them have left or died.
/// All groups of ranks that this process is in share it. One thread at a time may use it. A thread of its own reads
/// what the hub sends, because a failure of another rank comes unasked, and ends waits on the device while this process
/// may sit in any call of HIP's. A forked child is not one of the peers: its calls fail.
class tcp_session {
 public:
  /// Collective.
  /// Fails: bootstrap_failed on every rank that could be reached. It says which rank is missing, wrong or dead, at
  /// which address, and what was expected. It comes within connect_timeout, or a few seconds later: only the hub knows
  /// the reason.
  explicit tcp_session(tcp_options o) : options_(bounded(std::move(o))) {
    require(options_.size >= 1 && options_.size <= max_ranks && options_.rank >= 0 && options_.rank < options_.size,
            std::source_location::current(), "tcp_session: rank ", options_.rank, " of ", options_.size,
            "; expected rank 0 to size - 1 of 1 to ", max_ranks);
    auto const deadline = detail::now() + options_.connect_timeout;
    link_.where = text(options_.address, ":", options_.port);
    detail::tcp_join const join(options_);
    if (options_.rank == 0) hub_ = join.listen(link_);
    else join.connect(link_, deadline);
    for (bool welcome = false; !welcome;) {
      // Once the hub has accepted this rank, the hub is the one that times out; it knows which ranks are missing
      auto f = receive(deadline + patience);
      if (f && f->header.kind == detail::frame_kind::fail) throw bootstrap_failed(text(who(), f->text()));
      if (!f)
        throw bootstrap_failed(text(who(),
                                    failure_.empty() ? text("no answer from rank 0 at ", link_.where, " within ",
                                                            detail::seconds_of(options_.connect_timeout), " s")
                                                     : failure_,
                                    "; the ", options_.size, " ranks had not all come yet"));
      welcome = f->header.kind == detail::frame_kind::welcome;
    }
    reader_ = std::make_unique<std::thread>([this] { read(); });
  }
  tcp_session(tcp_session const&) = delete;
  /// Waits until every rank has left or died, for at most collective_timeout, or failure_timeout when this rank has
  /// failed. Then it frees what was kept. If the time is over, or rank 0 is gone, some rank may still use that memory,
  /// so it stays as long as the process. When the wait takes long, standard error says so, and why this rank failed,
  /// because its exception has not been seen yet.
  ~tcp_session() {
    if (process_ != ::getpid()) {  // a forked child's copy, without the hub's thread
      (void)hub_.release();
      (void)reader_.release();
      return;
    }
    bool all_gone = false;
    if (failure_.empty() && !abandoned_) {
      link_.queue(detail::frame_kind::leave, 0, "");
      bool const failed = !reason_.empty();
      auto const limit = failed ? options_.failure_timeout : options_.collective_timeout;
      auto const quiet = std::min<std::chrono::milliseconds>(limit, std::chrono::seconds(failed ? 1 : 30));
      auto const start = detail::now();
      bool over = wait_for_all(start + quiet);
      if (!over && quiet < limit) {
        std::string const why = failed ? reason_ : text("rank ", options_.rank, " of ", options_.size, " has returned");
        std::fprintf(stderr, "fusewire: %s; waiting up to %g s for the other ranks to end\n", why.c_str(),
                     detail::seconds_of(limit));
        over = wait_for_all(start + limit);
      }
      all_gone = over && failure_.empty();
    }
    if (!all_gone && size() > 1) (void)new auto(std::move(kept_));
    ::shutdown(link_.fd(), SHUT_RDWR);  // the thread that reads ends
    reader_->join();
    link_.close();
    hub_.reset();
  }

  /// This rank's number, from 0 on.
  int rank() const { return options_.rank; }
  /// Ranks of the job.
  int size() const { return options_.size; }
  /// This rank's number among those of its host.
  int local_rank() const { return options_.local_rank; }

  /// This rank will come to no further collective of the group, nor of groups split from it. Ranks that wait there are
  /// told why.
  void fail(std::uint64_t group, std::string const& why) {
    if (!failure_.empty()) return;
    if (group == 0 && reason_.empty()) reason_ = why;
    link_.queue(detail::frame_kind::fail, group, why.substr(0, 65536));
    (void)link_.flush(detail::now() + patience);
  }
  /// This rank will come to no further collective of the group, without an error.
  void leave(std::uint64_t group) {
    if (!failure_.empty()) return;
    link_.queue(detail::frame_kind::leave, group, "");
    (void)link_.flush(detail::now() + patience);
  }

  /// As bootstrap::listen().
  void listen(std::uint64_t group, std::weak_ptr<failure_listener> l) {
    std::lock_guard const lock(m_);
    auto const why = failed_.find(group);
    listeners_[group].add(std::move(l), why == failed_.end() ? gone_ : why->second);
  }
  /// Keeps `what` until every rank of the group has left it, or the session.
  void keep(std::shared_ptr<void> what, std::uint64_t group = 0) { kept_[group].push_back(std::move(what)); }
  /// This rank leaves, and the end of the session waits for nobody. What is kept stays as long as the process.
  void abandon() {
    leave(0);
    abandoned_ = true;
  }

  /// One collective. Fails: peer_failed when it cannot complete.
  std::vector<std::byte> request(detail::frame_kind kind, std::uint64_t group, void const* mine, std::size_t bytes) {
    require(bytes <= detail::largest_request, std::source_location::current(), "all_gather: ", bytes,
            " bytes; expected at most ", detail::largest_request);
    auto const cannot_complete = [&](std::string const& why) {
      return peer_failed(text("this collective cannot complete: ", why));
    };
    if (!failure_.empty()) throw cannot_complete(failure_);
    link_.queue(kind, group, mine, bytes);
    auto f = answer(detail::now() + options_.collective_timeout + patience);
    if (!f && failure_.empty())
      failure_ = text(who(), "no answer from rank 0 at ", link_.where, " within ",
                      detail::seconds_of(options_.collective_timeout), " s");
    if (!f) throw cannot_complete(failure_);
    if (f->header.kind == detail::frame_kind::fail) throw cannot_complete(f->text());
    return std::move(f->payload);
  }

 private:
  static constexpr auto patience = detail::tcp_patience;
  static tcp_options bounded(tcp_options o) {
    for (auto* limit : {&o.connect_timeout, &o.collective_timeout, &o.failure_timeout})
      *limit = detail::bounded(*limit);
    return o;
  }
  std::string who() const { return text("rank ", options_.rank, " of ", options_.size, ": "); }
  /// Sends what is queued, then returns the next frame. Returns nothing when the deadline has passed or when the hub is
  /// gone, which sets failure_.
  std::optional<detail::frame> receive(detail::time_point deadline) {
    bool const alive = link_.flush(deadline);
    if (!reader_ || process_ != ::getpid()) return link_.read_frame(deadline, alive, failure_);
    std::unique_lock lock(m_);
    came_.wait_until(lock, deadline, [&] { return !frames_.empty() || !gone_.empty(); });
    if (frames_.empty()) return failure_ = gone_, std::nullopt;
    detail::frame f = std::move(frames_.front());
    frames_.pop_front();
    return f;
  }
  /// The thread that reads: answers wait for receive(), failures are told immediately.
  void read() {
    for (std::string problem; problem.empty();) {
      auto f = link_.read_frame(detail::now() + std::chrono::hours(1), true, problem);
      std::lock_guard const lock(m_);
      if (f && f->header.kind == detail::frame_kind::failed) {
        if (auto const [it, first] = failed_.try_emplace(f->header.group, f->text()); first)
          listeners_[f->header.group].tell(it->second);
      } else if (f) {
        frames_.push_back(std::move(*f));
      }
      gone_ = problem;
      if (!gone_.empty())
        for (auto& [group, l] : listeners_) l.tell(gone_);
      came_.notify_all();
    }
  }

  /// The next frame that is not about a group that has ended. Frees what those groups kept.
  std::optional<detail::frame> answer(detail::time_point deadline) {
    for (;;) {
      auto f = receive(deadline);
      if (!f || f->header.kind != detail::frame_kind::gone || f->header.group == 0) return f;
      kept_.erase(f->header.group);
    }
  }

  /// Returns false when the deadline has passed first.
  bool wait_for_all(detail::time_point deadline) {
    for (;;) {
      auto const f = answer(deadline);
      if (!f) return !failure_.empty();
      if (f->header.kind == detail::frame_kind::gone) return true;
    }
  }

  tcp_options const options_;
  pid_t const process_ = ::getpid();
  std::string failure_;                   // why the hub cannot be reached
  std::string reason_;                    // why this rank has failed, if it has
  std::unique_ptr<detail::tcp_hub> hub_;  // on rank 0; destroyed after the connection, whose end it waits for
  detail::hub_link link_;                 // the reader receives, the thread that uses the session sends
  std::map<std::uint64_t, std::vector<std::shared_ptr<void>>> kept_;  // by group
  bool abandoned_ = false;

  std::mutex m_;  // of what the reader passes on
  std::condition_variable came_;
  std::deque<detail::frame> frames_;
  std::map<std::uint64_t, std::string> failed_;  // groups that have failed, and why
  std::string gone_;                             // why nothing more comes from the hub
  std::map<std::uint64_t, detail::failure_listeners> listeners_;
  std::unique_ptr<std::thread> reader_;  // from when all ranks have come
};

/// Ranks that are processes, each with its own GPU (or, where the platform can, with a part of one).
class tcp_bootstrap final : public bootstrap {
 public:
  /// The group of all ranks of the session.
  explicit tcp_bootstrap(std::shared_ptr<tcp_session> s)
      : session_(std::move(s)), group_{0, session_->rank(), session_->size()} {}
  ~tcp_bootstrap() override {
    if (group_.group != 0 && std::uncaught_exceptions() == exceptions_) session_->leave(group_.group);
  }

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }

  using bootstrap::all_gather;
  std::vector<std::byte> all_gather(void const* mine, std::size_t bytes) override {
    return session_->request(detail::frame_kind::gather, group_.group, mine, bytes);
  }

  std::unique_ptr<bootstrap> split(int color) override {
    auto const answer = session_->request(detail::frame_kind::split, group_.group, &color, sizeof color);
    detail::split_result r;
    if (answer.size() != sizeof r)
      throw rank_mismatch(text("split: an answer of ", answer.size(), " bytes; expected ", sizeof r));
    std::memcpy(&r, answer.data(), sizeof r);
    return std::unique_ptr<bootstrap>(new tcp_bootstrap(session_, r));
  }

  void fail(std::string const& why) override { session_->fail(group_.group, why); }
  void listen(std::weak_ptr<failure_listener> l) override { session_->listen(group_.group, std::move(l)); }
  void keep(std::shared_ptr<void> what) override { session_->keep(std::move(what), group_.group); }
  void abandon() override { session_->abandon(); }

 private:
  tcp_bootstrap(std::shared_ptr<tcp_session> s, detail::split_result g) : session_(std::move(s)), group_(g) {}

  std::shared_ptr<tcp_session> session_;
  detail::split_result group_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace fusewire
