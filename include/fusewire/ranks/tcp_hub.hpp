// The middle of the star: a thread of rank 0's process, with a connection to every rank, rank 0 too. It knows the
// groups, so it can say which ranks are missing, and it tells every rank when one dies.
//
//   rank 1 --hello--> hub <--hello-- rank 2      all have come: welcome to each, and the acceptor closes
//   rank 1 --gather-> hub <--gather- rank 2      all members' contributions have arrived: done to each member
//   rank 1 --x        hub --failed-> rank 2      immediately; and what it asks then fails
//   rank 1 --leave--> hub <--leave-- rank 2      all have left a group: gone to each of its members
//   rank 1 --leave--> hub <--leave-- rank 2      all have left or died: gone to each; the thread ends
#pragma once
#include <cstdio>
#include <map>
#include <ranges>
#include <thread>

#include <fusewire/ranks/layout_hash.hpp>
#include <fusewire/ranks/tcp_acceptor.hpp>
#include <fusewire/ranks/tcp_group.hpp>

namespace fusewire::detail {

class tcp_hub {
 public:
  struct limits {
    std::chrono::milliseconds connect, collective;
  };
  /// `local_end` is the hub's end of rank 0's connection. `where` names the listener, for messages. `layout` is rank
  /// 0's.
  tcp_hub(tcp_acceptor acceptor, descriptor local_end, int size, std::uint64_t layout, std::string where, limits l)
      : acceptor_(std::move(acceptor)), layout_(layout), where_(std::move(where)), limits_(l),
        ranks_(std::size_t(size)), started_(now()) {
    group& all = groups_[0];
    for (int r = 0; r < size; ++r) all.members.push_back(r);
    all.contributions.resize(std::size_t(size));
    ranks_[0].link = connection(std::move(local_end), largest_request);
    ranks_[0].name = "rank 0";
    ranks_[0].came = true;
    welcome_when_complete();
    thread_ = std::thread([this] {
      try {
        serve();
      } catch (std::exception const& e) {
        std::fprintf(stderr, "fusewire: rank 0 cannot connect the ranks any more: %s\n", e.what());
        for (auto& r : ranks_) r.link.close();  // this tells them
      }
    });
  }
  tcp_hub(tcp_hub const&) = delete;
  /// Requires: rank 0's end of its connection is closed. Other ranks that still wait are told that rank 0 has ended. If
  /// the ranks did not find each other, ranks that come within the next two seconds are told why.
  ~tcp_hub() { thread_.join(); }

 private:
  struct rank_state {
    connection link;
    std::string name;  // "rank 2 (process 4711 on host a, 127.0.0.1:50000)"
    bool came = false, left = false, died = false;
  };
  using group = tcp_group;

  int size() const { return int(ranks_.size()); }

