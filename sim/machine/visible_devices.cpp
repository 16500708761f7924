#include "machine/visible_devices.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace fusewire::sim {
namespace {

std::string trimmed(std::string const& s) {
  auto const space = [](unsigned char c) { return std::isspace(c) != 0; };
  auto const first = std::ranges::find_if_not(s, space);
  auto const last = std::find_if_not(s.rbegin(), s.rend(), space).base();
  return first < last ? std::string(first, last) : std::string();
}

std::string upper(std::string s) {
  for (char& c : s) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return s;
}

/// The entries between commas; none behind a comma at the end.
std::vector<std::string> entries_of(std::string_view list) {
  std::vector<std::string> all;
  while (!list.empty()) {
    auto const comma = std::min(list.find(','), list.size());
    all.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return all;
}

/// ROCr: a number as strtol reads it, or the beginning of one GPU's id. -1: neither.
int rocr_index(std::string const& entry, std::vector<int> const& among) {
  std::string const token = upper(trimmed(entry));
  if (token.empty()) return -1;
  if (token[0] != 'G') {
    char* end = nullptr;
    long const n = std::strtol(token.c_str(), &end, 0);
    return *end || n < 0 || static_cast<std::size_t>(n) >= among.size() ? -1 : static_cast<int>(n);
  }
  int found = -1;
  for (std::size_t i = 0; i < among.size() && token.size() >= 5; ++i)
    if (upper("GPU-" + unique_id(among[i])).starts_with(token)) {
      if (found >= 0) return -1;  // of several GPUs
      found = static_cast<int>(i);
    }
  return found;
}

/// ROCclr: a decimal number without spaces, or a part of a GPU's id from "GPU-" on. -1: neither.
int hip_index(std::string const& entry, std::vector<int> const& among) {
  if (entry.find("GPU-") != std::string::npos) {
    for (std::size_t i = 0; i < among.size(); ++i)
      if (("GPU-" + unique_id(among[i])).find(entry) != std::string::npos) return static_cast<int>(i);
    return -1;
  }
  int const n = std::atoi(entry.c_str());
  return n < 0 || static_cast<std::size_t>(n) >= among.size() || entry != std::to_string(n) ? -1 : n;
}

template <class Index>
void narrow(visible_devices& v, char const* name, char const* list, bool twice_ends, Index const& index_of) {
  std::vector<int> seen;
  for (std::string const& entry : entries_of(list)) {
    int const i = index_of(entry, v.gpus);
    bool const twice = i >= 0 && std::ranges::find(seen, v.gpus[static_cast<std::size_t>(i)]) != seen.end();
    if (twice && !twice_ends) continue;
    if (i < 0 || twice) {
      v.note = std::string(name) + "=" + list + ": " +
               (twice ? "entry '" + entry + "' names a GPU again" : "entry '" + entry + "' names no GPU") + " of the " +
               std::to_string(v.gpus.size()) + " there are, and ends the list: this process sees " +
               std::to_string(seen.size());
      break;
    }
    seen.push_back(v.gpus[static_cast<std::size_t>(i)]);
  }
  v.gpus = std::move(seen);
}

}  // namespace

std::string unique_id(int gpu) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "51a%013x", static_cast<unsigned>(gpu));
  return digits;
}

visible_devices visible_devices::among(int gpus, char const* rocr, char const* hip, char const* cuda) {
  visible_devices v;
  for (int i = 0; i < gpus; ++i) v.gpus.push_back(i);
  if (rocr) narrow(v, "ROCR_VISIBLE_DEVICES", rocr, true, rocr_index);
  if (hip && *hip) narrow(v, "HIP_VISIBLE_DEVICES", hip, false, hip_index);
  else if (cuda && *cuda) narrow(v, "CUDA_VISIBLE_DEVICES", cuda, false, hip_index);
  return v;
}

}  // namespace fusewire::sim
