// A program with its own start: its ranks connect at a Unix socket, where another program has MPI or a store. The
// world outlives the function that makes it, as in a binding.
//
//   rank 1, 2, ... --- bytes ---> rank 0 --- all bytes ---> rank 1, 2, ...
//
//   scripts/run-ranks -n 4 example_own_bootstrap [path of the socket]     ranks are processes
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_options.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

using namespace fusewire;

/// A socket, closed with its owner.
class connection {
 public:
  explicit connection(int fd = -1) : fd_(fd) {
    timeval const limit{60, 0};  // of one wait
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  connection(connection&& c) : fd_(std::exchange(c.fd_, -1)) {}
  connection& operator=(connection&& c) { return std::swap(fd_, c.fd_), *this; }
  ~connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool send(void const* p, std::size_t bytes) const {
    return bytes == 0 || ::send(fd_, p, bytes, MSG_NOSIGNAL) == ssize_t(bytes);
  }
  bool receive(void* p, std::size_t bytes) const {
    return bytes == 0 || ::recv(fd_, p, bytes, MSG_WAITALL) == ssize_t(bytes);
  }

 private:
  int fd_;
};

/// A star: rank 0 has a connection to every other rank, and the others one to rank 0.
class socket_bootstrap final : public bootstrap {
 public:
  socket_bootstrap(std::string path, int rank, int size)
      : path_(std::move(path)), rank_(rank), size_(size), links_(rank == 0 ? std::size_t(size) : 1) {
    sockaddr_un at{AF_UNIX, {}};
    if (path_.size() >= sizeof at.sun_path) throw bad_argument(path_ + ": the path is too long for a socket");
    path_.copy(at.sun_path, path_.size());
    auto const* const address = reinterpret_cast<sockaddr const*>(&at);
    auto const make = [] { return connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); };
    if (rank != 0) {
      for (int tries = 0; tries < 3000; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
        links_[0] = make();
        if (::connect(links_[0].get(), address, sizeof at) == 0 && links_[0].send(&rank_, sizeof rank_)) return;
      }
      throw bootstrap_failed(path_ + ": rank 0 does not listen there");
    }
    ::unlink(path_.c_str());
    auto const door = make();
    if (::bind(door.get(), address, sizeof at) != 0 || ::listen(door.get(), size) != 0)
      throw bootstrap_failed(path_ + ": no socket can be made there");
    for (int n = 1, who = 0; n < size; ++n) {
      connection link(::accept(door.get(), nullptr, nullptr));
      if (!link.receive(&who, sizeof who) || who < 1 || who >= size)
        throw bootstrap_failed(path_ + ": a rank did not come, or another program did");
      links_[std::size_t(who)] = std::move(link);
    }
    ::unlink(path_.c_str());
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  using bootstrap::all_gather;
  std::vector<std::byte> all_gather(void const* mine, std::size_t bytes) override {
    if (!failure_.empty()) throw peer_failed(failure_);
    std::vector<std::byte> all(bytes * std::size_t(size_));
    if (rank_ != 0) {
      send(0, mine, bytes);
      receive(0, all.data(), all.size());
      return all;
    }
    if (bytes > 0) std::memcpy(all.data(), mine, bytes);
    for (int r = 1; r < size_; ++r) receive(r, all.data() + std::size_t(r) * bytes, bytes);
    for (int r = 1; r < size_; ++r) send(r, all.data(), all.size());
    return all;
  }

  std::unique_ptr<bootstrap> split(int color) override {
    auto const colors = bootstrap::all_gather(color);
    int before = 0, members = 0;
    for (int r = 0; r < size_; ++r) {
      before += r < rank_ && colors[std::size_t(r)] == color;
      members += colors[std::size_t(r)] == color;
    }
    return std::make_unique<socket_bootstrap>(text(path_, ".", splits_++, ".", color), before, members);
  }

  void fail(std::string const& why) override {
    if (!failure_.empty()) return;
    failure_ = why;
    message const m{why.size(), 1};
    for (connection const& link : links_)
      if (link.get() >= 0 && link.send(&m, sizeof m)) link.send(why.data(), why.size());
  }

