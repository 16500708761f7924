// The calls by which a program names parts of its allocations.
#include "hip/runtime.hpp"

using namespace fusewire::sim;

namespace {

allocation* live_at(runtime& r, void const* p, u64 bytes) {
  allocation* const a = r.machine().memory.find(reinterpret_cast<u64>(p));
  return a && a->live && a->covers(reinterpret_cast<u64>(p), bytes) ? a : nullptr;
}

int name(void const* at, u64 size, char const* text, part_rows const& rows) {
  runtime& r = runtime::get();
  lock l = r.enter();
  allocation* const a = live_at(r, at, size);
  if (!a || !text) return -1;
  if (!a->parts) a->parts = std::make_shared<part_table>();
  a->parts->name(reinterpret_cast<u64>(at), size, text, rows);
  return 0;
}

/// The part that begins at `at` and has the 4-byte word; null if there is none.
part* part_with(runtime& r, void const* at, void const* word) {
  allocation* const a = live_at(r, at, 0);
  part* const p = a && a->parts ? a->parts->before(reinterpret_cast<u64>(at)) : nullptr;
  return p && p->live && p->base == reinterpret_cast<u64>(at) && p->covers(reinterpret_cast<u64>(word), 4) ? p
                                                                                                           : nullptr;
}

}  // namespace

extern "C" {

int fusewireSimNamePart(void const* at, uint64_t size, char const* text) { return name(at, size, text, {}); }

int fusewireSimNameRows(void const* at, fusewire_sim_rows const* rows, char const* text) {
  if (!rows || rows->bytes == 0 || rows->bytes > rows->stride) return -1;
  auto const& e = rows->extent;
  return name(at, rows->stride * e[0] * e[1] * e[2], text, {rows->bytes, rows->stride, {e[0], e[1]}});
}

int fusewireSimForgetParts(void const* at, uint64_t size) {
  runtime& r = runtime::get();
  lock l = r.enter();
  allocation* const a = live_at(r, at, 0);
  if (!a || !a->parts) return -1;
  a->parts->forget(reinterpret_cast<u64>(at), size);
  return 0;
}

int fusewireSimNameTicket(void const* at, void const* ticket, char const* call) {
  runtime& r = runtime::get();
  lock l = r.enter();
  part* const p = part_with(r, at, ticket);
  if (!p || !call) return -1;
  if (!p->ticket) p->ticket = reinterpret_cast<u64>(ticket), p->call = call;
  return 0;
}

int fusewireSimNameLeast(void const* at, void const* word, uint64_t least, char const* call) {
  runtime& r = runtime::get();
  lock l = r.enter();
  part* const p = part_with(r, at, word);
  if (!p || !p->ticket || !call) return -1;
  p->counted = reinterpret_cast<u64>(word), p->least = least, p->counted_by = call;
  return 0;
}

}  // extern "C"
