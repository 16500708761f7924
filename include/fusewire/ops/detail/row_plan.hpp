// How an exchange of rows travels, how rows are cut into chunks, and what the blocks of a launch do.
#pragma once
#include <algorithm>
#include <cstddef>

#include <fusewire/comm/all_reduce_policy.hpp>
#include <fusewire/comm/row_exchange.hpp>

namespace fusewire {

/// How rows travel: as LL words, or as whole vectors with flags; see row_exchange.hpp.
enum class row_transport { automatic, ll_words, flags };

/// What the kernels get of a plan.
struct row_arguments {
  int rows_per_chunk;  // what one flag publishes
  int first;           // block that exchanges rows: 1, as block 0 collects credit, or 0 in a grid of one block
  /// Blocks from there on that send, that reduce or take after them, and with two shots that take after these; all 0:
  /// each block does all
  int senders, reducers, takers;
  row_sections sections;  // their extents
};

/// The plan of a call. A pure function of its shape.
struct row_plan {
  static constexpr int whole_waves = 64;      // threads of a block are whole waves of any architecture
  static constexpr int max_threads = 512;     // of a block: more would have too few registers each
  static constexpr int max_vectors = 2;       // of a thread, in one row
  static constexpr int array_threads = 256;   // of a block of an array
  static constexpr int min_chunk = 8 << 10;   // bytes that a flag publishes, if rows are small
  static constexpr int max_chunk = 64 << 10;  // likewise
  static constexpr int max_chunks = 2048;     // of a section
  static constexpr int target_chunks = 1024;  // of a section, if rows are small: all blocks have some

  bool words = false;           // LL words, else flags
  int threads = array_threads;  // of a block
  int vectors = 1;              // of a thread, in one row, at most
  int rows = 0;                 // of the call; an array's have row_bytes()
  int rows_per_chunk = 1;       // what one flag publishes
  row_sections sections;        // what the kernels get of it

  /// Of a collective in which each rank sends every other one a slice of so many bytes. Requires: bytes, ranks > 0.
  static row_plan of_slices(std::int64_t bytes, int ranks, row_transport transport) {
    row_plan p;
    p.words =
        transport == row_transport::ll_words || (transport == row_transport::automatic && bytes <= words_up_to(ranks));
    p.cut_array(bytes);
    p.cut_section(p.rows, p.row_bytes());
    return p;
  }
  /// Bytes of the longest slice that travels as LL words, if the policy decides.
  static std::int64_t words_up_to(int ranks) {
    return std::int64_t(all_reduce_policy::of(compiled_for).one_shot_words) / std::max(1, ranks - 1);
  }
  /// Bytes of a row of an array: vectors of all threads.
  int row_bytes() const { return threads * vectors * 16; }

  /// What the blocks of a launch do; no senders: each of them does all.
  struct roles {
    int blocks;    // of the grid
    int first;     // block that exchanges rows
    int senders;   // blocks that send
    int reducers;  // blocks that reduce or take what was sent
    int takers;    // blocks that take what was reduced
  };
  /// The roles if `fit` blocks are resident: block 0 collects credit, a 1 / share of the others sends, as many are
  /// takers if there are any, and the rest reduces. With flags a chunk has a block of each kind, if they fit.
  roles roles_of(int fit, int share, bool takers = false) const {
    int const kinds = takers ? 3 : 2, first = fit > 1, work = fit - first;
    if (words || work < kinds) return {first + std::min(work, sections.chunks), first, 0, 0, 0};
    int const each = std::min(sections.chunks, std::max(1, work / share));
    int const reducers = std::min(sections.chunks, work - (kinds - 1) * each);
    return {first + (kinds - 1) * each + reducers, first, each, reducers, takers ? each : 0};
  }
  /// What a kernel gets. `buffer`: the operator's LL words, if it has any.
  row_arguments arguments(roles const& r, ll_buffer_view const* buffer) const {
    row_arguments g{rows_per_chunk, r.first, r.senders, r.reducers, r.takers, sections};
    if (buffer) g.sections.words = *buffer;
    return g;
  }

 protected:
  /// Cuts an array into rows.
  void cut_array(std::int64_t bytes) {
    vectors = words ? 1 : max_vectors;
    rows = int((bytes + row_bytes() - 1) / row_bytes());
  }
  /// Cuts a section of rows of `row` bytes, a multiple of 16, into chunks.
  void cut_section(int section, std::int64_t row) {
    sections.vectors = int(row / 16);
    if (!words) {
      std::int64_t const bytes = std::clamp<std::int64_t>(section * row / target_chunks, min_chunk, max_chunk);
      rows_per_chunk = std::max({1, int(bytes / row), ceil_div(section, max_chunks)});
    }
    sections.chunks = ceil_div(section, rows_per_chunk);
    sections.rows = section;
  }
};

}  // namespace fusewire
