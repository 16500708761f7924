// How ranks find each other before there is symmetric memory: barriers and small all-gathers on the host.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <fusewire/ranks/error.hpp>

namespace fusewire {

/// Hears when a group of ranks has failed.
class failure_listener {
 public:
  virtual ~failure_listener() = default;
  /// Called once, by any thread. It neither waits, throws, nor calls the bootstrap.
  virtual void failed(std::string const& why) = 0;
};

/// One rank's end of a group of ranks. A public interface: a program that has a way to gather bytes (MPI, a store)
/// implements it and gives it to make_world(). examples/own_bootstrap.cpp does.
///
/// The thread that owns the world makes all calls. A group makes its collectives (all_gather, split) in one order on
/// all ranks; groups that have ranks in common take turns. Nothing here is called by a kernel, or while one is launched
/// or waited for. All ranks run the same build of the program.
class bootstrap {
 public:
  /// Collective for no one: other ranks may still use the group.
  virtual ~bootstrap() = default;
  /// This rank's number in the group, from 0 on. It never changes.
  virtual int rank() const = 0;
  /// Ranks of the group, 1 to max_ranks. It never changes.
  virtual int size() const = 0;
  /// Collective. Every rank's `bytes` bytes, in rank order. `bytes` is equal on all ranks, at most 64 KiB, and may be
  /// 0, with mine == nullptr: that is a barrier.
  /// Order: returns when all ranks have come. What a rank did before its call is done then, as far as the host knows.
  /// Fails: peer_failed when a rank has failed and will not come, or does not come in time; rank_mismatch (or
  /// peer_failed) on all ranks when ranks pass different numbers of bytes, or are in different collectives.
  virtual std::vector<std::byte> all_gather(void const* mine, std::size_t bytes) = 0;
  /// Collective. This rank's end of a group of the ranks that passed the same color, in rank order. It may outlive this
  /// object. Fails: as all_gather().
  virtual std::unique_ptr<bootstrap> split(int color) = 0;

  /// Not collective. Ends the group, and the groups split from it, for all ranks. A rank that waits, or comes later,
  /// gets peer_failed with this text; that it comes soon keeps peers from waiting until their time is over. The first
  /// call counts. It may come while an exception unwinds the stack, and does not throw.
  virtual void fail(std::string const& why) = 0;

  /// Not collective. Keeps `what`, memory that peers have mapped, until every rank is gone. To keep it as long as the
  /// process is allowed.
  virtual void keep(std::shared_ptr<void> what) = 0;

  /// Not collective. This rank comes to no further collective, and the end of this object waits for no other rank.
  virtual void abandon() {}
  /// Tells `l`, while it exists, when a rank of the group has failed or died, or immediately if one has. Waits in
  /// kernels are ended by it; where a bootstrap does not tell, they last until heap_options::wait_limit. Not
  /// collective.
  virtual void listen(std::weak_ptr<failure_listener> l) { (void)l; }
  /// Whether this rank of the group is known to come to no further collective, without a failure. Not collective. A
  /// report of a wait says it; where a bootstrap does not know, the report says nothing of it.
  virtual bool has_left(int rank) const {
    (void)rank;
    return false;
  }

  /// Returns when all ranks have come. Fails: as all_gather(); rank_mismatch.
  void barrier() {
    if (auto const raw = all_gather(nullptr, 0); !raw.empty())
      throw rank_mismatch(
          text("ranks are in different collectives: a barrier on this rank, ", raw.size(), " bytes from all ranks"));
  }

  /// Every rank's value, in rank order. Fails: as above; rank_mismatch where other ranks are in another collective.
  template <class T>
  std::vector<T> all_gather(T const& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto const raw = all_gather(&mine, sizeof(T));
    std::vector<T> all(static_cast<std::size_t>(size()));
    if (raw.size() != all.size() * sizeof(T))
      throw rank_mismatch(text("ranks are in different collectives: ", sizeof(T), " bytes wanted from each of ", size(),
                               ", ", raw.size(), " came from all of them"));
    std::memcpy(all.data(), raw.data(), raw.size());
    return all;
  }
};

}  // namespace fusewire
