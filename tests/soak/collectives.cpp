// all_gather, reduce_scatter and the all-to-alls under test: elements are small integers that differ on every rank and
// in every generation, so sums are exact. The counts of all_to_all_v are drawn on the device, from the generation.
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_to_all.hpp>
#include <fusewire/ops/all_to_all_v.hpp>
#include <fusewire/ops/reduce_scatter.hpp>

#include "soak.hpp"

namespace soak {
namespace {

__device__ inline float element(unsigned i, int rank, unsigned generation) {
  return float(small(i, unsigned(rank), generation, 8));
}

template <class T>
__global__ void fill_elements(T* x, int count, int rank, progress const* now) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < count; i += block{}.count() * block{}.size())
    x[i] = T(element(unsigned(i), rank, now->generation));
}

enum class collective { gather, reduce, exchange };

/// Poisons what it has checked.
template <class T>
__global__ void check_elements(T* x, collective what, int count, int rank, int ranks, checker check) {
  int const all = what == collective::reduce ? count : count * ranks;
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < all; i += block{}.count() * block{}.size()) {
    int const own = rank * count + i % count;  // of what every rank has for this one
    float wanted = 0;
    if (what == collective::reduce)
      for (int r = 0; r < ranks; ++r) wanted += element(unsigned(own), r, check.generation());
    else wanted = element(unsigned(what == collective::gather ? i % count : own), i / count, check.generation());
    check.compare(float(x[i]), wanted, i, 0);
    x[i] = T(-1.0f);
  }
}

template <template <class> class Op, template <class> class Call, class T, collective What, row_transport Transport>
class collective_subject final : public subject {
 public:
  explicit collective_subject(rank_state& r)
      : r_(r), most_(Transport == row_transport::ll_words ? 2000 : 60'000),
        op_(r.channel, {.max_count = most_, .transport = Transport}),
        in_(r.allocate<T>(std::size_t(most_) * std::size_t(r.world.size()))),
        out_(r.allocate<T>(std::size_t(most_) * std::size_t(r.world.size()))) {}
  std::string name() const override {
    constexpr char const* names[] = {"all_gather", "reduce_scatter", "all_to_all"};
    return text(names[int(What)], Transport == row_transport::flags ? " flags" : " words");
  }
  void draw(random_source& random) override { count_ = random.up_to(most_); }
  long long step(int number) override {
    int const ranks = r_.world.size();
    r_.local(64, 256, fill_elements<T>, in_, What == collective::gather ? count_ : count_ * ranks, r_.world.rank(),
             r_.now);
    launch(count_);
    r_.local(64, 256, check_elements<T>, out_, What, count_, r_.world.rank(), ranks,
             checker{r_.now, number, {count_, 1, 0}});
    return count_;
  }
  void disagree(bool wrong) override { launch(wrong ? count_ % most_ + 1 : count_); }

 private:
  void launch(int count) { op_(r_.stream(), Call<T>{.in = in_, .out = out_, .count = count}); }

  rank_state& r_;
  int most_, count_ = 1;
  Op<T> op_;
  T *in_, *out_;
};

constexpr int max_rows = 40, max_cols = 200;

__device__ inline int rows_between(int from, int to, unsigned generation) {
  return int(unsigned(small(unsigned(from), unsigned(to), generation, 8) + 64) * 2654435761u >> 16) % (max_rows + 1);
}
__global__ void fill_counts(int* counts, int rank, int ranks, progress const* now) {
  for (int p = block{}.rank(); p < ranks; p += block{}.size()) counts[p] = rows_between(rank, p, now->generation);
}
/// Compares rows whose numbers the device knows; poisons what it has checked.
__global__ void check_rows(bf16* x, int const* counts, int cols, int rank, int ranks, checker check) {
  int first = 0;
  for (int s = 0; s < ranks; ++s) {
    int skipped = 0;  // rows of s for other ranks before
    for (int p = 0; p < rank; ++p) skipped += rows_between(s, p, check.generation());
    int const rows = rows_between(s, rank, check.generation());
    if (block{}.index() == 0 && block{}.leader()) check.compare(float(counts[s]), float(rows), -1, s);
    for (int i = block{}.index() * block{}.size() + block{}.rank(); i < rows * cols;
         i += block{}.count() * block{}.size()) {
      bf16& found = x[first * cols + i];
      check.compare(float(found), element(unsigned(skipped * cols + i), s, check.generation()), i, s);
      found = bf16(-1.0f);
    }
    first += rows;
  }
}

template <row_transport Transport>
class all_to_all_v_subject final : public subject {
 public:
  explicit all_to_all_v_subject(rank_state& r)
      : r_(r), op_(r.channel, {.max_count = max_rows * max_cols, .transport = Transport}),
        in_(r.allocate<bf16>(elements())), out_(r.allocate<bf16>(elements())),
        counts_(r.allocate<int>(std::size_t(r.world.size()))), received_(r.allocate<int>(std::size_t(r.world.size()))) {
  }
  std::string name() const override {
    return text("all_to_all_v", Transport == row_transport::flags ? " flags" : " words");
  }
  void draw(random_source& random) override { cols_ = random.up_to(max_cols); }
  long long step(int number) override {
    int const ranks = r_.world.size();
    r_.local(64, 256, fill_elements<bf16>, in_, int(elements()), r_.world.rank(), r_.now);
    r_.local(1, 64, fill_counts, counts_, r_.world.rank(), ranks, r_.now);
    launch(cols_);
    r_.local(64, 256, check_rows, out_, received_, cols_, r_.world.rank(), ranks,
             checker{r_.now, number, {cols_, 1, 0}});
    return static_cast<long long>(max_rows) * cols_;
  }
  void disagree(bool wrong) override { launch(wrong ? cols_ % max_cols + 1 : cols_); }

 private:
  std::size_t elements() const { return std::size_t(r_.world.size() * max_rows * max_cols); }
  void launch(int cols) {
    int const rows = max_rows * r_.world.size();
    op_(r_.stream(), all_to_all_v_call<bf16, std::int32_t>{.in = in_,
                                                           .in_rows = rows,
                                                           .out = out_,
                                                           .out_rows = rows,
                                                           .cols = cols,
                                                           .in_counts = counts_,
                                                           .out_counts = received_});
  }

  rank_state& r_;
  int cols_ = 1;
  all_to_all_v<bf16> op_;
  bf16 *in_, *out_;
  int *counts_, *received_;
};

template <class Subject>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<Subject>(r);
}

bool const added = [] {
  constexpr auto words = row_transport::ll_words, flags = row_transport::flags;
  for (factory const f :
       {make<collective_subject<all_gather, all_gather_call, bf16, collective::gather, flags>>,
        make<collective_subject<all_gather, all_gather_call, float, collective::gather, words>>,
        make<collective_subject<reduce_scatter, reduce_scatter_call, bf16, collective::reduce, flags>>,
        make<collective_subject<reduce_scatter, reduce_scatter_call, f16, collective::reduce, words>>,
        make<collective_subject<all_to_all, all_to_all_call, bf16, collective::exchange, flags>>,
        make<all_to_all_v_subject<flags>>, make<all_to_all_v_subject<words>>})
    factories().push_back(f);
  return true;
}();

}  // namespace
}  // namespace soak
