// The calls by which something outside of the machine, as a NIC, takes part in its time.
#include <algorithm>

#include "hip/runtime.hpp"
#include "machine/timeline.hpp"

using namespace fusewire::sim;

extern "C" {

int fusewireSimWatch(void const* at, uint64_t size, void (*f)(void*), void* context) {
  runtime& r = runtime::get();
  lock l = r.enter();
  if (!r.machine().settings.time) return -1;
  u64 const begin = reinterpret_cast<u64>(at);
  std::erase_if(r.machine().watched, [&](watched_bytes const& w) { return w.begin == begin; });
  if (f) r.machine().watched.push_back({begin, begin + size, f, context});
  return 0;
}

void fusewireSimAfter(double us, void (*f)(void*), void* context) {
  runtime& r = runtime::get();
  timeline& t = *r.waves().time();
  t.call_at(t.now() + r.machine().settings.rates.from_us(us), f, context);
}

double fusewireSimNow(void) {
  runtime& r = runtime::get();
  return r.machine().settings.rates.us(r.waves().time()->now());
}
}
