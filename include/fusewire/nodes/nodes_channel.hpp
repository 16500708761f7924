// The host side of a channel whose ranks are on several nodes; nodes_view.hpp has the protocol and its argument.
#pragma once
#include <fusewire/launch/channel.hpp>
#include <fusewire/nodes/network.hpp>

namespace fusewire {

/// A channel of the ranks of all nodes. Within a node it is a channel. For each far rank that it reaches, a rank has
/// windows of 2 x max_bytes; far ranks share one inbox of 2 x max_bytes and have flags of their own. On one node it is
/// a channel and nothing else.
class nodes_channel {
 public:
  /// Collective in network::all(). Fails: as channel's constructor; rank_mismatch where nodes have different options.
  nodes_channel(network& n, channel_options const& o, std::source_location where = std::source_location::current());
  nodes_channel(nodes_channel const&) = delete;
  /// Not collective, and waits for nothing. Its memory is used again when the network has ended.
  ~nodes_channel() = default;

  /// The channel of this node's ranks.
  channel& near();
  /// The ranks of all nodes.
  world& all() const;
  /// Fails: rank_mismatch where a rank of any node has another value. Collective in all(). `call`: for the message.
  void require_equal_on_ranks(char const* call, std::span<heap::named const> values, std::source_location where) const;
  /// The view that a kernel gets: launch it in the world of this node. Fails: as world::poll_errors().
  nodes_view view(launch_header const& header) const;
  /// Collective in network::all(). Otherwise as channel::reset().
  void reset(std::source_location where = std::source_location::current());

 private:
  struct memory;
  static std::size_t flags_of(nodes_view const& v);
  static std::string flag_name(nodes_view const& v, std::uint64_t i);
  void clear(std::source_location where);
  void agree_on_epoch();

  std::shared_ptr<detail::network_state> network_;
  nodes_view view_;
  std::shared_ptr<memory> memory_;
  detail::registration reset_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/nodes/nodes_channel.ipp>
#endif
