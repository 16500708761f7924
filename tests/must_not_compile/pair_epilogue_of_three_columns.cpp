// expect: does not satisfy 'local_epilogue'|constraints not satisfied|no instance of function template|not satisfied
#include <fusewire/ops/gemm.hpp>
using namespace fusewire;
struct three {
  __device__ float operator()(float x, float y, float z, int, int) const { return x + y + z; }
};
void call(gemm<bf16>& op, hipStream_t stream) { op(stream, {}, three{}); }
