// A decoder layer of Llama 3 70B's shapes, fused in so many launches or bulk-synchronous in fourteen, on fusewire-sim
// --time:
//
//   projection_layer 7|8|9|twin W BATCH TOKENS      TOKENS of each sequence, over all ranks
//
// GEMMs and collectives of the twin are this library's, in a kernel each. One call in a graph, whose weights and KV no
// earlier one has touched. Columns of weights repeat, and KV does from 512 MiB
// of a rank on. Prints "us: TIME", the slowest rank's, and a number that is the same for all variants but for rounding.
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_reduce.hpp>

#include <cstring>
#include <string>

#include "decoder_twin.hpp"
#include "projection.hpp"

using namespace fusewire;
using namespace fusewire::projected;

namespace {

constexpr int page = 16;

/// us of the slowest rank. Prints the mean of |x| in rank 0.
double layer_time(world& w, int launches, int batch, int tokens) {
  int const ranks = w.size(), pages = tokens / ranks / page;
  auto const s = decoder::shape::llama_70b(batch, pages);
  auto const in_page = std::size_t(page * s.kv_heads * s.d);
  int const pool = int(std::min<std::size_t>(std::size_t(batch) * std::size_t(pages), 512_MiB / (in_page * 4)));
  using gather_op = all_gather<std::byte>;
  all_reduce_options const sums{.max_rows = batch, .max_cols = s.hidden};
  std::size_t const part =
      std::size_t(batch) * std::size_t(std::max(s.heads() * s.d / ranks * 2, s.q_heads * 260)) + 256;
  all_gather_options const slices{.max_count = std::int64_t(part)};
  auto const needs = decoder::layer::needs(ranks, s) + all_reduce<bf16>::requirements(ranks, sums) +
                     gather_op::requirements(ranks, slices) + requirements::of<barrier_state>(1);
  heap h(w, needs);
  channel ch(h, needs);
  decoder::layer layer(h, ch, s, {launches < 9, launches == 7});
  all_reduce<bf16> reduce(ch, sums);
  gather_op gather(ch, slices);
  gemm<bf16> multiply(w);
  world alone = w.split(w.rank());
  heap alone_heap(alone, flash_decode<bf16>::requirements(1, decoder::layer::attention_options(s)));
  channel alone_ch(alone_heap, {.max_bytes = 1, .flags_per_source = 1});
  hipStream_t const stream = w.stream();
  bench::decoder_twin twin(w, alone_ch, layer, s,
                           {[&](int, bf16 const* a, bf16 const* b, bf16* c, int m, int n, int k) {
                              multiply(stream, {{a, m, k, k}, {b, k, n, k}, {c, m, n, n}, layout::column_major, true});
                            },
                            [&](void const* mine, void* all, std::size_t bytes) {
                              gather(stream, {.in = static_cast<std::byte const*>(mine),
                                              .out = static_cast<std::byte*>(all),
                                              .count = std::int64_t(bytes)});
                            },
                            [&](bf16 const* mine, bf16* sum, std::size_t count) {
                              reduce(stream, {.in = mine, .out = sum, .count = std::int64_t(count)});
                            }},
                           [](std::size_t bytes) { return allocate<std::byte>(bytes); });
  stopwatch watch(w, h);

  auto const weights = [](int k, int n, int seed) {
    std::vector<bf16> all(std::size_t(k) * 64);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = bf16(float(small_number(i * 3 + std::size_t(seed))) / std::sqrt(float(k)));
    auto const count = std::size_t(k) * std::size_t(n);
    bf16* const to = allocate<bf16>(count);
    for (std::size_t at = 0; at < count; at += all.size())
      check_hip(hipMemcpy(to + at, all.data(), std::min(all.size(), count - at) * 2, hipMemcpyHostToDevice),
                "hipMemcpy");
    return to;
  };
  decoder::weights const ws{weights(s.hidden, s.heads() * s.d / ranks, 1),
                            weights(s.q_heads * s.d / ranks, s.hidden, 2), weights(s.hidden, 2 * s.ffn / ranks, 3),
                            weights(s.ffn / ranks, s.hidden, 4)};
  auto const cache = [&](int seed) {
    std::vector<bf16> some(in_page);
    bf16* const to = allocate<bf16>(std::size_t(pool) * in_page);
    for (int p = 0; p < pool; ++p) {
      if (p < 64)
        for (std::size_t i = 0; i < in_page; ++i)
          some[i] = bf16(float(small_number(i * 7 + std::size_t(seed + p + 64 * w.rank()))));
      check_hip(hipMemcpy(to + std::size_t(p) * in_page, some.data(), in_page * 2, hipMemcpyHostToDevice), "hipMemcpy");
    }
    return to;
  };
  decoder::kv_cache const kv{cache(5), cache(6)};
  std::vector<std::int32_t> table, slots;
  std::vector<float2> rotations(std::size_t(batch * s.d / 2), float2{0.6f, 0.8f});
  for (int i = 0; i < batch * pages; ++i) table.push_back(i % pool);
  // The new token is the last one of the last rank
  for (int i = 0; i < batch; ++i)
    slots.push_back(w.rank() == ranks - 1 ? table[std::size_t((i + 1) * pages - 1)] * page + page - 1 : -1);
  std::vector<bf16> x(std::size_t(batch * s.hidden)), y = x;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = bf16(float(small_number(i))), y[i] = bf16(float(x[i]) / 1.414f);
  bf16 *const dx = upload(allocate<bf16>(x.size()), x), *const dy = upload(allocate<bf16>(y.size()), y);
  decoder::step const step{
      batch, upload(allocate<std::int32_t>(table.size()), table),
      upload(allocate<std::int32_t>(std::size_t(batch)), std::vector<std::int32_t>(std::size_t(batch), pages * page)),
      upload(allocate<std::int32_t>(slots.size()), slots), upload(allocate<float2>(rotations.size()), rotations)};
  w.barrier();
  double const us = watch.time(true, [&](int) {
    if (launches) layer(stream, ws, kv, step, dx);
    else twin(stream, ws, kv, step, dx, dy);
  });
  check_hip(hipMemcpy(x.data(), dx, x.size() * 2, hipMemcpyDeviceToHost), "hipMemcpy");
  double size = 0;
  for (bf16 const e : x) size += std::abs(double(float(e)));
  if (w.rank() == 0) std::printf("mean |x|: %.4f\n", size / double(x.size()));
  return us;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string const variant = argc == 5 ? argv[1] : "";
  int const ranks = argc == 5 ? std::atoi(argv[2]) : 0, batch = argc == 5 ? std::atoi(argv[3]) : 0,
            tokens = argc == 5 ? std::atoi(argv[4]) : 0;
  if ((variant != "7" && variant != "8" && variant != "9" && variant != "twin") || ranks < 1 || 16 % ranks ||
      batch < 1 || tokens < 1 || tokens % (ranks * page)) {
    std::fprintf(stderr, "usage: projection_layer 7|8|9|twin W BATCH TOKENS\n");
    return 2;
  }
  run_local(ranks, [&](world& w) {
    double const us = layer_time(w, std::atoi(variant.c_str()), batch, tokens);
    if (w.rank() == 0) std::printf("us: %.3f\n", us);
    w.barrier();
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
