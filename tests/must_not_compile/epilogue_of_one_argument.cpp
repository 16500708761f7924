// expect: does not satisfy 'epilogue'|constraints not satisfied|no instance of function template|not satisfied
#include <fusewire/ops/gemm.hpp>
using namespace fusewire;
struct twice {
  __device__ float operator()(float x) const { return 2 * x; }
};
void call(gemm<bf16>& op, hipStream_t stream) { op(stream, {}, twice{}); }
