#pragma once
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "machine/config.hpp"

namespace fusewire::sim {

/// A counted reference. The runtime's lock guards the count, as it does all of the machine.
template <class T>
class counted {
 public:
  counted() = default;
  explicit counted(T* p) : p_(p) {
    if (p_) ++p_->references;
  }
  counted(counted const& o) : counted(o.p_) {}
  counted(counted&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  counted& operator=(counted o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~counted() {
    if (p_ && !--p_->references) delete p_;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(counted const& o) const { return p_ == o.p_; }
  /// The object, for this reference alone: a copy when others refer to it.
  T& own() {
    if (!p_) *this = counted(new T);
    else if (p_->references > 1) *this = counted(new T(*p_));
    return *p_;
  }

 private:
  T* p_ = nullptr;
};

/// Up to which of its epochs each workgroup of one domain is known. A domain is an XCD as one stream uses it.
struct epochs {
  static constexpr u32 count = 64;  // workgroups of a launch beyond that share a counter, which hides races
  u32 references = 0;
  std::array<u32, count> of{};

  epochs() = default;
  epochs(epochs const& o) : of(o.of) {}
};

/// A vector clock: by domain, the epochs that are known to have ended before.
class known_epochs {
 public:
  u32 at(u32 domain, u32 group) const {
    return domain < by_domain_.size() && by_domain_[domain] ? by_domain_[domain]->of[group] : 0;
  }
  void raise(u32 domain, u32 group, u32 epoch) {
    grow(domain + 1);
    u32& e = by_domain_[domain].own().of[group];
    e = std::max(e, epoch);
  }
  void join(known_epochs const& o) {
    grow(o.by_domain_.size());
    for (std::size_t d = 0; d < o.by_domain_.size(); ++d) join(by_domain_[d], o.by_domain_[d]);
  }
  void join(known_epochs const& o, u32 domain) {
    if (domain >= o.by_domain_.size() || !o.by_domain_[domain]) return;
    grow(domain + 1);
    join(by_domain_[domain], o.by_domain_[domain]);
  }

 private:
  void grow(std::size_t n) {
    if (by_domain_.size() < n) by_domain_.resize(n);
  }
  static void join(counted<epochs>& to, counted<epochs> const& from) {
    if (!from || to == from) return;
    if (!to) {
      to = from;
      return;
    }
    bool more = false, less = false;
    for (u32 i = 0; i < epochs::count; ++i) more |= from->of[i] > to->of[i], less |= from->of[i] < to->of[i];
    if (!more) return;
    if (!less) {
      to = from;
      return;
    }
    epochs& mine = to.own();
    for (u32 i = 0; i < epochs::count; ++i) mine.of[i] = std::max(mine.of[i], from->of[i]);
  }

  std::vector<counted<epochs>> by_domain_;
};

/// What a workgroup, a stream or the host knows. `before`: what happened before it. `published`: writes that have left
/// the XCD that made them for memory, so that other GPUs can see them; of these it may know more than happened before.
struct order_clock {
  u32 references = 0;
  u64 serial = ++serials;  // of what it knows, for those who take it over
  known_epochs before, published;

  order_clock() = default;
  order_clock(order_clock const& o) : before(o.before), published(o.published) {}
  void renew() { serial = ++serials; }
  void join(order_clock const& o) {
    before.join(o.before);
    published.join(o.published);
    renew();
  }

 private:
  static inline u64 serials = 0;
};
using order = counted<order_clock>;

/// Adds what `o` knows.
inline void join(order& to, order const& o) {
  if (!o || to == o) return;
  if (!to) to = o;
  else to.own().join(*o);
}

}  // namespace fusewire::sim
