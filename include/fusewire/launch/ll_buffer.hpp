// The host side of a buffer of LL words; device/ll_buffer_view.hpp has the argument.
#pragma once
#include <fusewire/device/ll_buffer_view.hpp>
#include <fusewire/launch/channel.hpp>

namespace fusewire {

/// Size of a buffer.
struct ll_buffer_options {
  int records = 1;              // of each source, in one launch
  int words = 1;                // of a record: 4-byte values
  std::string name = "record";  // the name of a record in the message of a failed wait
};

/// Memory in the signal segment for records of LL words, in two slots, for the launches of one channel.
class ll_buffer {
 public:
  /// Collective. Fails: bad_argument; rank_mismatch; out_of_space.
  ll_buffer(channel& ch, ll_buffer_options const& o, std::source_location where = std::source_location::current());
  ll_buffer(ll_buffer const&) = delete;
  /// Not collective, and waits for nothing: launches with it may still run; see heap::free().
  ~ll_buffer() = default;

  /// The view that kernels get.
  ll_buffer_view const& view() const { return view_; }

  /// What it takes of the heap of each of `ranks` ranks.
  static fusewire::requirements requirements(int ranks, ll_buffer_options const& o) {
    return fusewire::requirements::of<ll_word<>>(bytes(ranks, o.records, o.words) / sizeof(ll_word<>));
  }
  /// The bytes that it takes in the signal segment of each of `ranks` ranks.
  static std::size_t bytes(int ranks, int records, int words) {
    return 2 * std::size_t(ranks) * std::size_t(records) * std::size_t(padded(words)) * sizeof(ll_word<>);
  }

 private:
  /// Words from a record to the next: whole lines of 128 bytes, because a report names the record that begins there.
  /// At least one word is nobody's, so that the simulator sees an access past the end of a record.
  static constexpr int padded(int words) {
    return int(round_up(std::size_t(words) + 1, sizeof(flag) / sizeof(ll_word<>)));
  }

  fusewire::heap heap_;
  ll_buffer_view view_;
  owned<ll_word<>> words_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/launch/ll_buffer.ipp>
#endif
