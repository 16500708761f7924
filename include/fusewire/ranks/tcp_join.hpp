// How a rank that is a process reaches the hub: rank 0 listens and starts it, the others connect, and prove that they
// know the job's secret.
#pragma once
#include <cstdio>
#include <thread>

#include <fusewire/ranks/tcp_hub.hpp>
#include <fusewire/ranks/tcp_options.hpp>

namespace fusewire::detail {

/// How long a rank waits for a hub that is about to give the reason of a failure.
inline constexpr auto tcp_patience = std::chrono::seconds(5);

/// A rank's connection to the hub.
struct hub_link : connection {
  std::string where;  // rank 0's address, for messages

  /// Sends what is queued. Returns false when the deadline has passed or the hub is gone.
  bool flush(time_point deadline) {
    while (unsent()) {
      if (!send()) return false;
      pollfd p{fd(), POLLOUT, 0};
      if (unsent() && ::poll(&p, 1, milliseconds_until(deadline)) == 0) return false;
    }
    return true;
  }
  /// The next frame. Returns nothing when the deadline has passed or when the hub is gone, which sets `problem`.
  std::optional<frame> read_frame(time_point deadline, bool alive, std::string& problem) {
    for (;;) {
      alive = receive() && alive;
      if (garbage()) return problem = another_protocol(), std::nullopt;
      if (auto f = next_frame()) return f;
      if (!alive)
        return problem = text("rank 0 (", where, ") has ended or died: its connection is closed"), std::nullopt;
      pollfd p{fd(), POLLIN, 0};
      if (::poll(&p, 1, milliseconds_until(deadline)) == 0 && now() >= deadline) return std::nullopt;
    }
  }
  /// The problem when what answers there sends other frames than the hub does.
  std::string another_protocol() const {
    return text("what answers at ", where, " is not rank 0 of this program: it speaks another protocol");
  }
};

/// The two ways to a hub_link.
class tcp_join {
 public:
  /// `options` outlive it.
  explicit tcp_join(tcp_options const& options) : options_(options) {}

  /// Rank 0: listens, starts the hub, and is connected to it. Fails: bootstrap_failed.
  std::unique_ptr<tcp_hub> listen(hub_link& to) const {
    addresses const found(options_.address, options_.port, AI_PASSIVE);
    if (!found.first())
      throw bootstrap_failed(text(who(), "MASTER_ADDR ", options_.address, ": ", found.problem(),
                                  "; expected a name or an address of this host"));
    int error = 0;
    descriptor listener;
    for (auto const* a = found.first(); a && !listener; a = a->ai_next) {
      descriptor d(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
      int const on = 1;
      if (d) ::setsockopt(d.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (d && ::bind(d.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(d.get(), 256) == 0) listener = std::move(d);
      else error = errno;
    }
    if (!listener)
      throw bootstrap_failed(text(
          who(), "cannot listen at ", to.where, ": ", system_error(error),
          error == EADDRINUSE
              ? "; another program has the port: choose another MASTER_PORT, or FUSEWIRE_MASTER_PORT for fusewire alone"
          : error == EADDRNOTAVAIL ? "; MASTER_ADDR must be an address of the host on which rank 0 runs"
                                   : ""));
    std::unique_ptr<job_file> file;
    if (options_.secret.empty() && options_.size > 1) file = std::make_unique<job_file>(options_.port);
    job_key const key(file ? file->secret() : options_.secret, options_.run);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      throw bootstrap_failed(text(who(), "socketpair: ", system_error(errno)));
    static_cast<connection&>(to) = connection(descriptor(ends[0]), largest_answer);
    return std::make_unique<tcp_hub>(tcp_acceptor(std::move(listener), key, std::move(file)), descriptor(ends[1]),
                                     options_.size, options_.layout, to.where,
                                     tcp_hub::limits{options_.connect_timeout, options_.collective_timeout});
  }

  /// Returns when rank 0 has accepted this rank. If another program listens there at first, rank 0 is tried again until
  /// the deadline.
  void connect(hub_link& to, time_point deadline) const {
    std::string problem;
    for (auto pause = std::chrono::milliseconds(1); now() < deadline;
         pause = std::min(2 * pause, std::chrono::milliseconds(200))) {
      addresses const found(options_.address, options_.port);
      if (!found.first()) problem = text("MASTER_ADDR ", options_.address, ": ", found.problem());
      for (auto const* a = found.first(); a; a = a->ai_next)
        if (introduce(to, *a, std::min(deadline, now() + one_attempt()), problem)) return;
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
          pause, std::max<std::chrono::nanoseconds>(deadline - now(), std::chrono::nanoseconds(0))));
    }
    if (problem.empty()) problem = "there was no time to try";
    throw bootstrap_failed(text(who(), "rank 0 did not answer at ", to.where, " (MASTER_ADDR, MASTER_PORT) within ",
                                seconds_of(options_.connect_timeout), " s: ", problem));
  }

 private:
  /// How long one attempt to connect may take, so that a silent address does not keep this rank from the others.
  std::chrono::milliseconds one_attempt() const {
    return std::min<std::chrono::milliseconds>(tcp_patience, options_.connect_timeout / 4);
  }
  /// The beginning of messages.
  std::string who() const { return text("rank ", options_.rank, " of ", options_.size, ": "); }
  static std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "a host without a name";
  }

