// The middle of the star: a thread of rank 0's process that every rank, rank 0 too, is connected with. It knows the groups, so it can
// say who is missing, and it tells everybody when somebody dies.
//
//   rank 1 --hello--> hub <--hello-- rank 2      all have come: welcome to each
//   rank 1 --gather-> hub <--gather- rank 2      all members' parts have come: done to each
//   rank 1 --x        hub ---fail--> rank 2      now, or when it asks next
//   rank 1 --leave--> hub <--leave-- rank 2      all have left or died: gone to each; the thread ends
#pragma once
#include <map>
#include <thread>

#include <fusewire/runtime/tcp_socket.hpp>

namespace fusewire::detail {

class tcp_hub {
 public:
  struct limits {
    std::chrono::milliseconds connect, collective;
  };
  /// `own` is the end of rank 0's connection that belongs to the hub. `where` names the listener, for messages.
  tcp_hub(descriptor listener, descriptor own, int size, std::string where, limits l)
      : listener_(std::move(listener)), where_(std::move(where)), limits_(l), ranks_(std::size_t(size)), started_(now()) {
    group& all = groups_[0];
    for (int r = 0; r < size; ++r) all.members.push_back(r);
    all.parts.resize(std::size_t(size));
    ranks_[0].link = connection(std::move(own));
    ranks_[0].name = "rank 0";
    ranks_[0].came = true;
    welcome_when_complete();
    thread_ = std::thread([this] { serve(); });
  }
  tcp_hub(tcp_hub const&) = delete;
  /// Requires: rank 0's end of its connection is closed. Others that still wait are told that rank 0 has ended; where ranks did not
  /// find each other, those that come within the next two seconds are told why.
  ~tcp_hub() { thread_.join(); }

 private:
  struct rank_state {
    connection link;
    std::string name;  // "rank 2 (process 4711 on host a, 127.0.0.1:50000)"
    bool came = false, left = false, died = false;
  };
  struct stranger {
    connection link;
    std::string name;
    time_point since;
    bool refused = false;
  };
  struct part {
    bool came = false;
    frame_kind kind{};
    std::vector<std::byte> bytes;
  };
  struct group {
    std::vector<int> members;  // ranks
    std::vector<part> parts;   // per member
    int arrived = 0;
    time_point since;          // of the first part
    std::string failure;       // why collectives cannot complete any more
    bool failed = false;       // it is a failure, not a farewell
    std::vector<std::uint64_t> children;
  };

  int size() const { return int(ranks_.size()); }

  void serve() {
    while (!over()) {
      std::vector<pollfd> waiting{{listener_.get(), POLLIN, 0}};
      auto const watch = [&](connection const& c) { waiting.push_back({c.open() ? c.fd() : -1, short(POLLIN | (c.unsent() ? POLLOUT : 0)), 0}); };
      for (auto const& r : ranks_) watch(r.link);
      std::size_t const strangers = strangers_.size();
      for (auto const& s : strangers_) watch(s.link);
      ::poll(waiting.data(), waiting.size(), milliseconds_until(next_deadline()));
      if (waiting[0].revents) accept();
      for (std::size_t i = 0; i < strangers; ++i)
        if (waiting[1 + ranks_.size() + i].revents) hear(strangers_[i]);
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        if (waiting[1 + i].revents) hear(int(i));
      std::erase_if(strangers_, [](stranger const& s) { return !s.link.open() || (s.refused && !s.link.unsent()); });
      expire();
      for (auto& r : ranks_)
        if (r.link.open()) (void)r.link.send();  // a rank that has died is noticed when it is read
      for (auto& s : strangers_) (void)s.link.send();
    }
    auto const flushed_by = now() + std::chrono::seconds(1);
    for (auto& r : ranks_)
      while (r.link.open() && r.link.send() && r.link.unsent() && now() < flushed_by) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  bool over() {
    if (complete_ && !farewell_ && std::ranges::all_of(ranks_, [](rank_state const& r) { return r.left || r.died; })) {
      farewell_ = true;
      for (auto& r : ranks_)
        if (r.link.open()) r.link.queue(frame_kind::gone, 0, "");
    }
    return farewell_ || (ranks_[0].died && (complete_ || came() == size() || now() >= failed_at_ + std::chrono::seconds(2)));
  }

  time_point next_deadline() const {
    time_point first = now() + std::chrono::seconds(3600);
    if (!complete_) first = std::min(first, ranks_[0].died ? failed_at_ + std::chrono::seconds(2) : started_ + limits_.connect);
    for (auto const& [id, g] : groups_)
      if (g.arrived) first = std::min(first, g.since + limits_.collective);
    for (auto const& s : strangers_) first = std::min(first, s.since + limits_.connect);
    return first;
  }

  void expire() {
    auto const t = now();
    if (!complete_ && groups_[0].failure.empty() && t >= started_ + limits_.connect)
      fail(0, text("only ", came(), " of ", size(), " ranks have come to ", where_, " within ", seconds(limits_.connect), " s; missing: ",
                   list([](rank_state const& r) { return !r.came; }), garbage_ ? text("; ", garbage_, " connections spoke another protocol") : ""));
    std::vector<std::uint64_t> late;
    for (auto const& [id, g] : groups_)
      if (g.arrived && t >= g.since + limits_.collective) late.push_back(id);
    for (auto id : late) {
      group const& g = groups_[id];
      std::string here, missing;
      for (std::size_t i = 0; i < g.members.size(); ++i) {
        std::string& s = g.parts[i].came ? here : missing;
        s += text(s.empty() ? "" : ", ", g.members[i]);
      }
      fail(id, text("rank ", missing, " did not come to a collective in which rank ", here, " waited for ", seconds(limits_.collective), " s"));
    }
    for (auto& s : strangers_)
      if (t >= s.since + limits_.connect) s.link.close();
  }

  void accept() {
    sockaddr_storage a{};
    socklen_t n = sizeof a;
    descriptor d(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&a), &n, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!d) return;
    watch_connection(d.get());
    strangers_.push_back({connection(std::move(d)), name_of(reinterpret_cast<sockaddr*>(&a), n), now()});
  }

