// Why a launch failed, in sentences: what the ranks' kernels have noted in their watches, the cause first.
#pragma once
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fusewire/core/world_view.hpp>
#include <fusewire/device/flag.hpp>
#include <fusewire/memory/alarm.hpp>
#include <fusewire/runtime/names.hpp>

namespace fusewire::detail {

/// Reads the watches of a heap's ranks. It lives for one call.
class launch_report {
 public:
  static constexpr char const* until_reset = "; results are invalid until reset()";

  launch_report(world_view const& view, name_table const& names) : view_(view), names_(names) {}

  /// What a rank has noted so far. Fails: runtime_failure.
  watch watch_of(int rank, hipStream_t stream) const {
    watch seen;
    check_hip(hipMemcpyAsync(&seen, view_.signal[rank], sizeof seen, hipMemcpyDeviceToHost, stream),
              "hipMemcpyAsync(watch)");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    return seen;
  }

  /// Whether the watch of this rank says that a launch has failed.
  static bool failed(watch const& mine) { return mine.disagreed || mine.wrong || mine.abandoned || mine.complete; }

  /// Throws what the watches say: rank_mismatch, bad_argument, wait_timeout, launch_abandoned or peer_failed.
  /// `failure`: why the group of ranks has failed, if it has. Requires: failed(mine).
  [[noreturn]] void raise(watch const& mine, hipStream_t stream, std::string const& failure) const {
    bool const ended = mine.abandoned == by_host;
    if (std::string const why = own_fault(mine); !ended && !why.empty()) {
      if (mine.disagreed) throw rank_mismatch(why + until_reset);
      throw bad_argument(why + until_reset);
    }
    auto const waits = waits_of_all(mine, stream);
    std::string others;
    for (std::size_t i = 1; i < waits.size(); ++i) others += "\n  after that, " + waits[i];
    std::string const cause = waits.empty() ? "" : waits[0];
    if (ended)
      throw peer_failed(text("rank ", view_.rank, ": the launch was ended because a rank has failed: ", failure,
                             cause.empty() ? "" : "\n  ", cause, others));
    if (mine.complete && !mine.released) throw wait_timeout(cause + until_reset + others);
    throw launch_abandoned(text("rank ", view_.rank, ": the launch was abandoned because rank ", mine.abandoned - 1,
                                " gave up", waits.empty() ? "; its error says why" : ": ", cause, until_reset, others));
  }

  /// What this rank's watch says if the cause lies on this rank, or if its wait was the first that expired; else "".
  std::string own_failure(watch const& mine) const {
    if (std::string why = own_fault(mine); !why.empty()) return why;
    return mine.complete && !mine.released ? sentence(view_.rank, mine) : "";
  }

 private:
  /// What this rank's kernels have noted about this rank: a disagreement, or a misuse. Empty if there is none.
  std::string own_fault(watch const& seen) const {
    if (seen.disagreed)
      return text("ranks launched different things: ", names_.header(view_.rank, seen.ours), ", ",
                  names_.header(int(seen.disagreed) - 1, seen.theirs));
    if (!seen.wrong) return "";
    auto const what = static_cast<misuse>(seen.wrong);
    std::string const who = text("rank ", view_.rank, ", block ", seen.wrong_block, ": ");
    if (what == misuse::begin_again)
      return who + text("channel_epoch::begin() for the second time in launch ", seen.wrong_value,
                        ", or the launch before did not end");
    if (what == misuse::end_again)
      return who + text("channel_epoch::end() for the second time in launch ", seen.wrong_value);
    if (what == misuse::page)
      return who + text("flash_decode: entry ", seen.wrong_at, " of the block table is page ", seen.wrong_value,
                        "; expected 0 to ", seen.accepted - 1);
    if (what == misuse::length)
      return who + text("flash_decode: length ", seen.wrong_value, " of sequence ", seen.wrong_at,
                        "; expected 0 to max_pages x page_size = ", seen.accepted - 1);
    if (what == misuse::record_rank || what == misuse::record || what == misuse::record_word)
      return who + text("stamped_slot: ",
                        what == misuse::record        ? "record "
                        : what == misuse::record_word ? "word "
                                                      : "rank ",
                        seen.wrong_value, " of ", names_.owner(std::uint64_t(seen.wrong_at) * sizeof(flag)),
                        "; expected 0 to ", seen.accepted - 1,
                        what == misuse::record        ? " (stamped_inbox_options::records)"
                        : what == misuse::record_word ? " (stamped_inbox_options::words)"
                                                      : "");
    char const* const call = what == misuse::inbox_rank ? "inbox()"
                             : what == misuse::signal_rank || what == misuse::signal_flag
                                 ? "signal() or to()"
                                 : "wait(), arrived() or from()";
    bool const flags = what == misuse::signal_flag || what == misuse::wait_flag;
    return who + text("channel_epoch::", call, ": ", flags ? "flag " : "rank ", seen.wrong_value, "; expected 0 to ",
                      seen.accepted - 1, flags ? " (channel_options::flags_per_source)" : "");
  }

