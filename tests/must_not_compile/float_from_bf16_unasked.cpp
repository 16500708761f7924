// expect: no viable conversion|no suitable conversion
#include <fusewire/core/types.hpp>
using namespace fusewire;
float widen(bf16 x) { return x; }
