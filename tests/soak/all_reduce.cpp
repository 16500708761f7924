// all_reduce under test: summands are small integers that differ on every rank and in every generation, so sums are
// exact. Rows with a residual go through rms_norm, whose residual_out is the exact sum.
#include <fusewire/ops/all_reduce.hpp>

#include "soak.hpp"

namespace soak {
namespace {

__device__ inline float summand(unsigned i, int rank, unsigned generation) {
  return float(small(i, unsigned(rank), generation, 8));
}

template <class T>
__global__ void fill_summands(T* x, int count, int rank, progress const* now) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < count; i += block{}.count() * block{}.size())
    x[i] = T(summand(unsigned(i), rank, now->generation));
}

/// Poisons what it has checked.
template <class T>
__global__ void check_sums(T* x, int count, int ranks, float residual, checker check) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < count; i += block{}.count() * block{}.size()) {
    float sum = residual;
    for (int r = 0; r < ranks; ++r) sum += summand(unsigned(i), r, check.generation());
    check.compare(float(x[i]), sum, i, 0);
    x[i] = T(-1.0f);
  }
}

template <class T, row_transport Transport, reduce_algorithm Shots, bool Norm>
class all_reduce_subject final : public subject {
 public:
  explicit all_reduce_subject(rank_state& r)
      : r_(r), cols_(std::min(r.size.n, all_reduce_plan::max_cols<T>)),
        rows_(std::min(r.size.m, Transport == row_transport::ll_words ? 8 : 64)),
        op_(r.channel, {.max_rows = rows_, .max_cols = cols_, .shots = Shots, .transport = Transport}),
        in_(r.allocate<T>(std::size_t(rows_) * std::size_t(cols_))),
        out_(r.allocate<T>(std::size_t(rows_) * std::size_t(cols_))),
        residual_(r.allocate<T>(std::size_t(rows_) * std::size_t(cols_))), gamma_(r.allocate<T>(std::size_t(cols_))) {
    if (Norm) op_.template prepare<rms_norm<T>>();
  }
  std::string name() const override {
    return text("all_reduce", Norm ? " + norm" : "", Transport == row_transport::flags ? " flags" : " words",
                Shots == reduce_algorithm::one_shot ? " one-shot" : " two-shot");
  }
  void draw(random_source& random) override { m_ = random.up_to(rows_), n_ = random.up_to(cols_); }
  long long step(int number) override {
    r_.local(64, 256, fill_summands<T>, in_, m_ * n_, r_.world.rank(), r_.now);
    launch(m_);
    r_.local(64, 256, check_sums<T>, out_, m_ * n_, r_.world.size(), 0.0f, checker{r_.now, number, {m_, n_, 0}});
    return static_cast<long long>(m_) * n_;
  }
  void disagree(bool wrong) override { launch(wrong ? m_ % rows_ + 1 : m_); }

 private:
  void launch(int m) {
    auto const view = [&](T* x) { return matrix<T>{x, m, n_, n_}; };
    if constexpr (Norm)
      op_(r_.stream(), view(in_),
          rms_norm<T>{.residual = view(residual_), .gamma = gamma_, .residual_out = view(out_), .norm_out = view(in_)});
    else op_(r_.stream(), {.in = in_, .out = out_, .count = std::int64_t(m) * n_});
  }

  rank_state& r_;
  int cols_, rows_, m_ = 1, n_ = 1;
  all_reduce<T> op_;
  T *in_, *out_, *residual_, *gamma_;
};

template <class Subject>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<Subject>(r);
}

bool const added = [] {
  constexpr auto words = row_transport::ll_words, flags = row_transport::flags;
  constexpr auto one = reduce_algorithm::one_shot, two = reduce_algorithm::two_shot;
  for (factory const f :
       {make<all_reduce_subject<bf16, words, one, false>>, make<all_reduce_subject<float, words, two, false>>,
        make<all_reduce_subject<f16, flags, one, false>>, make<all_reduce_subject<bf16, flags, two, true>>,
        make<all_reduce_subject<bf16, flags, one, true>>})
    factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
