// The host side of a channel; device/channel_view.hpp has the protocol and its argument.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/memory/heap.hpp>
#include <fusewire/runtime/launch.hpp>

namespace fusewire {

struct channel_options {
  std::size_t max_bytes = 64_MiB;  // of one launch's inbox; a channel takes twice that of the bulk segment
  int flags_per_source = 1024;     // data flags that one rank may raise on another in one launch; 128 bytes each, twice, per rank
};

/// Inbox slots, flags and epoch, shared by every operator that is launched in order on one stream. One channel per stream: launches of
/// one channel that run at the same time would share an epoch, and nothing checks that they do not.
class channel {
 public:
  /// Collective.
  channel(heap& h, channel_options const& options, std::source_location where = std::source_location::current()) : heap_(h), options_(options) {
    require(options.max_bytes >= 1 && options.max_bytes <= SIZE_MAX / 4, where, "channel: max_bytes = ", options.max_bytes, "; 1 to ", SIZE_MAX / 4, " are accepted");
    require(options.flags_per_source >= 1, where, "channel: flags_per_source = ", options.flags_per_source, "; at least 1 is accepted");
    int const size = h.world().size();
    view_.world = h.view();
    view_.slot_bytes = round_up(options.max_bytes, 256);
    view_.flags_per_source = options.flags_per_source;
    view_.state = h.allocate<channel_state>(1, 256, where);
    try {
      view_.slots = h.allocate<std::byte>(2 * view_.slot_bytes, 256, where);
      view_.flags = h.allocate<flag>(std::size_t(2 * size) * (2 + std::size_t(options.flags_per_source)), 128, where);
      h.names().add_flags(view_.flags.offset, view_.flags.count, [size, data = options.flags_per_source](std::uint64_t i) {
        return flag_name(size, data, int(i));
      });
      clear(0, where);
      reset_key_ = h.add_reset([this] { meet(); });
    } catch (...) {
      h.forget(view_.flags);
      h.forget(view_.slots);
      h.forget(view_.state);
      throw;
    }
  }
  channel(channel const&) = delete;
  /// Collective. Requires: what was launched is over.
  ~channel() {
    heap_.remove_reset(reset_key_);
    if (std::uncaught_exceptions() > exceptions_) return;  // the heap goes too
    try {
      heap_.free(view_.flags);
      heap_.free(view_.slots);
      heap_.free(view_.state);
    } catch (error const&) {  // another rank failed
    }
  }

  fusewire::heap& heap() const { return heap_; }
  fusewire::world& world() const { return heap_.world(); }
  channel_options const& options() const { return options_; }

  /// What a kernel gets. The header says what is launched; see launch_header.
  channel_view view(launch_header const& header) const {
    channel_view v = view_;
    v.header = header;
    return v;
  }

  /// Brings the ranks together again after a launch was abandoned or a rank failed before its launch, on this channel and on all others of its heap.
  /// Collective; waits for the device.
  void reset() { heap_.reset(); }

 private:
  /// Tickets and flags as new, and one epoch for all, no lower than any rank's was, so that none comes twice.
  void meet() {
    auto const where = std::source_location::current();
    channel_state mine;
    check_hip(hipMemcpy(&mine, view_.world.here(view_.state), sizeof mine, hipMemcpyDeviceToHost), "hipMemcpy(channel state)", where);
    for (epoch_t e : world().exchange().all_gather(mine.epoch)) mine.epoch = std::max(mine.epoch, e);
    clear(mine.epoch, where);
  }

  int flags_per_slot() const { return int(view_.flags.count / 2); }

  /// As channel_epoch lays them out.
  static std::string flag_name(int size, int data_flags, int i) {
    int const slot = i / (size * (2 + data_flags)), in_slot = i % (size * (2 + data_flags)), data = in_slot - 2 * size;
    if (in_slot < size) return text("header of rank ", in_slot, ", slot ", slot);
    if (data < 0) return text("acknowledgement of rank ", in_slot - size, ", slot ", slot);
    return text("data flag ", data % data_flags, " of rank ", data / data_flags, ", slot ", slot);
  }

  void clear(epoch_t epoch, std::source_location where) {
    std::vector<flag> fresh(view_.flags.count);
    for (std::size_t i = 0; i < fresh.size(); ++i)
      fresh[i].headers = view_.flags.offset + i / std::size_t(flags_per_slot()) * std::size_t(flags_per_slot()) * sizeof(flag);
    channel_state state{};
    state.epoch = epoch;
    check_hip(hipMemcpy(view_.world.here(view_.state), &state, sizeof state, hipMemcpyHostToDevice), "hipMemcpy(channel state)", where);
    check_hip(hipMemcpy(view_.world.here(view_.flags), fresh.data(), fresh.size() * sizeof(flag), hipMemcpyHostToDevice), "hipMemcpy(flags)", where);
    check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize", where);
    world().barrier();
  }

  fusewire::heap& heap_;
  channel_options options_;
  channel_view view_;
  int reset_key_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

/// A header from an operator's name (1 to 8 letters), its variant and up to four extents. heap::names().add_launch() says what such a
/// launch is called when it fails. Fails: bad_argument.
inline launch_header make_header(char const* name, std::uint64_t variant, std::uint64_t e0 = 0, std::uint64_t e1 = 0, std::uint64_t e2 = 0, std::uint64_t e3 = 0) {
  return {{name_table::word_of_name(name), variant, e0, e1, e2, e3}, {}};
}

}  // namespace fusewire
