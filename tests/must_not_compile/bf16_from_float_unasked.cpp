// expect: no viable conversion|no suitable constructor
#include <fusewire/core/types.hpp>
using namespace fusewire;
bf16 round(float x) { return x; }
