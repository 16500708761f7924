// What moe_dispatch sends, and where it comes.
#pragma once
#include <type_traits>

#include <fusewire/comm/moe_routing_view.hpp>
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// Rows of bytes in memory: elements of any type.
template <class Byte>
struct moe_rows {
  Byte* data = nullptr;    // row 0; null: no rows
  int bytes = 0;           // of a row
  std::int64_t pitch = 0;  // bytes from one row to the next

  moe_rows() = default;
  /// Rows of `bytes` bytes, `pitch` bytes from one to the next.
  template <class Void>
    requires std::is_void_v<Void>
  moe_rows(Void* data, int bytes, std::int64_t pitch) : data(static_cast<Byte*>(data)), bytes(bytes), pitch(pitch) {}
  /// Those of a matrix, however many it has.
  template <class T>
    requires(std::is_const_v<Byte> || !std::is_const_v<T>)
  moe_rows(matrix<T> const& m)
      : data(reinterpret_cast<Byte*>(m.data)), bytes(int(std::size_t(m.cols) * sizeof(T))),
        pitch(m.ld * std::int64_t(sizeof(T))) {}
};

/// One call. All ranks pass rows of the same bytes, and either all of them weights or none; each has its own tokens.
struct moe_dispatch_call {
  moe_rows<std::byte const> x;            // [tokens]: bytes a multiple of 16, at multiples of 16
  moe_rows<std::byte const> scales = {};  // [tokens]: bytes a multiple of 4, at multiples of 4; none: no scales
  moe_rows<std::byte> out;  // [max_rows]: what comes here, in the layout; rows between experts stay as they are
  moe_rows<std::byte> out_scales = {};         // [max_rows], where there are scales
  std::int32_t const* experts = nullptr;       // [tokens, top_k]; -1: none
  std::int64_t const* wide_experts = nullptr;  // the same as 64-bit integers, instead
  float const* weights = nullptr;              // [tokens, top_k], for the routing's row_weights; null: all 1
  int tokens = 0;                              // of this rank, 0 to max_tokens
  /// On the device: how many tokens there are, 0 to `tokens`; null: all. Replays of a graph see the number of their
  /// time
  std::int32_t const* device_tokens = nullptr;
  moe_routing_view routing;  // written; with `routed` read
  /// True: `routing` is that of an earlier call whose tokens lie in the same order. Experts and weights are not read.
  /// Every rank passes the same
  bool routed = false;
};

}  // namespace fusewire
