// How ranks that are threads of one process find each other.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include <fusewire/ranks/failure_listeners.hpp>

namespace fusewire {

/// Ranks that are threads of one process.
class thread_bootstrap final : public bootstrap {
 public:
  /// What the threads share. A rank that fails calls fail(); ranks that wait for it are then told instead of waiting
  /// indefinitely.
  class hub {
   public:
    /// `limit`: how long ranks wait for each other in a collective
    explicit hub(int size, std::chrono::milliseconds limit = std::chrono::seconds(600)) : hub(all_below(size), limit) {}

    /// The rank will come to no further collective of this group, nor of the groups split from it that it is in. Other
    /// ranks may go on.
    void leave(int rank) { leave(rank, text("rank ", rank, " has returned")); }

    /// Ends the group for all ranks. A rank that waits, or comes later, gets peer_failed with this text.
    void fail(std::string why) {
      std::lock_guard const lock(m_);
      fail_locked(std::move(why));
    }

    /// Groups that were split from this one and still had members at the latest split.
    std::size_t groups() const {
      std::lock_guard const lock(m_);
      return children_.size();
    }

   private:
    friend class thread_bootstrap;
    hub(std::vector<int> members, std::chrono::milliseconds limit)
        : members_(std::move(members)), size_(int(members_.size())), limit_(detail::bounded(limit)),
          contribution_(members_.size()), came_(members_.size()), splits_(members_.size()) {}
    static std::vector<int> all_below(int size) {
      require(size >= 1, std::source_location::current(), "thread_bootstrap: ", size, " ranks; expected at least 1");
      std::vector<int> all(static_cast<std::size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    void fail_locked(std::string why) {
      if (!failed_) {
        failure_ = std::move(why);
        listeners_.tell(failure_);
      }
      failed_ = true;
      for (auto& [key, child] : children_) child->fail(failure_);
      wake_.notify_all();
    }
    void leave(int rank, std::string const& why) {
      std::lock_guard const lock(m_);
      if (std::ranges::find(members_, rank) == members_.end()) return;
      left_.insert(rank);
      if (failure_.empty()) failure_ = why;
      for (auto& [key, child] : children_) child->leave(rank, why);
      wake_.notify_all();
    }

    bool over() const {
      std::lock_guard const lock(m_);
      return left_.size() == members_.size();
    }
    /// Forgets the groups that every member has left. What they keep goes with the result.
    std::vector<std::shared_ptr<hub>> forget_groups_that_are_over() {
      std::vector<std::shared_ptr<hub>> gone;
      for (auto it = children_.begin(); it != children_.end();) {
        if (!it->second->over()) {
          ++it;
          continue;
        }
        gone.push_back(std::move(it->second));
        it = children_.erase(it);
      }
      return gone;
    }
    /// The ranks that came to the collective, or those that did not.
    std::string list(bool came) const {
      std::string s;
      for (std::size_t i = 0; i < came_.size(); ++i)
        if (came_[i] == came) s += text(s.empty() ? "" : ", ", members_[i]);
      return s;
    }

    std::vector<int> const members_;  // as numbered in the first group
    int const size_;
    std::chrono::milliseconds const limit_;
    mutable std::mutex m_;
    std::condition_variable wake_;
    std::string failure_;  // why collectives cannot complete any more
    bool failed_ = false;  // a failure, not only a rank that left
    int arrived_ = 0;
    unsigned long round_ = 0;
    std::vector<std::vector<std::byte>> contribution_;
    std::vector<bool> came_;    // to this collective
    std::vector<bool> splits_;  // whether it came to a split
    std::set<int> left_;        // ranks that will not come any more
    detail::failure_listeners listeners_;
    std::vector<std::byte> gathered_;
    std::map<std::pair<unsigned long, int>, std::shared_ptr<hub>> children_;  // by number of the split, and color
    std::vector<std::shared_ptr<void>> kept_;
  };

  /// One rank's end of a hub. Called by: run_local(), once for each rank. Fails: bad_argument.
  thread_bootstrap(std::shared_ptr<hub> h, int rank) : hub_(std::move(h)), rank_(rank) {
    require(hub_ && rank >= 0 && rank < hub_->size_, std::source_location::current(), "thread_bootstrap: rank ", rank,
            "; expected a hub and a rank below its size");
  }
  /// Leaves a group that was split from another, except while an exception unwinds the stack: then the code that
  /// catches it reports the reason.
  ~thread_bootstrap() override {
    int const rank = hub_->members_[static_cast<std::size_t>(rank_)];
    if (subgroup_ && std::uncaught_exceptions() == exceptions_)
      hub_->leave(rank, text("rank ", rank, " has left the group"));
  }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size_; }

