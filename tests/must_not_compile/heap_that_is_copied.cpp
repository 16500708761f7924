// expect: deleted|cannot be referenced
#include <fusewire/memory/heap.hpp>
using namespace fusewire;
void take(heap);
void give(heap const& h) { take(h); }
