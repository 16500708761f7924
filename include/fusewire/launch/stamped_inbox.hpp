// The host side of an inbox of stamped words; device/stamped_inbox_view.hpp has the argument.
#pragma once
#include <fusewire/device/stamped_inbox_view.hpp>
#include <fusewire/launch/channel.hpp>

namespace fusewire {

/// Size of an inbox.
struct stamped_inbox_options {
  int records = 1;              // of each source, in one launch
  int words = 1;                // of a record: 4-byte values
  std::string name = "record";  // the name of a record in the message of a failed wait
};

/// Memory in the signal segment for records of stamped words, in two slots, for the launches of one channel.
class stamped_inbox {
 public:
  /// Collective. Fails: bad_argument; rank_mismatch; out_of_space.
  stamped_inbox(channel& ch, stamped_inbox_options const& o,
                std::source_location where = std::source_location::current());
  stamped_inbox(stamped_inbox const&) = delete;
  /// Not collective, and waits for nothing: launches with it may still run; see heap::free().
  ~stamped_inbox() = default;

  /// The view that kernels get.
  stamped_inbox_view const& view() const { return view_; }

  /// What it takes of the heap of each of `ranks` ranks.
  static fusewire::requirements requirements(int ranks, stamped_inbox_options const& o) {
    return fusewire::requirements::of<stamped>(bytes(ranks, o.records, o.words) / sizeof(stamped)) +
           fusewire::requirements::of<stamped_turn>(2);
  }
  /// The bytes that it takes in the signal segment of each of `ranks` ranks.
  static std::size_t bytes(int ranks, int records, int words) {
    return 2 * std::size_t(ranks) * std::size_t(records) * std::size_t(padded(words)) * sizeof(stamped);
  }

 private:
  /// Words from a record to the next: whole lines of 128 bytes, because a report names the record that begins there.
  /// At least one word is nobody's, so that the simulator sees an access past the end of a record.
  static constexpr int padded(int words) {
    return int(round_up(std::size_t(words) + 1, sizeof(flag) / sizeof(stamped)));
  }

  fusewire::heap heap_;
  stamped_inbox_view view_;
  owned<stamped> words_;
  owned<stamped_turn> turns_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/launch/stamped_inbox.ipp>
#endif
