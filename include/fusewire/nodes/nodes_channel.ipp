// Bodies of nodes_channel.hpp.
#pragma once
#include <fusewire/launch/channel.ipp>
#include <fusewire/nodes/network.ipp>
#include <fusewire/nodes/nodes_channel.hpp>

namespace fusewire {

/// What the engine may use: memory of the heap, or of the host.
struct nodes_channel::memory {
  memory(fusewire::heap& h, channel_options const& o, std::source_location where) : near(h, o, where) {}

  fusewire::channel near;  // its slots are the inbox where the network reaches them
  owned<std::byte> windows;
  owned<flag> flags;
  owned<flag> headers;
  detail::pinned_memory pinned_windows, pinned_inbox, pinned_flags, pinned_headers;
};

FUSEWIRE_HOST nodes_channel::nodes_channel(network& n, channel_options const& o, std::source_location where)
    : network_(n.state()), memory_(std::make_shared<memory>(n.heap(), o, where)) {
  auto& net = *network_;
  fusewire::heap& h = n.heap();
  int const size = net.all.size(), near = h.world().size();
  memory& m = *memory_;
  static_cast<channel_view&>(view_) = m.near.view({});
  view_.node = net.all.rank() / near;
  view_.nodes = size / near;
  view_.peers = net.options.peers;
  auto const words =
      net.all.exchange().all_gather(std::array<std::uint64_t, 2>{o.max_bytes, std::uint64_t(o.flags_per_source)});
  for (std::size_t r = 0; r < words.size(); ++r)
    require<rank_mismatch>(words[r] == words[0], where, "nodes_channel: ranks 0 and ", r,
                           " have different channel_options");
  if (view_.nodes == 1) return;
  require(o.flags_per_source < (1 << 28) / size, where, "nodes_channel: flags_per_source = ", o.flags_per_source,
          "; expected fewer than ", (1 << 28) / size);
  std::size_t const slots = 2 * view_.slot_bytes, far = net.peers.size() * slots, flags = flags_of(view_);
  bool const in_host = net.options.reach == network_reach::host;
  detail::current_device const device(h.world().device(), where);
  if (in_host) {
    m.pinned_windows = {far, "hipHostMalloc(windows)", where};
    m.pinned_inbox = {slots, "hipHostMalloc(inbox)", where};
    m.pinned_flags = {flags * sizeof(flag), "hipHostMalloc(flags)", where};
    m.pinned_headers = {2 * sizeof(flag), "hipHostMalloc(headers)", where};
    view_.windows = m.pinned_windows.as<std::byte>();
    view_.far_inbox = m.pinned_inbox.as<std::byte>();
    view_.far_flags = m.pinned_flags.as<flag>();
    view_.headers = m.pinned_headers.as<flag>();
  } else {
    m.windows = {h, h.allocate<std::byte>(far, 256, where)};
    m.flags = {h, h.allocate<flag>(flags, 128, where)};
    m.headers = {h, h.allocate<flag>(2, 128, where)};
    view_.windows = h.here(m.windows.get());
    view_.far_inbox = h.here(view_.slots);
    view_.far_flags = h.here(m.flags.get());
    view_.headers = h.here(m.headers.get());
  }
  auto const signal = reinterpret_cast<std::uint64_t>(h.view().signal[h.world().rank()]);
  h.names().add_flags(reinterpret_cast<std::uint64_t>(view_.far_flags) - signal, flags,
                      [v = view_](std::uint64_t i) { return flag_name(v, i); });
  view_.ring = net.view;
  view_.inbox_region = net.expose(view_.far_inbox, slots);
  view_.flag_region = net.expose(view_.far_flags, flags * sizeof(flag));
  net.kept.push_back(memory_);
  clear(where);
  reset_ = h.state()->add_reset(view_.state.offset + 1, [this] { agree_on_epoch(); });
}

FUSEWIRE_HOST channel& nodes_channel::near() { return memory_->near; }
FUSEWIRE_HOST world& nodes_channel::all() const { return network_->all; }
FUSEWIRE_HOST void nodes_channel::require_equal_on_ranks(char const* call, std::span<heap::named const> values,
                                                         std::source_location where) const {
  std::vector<std::uint64_t> mine(values.size());
  std::ranges::transform(values, mine.begin(), &heap::named::value);
  auto const words = detail::gather_words(all().exchange(), mine, mine.size());
  for (std::size_t r = 0; r < words.size(); ++r)
    for (std::size_t i = 0; i < values.size(); ++i)
      require<rank_mismatch>(words[r][i] == words[0][i], where, call, ": ranks disagree in ", values[i].name,
                             ": rank 0 has ", words[0][i], ", rank ", r, " has ", words[r][i]);
}
FUSEWIRE_HOST void nodes_channel::reset(std::source_location where) { memory_->near.reset(where); }
FUSEWIRE_HOST nodes_view nodes_channel::view(launch_header const& header) const {
  memory_->near.world().poll_errors();
  nodes_view v = view_;
  v.header = header;
  return v;
}

FUSEWIRE_HOST std::size_t nodes_channel::flags_of(nodes_view const& v) {
  int const sources = v.peers == far_peers::all ? v.nodes * v.world.size() : v.nodes;
  return 2 * std::size_t(sources) * (1 + std::size_t(v.flags_per_source));
}

FUSEWIRE_HOST std::string nodes_channel::flag_name(nodes_view const& v, std::uint64_t i) {
  bool const all = v.peers == far_peers::all;
  auto const sources = std::uint64_t(all ? v.nodes * v.world.size() : v.nodes);
  auto const source = int(i % sources), row = int(i / sources / 2), slot = int(i / sources % 2);
  return text(row ? text("data flag ", row - 1) : std::string("header"), " of rank ",
              all ? source : source * v.world.size() + v.world.rank(), " on another node, slot ", slot);
}

FUSEWIRE_HOST void nodes_channel::clear(std::source_location where) {
  std::vector<flag> fresh(flags_of(view_));
  std::size_t const sources = fresh.size() / 2 / (1 + std::size_t(view_.flags_per_source)),
                    headers = 2 * std::size_t(view_.world.size()) * sizeof(flag);
  for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i].headers = view_.flags.offset + i / sources % 2 * headers;
  memory_->near.world().copy(view_.far_flags, fresh.data(), fresh.size() * sizeof(flag), hipMemcpyDefault,
                             "nodes_channel: flags", where);
  network_->all.exchange().barrier();
}

FUSEWIRE_HOST void nodes_channel::agree_on_epoch() {
  auto const where = std::source_location::current();
  channel_state mine;
  memory_->near.world().copy(&mine, view_.world.here(view_.state), sizeof mine, hipMemcpyDeviceToHost, "channel: state",
                             where);
  epoch_t latest = 0;
  for (epoch_t e : network_->all.exchange().all_gather(mine.epoch)) latest = std::max(latest, e);
  memory_->near.clear(latest, where);
  clear(where);
}

}  // namespace fusewire
