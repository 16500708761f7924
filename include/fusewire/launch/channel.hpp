// The host side of a channel; device/channel_view.hpp has the protocol and its argument.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>

#include <fusewire/device/channel_view.hpp>
#include <fusewire/memory/heap.hpp>
#include <fusewire/launch/launch.hpp>

namespace fusewire {

/// Options of a channel; the same on every rank.
struct channel_options {
  std::size_t max_bytes = 64_MiB;  // inbox of one launch; a channel takes twice that of the bulk segment
  /// Data flags that one rank may raise on another in one launch. Each takes 128 bytes, twice, per rank
  int flags_per_source = 1024;
  /// Whether ag_gemm stores NaN where a wait was given up; it costs a trip to memory per tile of C. flash_decode always
  /// does
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
  channel(heap& h, channel_options const& options, std::source_location where = std::source_location::current())
      : heap_(h.state()), options_(options) {
    require(options.max_bytes >= 1 && options.max_bytes <= SIZE_MAX / 4, where,
            "channel: max_bytes = ", options.max_bytes, "; expected 1 to ", SIZE_MAX / 4);
    int const size = h.world().size(), most = max_flags(size);
    require(options.flags_per_source >= 1 && options.flags_per_source <= most, where,
            "channel: flags_per_source = ", options.flags_per_source, "; expected 1 to ", most);
    view_.world = h.view();
    view_.slot_bytes = slot_bytes(options.max_bytes);
    view_.flags_per_source = options.flags_per_source;
    view_.poison = options.poison;
    view_.parts = static_cast<std::uint8_t>(h.world().xcd_count());
    state_ = {h, h.allocate<channel_state>(1, 256, where)};
    slots_ = {h, h.allocate<std::byte>(2 * view_.slot_bytes, 256, where)};
    flags_ = {h, h.allocate<flag>(flags(size, options.flags_per_source), 128, where)};
    view_.state = state_.get();
    view_.slots = slots_.get();
    view_.flags = flags_.get();
    h.names().add_flags(
        view_.flags.offset, view_.flags.count, [size](std::uint64_t i) { return flag_name(size, int(i)); },
        [size](std::uint64_t i) { return step_of(size, i); });
    h.world().forget_user(view_.world.here(view_.state));
    name_parts(where);
    clear(0, where);
    reset_ = h.state()->add_reset(view_.state.offset, [this] { meet(); });
    check_ = h.world().add_check([this](hipStream_t stream) { throw_if_unfinished(stream); });
  }
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
  channel_view view(launch_header const& header) const {
    world().poll_errors();
    channel_view v = view_;
    v.header = header;
    return v;
  }

  /// Collective; waits for the device. Brings the ranks together again after a launch was abandoned, or after a rank
  /// failed before its launch. Resets all channels of the heap that no rank has ended.
  /// Fails: as heap::reset().
  void reset(std::source_location where = std::source_location::current()) { heap_.reset(where); }

 private:
  /// With a gap between the slots, so that the simulator sees an access past the end of one.
  static std::size_t slot_bytes(std::size_t max_bytes) { return round_up(max_bytes, 256) + 256; }
  /// Of both slots, of all ranks: headers, acknowledgements, data.
  static std::size_t flags(int ranks, int flags_per_source) {
    return 2 * std::size_t(ranks) * (2 + std::size_t(flags_per_source));
  }
  /// Of a source: kernels number all flags of a rank with an int.
  static int max_flags(int ranks) { return (1 << 30) / ranks - 2; }

  /// Resets tickets and flags, and gives all ranks one epoch. It is not lower than any rank's, so no epoch comes twice.
  void meet() {
    auto const where = std::source_location::current();
    channel_state mine;
    world().copy(&mine, view_.world.here(view_.state), sizeof mine, hipMemcpyDeviceToHost, "channel: state", where);
    for (epoch_t e : world().exchange().all_gather(mine.epoch)) mine.epoch = std::max(mine.epoch, e);
    clear(mine.epoch, where);
  }

