// Why a launch failed, in sentences: what the ranks' kernels have noted in their watches, the cause first.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fusewire/core/world_view.hpp>
#include <fusewire/device/flag_layout.hpp>
#include <fusewire/memory/alarm.hpp>
#include <fusewire/memory/name_table.hpp>

namespace fusewire::detail {

/// Reads the watches of a heap's ranks. It lives for one call.
class launch_report {
 public:
  static constexpr char const* until_reset = "; results are invalid until reset()";

  /// `has_left`: whether a rank is known to launch nothing more.
  launch_report(world_view const& view, name_table const& names, std::function<bool(int)> has_left)
      : view_(view), names_(names), has_left_(std::move(has_left)), mine_(names.rank(view.rank())) {}

  /// What a rank has noted so far. Fails: runtime_failure.
  watch watch_of(int rank, hipStream_t stream) const {
    watch seen;
    check_hip(hipMemcpyAsync(&seen, view_.signal[rank], sizeof seen, hipMemcpyDeviceToHost, stream),
              "hipMemcpyAsync(watch)");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    return seen;
  }

  /// Whether the watch of this rank says that a launch has failed.
  static bool failed(watch const& mine) { return mine.disagreed || mine.wrong || mine.abandoned || has_report(mine); }

  /// Throws what the watches say: rank_mismatch, bad_argument, wait_timeout, launch_abandoned or peer_failed.
  /// `failure`: why the group of ranks has failed, if it has. Requires: failed(mine).
  [[noreturn]] void raise(watch const& mine, hipStream_t stream, std::string const& failure) const {
    bool const ended = mine.abandoned == by_host;
    if (std::string const why = local_fault(mine); !ended && !why.empty()) {
      if (mine.disagreed) throw rank_mismatch(why + until_reset);
      throw bad_argument(why + until_reset);
    }
    auto const waits = waits_of_all(mine, stream);
    std::string others;
    for (std::size_t i = 1; i < waits.size() && i < named_waits; ++i) others += "\n  after that, " + waits[i];
    if (waits.size() > named_waits) others += text("\n  and ", waits.size() - named_waits, " more blocks");
    std::string const cause = waits.empty() ? "" : waits[0];
    if (ended)
      throw peer_failed(text("rank ", mine_, ": the launch was ended because a rank has failed: ", failure,
                             cause.empty() ? "" : "\n  ", cause, others));
    if (first_expired(mine)) throw wait_timeout(cause + until_reset + others);
    throw launch_abandoned(text("rank ", mine_, ": the launch was abandoned because rank ",
                                names_.rank(int(mine.abandoned) - 1), " aborted",
                                waits.empty() ? "; its error says why" : ": ", cause, until_reset, others));
  }

  /// What this rank's watch says if the cause lies on this rank, or if its wait was the first that expired; else "".
  std::string local_failure(watch const& mine) const {
    if (std::string why = local_fault(mine); !why.empty()) return why;
    return first_expired(mine) ? sentence({view_.rank(), mine.waits[mine.reported - 1], &mine}) : "";
  }

 private:
  static constexpr std::size_t named_waits = 8;

  /// A block's wait, and the watch of its rank.
  struct wait_of {
    int rank;
    wait_report report;
    watch const* seen;

    /// Whether the launch is known in which the block waited.
    bool of_channel() const { return seen->launch[0] != 0; }
  };

  /// Whether the rank's first report is complete.
  static bool has_report(watch const& seen) {
    return seen.reported >= 1 && seen.reported <= max_wait_reports && seen.waits[seen.reported - 1].complete;
  }
  /// Whether that wait was the first that expired.
  static bool first_expired(watch const& mine) { return has_report(mine) && !mine.waits[mine.reported - 1].released; }

