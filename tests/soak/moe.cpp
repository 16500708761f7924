// moe_dispatch and moe_combine, and dispatch_gemm and gemm_combine, under test: tables, rows and the number of tokens
// change with every generation, and all numbers are small integers, so sums are exact.
#include <fusewire/ops/dispatch_gemm.hpp>
#include <fusewire/ops/gemm_combine.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include "soak.hpp"

namespace soak {
namespace {

constexpr int top_k = 4, experts_each = 5;

__device__ inline float element(int i, int rank, unsigned generation) {
  return float(small(unsigned(i), unsigned(rank), generation, 2));
}
/// An expert of all, or -1; a token may have one twice.
__device__ inline int expert_of(int entry, int rank, unsigned generation, int experts) {
  return int(hash(unsigned(entry), unsigned(rank) + 1000, generation) % unsigned(experts + 1)) - 1;
}
__device__ inline float weight_of(int entry, int rank, unsigned generation) {
  return float(1 + hash(unsigned(entry), unsigned(rank) + 2000, generation) % 2);
}
__device__ inline int tokens_of(int rank, unsigned generation, int most) {
  return int(hash(77, unsigned(rank), generation) % unsigned(most + 1));
}
__device__ inline float factor_of(int expert) { return float(1 + expert % 2); }

template <class F>
__device__ void for_all(int count, F const& f) {
  block const b;
  for (int i = b.index() * b.size() + b.rank(); i < count; i += b.count() * b.size()) f(i);
}

template <class T>
__global__ void fill_tokens(T* x, std::int32_t* table, float* weights, std::int32_t* tokens, int most, int cols,
                            int ranks, int rank, progress const* now) {
  unsigned const g = now->generation;
  for_all(most * cols, [&](int i) { x[i] = T(element(i, rank, g)); });
  for_all(most * top_k,
          [&](int i) { table[i] = expert_of(i, rank, g, ranks * experts_each), weights[i] = weight_of(i, rank, g); });
  for_all(1, [&](int) { *tokens = tokens_of(rank, g, most); });
}
/// Compares what has come, and makes results of it in place: of the experts' rows, or of their sum.
template <class T>
__global__ void run_experts(moe_routing_view r, T* rows, int most, int cols, int ranks, int rank, checker check) {
  unsigned const g = check.generation();
  for_all(ranks * most, [&](int i) {
    int const s = i / most, t = i % most;
    if (t >= tokens_of(s, g, most)) return;
    bool any = false;
    for (int j = 0; j < top_k; ++j) {
      int const e = expert_of(t * top_k + j, s, g, ranks * experts_each);
      any |= e >= 0 && e / experts_each == rank;
    }
    int const row = r.row_of[s * r.shape.max_tokens + t];
    check.compare(float(row >= 0), float(any), s, t);
    if (row < 0) return;
    for (int c = 0; c < cols; ++c) {
      float const x = element(t * cols + c, s, g);
      float sum = 0;
      for (int j = 0; j < top_k; ++j) {
        int const place = r.row_places[row * top_k + j], e = expert_of(t * top_k + j, s, g, ranks * experts_each);
        check.compare(float(place >= 0), float(e >= 0 && e / experts_each == rank), s, t);
        if (place < 0) continue;
        sum += weight_of(t * top_k + j, s, g) * factor_of(e) * x;
        bool before = false;
        for (int k = 0; k < j; ++k) before |= r.row_places[row * top_k + k] == place;
        if (r.shape.layout == moe_layout::by_token || before) continue;
        T& y = rows[std::int64_t(place) * cols + c];
        check.compare(float(y), x, t, c);
        y = T(factor_of(e) * x);
      }
      if (r.shape.layout == moe_layout::by_expert) continue;
      T& y = rows[std::int64_t(row) * cols + c];
      check.compare(float(y), x, t, c);
      y = T(sum);
    }
  });
}
/// Poisons what it has checked.
template <class T>
__global__ void check_sums(T* sums, int most, int cols, int ranks, int rank, checker check) {
  unsigned const g = check.generation();
  for_all(tokens_of(rank, g, most) * cols, [&](int i) {
    int const t = i / cols;
    float sum = 0;
    for (int j = 0; j < top_k; ++j)
      if (int const e = expert_of(t * top_k + j, rank, g, ranks * experts_each); e >= 0)
        sum += weight_of(t * top_k + j, rank, g) * factor_of(e) * element(i, rank, g);
    check.compare(float(sums[i]), sum, t, i % cols);
    sums[i] = T(-1.0f);
  });
}

template <class T, moe_layout Layout>
class moe_subject final : public subject {
 public:
  explicit moe_subject(rank_state& r)
      : r_(r), most_(std::min(r.size.m, 300)), cols_(std::min(r.size.n, 512) / 8 * 8),
        o_{.max_tokens = most_,
           .experts = experts_each * r.world.size(),
           .top_k = top_k,
           .max_row_bytes = cols_ * int(sizeof(T)),
           .layout = Layout,
           .alignment = Layout == moe_layout::by_expert ? 16 : 1},
        routing_(r.world, o_), dispatch_(r.channel, o_), combine_(r.channel, o_),
        max_rows_(routing_.view().shape.max_rows), x_(r.allocate<T>(elements(most_))),
        rows_(r.allocate<T>(elements(max_rows_))), sums_(r.allocate<T>(elements(most_))),
        weights_(r.allocate<float>(std::size_t(most_) * top_k)),
        table_(r.allocate<std::int32_t>(std::size_t(most_) * top_k)), tokens_(r.allocate<std::int32_t>(1)) {}
  std::string name() const override { return text("moe by ", Layout == moe_layout::by_expert ? "expert" : "token"); }
  void draw(random_source& random) override { m_ = random.up_to(most_), n_ = random.up_to(cols_ / 8) * 8; }
  long long step(int number) override {
    int const ranks = r_.world.size(), rank = r_.world.rank();
    checker const check{r_.now, number, {m_, n_, 0}};
    fill();
    dispatch(true);
    r_.local(64, 256, run_experts<T>, routing_.view(), rows_, m_, n_, ranks, rank, check);
    combine_(r_.stream(), {.in = {rows_, max_rows_, n_, n_},
                           .out = {sums_, m_, n_, n_},
                           .weights = Layout == moe_layout::by_expert ? routing_.view().row_weights : nullptr,
                           .routing = routing_});
    r_.local(64, 256, check_sums<T>, sums_, m_, n_, ranks, rank, check);
    return static_cast<long long>(m_) * n_;
  }
  void disagree(bool wrong) override {
    fill();  // what has been drawn since has fewer tokens, perhaps
    dispatch(!wrong);
  }

