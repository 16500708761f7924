// How ranks send each other rows of elements in vectors of 16 bytes: as whole vectors with a flag for each chunk of
// rows, or as LL words without flags.
//
//   flag_rows   put() --16 bytes--> inbox [section][sender][row]   sent() --release--> flag   wait() --acquire--
//   ll_rows     put() --4 LL words--> LL buffer                    no flag                    the reader polls words
//
// Flags publish many bytes with one release and take no more bytes than the rows have. LL words take twice the bytes,
// and save the release and the flag's trip. A section is one exchange of a launch: two-shot has two, partials and
// results.
//
// Requires, of both: a rank writes a vector of a section at most once in a launch, and reads none that is not sent.
#pragma once
#include <fusewire/comm/tile_vectors.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/device/ll_buffer_view.hpp>

namespace fusewire {

/// Elements in rows of `cols`, of which the last one may be shorter.
template <class T>
struct row_view {
  T* data;             // element (0, 0)
  std::int64_t count;  // elements, in whole rows of cols but for the last
  int cols;            // of a row
  std::int64_t ld;     // elements from one row to the next

  /// Elements of row r. Requires: r exists.
  __host__ __device__ int cols_of(int r) const {
    std::int64_t const left = count - std::int64_t(r) * cols;
    return left < cols ? int(left) : cols;
  }
  /// Where row r begins.
  __host__ __device__ T* row(int r) const { return data + r * ld; }
  /// The rows from r on.
  __host__ __device__ row_view from(int r) const { return {row(r), count - std::int64_t(r) * cols, cols, ld}; }
};

/// What both kinds of exchange need: the extents of a section. Passed to kernels by value.
struct row_sections {
  int rows = 0;          // of a section, from each sender
  int vectors = 0;       // of 16 bytes, of a row
  int chunks = 0;        // of a section; each has a flag
  ll_buffer_view words;  // the operator's, which ll_rows writes; it may have none
};

/// Rows in the inbox, with a flag for each chunk.
template <class T>
class flag_rows {
 public:
  /// 16 bytes of a row.
  using vector = detail::vec16<T>;
  /// What a load brings.
  using loaded = vector;
  static constexpr bool is_exact = true;   // what comes out is what was put
  static constexpr int in_flight = 8;      // sources that a thread with one vector of a row loads together
  static constexpr int blocks_per_cu = 2;  // for __launch_bounds__: links need so many blocks' stores in flight

  /// Of a launch.
  __device__ flag_rows(channel_epoch const& e, world_view const& w, row_sections const& s) : e_(e), w_(w), s_(s) {}

  /// Bytes of a channel's slot that a launch takes.
  static std::size_t bytes(int ranks, int sections, row_sections const& s) {
    return std::size_t(ranks - 1) * std::size_t(sections) * std::size_t(s.rows) * std::size_t(s.vectors) * 16;
  }

  /// Sends vector v of row r to the rank `ahead` places after this one. 1 <= ahead < world size.
  __device__ void put(int section, int ahead, int r, int v, vector const& x) const {
    *at(w_.next(ahead), section, w_.size() - ahead, r, v) = __builtin_bit_cast(platform::native16, x);
  }
  /// What this block has put of a chunk, for all other ranks, is complete; this rank is told, too.
  /// Called by: every thread of the block.
  __device__ void sent(block b, int section, int chunk) const {
    signal_all(b, w_.size(), [&](int i) { return e_.to(w_.next(i), section * s_.chunks + chunk); }, e_.number());
  }
  /// Waits until all ranks have sent a chunk. Called by: every thread of the block.
  __device__ void wait(block b, int section, int chunk) const {
    e_.wait(b, 0, w_.size() - 1, section * s_.chunks + chunk);
  }
  /// Waits until `source` has sent a chunk. Called by: every thread of the block.
  __device__ void wait(block b, int section, int chunk, int source) const {
    e_.wait(b, source, section * s_.chunks + chunk);
  }

  /// Reads what other ranks have put, behind wait().
  class reader {
   public:
    /// Of one section.
    __device__ reader(flag_rows const& rows, int section) : rows_(rows), section_(section) {}
    /// Issues the load of vector v of row r from `source`.
    __device__ loaded load(int source, int r, int v) const {
      int const ahead = source - rows_.w_.rank() + (source < rows_.w_.rank() ? rows_.w_.size() : 0);
      return __builtin_bit_cast(vector, *rows_.at(rows_.w_.rank(), section_, ahead, r, v));
    }
    /// Its value.
    __device__ vector value(loaded const& x) { return x; }
    /// Whether all must be loaded again.
    template <class First>
    __device__ bool again(First const&) {
      return false;
    }
    /// Whether results are to be NaN: a wait timed out, and the channel fills them so.
    __device__ bool failed() const { return rows_.e_.control().should_fill_nan(); }

   private:
    flag_rows const& rows_;
    int section_;
  };
  /// Refreshes the record of the operator's LL buffer whose turn it is. Called by: every thread of one block.
  template <class Sent>
  __device__ void refresh(block b, Sent const&) const {
    if (s_.words.records > 0) ll_slot(s_.words, w_, e_.number()).refresh(b, [](int, int) { return false; });
  }

 private:
  /// From the rank `ahead` places after the owner of the inbox.
  __device__ platform::native16* at(int inbox, int section, int ahead, int r, int v) const {
    std::int64_t const row = std::int64_t(section * (w_.size() - 1) + ahead - 1) * s_.rows + r;
    return e_.inbox<platform::native16>(inbox) + row * s_.vectors + v;
  }

