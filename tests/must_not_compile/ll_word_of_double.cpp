// expect: ll_payload
#include <fusewire/device/ll.hpp>

__global__ void store_eight_bytes(fusewire::ll_word<>* p) { fusewire::ll_store(p, 1.0, 1); }
