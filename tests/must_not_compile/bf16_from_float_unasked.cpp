// expect: no viable conversion|no suitable constructor
#include <fusewire/fusewire.hpp>
using namespace fusewire;
bf16 round(float x) { return x; }
