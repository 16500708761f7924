// Memory that ranks share is freed when every rank has given it up, each at its own time. Nobody waits for that: a
// collective call that comes later tells the ranks of each other.
//
//   rank 0   retire(x)        collective: "x"   x is free        (the kernels of a rank that tells are over)
//   rank 1          retire(x) collective: "x"   x is free
//   rank 2                     collective: -     collective: "x" ...  with a rank that is late, x waits
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fusewire/ranks/bootstrap.hpp>
#include <fusewire/ranks/thread_state.hpp>

namespace fusewire::detail {

/// Every rank's words, in rank order. Collective. `longest`: words of the rank that has the most.
/// Fails: as bootstrap::all_gather().
inline std::vector<std::vector<std::uint64_t>> gather_words(bootstrap& b, std::vector<std::uint64_t> const& mine,
                                                            std::uint64_t longest) {
  constexpr std::uint64_t at_once = 1 << 12;  // one request of every bootstrap holds them
  std::vector<std::vector<std::uint64_t>> all(std::size_t(b.size()));
  for (std::uint64_t first = 0; first < longest; first += at_once) {
    std::uint64_t const count = std::min(at_once, longest - first);
    std::vector<std::uint64_t> words(count + 1);  // their number, then the words
    words[0] = mine.size() <= first ? 0 : std::min<std::uint64_t>(count, mine.size() - first);
    std::copy_n(mine.begin() + std::ptrdiff_t(std::min<std::uint64_t>(first, mine.size())), words[0],
                words.begin() + 1);
    auto const raw = b.all_gather(words.data(), words.size() * sizeof words[0]);
    for (std::size_t r = 0; r < all.size(); ++r) {
      std::memcpy(words.data(), raw.data() + r * words.size() * sizeof words[0], words.size() * sizeof words[0]);
      all[r].insert(all[r].end(), words.begin() + 1, words.begin() + 1 + std::ptrdiff_t(words[0]));
    }
  }
  return all;
}

/// One rank's end of memory that all ranks share.
class shared_memory {
 public:
  virtual ~shared_memory() = default;
  /// All ranks have retired the array.
  virtual void release(std::uint64_t array) = 0;
  /// Unmaps the peers' memory. This rank's kernels are over.
  virtual void let_go_of_peers() = 0;
  /// This rank's memory, which its peers may still have mapped.
  virtual std::vector<std::shared_ptr<void>> local() = 0;
};

/// What a rank has retired and other ranks may still use. A world and all that is made from it hold it. Their owner
/// calls it: one thread at a time.
class ledger {
 public:
  /// `device`: where this rank's kernels run.
  ledger(std::shared_ptr<bootstrap> b, int device) : bootstrap_(std::move(b)), device_(device) {}
  ledger(ledger const&) = delete;

  /// A number for new memory, the same on all ranks. Called by: every rank, behind the same collective.
  std::uint64_t open(shared_memory& m) {
    open_[++last_] = &m;
    return last_;
  }
  /// This rank uses the array no more, but its kernels may. Waits for nothing.
  void retire(std::uint64_t memory, std::uint64_t array) {
    if (!closed_) untold_.push_back({memory, array});
  }
  /// The same for all of the memory.
  void retire(std::uint64_t memory, std::unique_ptr<shared_memory> m) {
    if (closed_) return end(std::move(m));
    retired_[memory] = std::move(m);
    untold_.push_back({memory, all_of_it});
  }

  /// How many words this rank has to tell now. If there are any, it waits for this rank's kernels first. While the
  /// stream is captured, which a wait would end, it tells nothing.
  /// Fails: runtime_failure.
  std::uint64_t to_tell(hipStream_t stream, std::source_location where) {
    telling_ = untold_.empty() || capture_of(stream, "heap", where) ? 0 : untold_.size();
    if (telling_) wait_for_device(where);
    return 2 * telling_;
  }
  /// Collective. Tells what to_tell() counted, and frees what all ranks have told. `longest`: the most that a rank has
  /// to tell.
  void release_agreed(std::uint64_t longest, std::source_location where) {
    if (longest == 0) return;
    std::vector<std::uint64_t> mine;
    for (std::size_t i = 0; i < telling_; ++i) mine.insert(mine.end(), {untold_[i].first, untold_[i].second});
    untold_.erase(untold_.begin(), untold_.begin() + std::ptrdiff_t(telling_));
    for (auto const& theirs : gather_words(*bootstrap_, mine, longest))
      for (std::size_t i = 0; i < theirs.size(); i += 2) ++told_by_[{theirs[i], theirs[i + 1]}];
    std::vector<std::uint64_t> over;
    for (auto it = told_by_.begin(); it != told_by_.end();) {
      auto const [memory, array] = it->first;
      if (it->second < bootstrap_->size()) {
        ++it;
        continue;
      }
      it = told_by_.erase(it);
      if (array == all_of_it) over.push_back(memory);
      else open_.at(memory)->release(array);
    }
    if (!over.empty()) free(over, where);
  }
  /// Collective: the two calls above.
  void collect(hipStream_t stream, std::source_location where) {
    auto const all = bootstrap_->all_gather(to_tell(stream, where));
    release_agreed(*std::ranges::max_element(all), where);
  }

