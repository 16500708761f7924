// v_cmp, v_cmpx, v_cmp_class and v_cndmask: CDNA3 ISA, "VOPC instructions".
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

/// Disabled lanes give 0. v_cmpx also writes EXEC.
template <class A, class B, auto F, bool WritesExec>
void compare(wave& w, op const& o) {
  reader<A> const a(w, o, o.arg[1]);
  reader<B> const b(w, o, o.arg[2]);
  alignas(64) u8 hit[lanes];
  for (int l = 0; l < lanes; ++l) hit[l] = F(a[l], b[l]);
  u64 mask = 0;
  for (int l = 0; l < lanes; ++l) mask |= u64(hit[l]) << l;
  mask &= w.exec();
  write_scalar64(w, o.arg[0], mask);
  if (WritesExec) set_exec(w, mask);
}

template <class T>
constexpr arithmetic math_of =
    is_float<T> ? (sizeof(T) == 4 ? arithmetic::f32 : arithmetic::f16_f64) : arithmetic::none;

template <class A, class B, auto F>
void add(registry& r, std::string const& name) {
  r.add("v_cmp_" + name, {.run = compare<A, B, F, false>, .math = math_of<A>, .scalar_result = true});
  r.add("v_cmpx_" + name, {.run = compare<A, B, F, true>, .math = math_of<A>, .scalar_result = true});
}

template <class T>
void add_ordered(registry& r, std::string const& type) {
  add<T, T, [](T, T) { return false; }>(r, "f_" + type);
  add<T, T, [](T a, T b) { return a < b; }>(r, "lt_" + type);
  add<T, T, [](T a, T b) { return a == b; }>(r, "eq_" + type);
  add<T, T, [](T a, T b) { return a <= b; }>(r, "le_" + type);
  add<T, T, [](T a, T b) { return a > b; }>(r, "gt_" + type);
  add<T, T, [](T a, T b) { return a >= b; }>(r, "ge_" + type);
}

template <class T>
void add_integer_compares(registry& r, std::string const& type) {
  add_ordered<T>(r, type);
  add<T, T, [](T a, T b) { return a != b; }>(r, "ne_" + type);
  add<T, T, [](T, T) { return true; }>(r, "t_" + type);
}

/// Bits of v_cmp_class: signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
template <class T>
bool of_class(T x, u32 wanted) {
  using bits = std::conditional_t<sizeof(T) == 8, u64, std::conditional_t<sizeof(T) == 4, u32, u16>>;
  constexpr int mantissa = sizeof(T) == 8 ? 52 : sizeof(T) == 4 ? 23 : 10;
  bits const b = as<bits>(x), fraction = b & ((bits(1) << mantissa) - 1);
  int const top = 8 * sizeof(T) - 1;
  bool const negative = b >> top & 1;
  u32 const exponent = u32(bits(b << 1) >> (mantissa + 1)), full = (1u << (top - mantissa)) - 1;
  int kind;
  if (exponent == full && fraction) kind = fraction >> (mantissa - 1) ? 1 : 0;
  else
    kind = exponent == full ? (negative ? 2 : 9)
           : exponent       ? (negative ? 3 : 8)
           : fraction       ? (negative ? 4 : 7)
                            : (negative ? 5 : 6);
  return wanted >> kind & 1;
}

template <class T>
void add_float_compares(registry& r, std::string const& type) {
  add_ordered<T>(r, type);
  add<T, T, [](T a, T b) { return a < b || a > b; }>(r, "lg_" + type);
  add<T, T, [](T a, T b) { return a == a && b == b; }>(r, "o_" + type);
  add<T, T, [](T a, T b) { return a != a || b != b; }>(r, "u_" + type);
  add<T, T, [](T a, T b) { return !(a >= b); }>(r, "nge_" + type);
  add<T, T, [](T a, T b) { return !(a < b || a > b); }>(r, "nlg_" + type);
  add<T, T, [](T a, T b) { return !(a > b); }>(r, "ngt_" + type);
  add<T, T, [](T a, T b) { return !(a <= b); }>(r, "nle_" + type);
  add<T, T, [](T a, T b) { return !(a == b); }>(r, "neq_" + type);
  add<T, T, [](T a, T b) { return !(a < b); }>(r, "nlt_" + type);
  add<T, T, [](T, T) { return true; }>(r, "tru_" + type);
  using wanted = std::conditional_t<sizeof(T) == 2, u16, u32>;
  add<T, wanted, [](T a, wanted b) { return of_class(a, b); }>(r, "class_" + type);
}

void select_lanes(wave& w, op const& o) {
  reader<u32> const a(w, o, o.arg[1]), b(w, o, o.arg[2]);
  u64 const mask = read_scalar64(w, o.arg[3]);
  write_lanes<u32>(w, o, o.arg[0], [&](int l) { return mask >> l & 1 ? b[l] : a[l]; });
}

}  // namespace

void add_compare(registry& r) {
  add_integer_compares<i16>(r, "i16");
  add_integer_compares<u16>(r, "u16");
  add_integer_compares<i32>(r, "i32");
  add_integer_compares<u32>(r, "u32");
  add_integer_compares<i64>(r, "i64");
  add_integer_compares<u64>(r, "u64");
  add_float_compares<f16>(r, "f16");
  add_float_compares<float>(r, "f32");
  add_float_compares<double>(r, "f64");
  r.add("v_cndmask_b32", {.run = select_lanes, .carry_in = true});
}

}  // namespace fusewire::sim
