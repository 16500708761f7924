// C [m, n] = A [m, k] B [n, k]^T in bf16, sum in fp32, by this library's kernel for many rows.   large_gemm M N K
//
//   eight waves; of two on a SIMD one loads while the other multiplies (fusewire/gemm/gfx942/ping_pong_gfx942.hpp)
//
//     per launch: 2 m n k flop
//
// The published times at full power are those of such kernels. Those of gemm.hip wait for the LDS at every step.
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/gemm.hpp>

#include "point.hpp"

using namespace calibration;
using fusewire::bf16;

int main(int argc, char** argv) {
  constexpr char const* how = "large_gemm M N K";
  int const m = int(number(argc, argv, 1, how)), n = int(number(argc, argv, 2, how)),
            k = int(number(argc, argv, 3, how));
  double us = 0;
  bool right = true;
  fusewire::run_local(1, [&](fusewire::world& w) {
    node one(1);
    std::vector<bf16> a(std::size_t(m) * std::size_t(k)), b(std::size_t(n) * std::size_t(k));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = bf16(float(small_number(i)));
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = bf16(float(small_number(i * 3 + 1)));
    bf16* const c = one.allocate<bf16>(0, std::size_t(m) * std::size_t(n));
    fusewire::gemm_call<bf16> const call{.a = {node::upload(one.allocate<bf16>(0, a.size()), a), m, k, k},
                                         .b = {node::upload(one.allocate<bf16>(0, b.size()), b), k, n, k},
                                         .c = {c, m, n, n},
                                         .b_layout = fusewire::layout::column_major};
    fusewire::gemm<bf16> product(w);
    // A product that is long enough has warmed up as it begins
    us = one.time(0, 1, [&](int, hipStream_t stream, int) { product(stream, call); });
    auto const got = node::download(c, std::size_t(m) * std::size_t(n));
    for (std::size_t i = 0; i < got.size(); i += got.size() / 199 + 1) {
      std::size_t const row = i / std::size_t(n), of = i % std::size_t(n);
      float want = 0;
      for (std::size_t at = 0; at < std::size_t(k); ++at)
        want += float(a[row * std::size_t(k) + at]) * float(b[of * std::size_t(k) + at]);
      right &= float(got[i]) == float(bf16(want));
    }
  });
  return report(us, right);
}
