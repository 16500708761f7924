// expect: invalid operands|no operator
#include <fusewire/core/types.hpp>
using namespace fusewire;
bf16 add(bf16 x, bf16 y) { return x + y; }
