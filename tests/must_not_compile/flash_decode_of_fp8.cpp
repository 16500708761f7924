// expect: a KV cache in fp8, with scales, is not there
#include <fusewire/core/fp8.hpp>
#include <fusewire/ops/flash_decode.hpp>
using namespace fusewire;
void call(flash_decode<fp8_e4m3fn>& op, flash_decode_call<fp8_e4m3fn> const& c) { op(nullptr, c); }
