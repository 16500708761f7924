// What fusewire asks of a library that reaches other nodes, and nothing more: put bytes into registered memory of
// another rank, and raise a flag there after them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fusewire {

/// A put: bytes, and then 8 bytes that say so.
struct engine_put {
  std::uint64_t ticket = 0;        // its number for progress()
  int peer = 0;                    // the rank, among those of all nodes
  int region = 0;                  // of the peer, where the bytes go
  int flag_region = 0;             // of the peer, where the flag is
  void const* from = nullptr;      // memory of this rank: of the GPU only where the engine reaches that
  std::size_t bytes = 0;           // 0: the flag alone
  std::uint64_t to = 0, flag = 0;  // bytes from the start of the regions; flag is a multiple of 8
  std::uint64_t value = 0;         // what the flag becomes
};

/// Why a rank cannot be reached any more.
struct engine_failure {
  int peer = 0;     // the rank, among those of all nodes
  std::string why;  // for a message
};

/// One rank's end of a network. loopback_engine connects ranks of one process, for tests; make_ucx_engine() makes one
/// over UCX.
///
/// An engine promises two things.
///   1. The bytes of a put have arrived when its flag has: who finds the value, and acquires, finds the bytes.
///   2. What is put to a peer after progress() has named an earlier put to it does not arrive before that one.
/// Puts may otherwise overtake each other. Without 1 a kernel reads what has not come; without 2 a late put lands in
/// memory that was given to a later launch. nodes_view.hpp has the argument that needs no more.
///
/// An engine need not promise that the 8 bytes of a flag arrive at once: a value differs from the one before in its low
/// 32 bits at least as long as there were fewer than 2^32 launches.
///
/// Called by: one thread at a time. A network makes it, exposes memory and connects it; from then on its thread calls
/// put() and progress(). Nothing here is collective, and no call but the destructor waits for another rank.
class engine {
 public:
  /// Nothing arrives in this rank's exposed memory after it. May wait for a short time.
  virtual ~engine() = default;
  /// For messages.
  virtual std::string name() const = 0;

  /// What peers need to connect to this rank: at most 32 KiB.
  virtual std::vector<std::byte> address() = 0;
  /// Connects to a peer by its address(). Fails: runtime_failure.
  virtual void connect(int peer, std::span<std::byte const> address) = 0;

  /// Memory that peers may put into. Returns its number: 0, 1, ... in the order of the
  /// calls. It exists as long as the engine. Fails: runtime_failure.
  virtual int expose(void* at, std::size_t bytes) = 0;
  /// What peers need to put into the region: at most 32 KiB.
  virtual std::vector<std::byte> key(int region) = 0;
  /// A connected peer's key of the region with this number.
  virtual void accept_key(int peer, int region, std::span<std::byte const> key) = 0;

  /// Starts a put to a connected peer. False: nothing was started; progress() makes room.
  virtual bool put(engine_put const& p) = 0;
  /// Lets puts of this rank, and those of others to it, go on. Appends the tickets of puts whose sources may be written
  /// again, in any order. That says nothing of their arrival.
  virtual void progress(std::vector<std::uint64_t>& done) = 0;
  /// Whether everything that was put so far has arrived. Called again and again, with progress() in between.
  virtual bool settled() = 0;
  /// Whether puts go on in calls for this rank alone, within this process. On fusewire-sim's clock the calls then come
  /// at its times, from no thread.
  virtual bool is_simulated() const { return false; }
  /// For such an engine: that clock stands still while no kernel runs. From now on, or no more, puts take no time.
  virtual void hurry(bool) {}
  /// A peer that cannot be reached any more. Each is named once; puts to it may be lost.
  virtual std::optional<engine_failure> failure() = 0;
};

}  // namespace fusewire