  /// What this rank's kernels have noted about this rank: a disagreement, or a misuse. Empty if there is none.
  std::string local_fault(watch const& seen) const {
    if (seen.disagreed)
      return text("ranks launched different things: ", names_.header(view_.rank(), seen.ours), ", ",
                  names_.header(int(seen.disagreed) - 1, seen.theirs));
    if (!seen.wrong) return "";
    auto const what = static_cast<misuse>(seen.wrong);
    std::string const who = text("rank ", mine_, ", block ", seen.wrong_block, ": ");
    if (what == misuse::begin_again)
      return who + text("channel_epoch::begin() for the second time in launch ", seen.wrong_value,
                        ", or the launch before did not end");
    if (what == misuse::end_again)
      return who + text("channel_epoch::end() for the second time in launch ", seen.wrong_value);
    if (what == misuse::few_blocks)
      return who + text("channel_view::begin_readable() in a launch of ", seen.wrong_value,
                        " blocks; expected at least world::xcd_count() = ", seen.accepted);
    if (what == misuse::page)
      return who + text("flash_decode: entry ", seen.wrong_at, " of the block table is page ", seen.wrong_value,
                        "; expected 0 to ", seen.accepted - 1);
    if (what == misuse::length)
      return who + text("flash_decode: length ", seen.wrong_value, " of sequence ", seen.wrong_at,
                        "; expected 0 to max_pages x page_size = ", seen.accepted - 1);
    if (what == misuse::moe_tokens)
      return who +
             text("dispatch: *device_tokens = ", seen.wrong_value, "; expected 0 to tokens = ", seen.accepted - 1);
    if (what == misuse::moe_expert)
      return who + text("dispatch: token ", seen.wrong_at, " has expert ", seen.wrong_value, "; expected -1 to ",
                        seen.accepted - 1);
    if (what == misuse::moe_rows)
      return who + text("dispatch: ", seen.wrong_value,
                        " rows come to this rank; expected 0 to max_rows = ", seen.accepted - 1);
    if (what == misuse::record_rank || what == misuse::record || what == misuse::record_word)
      return who + text("ll_slot: ",
                        what == misuse::record        ? "record "
                        : what == misuse::record_word ? "word "
                                                      : "rank ",
                        seen.wrong_value, " of ", names_.owner(std::uint64_t(seen.wrong_at) * sizeof(flag)),
                        "; expected 0 to ", seen.accepted - 1,
                        what == misuse::record        ? " (ll_buffer_options::records)"
                        : what == misuse::record_word ? " (ll_buffer_options::words)"
                                                      : "");
    char const* const call = what == misuse::inbox_rank ? "inbox()"
                             : what == misuse::signal_rank || what == misuse::signal_flag
                                 ? "signal() or to()"
                                 : "wait(), arrived() or from()";
    bool const flags = what == misuse::signal_flag || what == misuse::wait_flag;
    return who + text("channel_epoch::", call, ": ", flags ? "flag " : "rank ", seen.wrong_value, "; expected 0 to ",
                      seen.accepted - 1, flags ? " (channel_options::flags_per_source)" : "");
  }

  std::string launch_of(wait_of const& w) const { return w.of_channel() ? names_.launch(w.seen->launch) : ""; }

  /// `said`: the launch of the sentence before, which is not said again.
  std::string sentence(wait_of const& w, std::string const& said = "") const {
    wait_report const& r = w.report;
    std::uint64_t const ms = w.seen->limit_ns / 1000000;
    std::string const launch = launch_of(w);
    return text(
        "rank ", names_.rank(w.rank), ", block ", r.block,
        launch == said   ? ""
        : launch.empty() ? " of a launch that is not known"
                         : " of " + launch,
        !r.released                    ? text(" waited longer than ", ms, " ms")
        : w.seen->abandoned == by_host ? text(" waited, until a rank failed,")
        : int(w.seen->abandoned) - 1 == w.rank
            ? text(" waited, until another block timed out after ", ms, " ms,")
            : text(" waited, until rank ", names_.rank(int(w.seen->abandoned) - 1), " timed out after ", ms, " ms,"),
        " for a flag", r.from < 0 ? "" : text(" from rank ", names_.rank(r.from)), " (", names_.flag_at(r.flag_offset),
        ", signal segment + ", r.flag_offset, "): epoch ", r.found, " found, ", r.wanted, " wanted",
        r.from >= 0 && r.from < view_.size() && has_left_(r.from)
            ? text("; rank ", names_.rank(r.from), " has returned from its function, or left its world")
            : "");
  }