  /// The world ends: there are no more collectives. Waits for this rank's kernels if there is something to give back,
  /// and for no other rank. This rank's memory stays until every rank of the group has gone.
  void close() {
    closed_ = true;
    for (auto& [memory, m] : std::exchange(retired_, {})) end(std::move(m));
  }
  /// From now on nothing is waited for, and all memory stays until the process ends.
  void abandon() {
    abandoned_ = true;
    close();
    bootstrap_->abandon();
  }

 private:
  static constexpr std::uint64_t all_of_it = ~std::uint64_t(0);  // no array; the last in order

  struct outcome {
    hipError_t error;
    char const* call;
  };
  /// The calling thread may be a collector's, with another current device.
  outcome wait_for_device() const {
    int before = device_;
    outcome o{hipGetDevice(&before), "hipGetDevice"};
    if (o.error == hipSuccess && before != device_) o = {hipSetDevice(device_), "hipSetDevice"};
    if (o.error == hipSuccess) o = {hipDeviceSynchronize(), "hipDeviceSynchronize"};
    if (before != device_) ignore_hip(hipSetDevice(before));
    return o;
  }
  void wait_for_device(std::source_location where) const {
    outcome const o = wait_for_device();
    check_hip(o.error, o.call, where);
  }

  /// Frees memory that all ranks have retired. No rank frees what another has mapped, and none waits in a free for a
  /// kernel of another rank on its device.
  void free(std::vector<std::uint64_t> const& over, std::source_location where) {
    std::vector<std::unique_ptr<shared_memory>> ending;
    for (std::uint64_t const memory : over) {
      if (auto it = retired_.find(memory); it != retired_.end() && it->second) ending.push_back(std::move(it->second));
      retired_.erase(memory);
      open_.erase(memory);
      std::erase_if(told_by_, [&](auto const& t) { return t.first.first == memory; });
    }
    try {
      wait_for_device(where);
      for (auto const& m : ending) m->let_go_of_peers();
      bootstrap_->barrier();
    } catch (...) {
      for (auto& m : ending) end(std::move(m));
      throw;
    }
  }

  /// For when other ranks cannot be asked.
  void end(std::unique_ptr<shared_memory> m) {
    if (!m) return;
    if (abandoned_) {
      (void)m.release();
      return;
    }
    if (outcome const o = wait_for_device(); o.error != hipSuccess) {
      ignore_hip(o.error);
      std::fprintf(stderr, "fusewire: %s: %s, while the memory of a heap was given back\n", o.call,
                   hipGetErrorName(o.error));
    }
    m->let_go_of_peers();
    for (auto& memory : m->local()) bootstrap_->keep(std::move(memory));
  }

  std::shared_ptr<bootstrap> bootstrap_;
  int const device_;
  bool closed_ = false, abandoned_ = false;
  std::uint64_t last_ = 0;
  using key = std::pair<std::uint64_t, std::uint64_t>;               // memory, array
  std::map<std::uint64_t, shared_memory*> open_;                     // by number
  std::map<std::uint64_t, std::unique_ptr<shared_memory>> retired_;  // retired by this rank
  std::vector<key> untold_;
  std::size_t telling_ = 0;     // of untold_, in this call
  std::map<key, int> told_by_;  // how many ranks
};

/// A world's hold on its ledger, which closes it.
class open_ledger {
 public:
  open_ledger() = default;
  explicit open_ledger(std::shared_ptr<ledger> l) : ledger_(std::move(l)) {}
  open_ledger(open_ledger&&) = default;
  open_ledger& operator=(open_ledger&& o) noexcept {
    ledger_.swap(o.ledger_);
    return *this;
  }
  ~open_ledger() {
    if (ledger_) ledger_->close();
  }
  std::shared_ptr<ledger> const& get() const { return ledger_; }

 private:
  std::shared_ptr<ledger> ledger_;
};

}  // namespace fusewire::detail
