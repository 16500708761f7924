// What a signal segment holds: flags, and at its start the state of failed waits.
#pragma once
#include <cstdint>

namespace fusewire {

using epoch_t = unsigned long long;  // never wraps: 2^64 launches

/// One flag per 128 bytes, so that no two share a cache line. `note` travels with the flag when its signaller has
/// something to add.
struct alignas(128) flag {
  /// The epoch to which the flag was raised last.
  epoch_t value;
  /// Header flags: what the peer launched, and its own two words.
  std::uint64_t note[14];
  /// Offset of the headers of a channel flag's slot in the signal segment; for other flags 0. Only a failed wait reads
  /// it
  std::uint64_t headers;
};

/// What a launch is: its operator's name in 8 letters, its variant, and up to four extents
inline constexpr int launch_words = 6;
/// How many words of a header ranks compare: these, and the number of blocks, or 0 where that may differ
inline constexpr int header_words = launch_words + 1;

/// What a block waited for when its wait expired, or ended because another one had. Written by the block into its
/// rank's own signal segment, and read by the host.
struct wait_report {
  std::int32_t block, from;   // the waiting block; the rank that should have signalled, -1 if not known
  std::uint64_t flag_offset;  // bytes from the start of the signal segment
  epoch_t found, wanted;      // the epoch that the flag had, and the one that was waited for
  unsigned released;          // another rank, or another block, ended the wait before its own limit
  unsigned claimed;           // a thread writes the report, or has written it
  unsigned complete;          // written last: all of the report is valid
};
/// So many blocks of a rank are reported, one for each remainder of its index
inline constexpr unsigned max_wait_reports = 64;

/// Mistakes that a checked build (FUSEWIRE_CHECKED), or a check of an operator's own, finds: an index that does not
/// exist, or a call out of turn.
enum class misuse : unsigned {
  none,
  inbox_rank,
  signal_rank,
  signal_flag,
  wait_rank,
  wait_flag,
  begin_again,
  few_blocks,
  end_again,
  page,
  length,
  record_rank,
  record,
  record_word,
  moe_tokens,
  moe_expert,
  moe_rows
};

/// State of failed waits, at the start of every rank's signal segment. Only spin loops read it.
struct alignas(128) watch {
  /// 0, or 1 + the rank that timed out first; then every wait of every rank returns immediately
  unsigned abandoned;
  unsigned reported;       // 0, or 1 + the place in `waits` of the first report
  unsigned too_late;       // headers of this and later launches do not explain why it was abandoned
  std::uint64_t limit_ns;  // a single wait may last this long
  /// The launch of the first report; all 0 if its flag belongs to no channel. Valid, as a disagreement that explains
  /// it, when that report is complete
  std::uint64_t launch[launch_words];
  unsigned disagreed;  // 0, or 1 + the rank whose launch differs from this rank's
  unsigned wrong;      // the first misuse that was found in this rank's kernels
  /// The headers that differ: the other rank's, and this rank's
  std::uint64_t theirs[header_words], ours[header_words];
  std::int32_t wrong_block, wrong_value, accepted;  // what was passed, and the end of the accepted range
  std::int32_t wrong_at;                            // where it was found, if that is a place in a table
  unsigned* alarm;                      // a word in this rank's host memory: not 0 when check() has something to throw
  wait_report waits[max_wait_reports];  // by the block's index modulo their number
};

}  // namespace fusewire
