// Bodies of channel.hpp.
#pragma once
#include <algorithm>
#include <vector>

#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/launch.ipp>
#include <fusewire/memory/heap.ipp>
#include <fusewire/ranks/log.hpp>

namespace fusewire {

FUSEWIRE_HOST channel::channel(fusewire::heap& h, channel_options const& options, std::source_location where)
    : heap_(h.state()), options_(options) {
  require(options.max_bytes >= 1 && options.max_bytes <= SIZE_MAX / 4, where,
          "channel: max_bytes = ", options.max_bytes, "; expected 1 to ", SIZE_MAX / 4);
  int const size = h.world().size(), most = max_flags(size);
  require(options.flags_per_source >= 1 && options.flags_per_source <= most, where,
          "channel: flags_per_source = ", options.flags_per_source, "; expected 1 to ", most);
  h.require_equal_on_ranks("channel",
                           std::array{heap::named{"max_bytes", options.max_bytes},
                                      heap::named{"flags_per_source", std::uint64_t(options.flags_per_source)},
                                      heap::named{"poison", std::uint64_t(options.poison)}},
                           where, h.state()->alarmed());
  view_.world = h.view();
  view_.slot_bytes = slot_bytes(options.max_bytes);
  view_.flags_per_source = options.flags_per_source;
  view_.poison = options.poison;
  view_.xcds = static_cast<std::uint8_t>(h.world().xcd_count());
  state_ = {h, h.allocate<channel_state>(1, 256, where)};
  slots_ = {h, h.allocate<std::byte>(2 * view_.slot_bytes, 256, where)};
  flags_ = {h, h.allocate<flag>(flags(size, options.flags_per_source), 128, where)};
  view_.state = state_.get();
  view_.slots = slots_.get();
  view_.flags = flags_.get();
  h.names().add_flags(
      view_.flags.offset, view_.flags.count,
      [size, &names = h.names()](std::uint64_t i) { return flag_name(names, size, int(i)); },
      [size](std::uint64_t i) { return step_of(size, i); });
  h.world().forget_user(view_.world.here(view_.state));
  annotate_regions(where);
  clear(0, where);
  reset_ = h.state()->add_reset(view_.state.offset, [this] { agree_on_epoch(); });
  check_ = h.world().add_check([this](hipStream_t stream) { throw_if_unfinished(stream); });
}

FUSEWIRE_HOST channel_view channel::view(launch_header const& header) const {
  world().poll_errors();
  channel_view v = view_;
  v.header = header;
  return v;
}

FUSEWIRE_HOST void channel::agree_on_epoch() {
  auto const where = std::source_location::current();
  channel_state mine;
  world().copy(&mine, view_.world.here(view_.state), sizeof mine, hipMemcpyDeviceToHost, "channel: state", where);
  for (epoch_t e : world().exchange().all_gather(mine.epoch)) mine.epoch = std::max(mine.epoch, e);
  clear(mine.epoch, where);
}

FUSEWIRE_HOST std::uint64_t channel::step_of(int size, std::uint64_t i) {
  std::uint64_t const row = i / std::uint64_t(size);
  if (row < 4) return row % 2 ? ~std::uint64_t(0) : 0;
  return 1 + (row - 4) / 2;
}

FUSEWIRE_HOST std::string channel::flag_name(name_table const& names, int size, int i) {
  int const rank = names.rank(i % size), row = i / size, data = row - 4;
  if (data < 0) return text(row % 2 ? "acknowledgement" : "header", " of rank ", rank, ", slot ", row / 2);
  return text("data flag ", data / 2, " of rank ", rank, ", slot ", data % 2);
}

FUSEWIRE_HOST void channel::annotate_regions(std::source_location where) const {
  if (!detail::simulator::get().there()) return;
  std::string const mine = text(" of the channel at ", detail::short_place(where));
  std::size_t const first = 4 * std::size_t(world().size()) * sizeof(flag);
  heap_.annotate(false, view_.state.offset, sizeof(channel_state), "the state" + mine);
  heap_.name_ticket(view_.state.offset, offsetof(channel_state, ticket), "channel_epoch::end()");
  heap_.name_least(view_.state.offset, offsetof(channel_state, began), view_.xcds, "channel_view::begin_readable()");
  for (std::uint64_t slot : {0, 1})
    heap_.annotate(false, view_.slots.offset + slot * view_.slot_bytes, options_.max_bytes,
                   text("slot ", slot, " of the inbox", mine, ", max_bytes = ", options_.max_bytes));
  heap_.annotate(true, view_.flags.offset, first, "the headers" + mine);
  heap_.annotate(true, view_.flags.offset + first, view_.flags.count * sizeof(flag) - first,
                 text("the data flags", mine, ", flags_per_source = ", options_.flags_per_source));
}

FUSEWIRE_HOST void channel::clear(epoch_t epoch, std::source_location where) {
  std::vector<flag> fresh(view_.flags.count);
  for (std::size_t i = 0; i < fresh.size(); ++i)
    fresh[i].headers =
        view_.flags.offset + slot_of(i / std::size_t(world().size())) * std::size_t(2 * world().size()) * sizeof(flag);
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

FUSEWIRE_HOST void channel::throw_if_unfinished(hipStream_t stream) const {
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

}  // namespace fusewire