  using bootstrap::all_gather;
  std::vector<std::byte> all_gather(void const* mine, std::size_t bytes) override {
    return exchange(false, mine, bytes);
  }

  std::unique_ptr<bootstrap> split(int color) override {
    auto const raw = exchange(true, &color, sizeof color);
    std::vector<int> colors(static_cast<std::size_t>(size()));
    std::memcpy(colors.data(), raw.data(), raw.size());
    std::vector<int> members;
    int my_rank = 0;
    for (int r = 0; r < size(); ++r)
      if (colors[static_cast<std::size_t>(r)] == color) {
        if (r < rank_) ++my_rank;
        members.push_back(hub_->members_[static_cast<std::size_t>(r)]);
      }
    std::shared_ptr<hub> child;
    std::vector<std::shared_ptr<hub>> gone;
    {
      std::lock_guard const lock(hub_->m_);
      gone = hub_->forget_groups_that_are_over();
      auto& slot = hub_->children_[{splits_++, color}];
      if (!slot) slot.reset(new hub(std::move(members), hub_->limit_));
      if (hub_->failed_) slot->fail(hub_->failure_);
      child = slot;
    }
    auto subgroup = std::make_unique<thread_bootstrap>(child, my_rank);
    subgroup->subgroup_ = true;
    return subgroup;
  }

  void fail(std::string const& why) override { hub_->fail(why); }
  void abandon() override {
    int const rank = hub_->members_[static_cast<std::size_t>(rank_)];
    hub_->leave(rank, text("rank ", rank, " has abandoned its world"));
  }

  void listen(std::weak_ptr<failure_listener> l) override {
    std::lock_guard const lock(hub_->m_);
    hub_->listeners_.add(std::move(l), hub_->failed_ ? hub_->failure_ : "");
  }

  bool has_left(int rank) const override {
    std::lock_guard const lock(hub_->m_);
    return hub_->left_.contains(hub_->members_[static_cast<std::size_t>(rank)]);
  }

  void keep(std::shared_ptr<void> what) override {
    std::lock_guard const lock(hub_->m_);
    hub_->kept_.push_back(std::move(what));
  }

 private:
  std::vector<std::byte> exchange(bool splits, void const* mine, std::size_t bytes) {
    hub& h = *hub_;
    std::unique_lock lock(h.m_);
    auto const cannot_complete = [&] { return peer_failed("this collective cannot complete: " + h.failure_); };
    if (!h.failure_.empty()) throw cannot_complete();
    auto const* p = static_cast<std::byte const*>(mine);
    h.contribution_[static_cast<std::size_t>(rank_)].assign(p, p + bytes);
    h.came_[static_cast<std::size_t>(rank_)] = true;
    h.splits_[static_cast<std::size_t>(rank_)] = splits;
    auto const round = h.round_;
    bool const last = ++h.arrived_ == h.size_;
    bool same = true;
    for (std::size_t i = 0; last && i < h.contribution_.size(); ++i)
      same &= h.splits_[i] == splits && h.contribution_[i].size() == bytes;
    if (!same) {
      h.fail_locked("ranks are in different collectives: some gather, some split, or not all gather as many bytes");
    } else if (last) {
      h.gathered_.clear();
      for (auto const& c : h.contribution_) h.gathered_.insert(h.gathered_.end(), c.begin(), c.end());
      h.arrived_ = 0;
      h.came_.assign(h.came_.size(), false);
      ++h.round_;
      h.wake_.notify_all();
    } else if (!h.wake_.wait_for(lock, h.limit_, [&] { return h.round_ != round || !h.failure_.empty(); })) {
      h.fail_locked(text("rank ", h.list(false), " did not come to a collective in which rank ", h.list(true),
                         " waited for ", double(h.limit_.count()) / 1000, " s"));
    }
    if (h.round_ == round) throw cannot_complete();
    return h.gathered_;
  }

  std::shared_ptr<hub> hub_;
  int const rank_;
  bool subgroup_ = false;  // of a group that was split from another
  int exceptions_ = std::uncaught_exceptions();
  unsigned long splits_ = 0;
};

}  // namespace fusewire
