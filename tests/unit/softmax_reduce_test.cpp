// Partials of softmax that arrive as LL words: any number of partials and of readers, and partials that arrive
// while others are awaited.
#include "support.hpp"

#include <fusewire/attention/attention_atom.hpp>
#include <fusewire/attention/decode_record.hpp>
#include <fusewire/attention/softmax_reduce.hpp>

using namespace support;

namespace {

constexpr int heads = 3, d = 64, waves = 2, most_partials = 21;
constexpr decode_policy policy = [] {
  decode_policy p = decode_policy_for(d);
  p.waves = waves;
  return p;
}();
__host__ __device__ constexpr decode_record record() { return {heads, d}; }

/// What partial p has at vec4 i: weights are powers of two and o and l small numbers, so that every sum is exact.
struct value_of {
  int p;
  __host__ __device__ float m() const { return p % 5 == 4 ? minus_infinity : float(-(p % 3)); }
  __host__ __device__ float l() const { return p % 5 == 4 ? 0 : float(1 + p); }
  __host__ __device__ float o(int i, int j) const { return p % 5 == 4 ? 0 : float((3 * p + i + 7 * j) % 32 - 9); }
  __host__ __device__ float weight() const { return p % 5 == 4 ? 0 : 1.0f / float(1 << p % 3); }
};

/// Block 1 stores the partials, the last one first and slowly; block 0 sums up the vec4s [begin, end). Each of a vec4's
/// readers counts what is wrong, and itself.
__global__ void sum_all(channel_view ch, ll_word<scope::device>* words, int begin, int end, int partials,
                        int log_readers, int* calls, unsigned* wrong) {
  block const b;
  channel_epoch const e = ch.begin(b);
  words += int(e.number() % 2) * most_partials * record().words();  // stamps are those of every other launch
  auto const at = [&](int partial, int i, int j) { return words + partial * record().words() + record().word(i, j); };
  if (b.index() == 1)
    for (int p = partials - 1; p >= 0; --p) {
      for (int i = begin + b.rank(); i < end; i += b.size())
        for (int j = 5; j >= 0; --j) {  // (m, l) of a head once for each of its vec4s
          value_of const v{p};
          ll_store(at(p, i, j), j == 5 ? v.l() : j == 4 ? v.m() : v.o(i, j), e.number());
        }
      b.sync();
    }
  else
    reduce_partials<policy>(
        e, ch.world, begin, end, partials, log_readers,
        [&](int partial, int i) { return vec4_words::loaded([&](int j) { return ll_load(at(partial, i, j)); }); },
        [&](ll_reader const&, int, int, int) { return ll_reader::awaited{nullptr, 0}; },
        [&](int i, softmax_partial const& sum, int n, int readers) {
          float l = 0, o[4] = {};
          for (int p = 0; p < partials; ++p) {
            value_of const v{p};
            l += v.l() * v.weight();
            for (int j = 0; j < 4; ++j) o[j] += v.o(i, j) * v.weight();
          }
          bool right = readers == 1 << log_readers && sum.s.m == value_of{0}.m() && sum.s.l == l;
          for (int j = 0; j < 4; ++j) right = right && sum.o.x[j] == o[j];
          if (!right) atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
          atomic_ref<int, scope::device>(calls + i).fetch_add(1 << n, order::relaxed);
        });
  e.end(b);
}

}  // namespace

TEST_CASE("softmax_reduce: any number of partials and readers, each vec4 once by each reader") {
  on_ranks(1, [](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 256, .flags_per_source = 1});
    auto const words = r.heap.allocate<ll_word<scope::device>>(2 * std::size_t(most_partials) * record().words());
    auto const calls = r.heap.allocate<int>(record().vec4s());
    auto const wrong = r.heap.allocate<unsigned>(1);
    load_kernel(r.world, sum_all, waves * platform::wave_size);
    r.fill(words, 0);
    for (int log_readers = 0; log_readers <= 3; ++log_readers)
      for (int partials : {1, 2, 3, 5, 8, 9, 13, most_partials})
        for (auto const [begin, end] : {std::pair{0, 48}, {0, 1}, {5, 38}}) {
          r.heap.upload(calls, std::vector<int>(calls.count, 0));
          r.heap.upload(wrong, std::vector{0u});
          r.launch({2, waves * platform::wave_size}, sum_all, ch.view(make_header("reduce", 0)), r.here(words), begin,
                   end, partials, log_readers, r.here(calls), r.here(wrong));
          r.world.check(r.stream);
          r.found.expect(r.heap.download(wrong)[0] == 0, log_readers, " log of readers, ", partials,
                         " partials, vec4s ", begin, " to ", end, ": ", r.heap.download(wrong)[0], " wrong");
          auto const called = r.heap.download(calls);
          for (int i = 0; i < record().vec4s(); ++i)
            r.found.expect(called[std::size_t(i)] == (i >= begin && i < end ? (1 << (1 << log_readers)) - 1 : 0),
                           log_readers, " log of readers, ", partials, " partials, vec4 ", i, ": ",
                           called[std::size_t(i)]);
        }
  });
}
