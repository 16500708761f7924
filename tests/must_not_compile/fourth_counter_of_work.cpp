// expect: there are work_counters counters
#include <fusewire/device/channel_view.hpp>

__global__ void draw(fusewire::channel_view ch, int* out) {
  __shared__ int word;
  fusewire::block const b;
  fusewire::channel_epoch const e = ch.begin(b);
  *out = e.next<fusewire::work_counters>(b, &word);
  e.end(b);
}