  /// Somebody who has not said yet who it is. What speaks another protocol is turned away; it may have come by mistake.
  void hear(stranger& s) {
    bool const alive = s.link.receive();
    if (s.link.garbage()) {
      ++garbage_;
      s.link.close();
      return;
    }
    auto const f = s.link.take();
    if (!f) {
      if (!alive) s.link.close();
      return;
    }
    greeting g;
    if (f->header.kind != frame_kind::hello || f->payload.size() != sizeof g) {
      ++garbage_;
      s.link.close();
      return;
    }
    std::memcpy(&g, f->payload.data(), sizeof g);
    g.host[sizeof g.host - 1] = 0;
    std::string const name = text("rank ", g.rank, " (process ", g.process, " on ", g.host, ", ", s.name, ")");
    std::string problem;
    if (g.size != size()) problem = text(name, " has WORLD_SIZE ", g.size, ", rank 0 at ", where_, " has ", size(), "; every rank must have the same");
    else if (g.rank < 0 || g.rank >= size()) problem = text(name, ": RANK 0 to ", size() - 1, " are accepted");
    else if (ranks_[std::size_t(g.rank)].came) problem = text("two processes have RANK ", g.rank, ": ", ranks_[std::size_t(g.rank)].name, " and ", name);
    if (!problem.empty()) {
      s.link.queue(frame_kind::fail, 0, problem);
      s.refused = true;
      (void)s.link.send();
      if (!complete_) fail(0, problem);
      return;
    }
    rank_state& r = ranks_[std::size_t(g.rank)];
    r.link = std::move(s.link);
    r.name = name;
    r.came = true;
    s.link.close();
    if (!groups_[0].failure.empty()) r.link.queue(frame_kind::fail, 0, groups_[0].failure);
    else r.link.queue(frame_kind::accepted, 0, "");
    welcome_when_complete();
  }

  void welcome_when_complete() {
    if (came() < size() || !groups_[0].failure.empty()) return;
    complete_ = true;
    for (auto& r : ranks_) r.link.queue(frame_kind::welcome, 0, "");
  }

  void hear(int rank) {
    rank_state& r = ranks_[std::size_t(rank)];
    bool alive = r.link.receive();
    while (!r.link.garbage()) {
      auto const f = r.link.take();
      if (!f) break;
      answer(rank, *f);
    }
    if (alive && !r.link.garbage()) return;
    r.link.close();
    r.died = true;
    if (!r.left) fail(0, text(r.name, rank == 0 ? " has ended" : " has died: its connection is closed"));
  }

