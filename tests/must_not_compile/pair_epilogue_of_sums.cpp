// expect: does not satisfy 'call_epilogue'|constraints not satisfied|no instance of function template|not satisfied
#include <fusewire/ops/gemm_rs.hpp>
using namespace fusewire;
void call(gemm_rs<bf16>& op, hipStream_t stream) { op(stream, {}, swiglu{}); }
