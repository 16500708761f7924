// The acceptor of a job: rank 0's listener, and connections that have yet to prove that they belong to the job. What a
// foreign program sends costs the memory of a greeting for two seconds. It reaches no rank, and cannot end the job.
#pragma once
#include <poll.h>

#include <fusewire/ranks/tcp_secret.hpp>

namespace fusewire::detail {

class tcp_acceptor {
 public:
  struct authenticated_connection {
    connection link;
    greeting said;     // by one that knows the job's secret
    std::string name;  // its address
  };

  tcp_acceptor(descriptor listener, job_key key, std::unique_ptr<job_file> file)
      : listener_(std::move(listener)), file_(std::move(file)), key_(key) {}

  /// Lets no more connections in. Removes the file first: as long as the port is this job's, so is the file's name.
  void close() {
    file_.reset();
    pending_.clear();
    descriptor const going = std::move(listener_);
  }

  /// Adds the connections to wait for before the next accept_ready(). next_deadline() is the latest time for that.
  void watch(std::vector<pollfd>& waiting) const {
    if (listener_ && now() >= pause_until_) waiting.push_back({listener_.get(), POLLIN, 0});
    for (auto const& s : pending_) waiting.push_back({s.link.fd(), short(POLLIN | (s.link.unsent() ? POLLOUT : 0)), 0});
  }
  time_point next_deadline() const {
    time_point first = time_point::max();
    if (listener_ && now() < pause_until_) first = pause_until_;
    for (auto const& s : pending_) first = std::min(first, s.since + patience);
    return first;
  }

  /// The connections that have proved since the last call that they belong to the job. Never waits.
  std::vector<authenticated_connection> accept_ready() {
    std::vector<authenticated_connection> come;
    try {
      if (now() >= pause_until_) accept();
      for (auto& s : pending_)
        if (auto g = receive(s)) come.push_back({std::move(s.link), *g, s.name});
    } catch (std::bad_alloc const&) {  // ranks that are lost by this try again
      pause("out of memory");
      pending_.clear();
    }
    std::erase_if(pending_, [this](pending_connection const& s) {
      bool const late = s.link.open() && now() >= s.since + patience;
      silent_ += late;
      return late || !s.link.open();
    });
    return come;
  }

  /// What went wrong and with how many connections, for the message that ranks are missing.
  std::string remarks() const {
    std::string s;
    if (wrong_) s += text("; ", wrong_, " connections did not know the job's secret (FUSEWIRE_JOB)");
    if (garbage_) s += text("; ", garbage_, " connections spoke another protocol, or that of another version");
    if (silent_) s += text("; ", silent_, " connections said nothing");
    if (!problem_.empty()) s += text("; connections could not be accepted: ", problem_);
    return s;
  }

 private:
  struct pending_connection {
    connection link;
    std::string name;
    time_point since;
    std::uint64_t challenge;
  };
  static constexpr auto patience = std::chrono::seconds(2);  // a slower rank tries again
  static constexpr std::size_t max_pending = 256;            // at a time; beyond that the oldest is closed

  void pause(std::string why) {
    problem_ = std::move(why);
    pause_until_ = now() + std::chrono::milliseconds(100);
  }

  void accept() {
    for (std::size_t i = 0; listener_ && i < max_pending; ++i) {
      descriptor d(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      int const error = d ? 0 : errno;
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EINTR || error == ECONNABORTED) continue;
      bool const no_room = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      if (error && (!no_room || pending_.empty())) return pause(system_error(error));
      if (error) problem_ = system_error(error);
      if (error || pending_.size() == max_pending) pending_.erase(pending_.begin()), ++silent_;
      if (error) continue;
      watch_connection(d.get());
      std::string name = name_of_peer(d.get());
      pending_.push_back({connection(std::move(d)), std::move(name), now(), random_bits()});
      pending_connection& s = pending_.back();
      s.link.queue(frame_kind::challenge, 0, &s.challenge, sizeof s.challenge);
    }
  }

  /// The greeting of a connection, once it has proved to know the secret. Closes the connection if it cannot.
  std::optional<greeting> receive(pending_connection& s) {
    bool const alive = s.link.send() && s.link.receive();
    auto const f = s.link.garbage() ? std::nullopt : s.link.next_frame();
    auto const g = f && f->header.kind == frame_kind::hello ? f->as<greeting>() : std::nullopt;
    // A rank that timed out tries again
    if (g && g->proof == key_.proof_of_rank(s.challenge, *g) && !s.link.ended()) {
      std::uint64_t const proof = key_.proof_of_hub(s.challenge, g->nonce);
      s.link.accept_up_to(largest_request);
      s.link.queue(frame_kind::accepted, 0, &proof, sizeof proof);
      return g;
    }
    bool const garbage = s.link.garbage() || (f && !g);
    garbage_ += garbage;
    wrong_ += g && g->proof != key_.proof_of_rank(s.challenge, *g);
    if (f || garbage || !alive) s.link.close();
    return std::nullopt;
  }

  descriptor listener_;
  std::unique_ptr<job_file> file_;
  job_key const key_;
  std::vector<pending_connection> pending_;
  time_point pause_until_{};
  std::string problem_;  // why a connection could not be accepted, the latest time
  int wrong_ = 0, garbage_ = 0, silent_ = 0;
};

}  // namespace fusewire::detail
