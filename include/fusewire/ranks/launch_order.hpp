// The order of one rank's launches on several streams.
//
//   the same memory (a channel, an operator)    one launch after the other, in the order of the calls
//   else, and all blocks fit concurrently            side by side
//   else                                        one after the other, in the order of the calls
//
// "After the other" is an event, recorded on the stream of the launch before and awaited by the stream of this one.
// A chain is what has been launched on one stream, and on those that it has waited for: one launch at a time.
//
// Deadlock: all ranks make their launches in one order. Then the earliest launch that is not over on all ranks waits
// for no stream, and all of its blocks have room together with the later ones that may have begun.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <fusewire/ranks/thread_state.hpp>

namespace fusewire {

/// What a launch takes of a device, in each of its XCDs; or the most that several take.
struct launch_room {
  int touched = 0;                         // units on which it may have blocks
  int spare = INT_MAX;                     // units on which others may have blocks, and it still fits
  int blocks = 0;                          // its blocks
  int of_unit = INT_MAX, units = INT_MAX;  // blocks that fit on a unit; units that it may use

  /// For launches one at a time.
  launch_room with(launch_room const& o) const {
    return {std::max(touched, o.touched), std::min(spare, o.spare), std::max(blocks, o.blocks),
            std::min(of_unit, o.of_unit), std::min(units, o.units)};
  }
};

/// A device takes a launch's blocks at any place where they fit. So launches have room side by side, if each has enough
/// units without a block of the others; or if a unit takes as many blocks, of whichever launch, as there are for it.
inline bool fit_together(std::span<launch_room const> all) {
  std::int64_t touched = 0, blocks = 0;
  launch_room most;
  for (launch_room const& r : all) touched += r.touched, blocks += r.blocks, most = most.with(r);
  return blocks <= std::int64_t(most.of_unit) * most.units ||
         std::ranges::all_of(all, [&](launch_room const& r) { return touched - r.touched <= r.spare; });
}

/// The launches of a world whose end has not been waited for.
class launch_order {
 public:
  launch_order() = default;
  /// The order of a world whose launches share a device with those of another.
  explicit launch_order(launch_order const& other) : chains_(other.chains_) {}

  /// Called before a launch that uses each `memory` (null: none). Lets the stream wait for others, where it must.
  /// `capture` is that of the stream. Captured launches are ordered within their capture alone. Returns whether the
  /// stream waits.
  /// Requires: streams of earlier launches still exist, or forget_stream() has been called for them.
  /// Fails: bad_argument, if it must wait for a stream that is now being captured; runtime_failure. Then nothing is
  /// noted.
  bool begin(std::span<void const* const> memory, hipStream_t stream, unsigned long long capture,
             launch_room const& room, std::source_location where) {
    chain mine{{stream, capture, ++launches_}, room, where};
    std::vector<chain> kept;
    std::vector<hipStream_t> before;
    auto const wait_for = [&](hipStream_t s) {
      if (std::ranges::find(before, s) == before.end()) before.push_back(s);
    };
    for (void const* m : memory)
      if (auto const it = users_.find(key{m, capture != 0});
          m && it != users_.end() && it->second.capture == capture && it->second.stream != stream)
        wait_for(it->second.stream);
    for (chain const& c : *chains_) {
      bool const here = c.at.stream == stream && (c.at.capture != 0) == (capture != 0);
      if (!here && (c.at.capture != capture || std::ranges::find(before, c.at.stream) == before.end()))
        kept.push_back(c);
      else if (c.at.capture == capture) mine.room = mine.room.with(c.room);
    }
    std::vector<launch_room> concurrent{mine.room};
    for (chain const& c : kept)
      if (c.at.capture == capture) concurrent.push_back(c.room);
    if (!fit_together(concurrent)) {
      for (chain const& c : kept)
        if (c.at.capture == capture) wait_for(c.at.stream), mine.room = mine.room.with(c.room);
      std::erase_if(kept, [&](chain const& c) { return c.at.capture == capture; });
    }
    for (hipStream_t s : before) order_after(s, mine.at, where);
    kept.push_back(mine);
    *chains_ = std::move(kept);
    for (void const* m : memory)
      if (m) users_[key{m, capture != 0}] = mine.at;
    return !before.empty();
  }

  /// Whether the latest launch that used the memory was on this stream, and none was ever captured: a replay may run
  /// on any stream at any time.
  bool used_last_by(void const* memory, hipStream_t stream) const {
    auto const it = users_.find(key{memory, false});
    return it != users_.end() && it->second.stream == stream && !users_.contains(key{memory, true});
  }
  /// The memory is no more.
  void forget_memory(void const* memory) {
    users_.erase(key{memory, false});
    users_.erase(key{memory, true});
  }
  /// All work on the stream is over.
  void forget_stream(hipStream_t stream) {
    std::erase_if(*chains_, [&](chain const& c) { return c.at.stream == stream && c.at.capture == 0; });
    std::erase_if(users_, [&](auto const& u) { return u.second.stream == stream && u.second.capture == 0; });
  }

 private:
  using key = std::pair<void const*, bool>;  // memory, and whether for its captured launches
  struct place {
    hipStream_t stream = nullptr;
    unsigned long long capture = 0;  // 0: none
    std::uint64_t number = 0;        // of the launch
  };
  struct chain {
    place at;
    launch_room room;
    std::source_location where;  // of its latest launch
  };
  struct destroy_event {
    void operator()(hipEvent_t e) const { ignore_hip(hipEventDestroy(e)); }
  };

  void order_after(hipStream_t before, place const& at, std::source_location where) {
    unsigned long long const now = detail::capture_of(before, "launch", where);
    auto const c = std::ranges::find_if(
        *chains_, [&](chain const& x) { return x.at.stream == before && x.at.capture == at.capture; });
    require(now == at.capture, where, "launch: it must wait for the launch before it",
            c == chains_->end() ? "" : text(", of ", c->where.file_name(), ":", c->where.line(), ","),
            now ? " whose stream has begun a capture since, so that no event outside of it can tell its end; expected "
                  "world::check() for that stream before the capture"
                : " whose capture has ended; expected launches of one capture");
    if (!event_) {
      hipEvent_t e = nullptr;
      check_hip(hipEventCreateWithFlags(&e, hipEventDisableTiming), "hipEventCreateWithFlags", where);
      event_.reset(e);
    }
    check_hip(hipEventRecord(event_.get(), before), "hipEventRecord", where);
    check_hip(hipStreamWaitEvent(at.stream, event_.get(), 0), "hipStreamWaitEvent", where);
  }

  std::shared_ptr<std::vector<chain>> chains_ = std::make_shared<std::vector<chain>>();
  std::map<key, place> users_;
  std::uint64_t launches_ = 0;
  std::unique_ptr<std::remove_pointer_t<hipEvent_t>, destroy_event> event_;
};

}  // namespace fusewire