  /// When a launch waits for flag i: headers first, then data flags by their number, acknowledgements at last.
  static std::uint64_t step_of(int size, std::uint64_t i) {
    std::uint64_t const row = i / std::uint64_t(size);
    if (row < 4) return row % 2 ? ~std::uint64_t(0) : 0;
    return 1 + (row - 4) / 2;
  }
  /// The name of flag i, in the order of detail::launch_place.
  static std::string flag_name(int size, int i) {
    int const rank = i % size, row = i / size, data = row - 4;
    if (data < 0) return text(row % 2 ? "acknowledgement" : "header", " of rank ", rank, ", slot ", row / 2);
    return text("data flag ", data / 2, " of rank ", rank, ", slot ", data % 2);
  }

  /// Names the channel's memory for the simulator.
  void name_parts(std::source_location where) const {
    if (!detail::simulator::get().there()) return;
    std::string const mine = text(" of the channel at ", detail::short_place(where));
    std::size_t const first = 4 * std::size_t(world().size()) * sizeof(flag);
    heap_.annotate(false, view_.state.offset, sizeof(channel_state), "the state" + mine);
    heap_.name_ticket(view_.state.offset, offsetof(channel_state, ticket), "channel_epoch::end()");
    heap_.name_least(view_.state.offset, offsetof(channel_state, began), view_.parts, "channel_view::begin_readable()");
    for (std::uint64_t slot : {0, 1})
      heap_.annotate(false, view_.slots.offset + slot * view_.slot_bytes, options_.max_bytes,
                     text("slot ", slot, " of the inbox", mine, ", max_bytes = ", options_.max_bytes));
    heap_.annotate(true, view_.flags.offset, first, "the headers" + mine);
    heap_.annotate(true, view_.flags.offset + first, view_.flags.count * sizeof(flag) - first,
                   text("the data flags", mine, ", flags_per_source = ", options_.flags_per_source));
  }

  void clear(epoch_t epoch, std::source_location where) {
    std::vector<flag> fresh(view_.flags.count);
    for (std::size_t i = 0; i < fresh.size(); ++i)
      fresh[i].headers = view_.flags.offset +
                         slot_of(i / std::size_t(world().size())) * std::size_t(2 * world().size()) * sizeof(flag);
    channel_state state{};
    state.epoch = epoch;
    world().copy(view_.world.here(view_.state), &state, sizeof state, hipMemcpyHostToDevice, "channel: state", where);
    world().copy(view_.world.here(view_.flags), fresh.data(), fresh.size() * sizeof(flag), hipMemcpyHostToDevice,
                 "channel: flags", where);
    detail::log(world().rank(), [&] {
      return text("channel of ", detail::in_bytes(options_.max_bytes), " and ", options_.flags_per_source,
                  " flags from each rank; its ", epoch ? "next" : "first", " epoch is ", epoch + 1);
    });
    world().exchange().barrier();
  }

  /// Fails: launch_unfinished. Requires: the stream has nothing left to do. Once a launch was captured, nothing is
  /// checked: a replay may be running on another stream at this moment.
  void throw_if_unfinished(hipStream_t stream) const {
    if (!world().used_last_by(view_.world.here(view_.state), stream)) return;
    channel_state state;
    flag begun[2];  // this rank's own headers
    check_hip(hipMemcpyAsync(&state, view_.world.here(view_.state), sizeof state, hipMemcpyDeviceToHost, stream),
              "hipMemcpyAsync(channel state)");
    for (int slot : {0, 1})
      check_hip(hipMemcpyAsync(&begun[slot], view_.world.here(view_.flags) + 2 * slot * world().size() + world().rank(),
                               sizeof(flag), hipMemcpyDeviceToHost, stream),
                "hipMemcpyAsync(header)");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    flag const& latest = begun[begun[1].value > begun[0].value];
    if (latest.value <= state.epoch && state.ticket == 0) return;
    std::uint64_t words[header_words];
    std::ranges::copy_n(latest.note, header_words, words);
    throw launch_unfinished(
        text("launch ", state.epoch + 1, " of a channel did not end: ", heap_.names().header(world().rank(), words),
             ", and ", state.ticket, state.ticket == 1 ? " block" : " blocks",
             " called channel_epoch::end(), which every block must, once; results are invalid until reset()"));
  }

  /// The slot of a row of flags. A row has one flag of each rank. The rows are headers and acknowledgements of slot 0,
  /// the same of slot 1, then data flags of slots 0 and 1 in turn.
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
