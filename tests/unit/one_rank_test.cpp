// One rank alone sends nothing, and its operators launch the plain GEMM. Its launches keep the order of its channel all
// the same.
#include <fusewire/ops/gemm_ar.hpp>

#include "streams.hpp"

using namespace support;

namespace {

/// What an operator would launch on more ranks; never launched here.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void launch_of_many(channel_view, sum_arguments<T>, typename Mainloop::template operands<1>, Epilogue) {}

/// gemm_rs, gemm_ar and gemm_all_scatter without what each adds: all of them launch by start().
class bare_operator : fused_gemm_operator<bf16, gemm_ar_options> {
  using base = fused_gemm_operator<bf16, gemm_ar_options>;
  struct kernels {
    template <class M>
    auto operator()() const {
      return &launch_of_many<bf16, M, identity>;
    }
  };

 public:
  bare_operator(channel& ch, gemm_ar_options const& o)
      : base("bare_operator", "bare", ch, o, std::source_location::current()) {
    base::load<identity>(kernels{}, std::source_location::current());
  }
  void operator()(hipStream_t stream, gemm_ar_call<bf16> const& call) {
    base::start(stream, kernels{}, call, 1, 0, identity{}, std::source_location::current());
  }
};

/// A custom kernel on the channel: to = from.
__global__ void copy_in_channel(channel_view ch, bf16 const* from, bf16* to, int count) {
  block const b;
  auto const e = ch.begin(b);
  for (int i = b.rank(); i < count; i += b.size()) to[i] = from[i];
  e.end(b);
}

constexpr int n = 64, launches = 9;

/// y[i + 1] = y[i] for each i, by what `by` launches on a stream, on three streams round robin, without an event.
template <class By>
void pass_along(rank_of_test& r, By by) {
  std::vector<bf16> const x(n * n, bf16(3.0f)), nan(n * n, bf16(std::numeric_limits<float>::quiet_NaN()));
  std::vector<sym<bf16>> y;
  for (int i = 0; i <= launches; ++i) {
    y.push_back(r.heap.allocate<bf16>(n * n));
    r.upload(i ? nan : x, y.back());
  }
  own_stream const more[] = {make_stream(), make_stream()};
  hipStream_t const streams[] = {r.stream, more[0].get(), more[1].get()};
  for (int i = 0; i < launches; ++i) by(i, streams[i % 3], r.here(y[std::size_t(i)]), r.here(y[std::size_t(i + 1)]));
  for (hipStream_t s : streams) r.world.check(s);
  int wrong = 0;
  for (bf16 v : r.download(y.back())) wrong += float(v) != 3.0f;
  r.found.expect(wrong == 0, wrong, " of ", n * n, " are wrong");
}

}  // namespace

TEST_CASE("one rank: launches of one channel come one after the other, on whichever stream each is") {
  on_ranks(1, [](rank_of_test& r) {
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    gemm_ar_options const o{.max_m = n, .max_n = n, .k = n, .tile = gemm_tile::small};
    bare_operator first(ch, o), second(ch, o);  // a tuned mainloop's memory would order the launches of each
    auto const b = r.heap.allocate<bf16>(n * n);
    std::vector<bf16> one(n * n, bf16(0.0f));
    for (int i = 0; i < n; ++i) one[std::size_t(i * n + i)] = bf16(1.0f);
    r.upload(one, b);
    load_kernel(r.world, copy_in_channel, n);
    auto const multiply = [&](bare_operator& op, hipStream_t stream, bf16* from, bf16* to) {
      op(stream, {.a = {from, n, n, n}, .b = {r.here(b), n, n, n}, .c = {to, n, n, n}, .m = n});
    };
    pass_along(r, [&](int i, hipStream_t stream, bf16* from, bf16* to) {
      multiply(i % 2 ? first : second, stream, from, to);
    });
    pass_along(r, [&](int i, hipStream_t stream, bf16* from, bf16* to) {
      if (i % 2) multiply(first, stream, from, to);
      else launch(r.world, stream, {1, n}, copy_in_channel, ch.view(make_header("copy", 0)), from, to, n * n);
    });
  });
}
