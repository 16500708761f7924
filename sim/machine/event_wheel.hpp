#pragma once
#include <bit>
#include <queue>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// An event at a time. The caller that puts it into the wheel owns it.
struct timed_event {
  enum class kind : u8 { operation, compute_unit, launch, group_end, kernel_end, outside };
  u64 time = 0;
  timed_event* next = nullptr;
  kind what;
  explicit timed_event(kind k) : what(k) {}
};

/// Events in the order of their times; events of one time in the order in which they were put in. No time lies before
/// the latest that was taken out.
class event_wheel {
 public:
  void put(timed_event& e, u64 time) {
    e.time = time < now_ ? now_ : time;
    ++size_;
    if (e.time < now_ + slots) into_slot(e);
    else far_.push({e.time, number_++, &e});
  }
  bool empty() const { return size_ == 0; }
  /// The next event's time. Requires: not empty.
  u64 head() const {
    if (near_ == 0) return far_.top().time;
    for (u64 t = now_;;) {
      if (u64 const word = used_[t % slots / 64] >> t % 64) return t + static_cast<u64>(std::countr_zero(word));
      t += 64 - t % 64;
    }
  }
  timed_event* take() {
    u64 const next = head();
    for (now_ = next; !far_.empty() && far_.top().time < now_ + slots; far_.pop()) into_slot(*far_.top().what);
    slot& s = slots_[now_ % slots];
    timed_event* const e = s.first;
    s.first = e->next;
    if (!s.first) used_[now_ % slots / 64] &= ~(u64{1} << now_ % 64);
    --size_, --near_;
    return e;
  }
  u64 now() const { return now_; }
  /// Up to two of the events that come next, so that the host can prefetch what they need; null if none comes soon.
  std::pair<timed_event*, timed_event*> upcoming() const {
    u64 const word = now_ % slots / 64;
    u64 left = used_[word] >> now_ % 64 << now_ % 64;
    if (!left) return {first_of((word + 1) % (slots / 64)), nullptr};
    timed_event* const next = slots_[word * 64 + static_cast<u64>(std::countr_zero(left))].first;
    if (next->next) return {next, next->next};
    left &= left - 1;
    return {next, left ? slots_[word * 64 + static_cast<u64>(std::countr_zero(left))].first
                       : first_of((word + 1) % (slots / 64))};
  }

 private:
  timed_event* first_of(u64 word) const {
    return used_[word] ? slots_[word * 64 + static_cast<u64>(std::countr_zero(used_[word]))].first : nullptr;
  }
  static constexpr u64 slots = 4096;  // one cycle each
  struct slot {
    timed_event *first = nullptr, *last = nullptr;
  };
  struct later {
    u64 time, number;
    timed_event* what;
    bool operator<(later const& o) const { return time != o.time ? time > o.time : number > o.number; }
  };
  void into_slot(timed_event& e) {
    slot& s = slots_[e.time % slots];
    e.next = nullptr;
    if (s.first) s.last = s.last->next = &e;
    else s.first = s.last = &e, used_[e.time % slots / 64] |= u64{1} << e.time % 64;
    ++near_;
  }
  std::vector<slot> slots_ = std::vector<slot>(slots);
  std::vector<u64> used_ = std::vector<u64>(slots / 64);
  std::priority_queue<later> far_;
  u64 now_ = 0, size_ = 0, near_ = 0, number_ = 0;
};

}  // namespace fusewire::sim
