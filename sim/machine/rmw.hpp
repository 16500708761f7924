#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "machine.hpp"

namespace fusewire::sim {

inline u16 bf16_from_float(float f) {
  auto const bits = std::bit_cast<u32>(f);
  if (f != f) return static_cast<u16>(bits >> 16 | 0x40);
  return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float float_from_bf16(u32 h) { return std::bit_cast<float>(h << 16); }

inline u32 add_bf16_pair(u32 a, u32 b) {
  return bf16_from_float(float_from_bf16(a & 0xffff) + float_from_bf16(b & 0xffff)) |
         u32{bf16_from_float(float_from_bf16(a >> 16) + float_from_bf16(b >> 16))} << 16;
}
inline u32 add_f16_pair(u32 a, u32 b) {
  auto const half = [](u32 x) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<u16>(x))); };
  auto const bits = [](float x) { return u32{std::bit_cast<u16>(static_cast<_Float16>(x))}; };
  return bits(half(a) + half(b)) | bits(half(a >> 16) + half(b >> 16)) << 16;
}

/// The new value of a memory word; `T` is u32 or u64.
template <class T>
T apply(rmw op, T memory, T data, T compare) {
  using S = std::make_signed_t<T>;
  auto const f32 = [](T x) { return std::bit_cast<float>(static_cast<u32>(x)); };
  auto const f64 = [](T x) { return std::bit_cast<double>(static_cast<u64>(x)); };
  switch (op) {
    case rmw::swap: return data;
    case rmw::cmpswap: return memory == compare ? data : memory;
    case rmw::add: return memory + data;
    case rmw::sub: return memory - data;
    case rmw::smin: return static_cast<T>(std::min(static_cast<S>(memory), static_cast<S>(data)));
    case rmw::umin: return std::min(memory, data);
    case rmw::smax: return static_cast<T>(std::max(static_cast<S>(memory), static_cast<S>(data)));
    case rmw::umax: return std::max(memory, data);
    case rmw::and_: return memory & data;
    case rmw::or_: return memory | data;
    case rmw::xor_: return memory ^ data;
    case rmw::inc: return memory >= data ? 0 : memory + 1;
    case rmw::dec: return memory == 0 || memory > data ? data : memory - 1;
    case rmw::add_f32: return std::bit_cast<u32>(f32(memory) + f32(data));
    case rmw::pk_add_f16: return add_f16_pair(static_cast<u32>(memory), static_cast<u32>(data));
    case rmw::pk_add_bf16: return add_bf16_pair(static_cast<u32>(memory), static_cast<u32>(data));
    case rmw::add_f64: return static_cast<T>(std::bit_cast<u64>(f64(memory) + f64(data)));
    case rmw::min_f64: return static_cast<T>(std::bit_cast<u64>(std::fmin(f64(memory), f64(data))));
    case rmw::max_f64: return static_cast<T>(std::bit_cast<u64>(std::fmax(f64(memory), f64(data))));
  }
  return memory;
}

/// Atomic on the host, too: for threads that poll, and for other processes of the node.
template <class T>
T update(T* p, rmw op, T data, T compare, T& now) {
  T was = __atomic_load_n(p, __ATOMIC_RELAXED);
  do now = apply<T>(op, was, data, compare);
  while (!__atomic_compare_exchange_n(p, &was, now, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return was;
}

/// Updates the 4 or 8 bytes at p for one lane; true when they changed. Requires: p is aligned.
inline bool update(u8* p, rmw op, int bytes, int lane, u32 const (*data)[lanes], u32 const (*compare)[lanes],
                   u32 (*old)[lanes]) {
  auto const wide = [lane](u32 const(*x)[lanes]) { return x ? x[0][lane] | u64{x[1][lane]} << 32 : 0; };
  if (bytes == 4) {
    u32 now, was = update(reinterpret_cast<u32*>(p), op, data[0][lane], compare ? compare[0][lane] : 0, now);
    old[0][lane] = was;
    return now != was;
  }
  u64 now, was = update(reinterpret_cast<u64*>(p), op, wide(data), wide(compare), now);
  old[0][lane] = static_cast<u32>(was), old[1][lane] = static_cast<u32>(was >> 32);
  return now != was;
}

}  // namespace fusewire::sim