  channel_epoch const& e_;
  world_view const& w_;
  row_sections const& s_;
};

/// Rows in an LL buffer, whose records have vectors_per_record vectors. As flag_rows, but for what its members say.
template <class T>
class ll_rows {
 public:
  /// 16 bytes of a row.
  using vector = detail::vec16<T>;
  static constexpr bool is_exact = true;          // what comes out is what was put
  static constexpr int words_per_vector = 4;      // LL words
  static constexpr int vectors_per_record = 256;  // of the LL buffer
  static constexpr int side_by_side = 64;         // vectors whose j-th words are: so lanes of a wave access whole lines
  static constexpr int in_flight = 4;             // sources that a thread with one vector of a row loads together
  static constexpr int blocks_per_cu = 1;         // for __launch_bounds__: few blocks, whose registers do not spill
  /// What a load brings.
  struct loaded {
    std::uint64_t word[words_per_vector];  // bits of LL words
  };

  /// Of a launch.
  __device__ ll_rows(channel_epoch const& e, world_view const& w, row_sections const& s)
      : e_(e), w_(w), s_(s), slot_(s.words, w, e.number()) {}

  /// Records of an LL buffer that a launch takes.
  static __host__ __device__ int records(int sections, row_sections const& s) {
    return ceil_div(sections * s.rows * s.vectors, vectors_per_record);
  }

  /// Sends vector v of row r to the rank `ahead` places after this one. 1 <= ahead < world size.
  __device__ void put(int section, int ahead, int r, int v, vector const& x) const {
    auto const value = __builtin_bit_cast(bytes16, x);
    int const i = number(section, r, v);
    ll_word<>* const to = slot_.to(w_.next(ahead), i / vectors_per_record) + first_word(i);
#pragma unroll
    for (int j = 0; j < words_per_vector; ++j) ll_store(to + j * side_by_side, value.word[j], e_.number());
  }
  /// Words need no flag.
  __device__ void sent(block, int, int) const {}
  /// A reader polls the words.
  __device__ void wait(block, int, int) const {}
  /// Likewise.
  __device__ void wait(block, int, int, int) const {}

  /// Reads what other ranks have put or will put.
  class reader {
   public:
    /// Of one section.
    __device__ reader(ll_rows const& rows, int section) : rows_(rows), section_(section), poll_(rows.e_, rows.w_) {}
    /// Issues the loads of vector v of row r from `source`.
    __device__ loaded load(int source, int r, int v) const {
      loaded x;
      ll_word<> const* const from = rows_.from(section_, source, r, v);
#pragma unroll
      for (int j = 0; j < words_per_vector; ++j) x.word[j] = ll_load(from + j * side_by_side);
      return x;
    }
    /// Its value, once again() has returned false without failed().
    __device__ vector value(loaded const& x) {
      bytes16 value;
#pragma unroll
      for (int j = 0; j < words_per_vector; ++j) {
        poll_.check(x.word[j]);
        value.word[j] = ll_value<std::uint32_t>(x.word[j]);
      }
      return __builtin_bit_cast(vector, value);
    }
    /// As flag_rows; first(visit) calls visit(source, r, v) for what was loaded: a failed wait names the first word
    /// that is missing.
    template <class First>
    __device__ bool again(First const& first) {
      return poll_.again([&] {
        ll_reader::awaited missing{};
        first([&](int source, int r, int v) {
          ll_word<> const* const from = rows_.from(section_, source, r, v);
          for (int j = 0; j < words_per_vector; ++j)
            if (ll_word<> const* const p = from + j * side_by_side; !missing.word && !poll_.has_arrived(ll_load(p)))
              missing = {p, source};
          if (!missing.word) missing = {from, source};  // all have come since
        });
        return missing;
      });
    }
    /// Whether results are to be NaN: a wait timed out.
    __device__ bool failed() const { return poll_.gave_up(); }

   private:
    ll_rows const& rows_;
    int section_;
    ll_reader poll_;
  };
  /// Refreshes the record whose turn it is, if the launch does not use it. `sent`: sections of all vectors, or
  /// sent(source) is how many vectors a rank sends to this one. Called by: every thread of one block.
  template <class Sent>
  __device__ void refresh(block b, Sent const& sent) const {
    slot_.refresh(b, [&](int source, int i) {
      int vectors;
      if constexpr (std::is_same_v<Sent, int>) vectors = sent * s_.rows * s_.vectors;
      else vectors = sent(source);
      return source != w_.rank() && i * vectors_per_record < vectors;
    });
  }

 private:
  /// Where word 0 of vector i is in its record.
  static __device__ int first_word(int i) {
    int const in_record = i % vectors_per_record, lane = in_record % side_by_side;
    return (in_record - lane) * words_per_vector + lane;
  }
  /// Of a vector among those of all sections.
  __device__ int number(int section, int r, int v) const { return (section * s_.rows + r) * s_.vectors + v; }
  __device__ ll_word<> const* from(int section, int source, int r, int v) const {
    int const i = number(section, r, v);
    return slot_.from(source, i / vectors_per_record) + first_word(i);
  }

  channel_epoch const& e_;
  world_view const& w_;
  row_sections const& s_;
  ll_slot slot_;
};

}  // namespace fusewire
