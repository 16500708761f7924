// A group of ranks as the hub sees it: what its members have contributed to the collective that is under way, and who
// will not come any more.
#pragma once
#include <set>

#include <fusewire/ranks/tcp_socket.hpp>

namespace fusewire::detail {

struct tcp_group {
  struct contribution {
    bool came = false;
    frame_kind kind{};
    std::vector<std::byte> bytes;
  };
  std::vector<int> members;                 // ranks
  std::vector<contribution> contributions;  // per member
  int arrived = 0;
  time_point since;     // of the first contribution
  std::string failure;  // why collectives cannot complete any more
  bool failed = false;  // a failure, not a rank that left
  std::set<int> left;   // ranks that will not come any more
  std::uint64_t parent = 0;
  std::set<std::uint64_t> children;

  /// The rank's number among the members; -1: it is none.
  int index_of(int rank) const {
    auto const it = std::ranges::find(members, rank);
    return it == members.end() ? -1 : int(it - members.begin());
  }
  /// Members that have come to the collective, or have not, as a list: "1, 3".
  std::string members_that(bool came) const {
    std::string s;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (contributions[i].came == came) s += text(s.empty() ? "" : ", ", members[i]);
    return s;
  }
  /// Whether all contributions, which have come, are to the same collective.
  bool agrees() const {
    contribution const& first = contributions[0];
    std::size_t const bytes = first.kind == frame_kind::split ? sizeof(int) : first.bytes.size();
    return std::ranges::all_of(contributions,
                               [&](contribution const& c) { return c.kind == first.kind && c.bytes.size() == bytes; });
  }
};

}  // namespace fusewire::detail
