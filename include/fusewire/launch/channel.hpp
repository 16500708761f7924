// The host side of a channel; device/channel_view.hpp has the protocol and its argument.
#pragma once
#include <concepts>
#include <cstddef>

#include <fusewire/core/math.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/memory/heap.hpp>
#include <fusewire/launch/launch.hpp>

namespace fusewire {

/// Options of a channel; the same on every rank.
struct channel_options {
  std::size_t max_bytes = 64_MiB;  // inbox of one launch; a channel takes twice that of the bulk segment
  /// Data flags that one rank may raise on another in one launch. Each takes 128 bytes, twice, per rank
  int flags_per_source = 1024;
  /// Whether ag_gemm stores NaN where a wait timed out; it costs a round trip to memory per tile of C. flash_decode
  /// always does
  bool poison = false;

  /// Those of the channel that a sum of requirements has. Fails: bad_argument when it has none.
  static channel_options of(requirements const& r, std::source_location where = std::source_location::current()) {
    require(
        r.flags_per_source() > 0, where,
        "channel: these requirements have no channel; expected channel::requirements() or an operator's among them");
    return {.max_bytes = r.max_bytes(), .flags_per_source = r.flags_per_source()};
  }
};

/// Inbox slots, flags and an epoch, which all operators share whose launches come one after the other. Launches of one
/// channel that run at the same time would share an epoch. So launch() lets each of them wait for the one before, also
/// where that was on another stream. The simulator reports launches that no stream, event or launch() has ordered.
class channel {
 public:
  /// Collective.
  channel(heap& h, channel_options const& options, std::source_location where = std::source_location::current());
  /// The same from a sum of requirements. Otherwise as above.
  template <std::same_as<fusewire::requirements> R>
  channel(fusewire::heap& h, R const& r, std::source_location where = std::source_location::current())
      : channel(h, channel_options::of(r, where), where) {}
  channel(channel const&) = delete;
  /// Not collective, and waits for nothing: its launches may still run. Its memory is used again when every rank has
  /// ended its channel; see heap::free().
  ~channel() = default;

  /// What a channel of `ranks` ranks takes of a heap, and that it has what the options say. Requires: options that the
  /// constructor accepts.
  static fusewire::requirements requirements(int ranks, channel_options const& o) {
    using r = fusewire::requirements;
    return r::of_channel(o.max_bytes, o.flags_per_source,
                         r::of<channel_state>(1) + r::of<std::byte>(2 * slot_bytes(o.max_bytes)) +
                             r::of<flag>(flags(ranks, o.flags_per_source)));
  }

  /// The memory of its slots and flags.
  fusewire::heap& heap() const { return heap_; }
  /// The heap's world.
  fusewire::world& world() const { return heap_.world(); }
  /// The options that it was made with.
  channel_options const& options() const { return options_; }

  /// The view that a kernel gets. The header says what is launched; see launch_header. Fails: as world::poll_errors().
  channel_view view(launch_header const& header) const;

  /// Collective; waits for the device. Brings the ranks together again after a launch was abandoned, or after a rank
  /// failed before its launch. Resets all channels of the heap that no rank has ended.
  /// Fails: as heap::reset().
  void reset(std::source_location where = std::source_location::current()) { heap_.reset(where); }

 private:
  /// With a gap between the slots, so that the simulator sees an access past the end of one.
  static std::size_t slot_bytes(std::size_t max_bytes) { return round_up(max_bytes, 256) + 256; }
  /// Flags of both slots and all ranks: headers, acknowledgements, data.
  static std::size_t flags(int ranks, int flags_per_source) {
    return 2 * std::size_t(ranks) * (2 + std::size_t(flags_per_source));
  }
  /// Most flags of a source: kernels number all flags of a rank with an int.
  static int max_flags(int ranks) { return (1 << 30) / ranks - 2; }

  friend class nodes_channel;

  /// Resets tickets and flags, and gives all ranks one epoch. It is not lower than any rank's, so no epoch comes twice.
  void agree_on_epoch();

  /// When a launch waits for flag i: headers first, then data flags by their number, acknowledgements at last.
  static std::uint64_t step_of(int size, std::uint64_t i);
  /// The name of flag i, in the order of detail::launch_place.
  static std::string flag_name(name_table const& names, int size, int i);

  /// Names the channel's memory for the simulator.
  void annotate_regions(std::source_location where) const;

  void clear(epoch_t epoch, std::source_location where);

  /// Fails: launch_unfinished. Requires: the stream has nothing left to do. Once a launch was captured, nothing is
  /// checked: a replay may be running on another stream at this moment.
  void throw_if_unfinished(hipStream_t stream) const;

  /// The slot of a row of flags. A row has one flag of each rank. The rows are headers and acknowledgements of slot 0,
  /// the same of slot 1, then data flags of slots 0 and 1 alternately.
  static std::size_t slot_of(std::size_t row) { return row < 4 ? row / 2 : row % 2; }

  mutable fusewire::heap heap_;
  channel_options options_;
  channel_view view_;
  owned<channel_state> state_;
  owned<std::byte> slots_;
  owned<flag> flags_;
  detail::registration reset_, check_;
};

/// Makes a header from an operator's name (1 to 8 letters), its variant and up to four extents.
/// heap::names().add_launch() says how such a launch is described when it fails. Fails: bad_argument.
inline launch_header make_header(char const* name, std::uint64_t variant, std::uint64_t e0 = 0, std::uint64_t e1 = 0,
                                 std::uint64_t e2 = 0, std::uint64_t e3 = 0,
                                 std::source_location where = std::source_location::current()) {
  return {.what = {name_table::word_of_name(name, where), variant, e0, e1, e2, e3}};
}

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/launch/channel.ipp>
#endif