  void serve() {
    while (!over()) {
      std::vector<pollfd> waiting;
      for (auto const& r : ranks_)
        waiting.push_back({r.link.open() ? r.link.fd() : -1, short(POLLIN | (r.link.unsent() ? POLLOUT : 0)), 0});
      acceptor_.watch(waiting);
      ::poll(waiting.data(), waiting.size(), milliseconds_until(next_deadline()));
      for (auto& n : acceptor_.accept_ready()) admit(n);
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        if (waiting[i].revents) receive(int(i));
      expire();
      // Rank 0 last: with its answer its process may end, and this thread with it. A rank that has died is noticed when
      // its connection is read.
      for (auto& r : std::views::reverse(ranks_))
        if (r.link.open()) (void)r.link.send();
    }
    auto const flushed_by = now() + std::chrono::seconds(1);
    for (auto& r : ranks_)
      while (r.link.open() && r.link.send() && r.link.unsent() && now() < flushed_by)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  bool over() {
    if (complete_ && !shutdown_sent_ &&
        std::ranges::all_of(ranks_, [](rank_state const& r) { return r.left || r.died; })) {
      shutdown_sent_ = true;
      for (auto& r : ranks_)
        if (r.link.open()) r.link.queue(frame_kind::gone, 0, "");
    }
    return shutdown_sent_ ||
           (ranks_[0].died && (complete_ || came() == size() || now() >= failed_at_ + std::chrono::seconds(2)));
  }

  time_point next_deadline() const {
    time_point first = std::min(acceptor_.next_deadline(), now() + std::chrono::seconds(3600));
    if (!complete_ && ranks_[0].died) first = std::min(first, failed_at_ + std::chrono::seconds(2));
    else if (!complete_ && groups_.at(0).failure.empty()) first = std::min(first, started_ + limits_.connect);
    for (auto const& [id, g] : groups_)
      if (g.arrived) first = std::min(first, g.since + limits_.collective);
    return first;
  }

  void expire() {
    auto const t = now();
    if (!complete_ && groups_[0].failure.empty() && t >= started_ + limits_.connect)
      fail(0, text("only ", came(), " of ", size(), " ranks have come to ", where_, " within ",
                   seconds_of(limits_.connect), " s; missing: ", list([](rank_state const& r) { return !r.came; }),
                   acceptor_.remarks()));
    std::vector<std::uint64_t> late;
    for (auto const& [id, g] : groups_)
      if (g.arrived && t >= g.since + limits_.collective) late.push_back(id);
    for (auto id : late) {
      group const& g = groups_[id];
      fail(id, text("rank ", g.members_that(false), " did not come to a collective in which rank ",
                    g.members_that(true), " waited for ", seconds_of(limits_.collective), " s"));
    }
  }

  /// Admits a rank that knows the job's secret. If something is wrong with it, something is wrong with the job, and all
  /// ranks are told.
  void admit(tcp_acceptor::authenticated_connection& n) {
    greeting const& g = n.said;
    std::string const host = printable({g.host, ::strnlen(g.host, sizeof g.host)});
    std::string const name = text("rank ", g.rank, " (process ", g.process, " on ", host, ", ", n.name, ")");
    std::string problem;
    if (g.version != FUSEWIRE_VERSION || g.layout != layout_)
      problem = text(name, " was built with fusewire ", g.version, ", layout ", std::hex, g.layout, ", rank 0 with ",
                     std::dec, FUSEWIRE_VERSION, ", layout ", std::hex, layout_,
                     "; expected builds of one version, all of them checked (FUSEWIRE_CHECKED) or none");
    else if (g.size != size())
      problem = text(name, " has WORLD_SIZE ", g.size, ", rank 0 at ", where_, " has ", size(),
                     "; every rank must have the same");
    else if (g.rank < 0 || g.rank >= size()) problem = text(name, "; expected RANK 0 to ", size() - 1);
    else if (ranks_[std::size_t(g.rank)].came)
      problem = text("two processes have RANK ", g.rank, ": ", ranks_[std::size_t(g.rank)].name, " and ", name);
    else if (!groups_[0].failure.empty()) problem = groups_[0].failure;
    if (!problem.empty()) {
      n.link.queue(frame_kind::fail, 0, problem);
      (void)n.link.send();
      if (groups_[0].failure.empty()) fail(0, problem);
      return;
    }
    rank_state& r = ranks_[std::size_t(g.rank)];
    r.link = std::move(n.link);
    r.name = name;
    r.came = true;
    welcome_when_complete();
  }

  void welcome_when_complete() {
    if (came() < size() || !groups_[0].failure.empty()) return;
    complete_ = true;
    acceptor_.close();
    for (auto& r : ranks_) r.link.queue(frame_kind::welcome, 0, "");
  }

  void receive(int rank) {
    rank_state& r = ranks_[std::size_t(rank)];
    bool const alive = r.link.receive(), garbage = r.link.garbage();
    if (!garbage)
      if (auto const f = r.link.next_frame()) answer(rank, *f);
    if (alive && !garbage) return;
    r.link.close();
    r.died = true;
    if (r.left) return;
    if (garbage) fail(0, text(r.name, " sent what is no frame, or one of more than ", largest_request, " bytes"));
    else fail(0, text(r.name, rank == 0 ? " has ended" : " has died: its connection is closed"));
  }

  void answer(int rank, frame const& f) {
    rank_state& r = ranks_[std::size_t(rank)];
    auto const it = groups_.find(f.header.group);
    auto const member = it == groups_.end() ? -1 : it->second.index_of(rank);
    if (member < 0) {
      // The group is over, and no rank waits for an answer
      if (f.header.kind == frame_kind::fail || f.header.kind == frame_kind::leave) return;
      r.link.queue(frame_kind::fail, f.header.group, text("rank ", rank, " is not a member of group ", f.header.group));
      return;
    }
    group& g = it->second;
    switch (f.header.kind) {
      case frame_kind::fail: fail(f.header.group, f.text()); return;
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
        if (g.contributions[std::size_t(member)].came)
          return fail(f.header.group, text("rank ", rank, " is in two collectives of one group at the same time"));
        if (g.arrived++ == 0) g.since = now();
        g.contributions[std::size_t(member)] = {true, f.header.kind, f.payload};
        if (g.arrived == int(g.members.size())) finish(f.header.group);
        return;
      default:
        r.link.queue(frame_kind::fail, f.header.group,
                     text("a frame of kind ", unsigned(f.header.kind), " is none that a rank sends"));
    }
  }

  /// Answers a collective to which every member's contribution has arrived.
  void finish(std::uint64_t id) {
    group& g = groups_[id];
    bool const split = g.contributions[0].kind == frame_kind::split;
    if (!g.agrees()) {
      fail(id, "ranks are in different collectives: some gather, some split, or not all gather as many bytes");
      return;
    }
    if (split) {
      std::map<int, std::uint64_t> child;  // by color
      std::vector<std::pair<int, split_result>> answers;
      for (std::size_t i = 0; i < g.members.size(); ++i) {
        int color;
        std::memcpy(&color, g.contributions[i].bytes.data(), sizeof color);
        auto const [at, fresh] = child.try_emplace(color, last_group_ + 1);
        if (fresh) g.children.insert(++last_group_);
        group& c = groups_[at->second];  // references to other groups stay valid
        c.parent = id;
        answers.push_back({g.members[i], {at->second, int(c.members.size()), 0}});
        c.members.push_back(g.members[i]);
        c.contributions.emplace_back();
      }
      for (auto& [rank, a] : answers) {
        a.size = int(groups_[a.group].members.size());
        ranks_[std::size_t(rank)].link.queue(frame_kind::done, id, &a, sizeof a);
      }
    } else {
      std::vector<std::byte> all;
      for (tcp_group::contribution const& p : g.contributions) all.insert(all.end(), p.bytes.begin(), p.bytes.end());
      for (int r : g.members) ranks_[std::size_t(r)].link.queue(frame_kind::done, id, all.data(), all.size());
    }
    g.arrived = 0;
    for (tcp_group::contribution& p : g.contributions) p = {};
  }

  /// No collective completes in this group any more, nor in those split from it.
  void fail(std::uint64_t id, std::string const& why) {
    end_collectives(id, why, true);
    for (auto child : groups_[id].children) fail(child, why);
    if (id != 0 || complete_) return;
    failed_at_ = now();
    for (auto& r : ranks_)
      if (r.link.open()) r.link.queue(frame_kind::fail, 0, why);  // the ranks wait for a welcome
  }
  /// The rank will come to no collective of this group any more, nor of those split from it that it is in. A group that
  /// all have left is removed.
  void leave(std::uint64_t id, int rank, std::string const& why) {
    group& g = groups_[id];
    if (g.index_of(rank) < 0) return;
    end_collectives(id, why, false);
    for (auto child : std::set(g.children)) leave(child, rank, why);
    g.left.insert(rank);
    if (id == 0 || g.left.size() < g.members.size()) return;
    for (int r : g.members)
      if (ranks_[std::size_t(r)].link.open()) ranks_[std::size_t(r)].link.queue(frame_kind::gone, id, "");
    groups_[g.parent].children.erase(id);
    groups_.erase(id);
  }
  void end_collectives(std::uint64_t id, std::string const& why, bool failed) {
    group& g = groups_[id];
    if (g.failure.empty() || (failed && !g.failed)) g.failure = why;
    if (failed && !g.failed && complete_)
      for (int r : g.members)
        if (ranks_[std::size_t(r)].link.open()) ranks_[std::size_t(r)].link.queue(frame_kind::failed, id, g.failure);
    g.failed |= failed;
    for (std::size_t i = 0; i < g.members.size(); ++i)
      if (g.contributions[i].came)
        ranks_[std::size_t(g.members[i])].link.queue(frame_kind::fail, id, g.failure), g.contributions[i] = {};
    g.arrived = 0;
  }

  int came() const { return int(std::ranges::count_if(ranks_, &rank_state::came)); }
  template <class Which>
  std::string list(Which which) const {
    std::string s;
    for (int r = 0; r < size(); ++r)
      if (which(ranks_[std::size_t(r)])) s += text(s.empty() ? "rank " : ", ", r);
    return s;
  }

  tcp_acceptor acceptor_;
  std::uint64_t const layout_;
  std::string const where_;
  limits const limits_;
  std::vector<rank_state> ranks_;
  std::map<std::uint64_t, group> groups_;
  std::uint64_t last_group_ = 0;
  time_point const started_;
  time_point failed_at_{};  // if before every rank had come
  bool complete_ = false;   // every rank has come
  bool shutdown_sent_ = false;
  std::thread thread_;
};

}  // namespace fusewire::detail
