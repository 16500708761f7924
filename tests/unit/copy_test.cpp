// copy() and copy_bytes() by a thread, a wave and a block: every alignment, many lengths, to and from a peer, and
// matrices.
#include "support.hpp"

using namespace support;

namespace {

constexpr int room = 640;  // bytes of one case: 16 before, up to 600 copied, the rest after

__host__ __device__ unsigned char byte_of(int rank, int i) { return static_cast<unsigned char>(rank * 89 + i * 7 + 1); }

/// Case i has its own block: from `from` + alignment to `to` + alignment.
struct copy_case {
  int from_alignment, to_alignment, bytes;
};

template <group Group>
__device__ void copy_one(Group g, copy_case c, unsigned char const* from, unsigned char* to) {
  copy_bytes(g, from + 16 + c.from_alignment, to + 16 + c.to_alignment, c.bytes);
}

/// Gets from the partner and puts to the partner, by a group of the given size.
__global__ void copy_cases(world_view w, int partner, copy_case const* cases, int count, sym<unsigned char> from,
                           sym<unsigned char> got, sym<unsigned char> put, int group_size) {
  for (int i = block{}.index(); i < count; i += block{}.count()) {
    copy_case const c = cases[i];
    unsigned char const* const here = w.here(from) + i * room;
    unsigned char const* const there = w.on(partner, from) + i * room;
    if (group_size == 1) {
      if (block{}.rank() == 0) copy_one(thread{}, c, there, w.here(got) + i * room);
      if (block{}.rank() == block{}.size() - 1) copy_one(thread{}, c, here, w.on(partner, put) + i * room);
    } else if (group_size == wave::width) {
      if (wave{}.index() == 0) copy_one(wave{}, c, there, w.here(got) + i * room);
      if (wave{}.index() == 1) copy_one(wave{}, c, here, w.on(partner, put) + i * room);
    } else {
      copy_one(block{}, c, there, w.here(got) + i * room);
      copy_one(block{}, c, here, w.on(partner, put) + i * room);
    }
  }
}

void check_cases(rank_of_test& r, std::vector<copy_case> const& cases) {
  std::size_t const bytes = cases.size() * room;
  auto const from = r.heap.allocate<unsigned char>(bytes), got = r.heap.allocate<unsigned char>(bytes),
             put = r.heap.allocate<unsigned char>(bytes);
  auto const list = r.heap.allocate<copy_case>(cases.size());
  r.upload(cases, list);
  std::vector<unsigned char> mine(bytes);
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = byte_of(r.rank(), int(i));
  r.upload(mine, from);
  int const writer = (r.rank() + r.size() - r.size() / 2) % r.size();
  for (int group_size : {1, wave::width, 4 * wave::width}) {
    r.fill(got, 0);
    r.fill(put, 0);
    r.meet();
    r.launch({8, 4 * wave::width}, copy_cases, r.view(), r.partner(), static_cast<copy_case const*>(r.here(list)),
             int(cases.size()), from, got, put, group_size);
    r.meet();
    auto const wanted = [&](int owner) {
      std::vector<unsigned char> all(bytes);
      for (std::size_t i = 0; i < cases.size(); ++i)
        for (int k = 0; k < cases[i].bytes; ++k)
          all[i * room + std::size_t(16 + cases[i].to_alignment + k)] =
              byte_of(owner, int(i) * room + 16 + cases[i].from_alignment + k);
      return all;
    };
    r.found.equal(r.download(got), wanted(r.partner()), text("get by ", group_size));
    r.found.equal(r.download(put), wanted(writer), text("put by ", group_size));
    r.meet();
  }
}

template <class T>
__global__ void copy_matrix(matrix<T const> from, matrix<T> to) {
  copy(block{}, from, to);
}
template <class T>
__global__ void copy_matrix_by_waves(matrix<T const> from, matrix<T> to) {
  int const waves = block{}.size() / wave::width;
  for (int row = wave{}.index(); row < from.rows; row += waves)
    copy(wave{}, from.submatrix(row, 0, 1, from.cols), to.submatrix(row, 0, 1, to.cols));
}

struct matrix_case {
  int rows, cols, from_ld, to_ld, from_shift, to_shift;  // shifts in elements
};

template <class T>
void check_matrices(rank_of_test& r) {
  constexpr std::size_t elements = 20000;
  auto const from = r.heap.allocate<T>(elements), to = r.heap.allocate<T>(elements);
  std::vector<T> mine(elements);
  for (std::size_t i = 0; i < elements; ++i) mine[i] = T(int((i * 31 + std::size_t(r.rank())) % 251));
  r.upload(mine, from);
  r.meet();
  auto const theirs = r.download(static_cast<T const*>(r.view().on(r.partner(), from)), elements);
  for (matrix_case const c : {matrix_case{1, 1, 1, 1, 0, 0},
                              {7, 16, 16, 16, 0, 0},
                              {7, 16, 32, 48, 16, 16},
                              {64, 128, 128, 144, 0, 0},
                              {33, 48, 48, 48, 0, 0},
                              {5, 17, 17, 20, 0, 0},
                              {5, 16, 17, 16, 0, 0},
                              {5, 16, 16, 16, 1, 0},
                              {5, 13, 16, 16, 3, 3},
                              {0, 16, 16, 16, 0, 0},
                              {3, 0, 16, 16, 0, 0},
                              {1, 4096, 4096, 4096, 0, 0},
                              {300, 16, 16, 16, 0, 0}}) {
    auto const wanted = [&] {
      std::vector<T> all(elements);
      for (int i = 0; i < c.rows; ++i)
        for (int k = 0; k < c.cols; ++k)
          all[std::size_t(c.to_shift + i * c.to_ld + k)] = theirs[std::size_t(c.from_shift + i * c.from_ld + k)];
      return all;
    }();
    matrix<T const> const source{r.view().on(r.partner(), from) + c.from_shift, c.rows, c.cols, c.from_ld};
    matrix<T> const target{r.here(to) + c.to_shift, c.rows, c.cols, c.to_ld};
    for (auto kernel : {copy_matrix<T>, copy_matrix_by_waves<T>}) {
      r.fill(to, 0);
      r.launch({1, 4 * wave::width}, kernel, source, target);
      r.found.equal(r.download(to), wanted,
                    text(c.rows, " x ", c.cols, " elements of ", sizeof(T), " bytes, ld ", c.from_ld, " to ", c.to_ld));
    }
  }
  r.meet();
}

}  // namespace

