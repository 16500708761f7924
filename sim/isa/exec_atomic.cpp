// Atomics on global, flat and buffer memory: CDNA3 ISA, chapters 8 and 9.
#include "address.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

void put_old(wave& w, destination const& to, u64 mask, u32 const (*old)[lanes]) {
  for (int d = 0; d < to.dwords; ++d) write_row(w.v[to.reg + d], old[d], mask);
}

template <segment Segment, rmw What, int Bytes>
void atomic(wave& w, op const& o) {
  constexpr int dwords = Bytes / 4;
  w.memory->issue(w);
  u64 const mask = w.exec();
  if (mask == 0) return;
  u32 const(*data)[lanes] = &w.v[o.arg[2].reg];
  destination const old{o.returns ? put_old : nullptr, o.arg[0].reg, dwords, 0};
  atomic_segment(w, o, Segment, What, mask, Bytes, data, What == rmw::cmpswap ? data + dwords : nullptr, old);
}

template <segment Segment, rmw What>
void add_integer_atomic(registry& r, std::string const& name) {
  r.add(name, {.run = atomic<Segment, What, 4>});
  r.add(name + "_x2", {.run = atomic<Segment, What, 8>});
}

template <segment Segment>
void add_segment(registry& r, std::string const& prefix) {
  add_integer_atomic<Segment, rmw::swap>(r, prefix + "_atomic_swap");
  add_integer_atomic<Segment, rmw::cmpswap>(r, prefix + "_atomic_cmpswap");
  add_integer_atomic<Segment, rmw::add>(r, prefix + "_atomic_add");
  add_integer_atomic<Segment, rmw::sub>(r, prefix + "_atomic_sub");
  add_integer_atomic<Segment, rmw::smin>(r, prefix + "_atomic_smin");
  add_integer_atomic<Segment, rmw::umin>(r, prefix + "_atomic_umin");
  add_integer_atomic<Segment, rmw::smax>(r, prefix + "_atomic_smax");
  add_integer_atomic<Segment, rmw::umax>(r, prefix + "_atomic_umax");
  add_integer_atomic<Segment, rmw::and_>(r, prefix + "_atomic_and");
  add_integer_atomic<Segment, rmw::or_>(r, prefix + "_atomic_or");
  add_integer_atomic<Segment, rmw::xor_>(r, prefix + "_atomic_xor");
  add_integer_atomic<Segment, rmw::inc>(r, prefix + "_atomic_inc");
  add_integer_atomic<Segment, rmw::dec>(r, prefix + "_atomic_dec");
  r.add(prefix + "_atomic_add_f32", {.run = atomic<Segment, rmw::add_f32, 4>});
  r.add(prefix + "_atomic_add_f64", {.run = atomic<Segment, rmw::add_f64, 8>});
  r.add(prefix + "_atomic_min_f64", {.run = atomic<Segment, rmw::min_f64, 8>});
  r.add(prefix + "_atomic_max_f64", {.run = atomic<Segment, rmw::max_f64, 8>});
  r.add(prefix + "_atomic_pk_add_f16", {.run = atomic<Segment, rmw::pk_add_f16, 4>});
  r.add(prefix + "_atomic_pk_add_bf16", {.run = atomic<Segment, rmw::pk_add_bf16, 4>});
}

f16 half_at(u32 x, int i) { return as<f16>(u16(x >> 16 * i)); }

}  // namespace

template <class T>
T combined(rmw what, T old, T data, T compare) {
  using S = std::make_signed_t<T>;
  switch (what) {
    case rmw::swap: return data;
    case rmw::cmpswap: return old == compare ? data : old;
    case rmw::add: return old + data;
    case rmw::sub: return old - data;
    case rmw::smin: return T(std::min(S(old), S(data)));
    case rmw::umin: return std::min(old, data);
    case rmw::smax: return T(std::max(S(old), S(data)));
    case rmw::umax: return std::max(old, data);
    case rmw::and_: return old & data;
    case rmw::or_: return old | data;
    case rmw::xor_: return old ^ data;
    case rmw::inc: return old >= data ? 0 : old + 1;
    case rmw::dec: return old == 0 || old > data ? data : old - 1;
    default: break;
  }
  if constexpr (sizeof(T) == 8) {
    double const a = as<double>(old), b = as<double>(data);
    if (what == rmw::add_f64) return as<T>(a + b);
    if (what == rmw::min_f64) return as<T>(lesser(a, b));
    if (what == rmw::max_f64) return as<T>(greater(a, b));
  } else {
    if (what == rmw::add_f32) return as<T>(as<float>(old) + as<float>(data));
    if (what == rmw::pk_add_f16)
      return packed(as<u16>(f16(half_at(old, 0) + half_at(data, 0))), as<u16>(f16(half_at(old, 1) + half_at(data, 1))));
    if (what == rmw::pk_add_bf16)
      return packed(to_bf16(from_bf16(u16(old)) + from_bf16(u16(data))),
                    to_bf16(from_bf16(u16(old >> 16)) + from_bf16(u16(data >> 16))));
  }
  return old;
}
template u32 combined(rmw, u32, u32, u32);
template u64 combined(rmw, u64, u64, u64);

void add_atomic(registry& r) {
  add_segment<segment::global>(r, "global");
  add_segment<segment::flat>(r, "flat");
  add_segment<segment::buffer>(r, "buffer");
}

}  // namespace fusewire::sim
