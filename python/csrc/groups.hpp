// The communicators of this process, by the group's name, for torch's operators and for the C functions.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

#include "communicator.hpp"

namespace fusewire::binding {

/// By the group's name. Never destroyed: at the end of a process the GPU's runtime ends before static objects do.
struct registry {
  std::recursive_mutex calls;  // one at a time, of all groups: autograd has threads of its own
  std::map<std::string, std::unique_ptr<communicator>, std::less<>> groups;
};
inline registry& all() {
  static registry* const r = new registry;
  return *r;
}
inline communicator& group_of(std::string const& name) {
  auto const it = all().groups.find(name);
  if (it == all().groups.end())
    refuse("no communicator for the group '" + name + "'; expected fusewire.init(group) before");
  return *it->second;
}

/// What the exception says, behind its kind, without the place in this source where the library was called.
inline std::string in_words(std::exception const& e) {
  std::string what = e.what();
  if (auto const at = what.rfind("  ["); at != what.npos && what.ends_with("]")) what.resize(at);
  return std::string("fusewire::") + kind_of(e) + ": " + what;
}
/// Calls f alone. torch makes a ValueError of what is invalid, and a RuntimeError of the rest.
template <class F>
auto alone(F const& f) {
  try {
    std::lock_guard const lock(all().calls);
    return f();
  } catch (std::exception const& e) {
    if (std::string_view(kind_of(e)) == "bad_argument") throw std::invalid_argument(in_words(e));
    throw std::runtime_error(in_words(e));
  }
}

}  // namespace fusewire::binding
