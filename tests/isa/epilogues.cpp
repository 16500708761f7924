// AG+GEMM with an epilogue that loads in a branch, for tiles of each kind. The branch is divergent, and it stands in
// the loop over tiles. There clang loses sight of what is the same in all lanes of a wave, and refuses an operand that
// only a scalar register can hold. So such an operand is made uniform first. The file has to compile. Tiles between
// these differ in width alone, and no other operator with an epilogue has such an operand.
#include <fusewire/ops/detail/ag_gemm_kernel.hpp>
#include <fusewire/gemm/mainloop_dispatch.hpp>

using namespace fusewire;

struct scaled_relu {
  float const* scale;  // [N]
  __device__ float operator()(float x, int, int column) const { return x > 0 ? x * scale[column] : 0; }
};

template <class... M>
bool all_kernels() {
  return ((&ag_gemm_kernel<bf16, M, scaled_relu> != nullptr) && ...);
}
bool kernels() {
  return all_kernels<
      small_m_gfx942<bf16, 16, 16, layout::column_major>, small_m_gfx942<bf16, 64, 64, layout::row_major>,
      ping_pong_gfx942<bf16, 128, 128, layout::column_major>, ping_pong_gfx942<bf16, 128, 128, layout::row_major>,
      ping_pong_gfx942<bf16, 256, 128, layout::row_major>, ping_pong_gfx942<bf16, 256, 192, layout::column_major>>();
}
