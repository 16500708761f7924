// Who wants to hear that a group of ranks has failed.
#pragma once
#include <algorithm>
#include <chrono>
#include <utility>

#include <fusewire/ranks/bootstrap.hpp>

namespace fusewire::detail {

/// A limit that can be added to the time, even if the user means no limit.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds limit) {
  return std::min<std::chrono::milliseconds>(limit, std::chrono::hours(24 * 365));
}

/// Who wants to hear of one group.
class failure_listeners {
 public:
  /// `why`: the group has failed already, if it is not empty.
  void add(std::weak_ptr<failure_listener> l, std::string const& why) {
    std::erase_if(all_, [](auto const& one) { return one.expired(); });
    if (auto const one = l.lock(); one && !why.empty()) one->failed(why);
    else all_.push_back(std::move(l));
  }
  void tell(std::string const& why) {
    for (auto const& l : std::exchange(all_, {}))
      if (auto const one = l.lock()) one->failed(why);
  }

 private:
  std::vector<std::weak_ptr<failure_listener>> all_;
};
}  // namespace fusewire::detail