  std::string sentence(int rank, watch const& seen) const {
    wait_report const& w = seen.report;
    return text("rank ", rank, ", block ", w.block, w.launch[0] ? " of " + names_.launch(w.launch) : "",
                !seen.released              ? text(" waited longer than ", seen.limit_ns / 1000000, " ms")
                : seen.abandoned == by_host ? " waited, until a rank failed,"
                                            : text(" waited, until rank ", int(seen.abandoned) - 1, " gave up,"),
                " for a flag", w.from < 0 ? "" : text(" from rank ", w.from), " (", names_.flag_at(w.flag_offset),
                ", signal segment + ", w.flag_offset, "): epoch ", w.found, " found, ", w.wanted, " wanted");
  }

  /// What the rank has noted, once that is complete. A rank that is released reports when its block polls next, so a
  /// rank that has noted nothing gets 50 ms from `asked` on. A rank that is writing its report gets longer: it ends
  /// with a store, unless its process has died.
  watch settled_watch_of(int rank, hipStream_t stream, std::chrono::steady_clock::time_point asked) const {
    for (watch seen = watch_of(rank, stream);; seen = watch_of(rank, stream)) {
      // The copy before may have begun before the word was written; this one begins after it
      if (seen.complete) return watch_of(rank, stream);
      if (std::chrono::steady_clock::now() - asked > std::chrono::milliseconds(seen.reported ? 1000 : 50)) return seen;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  /// What all ranks waited for, the cause first: the waits of the earliest launch come first, and among these one for a
  /// rank that does not wait itself, then the expired ones before the released ones, then the earliest flag. A flag of
  /// no channel belongs to no known launch and comes last.
  std::vector<std::string> waits_of_all(watch const& mine, hipStream_t stream) const {
    std::vector<std::pair<int, watch>> seen{{view_.rank, mine}};
    auto const now = std::chrono::steady_clock::now();
    for (int r = 0; r < view_.size; ++r)
      if (r != view_.rank) seen.emplace_back(r, settled_watch_of(r, stream, now));
    std::erase_if(seen, [](auto const& s) { return !s.second.complete; });
    auto const waits = [&](int rank) {
      return std::ranges::any_of(seen, [&](auto const& s) { return s.first == rank; });
    };
    std::vector<std::pair<int, watch>> sorted = seen;
    std::ranges::stable_sort(sorted, {}, [&](auto const& s) {
      wait_report const& r = s.second.report;
      return std::tuple(r.launch[0] ? r.wanted : ~epoch_t(0), waits(r.from), s.second.released, r.flag_offset, s.first);
    });
    std::vector<std::string> all;
    for (auto const& [rank, w] : sorted) all.push_back(sentence(rank, w));
    if (!all.empty()) all[0] += crossed(sorted);
    return all;
  }

  /// Whether two ranks wait for each other in launches of two channels.
  std::string crossed(std::vector<std::pair<int, watch>> const& waits) const {
    for (auto const& [a, of_a] : waits)
      for (auto const& [b, of_b] : waits)
        if (a < b && of_a.report.from == b && of_b.report.from == a && of_a.report.launch[0] && of_b.report.launch[0] &&
            names_.first_flag(of_a.report.flag_offset) != names_.first_flag(of_b.report.flag_offset))
          return text(". Ranks ", a, " and ", b, " wait for each other in launches of two channels (",
                      names_.launch(of_a.report.launch), "; ", names_.launch(of_b.report.launch),
                      "): were these queued in different orders, and do not fit beside each other? Expected one order "
                      "on all ranks, or reserved compute units for each");
    return "";
  }

  world_view const& view_;
  name_table const& names_;
};

}  // namespace fusewire::detail
