// expect: no viable conversion|no suitable user-defined conversion
#include <fusewire/fusewire.hpp>
using namespace fusewire;
sym<float> reinterpret(sym<int> x) { return x; }
