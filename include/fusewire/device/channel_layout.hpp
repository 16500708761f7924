// What a channel consists of: what a launch says about itself, a rank's state, and where flags and slots are. The
// protocol is in channel_view.hpp.
#pragma once
#include <cstddef>
#include <cstdint>

#include <fusewire/device/flag.hpp>
#include <fusewire/device/memory.hpp>

namespace fusewire {

/// What a launch is. Ranks compare it: it is equal on all ranks, and so is the number of blocks, or the launch is
/// abandoned.
struct launch_header {
  /// What was launched: name, variant and extents; see make_header().
  std::uint64_t what[launch_words] = {};
  std::uint64_t mine[2] = {};     // this rank's own words, readable by peers: see peer_word()
  std::uint64_t equal_grids = 1;  // 0: ranks may launch different numbers of blocks
};

/// Counters from which the blocks of a launch claim work; see channel_epoch::next().
inline constexpr int work_counters = 3;

/// Lies in the bulk segment; only its own rank touches it.
struct channel_state {
  epoch_t epoch;                 // launches that have ended
  unsigned ticket;               // blocks of the current launch that are done
  unsigned next[work_counters];  // work handed out so far
  unsigned arrived_blocks;       // blocks of the current launch that have called last_block()
  /// For each source, the items of work on its memory that are done
  unsigned arrived[max_ranks];
  unsigned began;  // blocks of the current launch that have begun, if peers read this rank's memory
  /// For each XCD, the launch in which it last released what earlier kernels had written
  epoch_t released_in[platform::max_xcds];
};

class channel_epoch;

/// Passed to kernels by value; made by channel::view().
struct channel_view {
  /// The ranks that share the channel.
  world_view world;
  sym<std::byte> slots;          // 2 x slot_bytes
  std::uint64_t slot_bytes = 0;  // channel_options::max_bytes and a gap after it
  /// 2 x (headers [W], acknowledgements [W]), data [flags_per_source][2][W]; the data flags come last, so an index that
  /// is too large lies beyond all flags
  sym<flag> flags;
  /// Data flags of a slot, from each rank
  int flags_per_source = 0;
  /// Epoch and tickets of this rank
  sym<channel_state> state;
  bool poison = false;    // channel_options::poison
  std::uint8_t xcds = 1;  // world::xcd_count()
  /// What this launch tells its peers
  launch_header header;

  /// This rank's inbox in slot 0 or 1, for kernels that must name both before they know the epoch.
  template <class T>
  __host__ __device__ T* slot(int i) const {
    return reinterpret_cast<T*>(world.here(slots) + std::uint64_t(i) * slot_bytes);
  }

  /// Starts this launch's use of the channel; the last wave of block 0 sends the headers to the peers.
  /// Called by: every thread that uses the epoch, before any other use of the channel; the last wave of block 0 in any
  /// case. In a kernel with launch_shape::programmatic: after wait_prior_grid().
  __device__ channel_epoch begin(block b) const;
  /// begin() for a kernel in which peers read this rank's own memory, as wait_begun() lets them. What earlier kernels
  /// wrote there lies in the L2s of all XCDs of the device. The end of a kernel makes it visible to this device
  /// only, as far as is documented (docs/litmus.md, kernel_end_reaches_peers). So the first block of each XCD releases
  /// it, and the last block to begin sends the headers.
  /// Called by: every thread of every block.
  /// Requires: a block on every XCD, so at least world::xcd_count() blocks. The simulator reports a launch of
  /// fewer; so do kernels where FUSEWIRE_CHECKED is defined.
  __device__ channel_epoch begin_readable(block b) const;
};

namespace detail {

/// Where a launch's memory of a channel is: its slot, and its rows of flags with one flag of each source. A header is
/// compared when it has come.
__host__ __device__ constexpr epoch_t slot_of(epoch_t epoch) { return epoch & 1; }
__host__ __device__ constexpr int header_row(epoch_t epoch) { return 2 * int(slot_of(epoch)); }
__host__ __device__ constexpr int acknowledgement_row(epoch_t epoch) { return 2 * int(slot_of(epoch)) + 1; }
__host__ __device__ constexpr int data_row(epoch_t epoch, int i) { return 4 + 2 * i + int(slot_of(epoch)); }

/// Whether kernels check their arguments: they do where FUSEWIRE_CHECKED is defined. It costs registers and time.
#ifdef FUSEWIRE_CHECKED
inline constexpr bool checked = true;
#else
inline constexpr bool checked = false;
#endif

/// Notes the first mistake that is found in a rank's kernels, and ends all waits; check() then throws bad_argument.
__device__ inline void note_misuse(world_view const& w, misuse what, int value, int accepted, int at = 0) {
  watch* const mine = watch_of(w, w.rank());
  unsigned nothing = 0;
  if (!platform::atomic_compare_exchange<order::relaxed, scope::system>(&mine->wrong, nothing, unsigned(what))) return;
  mine->wrong_block = platform::block_index(), mine->wrong_value = value, mine->accepted = accepted,
  mine->wrong_at = at;
  abandon(w, false);
}
/// `value` if it is below `below`, or if nothing is checked; else 0.
__device__ inline int checked_index(world_view const& w, misuse what, int value, int below, int at = 0) {
  if constexpr (checked)
    if (value < 0 || value >= below) {
      note_misuse(w, what, value, below, at);
      return 0;
    }
  return value;
}

/// The flags of one launch.
class launch_place {
 public:
  __device__ launch_place(channel_view const& c, epoch_t number) : c_(&c), before_(number - 1) {}

  __device__ epoch_t number() const { return before_ + 1; }

 protected:
  __device__ flag* flag_at(int peer, int row, int source) const {
    return c_->world.on(peer, c_->flags) + row * c_->world.size() + source;
  }
  __device__ flag* header_flag(int peer, int source) const {
    return flag_at(peer, detail::header_row(number()), source);
  }
  __device__ flag* acknowledgement_flag(int peer, int source) const {
    return flag_at(peer, detail::acknowledgement_row(number()), source);
  }
  __device__ flag* data_flag(int peer, int source, int i) const {
    return flag_at(peer, detail::data_row(number(), i), source);
  }

  __device__ bool says_the_same(flag const* header) const {
    bool equal = load(&header->note[launch_words]) == blocks_to_compare();
    for (int i = 0; i < launch_words; ++i) equal &= load(&header->note[i]) == c_->header.what[i];
    return equal;
  }

  __device__ std::uint64_t blocks_to_compare() const {
    return c_->header.equal_grids * std::uint64_t(platform::grid_blocks());
  }

  channel_view const* c_;
  epoch_t before_;  // as loaded: arithmetic with it waits for the load
};

}  // namespace detail

}  // namespace fusewire
