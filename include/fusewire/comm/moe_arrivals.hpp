// Rows of experts that come, or are made, during a launch: counters that say when a tile's rows, or a token's, are
// there; and a tile source that waits for them.
//
//   rows by_expert    | expert 0      | expert 1          | ...
//   pieces            | 0    | 1      | 2    | 3    | 4   |        a counter each: a flag of this rank's own
//
// A counter is a channel's flag that its own rank raises by steps: prepare() sets it to the epoch less what is to be
// counted, and add() adds, so that a wait for the epoch, as for every flag of a channel, is a wait for all of it. It
// needs no reset: what an abandoned launch has left is overwritten.
#pragma once
#include <fusewire/comm/moe_routing_view.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/gemm/grouped_rows.hpp>

namespace fusewire {

/// How the rows of each expert are cut into pieces. It depends on nothing but the capacity.
struct moe_pieces {
  static constexpr int least_rows = 128, most_of_rows = 1024;  // of a piece; pieces of all rows

  int log_rows = 0;  // a piece has 1 << log_rows rows of one expert; an expert's last one may have fewer
  int count = 0;     // numbers of pieces

  /// Of a layer. Requires: layout by_expert.
  __host__ __device__ static constexpr moe_pieces of(moe_shape const& s) {
    int log = 0;
    while (1 << log < least_rows || s.max_rows >> log > most_of_rows) ++log;
    return {log, (s.max_rows >> log) + 1 + s.experts};
  }
  /// The number of the piece with row `row` of an expert that begins at row `begin`. No two pieces have the same:
  /// begin and row, both rounded down, are not less for the next expert, and `expert` is more.
  __host__ __device__ constexpr int number(int begin, int expert, int row) const {
    return (begin >> log_rows) + expert + (row >> log_rows);
  }
};

/// The counters of a launch. Each row is counted `times` times.
class moe_arrivals {
 public:
  static constexpr bool any = true;  // see no_arrivals

  /// first_flag: of pieces.count flags of the channel that nobody else raises from this rank on itself.
  __device__ moe_arrivals(channel_epoch const& e, int rank, row_groups const& g, moe_pieces pieces, int first_flag,
                          int times = 1)
      : e_(e), g_(g), pieces_(pieces), rank_(rank), first_flag_(first_flag), times_(times) {}

  /// The experts' rows.
  __device__ row_groups const& groups() const { return g_; }

  /// Sets all counters. Called by: every thread of one block, which then raises a flag for those that add.
  __device__ __forceinline__ void prepare(block b) const {
#pragma unroll 1
    for (int expert = b.rank(); expert < g_.groups; expert += b.size()) {
      index_range const rows = g_.rows(expert);
#pragma unroll 1
      for (int row = 0; row < rows.size(); row += 1 << pieces_.log_rows) {
        epoch_t const missing = epoch_t(min(rows.size() - row, 1 << pieces_.log_rows)) * epoch_t(times_);
        platform::atomic_store<order::relaxed, scope::device>(&counter(rows.begin, expert, row)->value,
                                                              e_.number() - missing);
      }
    }
  }
  /// Counts a row of an expert. Called by: any thread, when prepare() is over and it has released the row at device
  /// scope. place: the row by_expert.
  __device__ __forceinline__ void add(int expert, int place) const {
    if (unsigned(expert) >= unsigned(g_.groups)) return;  // of a routing that failed
    int const begin = g_.rows(expert).begin;
    add(counter(begin, expert, place - begin), 1);
  }
  /// Counts rows [first, end) of an expert. As add().
  __device__ __forceinline__ void add(int expert, int first, int end) const {
    int const begin = g_.rows(expert).begin;
#pragma unroll 1
    for (int row = first; row < end;) {
      int const next = min(end, ((row >> pieces_.log_rows) + 1) << pieces_.log_rows);
      add(counter(begin, expert, row), epoch_t(next - row));
      row = next;
    }
  }
  /// Waits for rows [first, end) of an expert, and for others of their pieces. Called by: every thread of the group.
  /// Order: acquire, for what was released before add().
  template <group Group>
  __device__ __forceinline__ void wait(Group g, int expert, int first, int end) const {
    int const begin = platform::uniform(g_.rows(expert).begin), last = platform::uniform(end - 1);
#pragma unroll 1
    for (int row = platform::uniform(first); row <= last; row = ((row >> pieces_.log_rows) + 1) << pieces_.log_rows)
      e_.wait(g, rank_, flag_of(begin, expert, row));
  }
  /// The same of one row, by each thread for itself. place: the row by_expert.
  __device__ __forceinline__ void wait(int expert, int place) const {
    if (unsigned(expert) >= unsigned(g_.groups)) return;  // of a routing that failed
    int const begin = g_.rows(expert).begin;
    e_.wait(thread{}, rank_, flag_of(begin, expert, place - begin));
  }

 private:
  /// Clamped, because a routing that failed may say anything.
  __device__ int flag_of(int begin, int expert, int row) const {
    return first_flag_ + clamp(pieces_.number(begin, expert, row), 0, pieces_.count - 1);
  }
  __device__ flag* counter(int begin, int expert, int row) const { return e_.from(rank_, flag_of(begin, expert, row)); }
  __device__ static void add(flag* counter, epoch_t n) {
    platform::atomic_fetch_add<order::relaxed, scope::device>(&counter->value, n);
  }

  channel_epoch const& e_;
  row_groups const& g_;
  moe_pieces pieces_;
  int rank_, first_flag_, times_;
};

/// All rows are there from the start, or nobody waits for single ones.
struct no_arrivals {
  static constexpr bool any = false;  // whether somebody does
  /// See moe_arrivals.
  __device__ void prepare(block) const {}
};

/// A tile source: as grouped_rows, for rows that come during the launch. A tile waits for its own.
template <group Group>
class arriving_rows : public local_rows {
 public:
  /// As grouped_rows.
  __device__ arriving_rows(moe_arrivals const& arrivals, int k, int tile_m, k_slice const& slice = {})
      : local_rows(arrivals.groups().max_rows, k, tile_m, slice), arrivals_(arrivals), tile_m_(tile_m) {}

  /// Returns at least one row of the matrix, also if groups are those of a launch that was abandoned.
  __device__ int begin(tile_coord t) {
    row_groups const& g = arrivals_.groups();
    index_range const rows = g.rows(t.group);
    int const first = platform::uniform(min(rows.begin + t.m * tile_m_, g.max_rows - 1)),
              left = platform::uniform(clamp(rows.size() - t.m * tile_m_, 1, g.max_rows - first));
    group_ = t.group, at_ = t.m * tile_m_, rows_ = min(left, tile_m_), there_ = 0;
    return begin_at(first, left);
  }
  __device__ k_segment wait(place p) {
    if (!platform::uniform(there_)) {
      arrivals_.wait(Group{}, group_, at_, at_ + rows_);
      platform::order_async_copies();
      there_ = 1;
    }
    return where(p);
  }

 private:
  moe_arrivals const& arrivals_;
  int tile_m_, group_ = 0, at_ = 0, rows_ = 0;
  int there_ = 0;
};
/// A wait is for all columns of a tile's rows.
template <group Group>
inline constexpr bool whole_segments<arriving_rows<Group>> = true;

}  // namespace fusewire