TEST_CASE("copy: every pair of alignments") {
  int const bytes = GENERATE(1, 15, 37, 131);
  on_ranks(2, [=](rank_of_test& r) {
    std::vector<copy_case> cases;
    for (int f = 0; f < 16; ++f)
      for (int t = 0; t < 16; ++t) cases.push_back({f, t, bytes});
    check_cases(r, cases);
  });
}

TEST_CASE("copy: every length up to 70, and some more") {
  on_ranks(2, [](rank_of_test& r) {
    std::vector<copy_case> cases;
    for (int bytes = 0; bytes <= 70; ++bytes)
      for (auto const& [f, t] : {std::pair{0, 0}, {5, 5}, {8, 0}, {4, 12}, {2, 0}, {3, 10}})
        cases.push_back({f, t, bytes});
    for (int bytes : {127, 128, 129, 255, 256, 257, 511, 512, 513, 600})
      for (auto const& [f, t] : {std::pair{0, 0}, {15, 15}, {9, 1}, {1, 0}}) cases.push_back({f, t, bytes});
    check_cases(r, cases);
  });
}

TEST_CASE("copy: random cases on 1, 3, 4 and 8 ranks") {
  on_ranks(GENERATE(1, 3, 4, 8), [](rank_of_test& r) {
    lcg random{7};
    std::vector<copy_case> cases;
    for (int i = 0; i < 64; ++i) cases.push_back({random.below(16), random.below(16), random.below(590)});
    check_cases(r, cases);
  });
}

namespace {
__global__ void copy_ints(world_view w, int partner, sym<int> from, sym<int> to, int count) {
  copy(block{}, w.on(partner, from) + block{}.index() * count, w.here(to) + block{}.index() * count, count);
}
}  // namespace

TEST_CASE("copy: many words, so that several are in flight") {
  on_ranks(2, [](rank_of_test& r) {
    constexpr int blocks = 4, count = 40'001;
    auto const from = r.heap.allocate<int>(blocks * count), to = r.heap.allocate<int>(blocks * count);
    std::vector<int> mine(blocks * count), wanted(blocks * count);
    for (int i = 0; i < blocks * count; ++i) {
      mine[std::size_t(i)] = i * 2 + r.rank();
      wanted[std::size_t(i)] = i * 2 + r.partner();
    }
    r.upload(mine, from);
    r.meet();
    r.launch({blocks, 256}, copy_ints, r.view(), r.partner(), from, to, count);
    r.found.equal(r.download(to), wanted, "copy");
    r.meet();
  });
}

TEST_CASE("copy: matrices of every element size") {
  on_ranks(GENERATE(1, 2), [](rank_of_test& r) {
    check_matrices<std::uint8_t>(r);
    check_matrices<std::uint16_t>(r);
    check_matrices<int>(r);
    check_matrices<double>(r);
  });
}

namespace {
/// One thread of a group that is so large that each of its threads copies only few words of a huge matrix.
struct one_of_many {
  static constexpr int its_rank = 3, its_size = (1 << 28) + 1;
  __device__ int rank() const { return its_rank; }
  __device__ int size() const { return its_size; }
  __device__ bool leader() const { return false; }
  __device__ void sync() const {}
};

__global__ void copy_its_part(matrix<int const> from, matrix<int> to) { copy(one_of_many{}, from, to); }
}  // namespace

TEST_CASE("copy: a matrix of more words than an int counts") {
  std::int64_t const words_per_row = GENERATE(4, 15),
                     words = GENERATE((std::int64_t(1) << 31) + 60, (std::int64_t(1) << 32) + 120);
  on_ranks(1, [=](rank_of_test& r) {
    int const cols = int(4 * words_per_row), rows = int(words / words_per_row);
    auto const from = r.heap.allocate<int>(std::size_t(cols)), to = r.heap.allocate<int>(std::size_t(cols));
    std::vector<int> mine, wanted(std::size_t(cols), 0);
    for (int i = 0; i < cols; ++i) mine.push_back(i + 1);
    for (std::int64_t i = one_of_many::its_rank; i < rows * words_per_row; i += one_of_many::its_size)
      for (std::int64_t j = i % words_per_row * 4, last = j + 4; j < last; ++j)
        wanted[std::size_t(j)] = mine[std::size_t(j)];
    r.upload(mine, from);
    r.fill(to, 0);
    // All rows are at the same place: only their number is huge.
    r.launch({1, 64}, copy_its_part, matrix<int const>{r.here(from), rows, cols, 0},
             matrix<int>{r.here(to), rows, cols, 0});
    r.found.equal(r.download(to), wanted, "copy");
  });
}
