// Names of flags and launches in error messages. The device notes offsets and words; the host turns them into
// sentences.
#pragma once
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include <fusewire/core/world_view.hpp>
#include <fusewire/device/flag_layout.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire {

/// Describes a launch in words, from its header.
using launch_description = std::function<std::string(std::uint64_t const (&what)[launch_words])>;

/// The names of flags and launches in messages. One table for each heap.
class name_table {
 public:
  /// Names the `count` flags from `offset` on in the signal segment: name_of(i) is the name of flag i. A kernel waits
  /// for flags with a lower step_of(i) first; without step_of, for those with a lower i.
  void add_flags(std::uint64_t offset, std::uint64_t count, std::function<std::string(std::uint64_t)> name_of,
                 std::function<std::uint64_t(std::uint64_t)> step_of = nullptr) {
    flags_[offset] = {count, std::move(name_of), std::move(step_of)};
  }
  /// Names what the flags from `offset` on belong to.
  void add_owner(std::uint64_t offset, std::string name) { owners_[offset] = std::move(name); }
  /// Removes what add_flags() and add_owner() named with the same offset.
  void remove_flags(std::uint64_t offset) {
    flags_.erase(offset);
    owners_.erase(offset);
  }

  /// Where ranks of several nodes share a channel, messages number those of all nodes: this is rank 0 of the heap.
  void number_ranks_from(int first) { first_rank_ = first; }
  /// The number of a rank in messages. `noted`: a rank of the heap, or max_ranks and a rank of all nodes.
  int rank(int noted) const { return noted >= max_ranks ? noted - max_ranks : first_rank_ + noted; }

  /// The name of the flag at `offset` of the signal segment.
  std::string flag_at(std::uint64_t offset) const {
    auto const at = find(offset);
    return at.named && at.i < at.named->count ? at.named->name_of(at.i) : "a flag that is not allocated";
  }

  /// The step of a kernel that waits for the flag at `offset`, as add_flags() knows it.
  std::uint64_t step_of(std::uint64_t offset) const {
    auto const at = find(offset);
    return at.named && at.named->step_of ? at.named->step_of(at.i) : at.i;
  }

  /// What the flags from `offset` on belong to.
  std::string owner(std::uint64_t offset) const {
    auto const known = owners_.find(offset);
    return known == owners_.end() ? "memory that is not allocated" : known->second;
  }

  /// Where the flags begin that were named together with the one at `offset`.
  std::uint64_t first_flag(std::uint64_t offset) const { return find(offset).first; }

  /// Launches whose header begins with `name` are described by `f`
  void add_launch(char const* name, launch_description f,
                  std::source_location where = std::source_location::current()) {
    launches_[word_of_name(name, where)] = std::move(f);
  }

  /// A launch in words: by add_launch()'s function, or else by its bare name and extents.
  std::string launch(std::uint64_t const (&what)[launch_words]) const {
    if (auto const known = launches_.find(what[0]); known != launches_.end()) return known->second(what);
    char name[9] = {};
    std::memcpy(name, &what[0], 8);
    return text(name, " (variant ", what[1], ", extents ", what[2], ", ", what[3], ", ", what[4], ", ", what[5], ")");
  }

  /// What `rank` says that it has launched: the launch, and its number of blocks.
  std::string header(int rank, std::uint64_t const (&words)[header_words]) const {
    if (std::ranges::all_of(words, [](std::uint64_t x) { return x == 0; }))
      return text("rank ", this->rank(rank), " sent no header for this epoch");
    std::uint64_t what[launch_words];
    std::ranges::copy_n(words, launch_words, what);
    std::uint64_t const blocks = words[launch_words];
    return text("rank ", this->rank(rank), " launched ", what[0] ? launch(what) : "what has no name",
                blocks ? text(" with ", blocks, blocks == 1 ? " block" : " blocks") : "");
  }

  /// The first word of a header, made from the operator's name. Fails: bad_argument.
  static std::uint64_t word_of_name(char const* name, std::source_location where) {
    std::size_t const letters = name ? std::strlen(name) : 0;
    require(letters >= 1 && letters <= 8, where, "the name of a launch, \"", name ? name : "", "\", has ", letters,
            " letters; expected 1 to 8");
    std::uint64_t word = 0;
    std::memcpy(&word, name, letters);
    return word;
  }

 private:
  struct range {
    std::uint64_t count;
    std::function<std::string(std::uint64_t)> name_of;
    std::function<std::uint64_t(std::uint64_t)> step_of;
  };
  /// Flag number i of those that were named together, which begin at `first`.
  struct place {
    range const* named = nullptr;  // null: none begin there or before
    std::uint64_t first = 0, i = 0;
  };
  /// Where the flag at `offset` belongs, if the last flags that begin at or before it are so many.
  place find(std::uint64_t offset) const {
    auto after = flags_.upper_bound(offset);
    if (after == flags_.begin()) return {};
    auto const& [first, named] = *--after;
    return {&named, first, (offset - first) / sizeof(flag)};
  }

  int first_rank_ = 0;
  std::map<std::uint64_t, range> flags_;                  // by offset of the first flag
  std::map<std::uint64_t, std::string> owners_;           // likewise
  std::map<std::uint64_t, launch_description> launches_;  // by the first word of the header
};

}  // namespace fusewire
