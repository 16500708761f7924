// AG+GEMM under test. A is random in every generation; B has rank 2, so that an element of C is a sum of two products
// of sums over a row of A, which a block finds for itself: p1(c) sum A(i, j) h1(j) + p2(c) sum A(i, j) h2(j). All in
// integers.
#pragma once
#include <fusewire/ops/ag_gemm.hpp>

#include "soak.hpp"

namespace soak {

struct gemm_values {
  __device__ static int a(int i, int j, unsigned generation) { return small(unsigned(i), unsigned(j), generation, 2); }
  __device__ static int h(int which, int j) { return small(unsigned(j), unsigned(which), 1234, 1); }
  __device__ static int p(int which, int c) { return small(unsigned(c), unsigned(which), 4321, 1); }
};

/// This rank's shard of A, [rows, cols] at (row0, col0) of the whole.
template <class T>
__global__ void fill_a(T* a, int rows, int cols, int row0, int col0, progress const* now) {
  for (std::int64_t x = block{}.index() * block{}.size() + block{}.rank(); x < std::int64_t(rows) * cols;
       x += std::int64_t(block{}.count()) * block{}.size())
    a[x] = T(float(gemm_values::a(row0 + int(x / cols), col0 + int(x % cols), now->generation)));
}

template <class T>
__global__ void fill_b(matrix<T> b, layout order) {
  for (int j = block{}.index(); j < b.rows; j += block{}.count())
    for (int c = block{}.rank(); c < b.cols; c += block{}.size()) {
      int const value = gemm_values::h(0, j) * gemm_values::p(0, c) + gemm_values::h(1, j) * gemm_values::p(1, c);
      b.data[order == layout::row_major ? j * b.ld + c : c * b.ld + j] = T(float(value));
    }
}

/// A block per row of c, which begins with row row0 and column col0 of C. The products of each of `partials` shards of
/// k are rounded to T before they are added up; 1: there are none. What it has seen it overwrites with a number that is
/// none.
template <class T>
__global__ void check_gemm(matrix<T> c, int row0, int col0, int k, int partials, checker check) {
  __shared__ int sums[max_ranks][2];
  block const b;
  unsigned const generation = check.generation();
  int const of_partial = k / partials;
  for (int i = b.index(); i < c.rows; i += b.count()) {
    if (b.rank() < 2 * partials) sums[b.rank() / 2][b.rank() % 2] = 0;
    b.sync();
    for (int s = 0; s < partials; ++s) {
      int r[2] = {};
      for (int j = s * of_partial + b.rank(); j < (s + 1) * of_partial; j += b.size()) {
        int const a = gemm_values::a(row0 + i, j, generation);
        r[0] += a * gemm_values::h(0, j);
        r[1] += a * gemm_values::h(1, j);
      }
      for (int w = 0; w < 2; ++w) atomic_ref<int, scope::block>(&sums[s][w]).fetch_add(r[w], order::relaxed);
    }
    b.sync();
    for (int col = b.rank(); col < c.cols; col += b.size()) {
      T* const element = c.at(i, col);
      float wanted = 0;
      for (int s = 0; s < partials; ++s) {
        float const partial =
            float(sums[s][0] * gemm_values::p(0, col0 + col) + sums[s][1] * gemm_values::p(1, col0 + col));
        wanted += partials == 1 ? partial : float(T(partial));
      }
      check.compare(float(*element), float(T(wanted)), row0 + i, col0 + col);
      element->bits = 0xffff;
    }
    b.sync();
  }
}

/// Memory and shapes of a multiplication; what launches it is added.
template <class T>
class gemm_subject : public subject {
 public:
  gemm_subject(rank_state& r, gather by)
      : r_(r), by_(by), k_(int(round_up(std::size_t(r.size.k), std::size_t(8 * r.world.size())))),
        ldb_(std::int64_t(round_up(std::size_t(r.size.n), 8))),
        a_(r.allocate<T>(std::size_t(r.size.m) * std::size_t(k_))),
        c_(r.allocate<T>(std::size_t(r.size.m) * std::size_t(r.size.n))) {
    for (layout const order : {layout::row_major, layout::column_major}) {
      b_[int(order)] = r.allocate<T>(std::size_t(order == layout::row_major ? k_ * ldb_ : std::int64_t(k_) * r.size.n));
      r.local(64, 256, fill_b<T>, matrix<T>{b_[int(order)], k_, r.size.n, order == layout::row_major ? ldb_ : k_},
              order);
    }
    check_hip(hipMemsetAsync(c_, 0xff, std::size_t(r.size.m) * std::size_t(r.size.n) * sizeof(T), r.stream()),
              "hipMemsetAsync");
  }
  void draw(random_source& random) override {
    m_ = random.up_to(r_.size.m);
    n_ = random.up_to(r_.size.n);
    order_ = random.below(2) ? layout::row_major : layout::column_major;
    b_is_constant_ = random.below(2) != 0;
  }
  long long step(int number) override {
    fill();
    multiply(call(m_));
    check({c_, m_, n_, n_}, 0, 0, number);
    return static_cast<long long>(m_) * n_;
  }
  void disagree(bool wrong) override { multiply(call(m_of(wrong))); }

 protected:
  void fill() const {
    gather_map const map = shard();
    r_.local(64, 256, fill_a<T>, a_, map.rows(r_.world.rank()), map.cols(), map.first_row(r_.world.rank()),
             map.first_col(r_.world.rank()), r_.now);
  }
  /// c begins with row row0 and column col0 of C.
  void check(matrix<T> c, int row0, int col0, int number, int partials = 1) const {
    if (c.rows > 0)
      r_.local(std::min(c.rows, 132), 256, check_gemm<T>, c, row0, col0, k_, partials,
               checker{r_.now, number, {m_, n_, int(order_)}});
  }
  int m_of(bool wrong) const { return !wrong ? m_ : m_ > 1 ? m_ - 1 : m_ + 1; }
  virtual void multiply(ag_gemm_call<T> const& call) = 0;
  gather_map shard(int m = 0) const { return {by_, m ? m : m_, k_, r_.world.size(), 128, 512}; }
  ag_gemm_call<T> call(int m) const {
    gather_map const map = shard(m);
    return {.a = {a_, map.rows(r_.world.rank()), map.cols(), map.cols()},
            .b = {b_[int(order_)], k_, n_, order_ == layout::row_major ? ldb_ : k_},
            .c = {c_, m, n_, n_},
            .m = m,
            .b_layout = order_,
            .b_is_constant = b_is_constant_};
  }
  static char const* type() { return std::is_same_v<T, f16> ? " f16" : " bf16"; }
  char const* gathered() const { return by_ == gather::k ? " gather::k" : " gather::m"; }

  rank_state& r_;
  gather by_;
  int k_;
  std::int64_t ldb_;
  T *a_, *c_, *b_[2];
  int m_ = 1, n_ = 1;
  layout order_ = layout::row_major;
  bool b_is_constant_ = false;
};

}  // namespace soak