  void answer(int rank, frame const& f) {
    rank_state& r = ranks_[std::size_t(rank)];
    auto const it = groups_.find(f.header.group);
    auto const member = it == groups_.end() ? -1 : index_of(it->second, rank);
    if (member < 0) {
      r.link.queue(frame_kind::fail, f.header.group, text("rank ", rank, " is not a member of group ", f.header.group));
      return;
    }
    group& g = it->second;
    switch (f.header.kind) {
      case frame_kind::fail:
        fail(f.header.group, f.text());
        return;
      case frame_kind::leave:
        if (f.header.group == 0) r.left = true;
        leave(f.header.group, rank, text("rank ", rank, f.header.group == 0 ? " has returned" : " has left the group"));
        return;
      case frame_kind::gather:
      case frame_kind::split:
        if (!g.failure.empty()) {
          r.link.queue(frame_kind::fail, f.header.group, g.failure);
          return;
        }
        if (g.arrived++ == 0) g.since = now();
        g.parts[std::size_t(member)] = {true, f.header.kind, f.payload};
        if (g.arrived == int(g.members.size())) finish(f.header.group);
        return;
      default:
        r.link.queue(frame_kind::fail, f.header.group, text("a frame of kind ", unsigned(f.header.kind), " is none that a rank sends"));
    }
  }

  /// Every member's part is here.
  void finish(std::uint64_t id) {
    group& g = groups_[id];
    bool const split = g.parts[0].kind == frame_kind::split;
    if (std::ranges::any_of(g.parts, [&](part const& p) { return p.kind != g.parts[0].kind || (split && p.bytes.size() != sizeof(int)); })) {
      fail(id, "ranks are in different collectives: some gather, some split");
      return;
    }
    if (split) {
      std::map<int, std::uint64_t> child;  // by color
      std::vector<std::pair<int, split_result>> answers;
      for (std::size_t i = 0; i < g.members.size(); ++i) {
        int color;
        std::memcpy(&color, g.parts[i].bytes.data(), sizeof color);
        auto const [at, fresh] = child.try_emplace(color, last_group_ + 1);
        if (fresh) g.children.push_back(++last_group_);
        group& c = groups_[at->second];  // references to other groups stay valid
        answers.push_back({g.members[i], {at->second, int(c.members.size()), 0}});
        c.members.push_back(g.members[i]);
        c.parts.emplace_back();
      }
      for (auto& [rank, a] : answers) {
        a.size = int(groups_[a.group].members.size());
        ranks_[std::size_t(rank)].link.queue(frame_kind::done, id, &a, sizeof a);
      }
    } else {
      std::vector<std::byte> all;
      for (part const& p : g.parts) all.insert(all.end(), p.bytes.begin(), p.bytes.end());
      for (int r : g.members) ranks_[std::size_t(r)].link.queue(frame_kind::done, id, all.data(), all.size());
    }
    g.arrived = 0;
    for (part& p : g.parts) p = {};
  }

  /// Nothing completes in this group or in those split from it any more.
  void fail(std::uint64_t id, std::string const& why) {
    give_up(id, why, true);
    for (auto child : groups_[id].children) fail(child, why);
    if (id != 0 || complete_) return;
    failed_at_ = now();
    for (auto& r : ranks_)
      if (r.link.open()) r.link.queue(frame_kind::fail, 0, why);  // they wait for a welcome
  }
  /// The rank comes no more: neither to this group nor to those split from it that it is in.
  void leave(std::uint64_t id, int rank, std::string const& why) {
    if (index_of(groups_[id], rank) < 0) return;
    give_up(id, why, false);
    for (auto child : groups_[id].children) leave(child, rank, why);
  }
  void give_up(std::uint64_t id, std::string const& why, bool failed) {
    group& g = groups_[id];
    if (g.failure.empty() || (failed && !g.failed)) g.failure = why;
    g.failed |= failed;
    for (std::size_t i = 0; i < g.members.size(); ++i)
      if (g.parts[i].came) ranks_[std::size_t(g.members[i])].link.queue(frame_kind::fail, id, g.failure), g.parts[i] = {};
    g.arrived = 0;
  }

  static int index_of(group const& g, int rank) {
    auto const it = std::ranges::find(g.members, rank);
    return it == g.members.end() ? -1 : int(it - g.members.begin());
  }
  int came() const { return int(std::ranges::count_if(ranks_, &rank_state::came)); }
  template <class Which>
  std::string list(Which which) const {
    std::string s;
    for (int r = 0; r < size(); ++r)
      if (which(ranks_[std::size_t(r)])) s += text(s.empty() ? "rank " : ", ", r);
    return s;
  }
  static double seconds(std::chrono::milliseconds t) { return double(t.count()) / 1000; }

  descriptor listener_;
  std::string const where_;
  limits const limits_;
  std::vector<rank_state> ranks_;
  std::vector<stranger> strangers_;
  std::map<std::uint64_t, group> groups_;
  std::uint64_t last_group_ = 0;
  time_point const started_;
  time_point failed_at_{};  // before every rank had come
  int garbage_ = 0;
  bool complete_ = false;  // every rank has come
  bool farewell_ = false;
  std::thread thread_;
};

}  // namespace fusewire::detail
