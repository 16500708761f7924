// How ranks send each other rows of elements in vectors of 16 bytes: as whole vectors with a flag for each chunk of
// rows, or as LL words without flags.
//
//   flag_rows   put() --16 bytes--> inbox [section][sender][row]    sent() --release--> flag     wait() --acquire-->
//   get ll_rows     put() --4 LL words--> LL buffer                     nothing                      get polls the
//   words
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
};

/// What both kinds of exchange need: the extents of a section. Passed to kernels by value.
struct row_sections {
  int rows = 0;          // of a section, from each sender
  int vectors = 0;       // of 16 bytes, of a row
  int chunks = 0;        // of a section; each has a flag
  ll_buffer_view words;  // of ll_rows
};

/// Rows in the inbox, with a flag for each chunk.
template <class T>
class flag_rows {
 public:
  using vector = detail::vec16<T>;

  __device__ flag_rows(channel_epoch const& e, world_view const& w, row_sections const& s) : e_(e), w_(w), s_(s) {}

  /// Bytes of a channel's slot that a launch takes.
  static std::size_t bytes(int ranks, int sections, row_sections const& s) {
    return std::size_t(ranks - 1) * std::size_t(sections) * std::size_t(s.rows) * std::size_t(s.vectors) * 16;
  }

  /// Sends vector v of row r to the rank `ahead` places after this one. 1 <= ahead < world size.
  __device__ void put(int section, int ahead, int r, int v, vector const& x) const {
    *at(w_.next(ahead), section, w_.size() - ahead, r, v) = __builtin_bit_cast(platform::native16, x);
  }
  /// All of a chunk has been put. Called by: every thread of the block.
  __device__ void sent(block b, int section, int ahead, int chunk) const {
    e_.signal(b, w_.next(ahead), section * s_.chunks + chunk);
  }
  /// Waits for a chunk from the `n` ranks that follow this one, from the one `ahead` places after it on.
  /// Called by: every thread of the block.
  __device__ void wait(block b, int section, int ahead, int n, int chunk) const {
    auto const source = [&](int i) { return w_.next(ahead + i); };
    wait_all(b, w_, n, [&](int i) { return e_.from(source(i), section * s_.chunks + chunk); }, e_.number(), source);
  }
  /// Calls read(get), where get(source, r, v) is what a rank has put. get's results are valid behind wait().
  /// Returns whether they are not, because a wait timed out and the channel fills results with NaN.
  template <class Read>
  __device__ bool read(int section, Read const& read) const {
    read([&](int source, int r, int v) {
      int const ahead = source - w_.rank() + (source < w_.rank() ? w_.size() : 0);
      return __builtin_bit_cast(vector, *at(w_.rank(), section, ahead, r, v));
    });
    return e_.control().should_fill_nan();
  }
  /// Flags need no refresh.
  __device__ void refresh(block, int) const {}

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

/// Rows in an LL buffer, whose records have vectors_per_record vectors.
template <class T>
class ll_rows {
 public:
  using vector = detail::vec16<T>;
  static constexpr int words_per_vector = 4, vectors_per_record = 256;

  __device__ ll_rows(channel_epoch const& e, world_view const& w, row_sections const& s)
      : e_(e), w_(w), s_(s), slot_(s.words, w, e.number()) {}

  /// Records of an LL buffer that a launch takes.
  static __host__ __device__ int records(int sections, row_sections const& s) {
    return ceil_div(sections * s.rows * s.vectors, vectors_per_record);
  }

  /// Sends vector v of row r to the rank `ahead` places after this one. 1 <= ahead < world size.
  __device__ void put(int section, int ahead, int r, int v, vector const& x) const {
    auto const halves = __builtin_bit_cast(bytes16, x);
    int const i = number(section, r, v);
    ll_word<>* const to = slot_.to(w_.next(ahead), i / vectors_per_record) + i % vectors_per_record * words_per_vector;
#pragma unroll
    for (int j = 0; j < words_per_vector; ++j) ll_store(to + j, halves.word[j], e_.number());
  }
  /// Words need no flag.
  __device__ void sent(block, int, int, int) const {}
  /// read() polls the words.
  __device__ void wait(block, int, int, int, int) const {}
  /// As flag_rows::read(), but read() may be called several times, until all words are there.
  template <class Read>
  __device__ bool read(int section, Read const& read) const {
    ll_reader reader(e_, w_);
    do {
      read([&](int source, int r, int v) {
        int const i = number(section, r, v);
        ll_word<> const* const from =
            slot_.from(source, i / vectors_per_record) + i % vectors_per_record * words_per_vector;
        std::uint64_t bits[words_per_vector];
#pragma unroll
        for (int j = 0; j < words_per_vector; ++j) bits[j] = ll_load(from + j);
        bytes16 x;
#pragma unroll
        for (int j = 0; j < words_per_vector; ++j) x.word[j] = reader.consume<std::uint32_t>(bits[j], from + j, source);
        return __builtin_bit_cast(vector, x);
      });
    } while (reader.again());
    return reader.gave_up();
  }
  /// Refreshes the record whose turn it is, if the launch does not use it. Called by: every thread of one block.
  __device__ void refresh(block b, int sections) const {
    int const used = records(sections, s_);
    slot_.refresh(b, [&](int source, int i) { return source != w_.rank() && i < used; });
  }

 private:
  /// Of a vector among those of all sections.
  __device__ int number(int section, int r, int v) const { return (section * s_.rows + r) * s_.vectors + v; }

  channel_epoch const& e_;
  world_view const& w_;
  row_sections const& s_;
  ll_slot slot_;
};

}  // namespace fusewire
