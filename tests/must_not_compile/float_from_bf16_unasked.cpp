// expect: no viable conversion|no suitable conversion
#include <fusewire/fusewire.hpp>
using namespace fusewire;
float widen(bf16 x) { return x; }