  /// True when the hub has accepted this rank, and has proved that it belongs to the job.
  bool introduce(hub_link& to, addrinfo const& a, time_point deadline, std::string& problem) const {
    descriptor d(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol));
    if (!d) return problem = text("socket: ", system_error(errno)), false;
    int error = ::connect(d.get(), a.ai_addr, a.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd p{d.get(), POLLOUT, 0};
      socklen_t n = sizeof error;
      if (::poll(&p, 1, milliseconds_until(deadline)) <= 0)
        return out_of_time(to, "no answer to the attempt to connect", problem);
      ::getsockopt(d.get(), SOL_SOCKET, SO_ERROR, &error, &n);
    }
    if (error) {
      problem = text(name_of(a.ai_addr, a.ai_addrlen), ": ", system_error(error));
      if (error == ECONNREFUSED)
        problem += " (nobody listens there: rank 0 has not come, or all ranks have and this is one too many)";
      return false;
    }
    watch_connection(d.get());
    static_cast<connection&>(to) = connection(std::move(d));
    std::string failure;  // why nothing can be received
    auto const receive = [&] { return to.read_frame(deadline, to.flush(deadline), failure); };
    constexpr char silent[] = "it accepts connections, but says nothing: is that another program's port?";
    auto const asked = receive();
    if (!asked && failure.empty()) return out_of_time(to, silent, problem);
    if (!asked) return problem = failure, to.close(), false;
    auto const challenge = asked->header.kind == frame_kind::challenge ? asked->as<std::uint64_t>() : std::nullopt;
    if (!challenge) return problem = to.another_protocol(), to.close(), false;
    std::string const secret = options_.secret.empty() ? job_file::read(options_.port, problem) : options_.secret;
    if (secret.empty()) return to.close(), false;
    job_key const key(secret, options_.run);
    greeting const g = introduction(key, *challenge);
    to.queue(frame_kind::hello, 0, &g, sizeof g);
    auto const f = receive();
    if (!f && failure.empty()) return out_of_time(to, silent, problem);
    auto const proof = f && f->header.kind == frame_kind::accepted ? f->as<std::uint64_t>() : std::nullopt;
    if (proof != key.proof_of_hub(*challenge, g.nonce)) {
      problem = "what listens there does not know the secret that this rank knows: is FUSEWIRE_JOB the same for all "
                "ranks, and the port no other job's?";
      return to.close(), false;
    }
    to.accept_up_to(largest_answer);
    return true;
  }

  /// The deadline has passed in the middle of an attempt. The problem that an earlier attempt found is kept: it says
  /// more.
  static bool out_of_time(hub_link& to, char const* what, std::string& problem) {
    to.close();
    if (problem.empty()) problem = what;
    return false;
  }

  greeting introduction(job_key const& key, std::uint64_t challenge) const {
    greeting g{};
    g.nonce = random_bits();
    g.layout = options_.layout;
    g.version = FUSEWIRE_VERSION;
    g.rank = options_.rank;
    g.size = options_.size;
    g.process = int(::getpid());
    std::string const host = host_name();
    std::memcpy(g.host, host.data(), std::min(host.size(), sizeof g.host - 1));
    g.proof = key.proof_of_rank(challenge, g);
    return g;
  }

  tcp_options const& options_;
};

}  // namespace fusewire::detail
