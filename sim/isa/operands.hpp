// Reads and writes registers, all lanes at once; and has the templates that turn a lambda over numbers into an
// instruction.
#pragma once
#include <cstring>
#include <type_traits>

#include "numeric.hpp"

namespace fusewire::sim {

struct alignas(64) row {
  u32 lane[lanes];
  u32& operator[](int l) { return lane[l]; }
  u32 operator[](int l) const { return lane[l]; }
};

enum class width : u8 { b16, b32, b64 };

// The slow paths: constants, SGPRs, modifiers, SDWA, DPP. Returns `buffer`, filled.
u32 const* fill(wave&, op const&, operand const&, width, u32* buffer);

inline bool lane_on(u64 mask, int l) { return mask >> l & 1; }

// -------------------------------------------------------------------------------------------------------------- scalar

inline u32 read_scalar32(wave const& w, operand const& p) {
  switch (p.kind) {
    case source::sgpr: return w.s[p.reg];
    case source::constant: return p.word;
    case source::scc: return w.scc;
    case source::vccz: return w.vcc() == 0;
    case source::execz: return w.exec() == 0;
    default: return 0;
  }
}
inline u64 read_scalar64(wave const& w, operand const& p) {
  switch (p.kind) {
    case source::sgpr: return w.s[p.reg] | u64(w.s[p.reg + 1]) << 32;
    case source::constant: return p.quad;
    default: return read_scalar32(w, p);
  }
}
template <class T>
T read_scalar(wave const& w, operand const& p) {
  if constexpr (sizeof(T) == 8) return as<T>(read_scalar64(w, p));
  if constexpr (sizeof(T) == 4) return as<T>(read_scalar32(w, p));
  if constexpr (sizeof(T) == 2) return as<T>(p.kind == source::constant ? p.half : u16(read_scalar32(w, p)));
}
inline void write_scalar64(wave& w, operand const& p, u64 value) {
  w.s[p.reg] = u32(value);
  w.s[p.reg + 1] = u32(value >> 32);
}
template <class T>
void write_scalar(wave& w, operand const& p, T value) {
  if constexpr (sizeof(T) == 8) write_scalar64(w, p, as<u64>(value));
  else w.s[p.reg] = as<u32>(value);
}
inline void set_exec(wave& w, u64 mask) {
  w.s[126] = u32(mask);
  w.s[127] = u32(mask >> 32);
}

// -------------------------------------------------------------------------------------------------------------- vector

template <class T>
inline constexpr width width_of = sizeof(T) == 8   ? width::b64
                                  : sizeof(T) == 4 ? width::b32
                                                   : width::b16;

/// A source of type T. It reads lane by lane; a plain register is not copied.
template <class T>
class reader {
 public:
  reader(wave& w, op const& o, operand const& p) {
    if (p.kind == source::vgpr) [[likely]]
      from_ = w.v[p.reg];
    else from_ = fill(w, o, p, width_of<T>, buffer_.lane);
  }
  T operator[](int l) const {
    if constexpr (sizeof(T) == 4) return as<T>(from_[l]);
    else return as<T>(u16(from_[l]));
  }

 private:
  u32 const* from_;
  row buffer_;
};

template <class T>
  requires(sizeof(T) == 8)
class reader<T> {
 public:
  reader(wave& w, op const& o, operand const& p) {
    if (p.kind == source::vgpr) [[likely]] {
      low_ = w.v[p.reg];
      high_ = w.v[p.reg + 1];
    } else {
      fill(w, o, p, width::b64, buffer_[0].lane);
      low_ = buffer_[0].lane;
      high_ = buffer_[1].lane;
    }
  }
  T operator[](int l) const { return as<T>(low_[l] | u64(high_[l]) << 32); }

