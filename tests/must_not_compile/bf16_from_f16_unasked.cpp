// expect: no viable conversion|no suitable user-defined conversion
#include <fusewire/core/types.hpp>
using namespace fusewire;
bf16 convert(f16 x) { return x; }