 private:
  std::size_t elements(int rows) const { return std::size_t(rows) * std::size_t(cols_); }
  void fill() {
    r_.local(64, 256, fill_tokens<T>, x_, table_, weights_, tokens_, m_, n_, r_.world.size(), r_.world.rank(), r_.now);
  }
  void dispatch(bool weighted) {
    dispatch_(r_.stream(), {.x = matrix<T>{x_, m_, n_, n_},
                            .out = matrix<T>{rows_, max_rows_, n_, n_},
                            .experts = table_,
                            .weights = weighted ? weights_ : nullptr,
                            .tokens = m_,
                            .device_tokens = tokens_,
                            .routing = routing_});
  }

  rank_state& r_;
  int most_, cols_, m_ = 1, n_ = 8;
  moe_options o_;
  moe_routing routing_;
  moe_dispatch dispatch_;
  moe_combine<T> combine_;
  int max_rows_;
  T *x_, *rows_, *sums_;
  float* weights_;
  std::int32_t *table_, *tokens_;
};

/// Matrices of the experts: of the first GEMM the identity, of the last one the expert's factor times the identity.
template <class T>
__global__ void fill_diagonals(T* first, T* last, int cols, int rank) {
  for_all(experts_each * cols * cols, [&](int i) {
    int const e = i / (cols * cols), in_expert = i % (cols * cols);
    bool const on = in_expert / cols == in_expert % cols;
    first[i] = T(on ? 1.0f : 0.0f), last[i] = T(on ? factor_of(rank * experts_each + e) : 0.0f);
  });
}

template <class T>
class fused_moe_subject final : public subject {
 public:
  explicit fused_moe_subject(rank_state& r)
      : r_(r), most_(std::min(r.size.m, 300)), cols_(std::min(r.size.n, 256) / 8 * 8),
        o_{.max_tokens = most_,
           .experts = experts_each * r.world.size(),
           .top_k = top_k,
           .max_row_bytes = cols_ * int(sizeof(T)),
           .layout = moe_layout::by_expert},
        routing_(r.world, o_), up_(r.channel, o_), down_(r.channel, o_), max_rows_(routing_.view().shape.max_rows),
        x_(r.allocate<T>(elements(most_))), rows_(r.allocate<T>(elements(max_rows_))),
        inner_(r.allocate<T>(elements(max_rows_))), made_(r.allocate<T>(elements(max_rows_))),
        sums_(r.allocate<T>(elements(most_))), first_(r.allocate<T>(elements(experts_each * cols_))),
        last_(r.allocate<T>(elements(experts_each * cols_))), weights_(r.allocate<float>(std::size_t(most_) * top_k)),
        table_(r.allocate<std::int32_t>(std::size_t(most_) * top_k)), tokens_(r.allocate<std::int32_t>(1)) {
    r_.local(64, 256, fill_diagonals<T>, first_, last_, cols_, r_.world.rank());
  }
  std::string name() const override { return "moe with its GEMMs"; }
  void draw(random_source& random) override { m_ = random.up_to(most_), n_ = random.up_to(cols_ / 8) * 8; }
  long long step(int number) override {
    int const ranks = r_.world.size(), rank = r_.world.rank();
    checker const check{r_.now, number, {m_, n_, 0}};
    fill();
    dispatch(true);
    down_(r_.stream(), {.a = {inner_, max_rows_, n_, n_},
                        .b = {last_, n_, n_, cols_},
                        .b_group_stride = std::int64_t(cols_) * cols_,
                        .y = {made_, max_rows_, n_, n_},
                        .out = {sums_, m_, n_, n_},
                        .weights = routing_.view().row_weights,
                        .routing = routing_});
    r_.local(64, 256, check_sums<T>, sums_, m_, n_, ranks, rank, check);
    return static_cast<long long>(m_) * n_;
  }
  void disagree(bool wrong) override {
    fill();  // what has been drawn since has fewer tokens, perhaps
    dispatch(!wrong);
  }

