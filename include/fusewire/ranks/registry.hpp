// A list of entries that come and go with their owners. The list and the owners may end in any order.
#pragma once
#include <list>
#include <memory>
#include <utility>

namespace fusewire::detail {

/// An entry's place in a registry. The entry is removed when its registration ends.
using registration = std::shared_ptr<void>;

/// Entries in the order in which they were added.
template <class Entry>
class registry {
 public:
  /// Adds an entry for as long as the result lives.
  [[nodiscard]] registration add(Entry e) {
    auto const at = entries_->insert(entries_->end(), std::move(e));
    return {nullptr, [all = std::weak_ptr(entries_), at](void*) {
              if (auto const still = all.lock()) still->erase(at);
            }};
  }
  auto begin() const { return entries_->cbegin(); }
  auto end() const { return entries_->cend(); }

 private:
  std::shared_ptr<std::list<Entry>> entries_ = std::make_shared<std::list<Entry>>();
};

}  // namespace fusewire::detail
