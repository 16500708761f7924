// Flash Decode under test. Keys are 0 but for one element, 0 or 16, that divides the tokens into two classes, and the
// query's sign says which class outweighs the other entirely: an output is the mean of V over one class, exactly.
// Everything repeats every `period` tokens.
#include <fusewire/ops/flash_decode.hpp>

#include "soak.hpp"

namespace soak {
namespace {

constexpr int period = 61, page_size = 16;

struct decode_shape {
  int ranks, batch, q_heads, kv_heads, d, max_tokens;
};

struct decode_values {
  __host__ __device__ static int place(int rank, int sequence, int t) { return (t + 7 * rank + 3 * sequence) % period; }
  __device__ static int v(int place, int head, int j) { return small(unsigned(place), unsigned(head), unsigned(j), 4); }
  __device__ static bool heavy(int place, int head) { return hash(unsigned(place), unsigned(head), 99) & 1; }
  __device__ static bool likes_heavy(int sequence, int head, unsigned generation) {
    return hash(unsigned(sequence), unsigned(head), generation) & 1;
  }
  /// Sometimes none, sometimes all there is room for.
  __device__ static int length(int rank, int sequence, int most, unsigned generation) {
    unsigned const h = hash(unsigned(rank * 64 + sequence), 3, generation);
    return h % 8 == 0 ? 0 : h % 8 == 1 ? most : int(h / 8 % unsigned(most + 1));
  }
};

__device__ inline int page_of(int sequence, int page, int pages, int batch) {
  return (sequence * pages + page) * 5 % (batch * pages);
}

template <class T>
__global__ void fill_cache(decode_shape s, int rank, T* k, T* v, std::int32_t* table) {
  int const pages = s.max_tokens / page_size;
  for (int x = block{}.index(); x < s.batch * s.max_tokens; x += block{}.count()) {
    int const sequence = x / s.max_tokens, t = x % s.max_tokens,
              page = page_of(sequence, t / page_size, pages, s.batch), place = decode_values::place(rank, sequence, t);
    if (block{}.leader()) table[sequence * pages + t / page_size] = page;
    for (int y = block{}.rank(); y < s.kv_heads * s.d; y += block{}.size()) {
      std::int64_t const at = (std::int64_t(page) * page_size + t % page_size) * s.kv_heads * s.d + y;
      k[at] = T(y % s.d == 0 && decode_values::heavy(place, y / s.d) ? 16.0f : 0.0f);
      v[at] = T(float(decode_values::v(place, y / s.d, y % s.d)));
    }
  }
}

template <class T>
__global__ void fill_queries(decode_shape s, int rank, T* q, std::int32_t* lengths, progress const* now) {
  for (int x = block{}.index() * block{}.size() + block{}.rank(); x < s.batch * s.q_heads * s.d;
       x += block{}.count() * block{}.size()) {
    int const sequence = x / (s.q_heads * s.d), head = x / s.d % s.q_heads;
    q[x] = T(x % s.d ? 1.0f : decode_values::likes_heavy(sequence, head, now->generation) ? 16.0f : -16.0f);
    if (x % (s.q_heads * s.d) == 0)
      lengths[sequence] = decode_values::length(rank, sequence, s.max_tokens, now->generation);
  }
}

/// A block per own head of a sequence, a thread per element.
template <class T>
__global__ void check_decode(decode_shape s, index_range own, T* out, checker check) {
  for (int x = block{}.index(); x < s.batch * own.size(); x += block{}.count()) {
    int const sequence = x / own.size(), head = own.begin + x % own.size(), kv = head / (s.q_heads / s.kv_heads),
              j = block{}.rank();
    bool const heavy = decode_values::likes_heavy(sequence, head, check.generation());
    int sum[2] = {}, count[2] = {};  // of each class
    for (int rank = 0; rank < s.ranks; ++rank) {
      int const length = decode_values::length(rank, sequence, s.max_tokens, check.generation());
      for (int t = 0; t < period; ++t) {
        int const place = decode_values::place(rank, sequence, t), times = (length - t + period - 1) / period;
        if (t >= length) break;
        bool const in = decode_values::heavy(place, kv);
        int const v = decode_values::v(place, kv, j);
        sum[0] += in ? 0 : times * v, count[0] += in ? 0 : times;
        sum[1] += in ? times * v : 0, count[1] += in ? times : 0;
      }
    }
    bool const chosen = heavy ? count[1] > 0 : count[0] == 0;
    int const n = chosen ? count[1] : count[0], total = chosen ? sum[1] : sum[0];
    T* const element = out + std::int64_t(x) * s.d + j;
    check.compare(float(*element), float(T(n == 0 ? 0.0f : float(total) / float(n))), x, j);
    element->bits = 0xffff;
  }
}

template <class T, int D, output Form, decode_features Features>
class decode_subject final : public subject {
 public:
  explicit decode_subject(rank_state& r)
      : r_(r), most_{r.world.size(), r.size.batch, 8, 2, D, r.size.tokens / page_size * page_size},
        op_(r.channel, {.max_batch = most_.batch,
                        .q_heads = 8,
                        .kv_heads = 2,
                        .head_dim = D,
                        .page_size = page_size,
                        .max_pages = most_.max_tokens / page_size,
                        .scale = 1,
                        .shots = Form == output::replicated && std::is_same_v<T, f16> ? reduce_algorithm::two_shot
                                                                                      : reduce_algorithm::one_shot,
                        .output = Form}),
        own_(Form == output::heads ? head_partition(8, r.world.size()).of(r.world.rank()) : index_range{0, 8}),
        q_(r.allocate<T>(std::size_t(most_.batch * 8 * D))),
        k_(r.allocate<T>(std::size_t(most_.batch) * std::size_t(most_.max_tokens) * 2 * D)),
        v_(r.allocate<T>(std::size_t(most_.batch) * std::size_t(most_.max_tokens) * 2 * D)),
        out_(r.allocate<T>(std::size_t(most_.batch * 8 * D))),
        table_(r.allocate<std::int32_t>(std::size_t(most_.batch * (most_.max_tokens / page_size)))),
        lengths_(r.allocate<std::int32_t>(std::size_t(most_.batch))) {
    r.local(64, 128, fill_cache<T>, most_, r.world.rank(), k_, v_, table_);
  }
  std::string name() const override {
    return text("flash_decode d = ", D, std::is_same_v<T, f16> ? " f16" : " bf16",
                Form == output::heads ? " heads" : "", Features.batch_invariant ? " batch-invariant" : "");
  }
  void draw(random_source& random) override { batch_ = random.up_to(most_.batch); }
  long long step(int number) override {
    decode_shape s = most_;
    s.batch = batch_;
    r_.local(32, 256, fill_queries<T>, s, r_.world.rank(), q_, lengths_, r_.now);
    launch(batch_);
    r_.local(std::clamp(batch_ * own_.size(), 1, 132), D, check_decode<T>, s, own_, out_,
             checker{r_.now, number, {batch_, 8, D}});
    return static_cast<long long>(batch_) * own_.size() * D;
  }
  void disagree(bool wrong) override { launch(wrong ? batch_ % most_.batch + 1 : batch_); }

 private:
  void launch(int batch) {
    op_(r_.stream(), {.q = q_,
                      .k_cache = k_,
                      .v_cache = v_,
                      .block_table = table_,
                      .lengths = lengths_,
                      .out = out_,
                      .batch = batch});
  }

  rank_state& r_;
  decode_shape most_;
  flash_decode<T, Features> op_;
  index_range own_;
  T *q_, *k_, *v_, *out_;
  std::int32_t *table_, *lengths_;
  int batch_ = 1;
};

template <class T, int D, output Form = output::replicated, decode_features Features = decode_features{}>
std::unique_ptr<subject> make(rank_state& r) {
  return std::make_unique<decode_subject<T, D, Form, Features>>(r);
}

bool const added = [] {
  factories().push_back(make<bf16, 128>);
  factories().push_back(make<f16, 64>);
  factories().push_back(make<bf16, 96, output::heads>);
  factories().push_back(make<bf16, 64, output::replicated, decode_features{.batch_invariant = true}>);
  return true;
}();

}  // namespace
}  // namespace soak
