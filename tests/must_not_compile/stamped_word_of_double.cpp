// expect: stampable
#include <fusewire/device/stamped.hpp>

__global__ void store_eight_bytes(fusewire::stamped* p) { fusewire::store_stamped(p, 1.0, 1); }