  void keep(std::shared_ptr<void> what) override { (void)new auto(std::move(what)); }  // as long as the process

 private:
  struct message {
    std::uint64_t bytes, failed;  // failed: the bytes say why
  };

  // If the connection is closed, the next receive() says so.
  void send(int to, void const* p, std::size_t bytes) {
    message const m{bytes, 0};
    if (links_[std::size_t(to)].send(&m, sizeof m)) links_[std::size_t(to)].send(p, bytes);
  }
  void receive(int from, void* p, std::size_t bytes) {
    connection const& link = links_[std::size_t(from)];
    message m{};
    std::string why = text("rank ", from, " has ended, or did not come in time");
    if (link.receive(&m, sizeof m)) {
      if (!m.failed && m.bytes == bytes && link.receive(p, bytes)) return;
      if (m.failed) why.assign(m.bytes, ' ');
      if (m.failed) link.receive(why.data(), why.size());
      else if (m.bytes != bytes) why = "ranks gather different things";
    }
    fail(why);  // rank 0 tells the others
    throw peer_failed(why);
  }

  std::string path_;
  int rank_, size_, splits_ = 0;
  std::vector<connection> links_;  // on rank 0 by rank, else to rank 0
  std::string failure_;
};

/// What a binding holds between calls. Members end in the reverse order.
struct context {
  world ranks;
  requirements needs = channel::requirements(ranks.size(), {.max_bytes = 4_KiB, .flags_per_source = 1}) +
                       requirements::of<int>(std::size_t(ranks.size()));
  heap memory{ranks, needs};
  channel ch{memory, needs};
  int* numbers = memory.here(memory.allocate<int>(std::size_t(ranks.size())));
};

/// Every rank sends every rank its number times ten.
__global__ void exchange_numbers(channel_view ch, int* out) {
  block const b;
  auto const e = ch.begin(b);
  for (int p = b.rank(); p < ch.world.size(); p += b.size()) e.inbox<int>(p)[ch.world.rank()] = 10 * ch.world.rank();
  for (int p = 0; p < ch.world.size(); ++p) e.signal(b, p, 0);
  e.wait(b, 0, ch.world.size() - 1, 0);
  for (int p = b.rank(); p < ch.world.size(); p += b.size()) out[p] = e.inbox<int>()[p];
  e.end(b);
}

/// One call of the binding.
void call(context& c) try {
  launch(c.ranks, c.ranks.stream(), {.blocks = 1, .threads = 64}, exchange_numbers,
         c.ch.view(make_header("numbers", 0)), c.numbers);
  c.ranks.check(c.ranks.stream());
  std::vector<int> got(std::size_t(c.ranks.size()));
  check_hip(hipMemcpy(got.data(), c.numbers, got.size() * sizeof(int), hipMemcpyDeviceToHost), "hipMemcpy");
  for (int p = 0; p < c.ranks.size(); ++p)
    if (got[std::size_t(p)] != 10 * p) throw error(text("rank ", p, " sent ", got[std::size_t(p)]));
} catch (std::exception const& e) {
  c.ranks.fail(e.what());  // ranks that wait for this one end immediately
  throw;
}

int main(int argc, char** argv) try {
  // What MPI_Comm_rank, MPI_Comm_size and a choice of device say elsewhere
  auto const o = tcp_options::from_environment();
  std::string const path = argc > 1 ? argv[1] : text("/tmp/fusewire-example-", ::getuid(), "-", o.port);
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
  auto const make = [&] {
    return make_world(std::make_unique<socket_bootstrap>(path, o.rank, o.size), o.local_rank % devices);
  };
  context everybody{make()};
  load_kernel(everybody.ranks, exchange_numbers, 64);  // before the first launch that waits; run() would have done it
  call(everybody);
  context half{everybody.ranks.split(o.rank % 2)};  // its calls and those of everybody take turns
  for (int i = 0; i < 3; ++i) {
    call(half);
    call(everybody);
  }
  std::printf("rank %d of %d, %d of %d in its half: all numbers right\n", o.rank, o.size, half.ranks.rank(),
              half.ranks.size());
  everybody.ranks.barrier();
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
