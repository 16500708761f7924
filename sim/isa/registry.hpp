// Mnemonics and their effects. One exec_*.cpp per family adds its rows; registry.cpp has the list of families.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "op.hpp"

namespace fusewire::sim {

class registry {
 public:
  using row = std::pair<std::string_view, semantics>;

  void add(std::string name, semantics meaning) { rows_.insert_or_assign(std::move(name), meaning); }
  void add(std::initializer_list<row> rows) {
    for (auto const& [name, meaning] : rows) add(std::string(name), meaning);
  }
  semantics const* find(std::string const& name) const {
    auto const at = rows_.find(name);
    return at == rows_.end() ? nullptr : &at->second;
  }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

 private:
  std::unordered_map<std::string, semantics> rows_;
};

registry const& instructions();

}  // namespace fusewire::sim