  /// What the rank has noted, once that is complete. A rank that is released reports when its block polls next, so a
  /// rank that has noted nothing gets 50 ms from `asked` on. A rank that is writing its report gets longer: it ends
  /// with a store, unless its process has died.
  watch stable_watch_of(int rank, hipStream_t stream, std::chrono::steady_clock::time_point asked) const {
    for (watch seen = watch_of(rank, stream);; seen = watch_of(rank, stream)) {
      // The copy before may have begun before the word was written; this one begins after it
      if (has_report(seen)) return watch_of(rank, stream);
      if (std::chrono::steady_clock::now() - asked > std::chrono::milliseconds(seen.reported ? 1000 : 50)) return seen;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  /// What blocks of all ranks waited for, the cause first: the waits of the earliest launch, and among these the
  /// earliest step of a source (its lowest flag, or the lowest value of one), then the ones for a rank that does not
  /// wait itself, then the expired ones. A flag of no channel belongs to no known launch and comes last.
  std::vector<std::string> waits_of_all(watch const& mine, hipStream_t stream) const {
    std::vector<std::pair<int, watch>> seen{{view_.rank(), mine}};
    auto const now = std::chrono::steady_clock::now();
    for (int r = 0; r < view_.size(); ++r)
      if (r != view_.rank()) seen.emplace_back(r, stable_watch_of(r, stream, now));
    std::vector<wait_of> waits;
    for (auto const& [rank, of] : seen)
      for (wait_report const& r : of.waits)
        if (r.complete) waits.push_back({rank, r, &of});
    auto const waits_itself = [&](int rank) {
      return std::ranges::any_of(waits, [&](wait_of const& w) { return w.rank == rank; });
    };
    std::ranges::stable_sort(waits, {}, [&](wait_of const& w) {
      wait_report const& r = w.report;
      return std::tuple(!w.of_channel(), r.wanted, names_.step_of(r.flag_offset), waits_itself(r.from), r.released,
                        r.flag_offset, w.rank, r.block);
    });
    // The earliest of each rank first: so the message names every rank that waits
    std::vector<bool> named(std::size_t(view_.size()));
    std::vector<wait_of> others;
    std::erase_if(waits, [&](wait_of const& w) {
      bool const again = named[std::size_t(w.rank)];
      named[std::size_t(w.rank)] = true;
      if (again) others.push_back(w);
      return again;
    });
    waits.insert(waits.end(), others.begin(), others.end());
    std::vector<std::string> all;
    for (wait_of const& w : waits) all.push_back(sentence(w, all.empty() ? "" : launch_of(waits[0])));
    if (!all.empty()) all[0] += crossed(waits);
    return all;
  }

  /// Whether two ranks wait for each other in launches of two channels.
  std::string crossed(std::vector<wait_of> const& waits) const {
    for (wait_of const& a : waits)
      for (wait_of const& b : waits)
        if (a.rank < b.rank && a.report.from == b.rank && b.report.from == a.rank && a.of_channel() && b.of_channel() &&
            names_.first_flag(a.report.flag_offset) != names_.first_flag(b.report.flag_offset))
          return text(". Ranks ", names_.rank(a.rank), " and ", names_.rank(b.rank),
                      " wait for each other in launches of two channels (", names_.launch(a.seen->launch), "; ",
                      names_.launch(b.seen->launch),
                      "): were these queued in different orders, and do not fit concurrently? Expected one order "
                      "on all ranks, or reserved compute units for each");
    return "";
  }

  world_view const& view_;
  name_table const& names_;
  std::function<bool(int)> has_left_;
  int mine_;  // this rank in messages
};

}  // namespace fusewire::detail
