// expect: no viable conversion|no suitable user-defined conversion
#include <fusewire/memory/heap.hpp>
using namespace fusewire;
sym<float> reinterpret(sym<int> x) { return x; }
