// expect: fusewire is compiled as HIP or CUDA: name the source
// with: -x c++
#include <fusewire/fusewire.hpp>