 private:
  u32 const *low_, *high_;
  row buffer_[2];
};

/// A quarter of a row. Copied in quarters, a row does not become a call of memcpy.
using quarter = u32 __attribute__((vector_size(64), may_alias));

/// Both pointers point to rows.
inline void write_row(u32* to, u32 const* from, u64 mask) {
  if (mask == ~u64(0)) [[likely]]
    for (int i = 0; i < 4; ++i) reinterpret_cast<quarter*>(to)[i] = reinterpret_cast<quarter const*>(from)[i];
  else
    for (int l = 0; l < lanes; ++l) to[l] = mask >> l & 1 ? from[l] : to[l];
}

/// The lanes that a vector instruction writes: EXEC without those that DPP leaves out.
u64 dpp_write_mask(wave const&, op const&);
inline u64 write_mask(wave const& w, op const& o) { return o.dpp ? dpp_write_mask(w, o) : w.exec(); }

// Results with SDWA selections or a 16-bit half; changes `r` into the full dword.
void merge_destination(op const&, u32 const* old, u32* r, bool half);

template <class T>
inline constexpr bool is_float = std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, f16>;

/// Output modifiers of one result; clamp turns NaN into 0 (DX10_CLAMP).
template <class T>
T finished(op const& o, T x) {
  if (o.output_scale) x = T(x * T(o.output_scale == 1 ? 2.0 : o.output_scale == 2 ? 4.0 : 0.5));
  if (o.clamp) x = x > T(0) ? (x < T(1) ? x : T(1)) : T(0);
  return x;
}

/// Computes value(l) for every lane and writes it to the enabled ones.
template <class T, class Value>
void write_lanes(wave& w, op const& o, operand const& p, Value value) {
  row low;
  [[maybe_unused]] row high;
  auto const put = [&](int l, T x) {
    if constexpr (sizeof(T) == 8) {
      low[l] = u32(as<u64>(x));
      high[l] = u32(as<u64>(x) >> 32);
    } else if constexpr (sizeof(T) == 4) {
      low[l] = as<u32>(x);
    } else {
      low[l] = as<u16>(x);
    }
  };
  for (int l = 0; l < lanes; ++l) put(l, value(l));
  if constexpr (is_float<T>)
    if (o.clamp || o.output_scale) [[unlikely]]
      for (int l = 0; l < lanes; ++l) put(l, finished(o, T(value(l))));
  u64 const mask = write_mask(w, o);
  if (sizeof(T) == 2 ? (o.keep_high || o.destination_part != select::dword)
                     : (sizeof(T) == 4 && o.destination_part != select::dword)) [[unlikely]]
    merge_destination(o, w.v[p.reg], low.lane, sizeof(T) == 2);
  write_row(w.v[p.reg], low.lane, mask);
  if constexpr (sizeof(T) == 8) write_row(w.v[p.reg + 1], high.lane, mask);
}

// ------------------------------------------------------------------------------------------- instructions from lambdas

template <class F>
struct signature;
template <class C, class R, class... A>
struct signature<R (C::*)(A...) const> {
  using result = R;
  template <template <class...> class To>
  using arguments = To<A...>;
  static constexpr bool has_float = (std::is_same_v<A, float> || ... || std::is_same_v<R, float>);
  static constexpr bool has_other = ((std::is_same_v<A, double> || std::is_same_v<A, f16>) || ... ||
                                     (std::is_same_v<R, double> || std::is_same_v<R, f16>));
  static constexpr arithmetic math = has_other ? arithmetic::f16_f64 : has_float ? arithmetic::f32 : arithmetic::none;
};
template <auto F>
using signature_of = signature<decltype(&decltype(F)::operator())>;

template <auto F, int Destinations = 1>
struct lane_function {
  template <class... A>
  struct over {
    template <std::size_t... I>
    static void sources(wave& w, op const& o, std::index_sequence<I...>) {
      using R = typename signature_of<F>::result;
      [&](reader<A> const&... s) {
        write_lanes<R>(w, o, o.arg[0], [&](int l) { return F(s[l]...); });
      }(reader<A>(w, o, o.arg[Destinations + I])...);
    }
    static void run(wave& w, op const& o) { sources(w, o, std::index_sequence_for<A...>{}); }
  };
};

/// A vector instruction that maps F over the lanes: lanewise<[](float a, float b) { return a + b; }>. F's parameter
/// types say how the sources are read, and its result type how the destination is written.
template <auto F>
inline constexpr semantics lanewise = {
    .run = signature_of<F>::template arguments<lane_function<F>::template over>::run,
    .math = signature_of<F>::math,
};

/// The same, with the destination as the last source.
template <auto F>
inline constexpr semantics accumulate = [] {
  semantics s = lanewise<F>;
  s.accumulates = true;
  return s;
}();

/// A 16-bit result, which leaves the other half of the register unchanged.
template <auto F>
inline constexpr semantics lanewise_half = [] {
  semantics s = lanewise<F>;
  s.keeps_high = true;
  return s;
}();

}  // namespace fusewire::sim
