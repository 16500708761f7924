// All-gather + GEMM in one kernel launch: every rank holds a part of A, and all ranks get C = A x B (+ bias, SiLU).
//
//   example_ag_gemm [ranks]                       ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_ag_gemm        ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/ag_gemm.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int m = 96, n = 200, k_per_rank = 64;

// The whole A and B, and the bias, in formulas that every rank knows.
float a_at(int i, int j) { return float((i * 7 + j * 3) % 5 - 2) / 8; }
float b_at(int i, int j) { return float((i * 5 + j) % 7 - 3) / 8; }
float bias_at(int j) { return float(j % 3 - 1); }

/// One rank: returns how many elements of C are wrong.
int run_rank(world& w) {
  int const k = k_per_rank * w.size(), k0 = w.rank() * k_per_rank;
  ag_gemm_options const options{.max_m = 256, .k = k, .gather = gather::k, .method = method::push};
  requirements const needs = ag_gemm<bf16>::requirements(w.size(), options);
  heap h(w, needs);
  channel ch(h, needs);
  ag_gemm<bf16> layer(ch, options);
  layer.prepare<bias_silu<bf16>>();

  // This rank's columns of A, all of B, the bias, and room for C, in memory of hipMalloc: peers touch none of it. Pull
  // needs A on the symmetric heap.
  std::vector<bf16> a(m * k_per_rank), b(std::size_t(k) * n), bias(n), c(m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < k_per_rank; ++j) a[std::size_t(i * k_per_rank + j)] = bf16(a_at(i, k0 + j));
  for (int i = 0; i < k; ++i)
    for (int j = 0; j < n; ++j) b[std::size_t(i * n + j)] = bf16(b_at(i, j));
  for (int j = 0; j < n; ++j) bias[std::size_t(j)] = bf16(bias_at(j));
  auto const upload = [&](std::vector<bf16> const& from) {
    bf16* to = nullptr;
    check_hip(hipMalloc(reinterpret_cast<void**>(&to), from.size() * sizeof(bf16)), "hipMalloc");
    check_hip(hipMemcpy(to, from.data(), from.size() * sizeof(bf16), hipMemcpyHostToDevice), "hipMemcpy");
    return std::unique_ptr<bf16, hipError_t (*)(bf16*)>(to, [](bf16* p) { return hipFree(p); });
  };
  auto const da = upload(a), db = upload(b), dbias = upload(bias), dc = upload(c);
  layer(w.stream(),
        {.a = {da.get(), m, k_per_rank, k_per_rank}, .b = {db.get(), k, n, n}, .c = {dc.get(), m, n, n}, .m = m},
        bias_silu<bf16>{dbias.get()});
  w.check(w.stream());  // waits, and throws if a rank did not come

  check_hip(hipMemcpy(c.data(), dc.get(), c.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  int wrong = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float x = bias_at(j);
      for (int l = 0; l < k; ++l) x += a_at(i, l) * b_at(l, j);
      float const wanted = x / (1 + std::exp(-x));
      wrong += !(std::abs(float(c[std::size_t(i * n + j)]) - wanted) <= std::abs(wanted) / 128 + 1e-5f);
    }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: C [%d, %d] = silu(gather(A) [%d, %d] x B + bias), %d elements wrong\n", w.rank(), m, n, m,
                k_per_rank * w.size(), wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