 private:
  std::size_t elements(int rows) const { return std::size_t(rows) * std::size_t(cols_); }
  void fill() {
    r_.local(64, 256, fill_tokens<T>, x_, table_, weights_, tokens_, m_, n_, r_.world.size(), r_.world.rank(), r_.now);
  }
  void dispatch(bool weighted) {
    up_(r_.stream(), {.dispatch = {.x = matrix<T>{x_, m_, n_, n_},
                                   .out = matrix<T>{rows_, max_rows_, n_, n_},
                                   .experts = table_,
                                   .weights = weighted ? weights_ : nullptr,
                                   .tokens = m_,
                                   .device_tokens = tokens_,
                                   .routing = routing_},
                      .b = {first_, n_, n_, cols_},
                      .b_group_stride = std::int64_t(cols_) * cols_,
                      .c = {inner_, max_rows_, n_, n_}});
  }

  rank_state& r_;
  int most_, cols_, m_ = 1, n_ = 8;
  moe_options o_;
  moe_routing routing_;
  dispatch_gemm<T> up_;
  gemm_combine<T> down_;
  int max_rows_;
  T *x_, *rows_, *inner_, *made_, *sums_, *first_, *last_;
  float* weights_;
  std::int32_t *table_, *tokens_;
};

template <class Subject>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<Subject>(r);
}

bool const added = [] {
  for (factory const f : {make<moe_subject<bf16, moe_layout::by_token>>, make<moe_subject<f16, moe_layout::by_expert>>,
                          make<fused_moe_subject<f16>>})
    factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
