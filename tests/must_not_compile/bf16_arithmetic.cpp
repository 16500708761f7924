// expect: invalid operands|no operator
#include <fusewire/fusewire.hpp>
using namespace fusewire;
bf16 add(bf16 x, bf16 y) { return x + y; }
