// Matrix fused multiply-add: CDNA3 ISA, chapter 7 "Matrix arithmetic instructions", for the layouts section 7.1.4.2.
//
//   A[i][k], B[k][j]  element k % per_lane of lane (i or j) + M * (block + Blocks * (k / per_lane))
//   C[i][j], D[i][j]  groups of 4 rows: register i % 4 + 4 * (...), lanes j + N * (...)
//
// So with the elements unpacked to one row of 64 numbers per element index, every A[.][k], B[k][.] and C[i][.] is
// contiguous. Products are accumulated in k order with one rounding each. EXEC is ignored.
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

struct f32_element {
  using type = float;
  static constexpr int per_register = 1;
  static float get(u32 x, int) { return as<float>(x); }
};
/// Operands rounded to 10 bits of mantissa.
struct xf32_element {
  using type = float;
  static constexpr int per_register = 1;
  static float get(u32 x, int) {
    return as<float>((x & 0x7f800000) == 0x7f800000 ? x : (x + 0xfff + (x >> 13 & 1)) & ~0x1fffu);
  }
};
struct f16_element {
  using type = float;
  static constexpr int per_register = 2;
  static float get(u32 x, int i) { return float(as<f16>(u16(x >> 16 * i))); }
};
struct bf16_element {
  using type = float;
  static constexpr int per_register = 2;
  static float get(u32 x, int i) { return as<float>(i ? x & 0xffff0000 : x << 16); }
};
struct fp8_element {
  using type = float;
  static constexpr int per_register = 4;
  static float get(u32 x, int i) { return from_fp8(u8(x >> 8 * i)); }
};
struct bf8_element {
  using type = float;
  static constexpr int per_register = 4;
  static float get(u32 x, int i) { return from_bf8(u8(x >> 8 * i)); }
};
struct i8_element {
  using type = i32;
  static constexpr int per_register = 4;
  static i32 get(u32 x, int i) { return i8(x >> 8 * i); }
};

inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline i32 multiply_add(i32 a, i32 b, i32 c) { return i32(u32(a) * u32(b) + u32(c)); }

u32 const* source_row(wave const& w, operand const& p, int index, row& buffer) {
  if (p.kind == source::vgpr) return w.v[p.reg + index];
  u32 const value = p.kind == source::constant ? p.word : w.s[p.reg + index];
  for (int l = 0; l < lanes; ++l) buffer[l] = value;
  return buffer.lane;
}

template <class Element, int PerLane>
void unpack(wave const& w, operand const& p, typename Element::type (*to)[lanes]) {
  row buffer;
  for (int e = 0; e < PerLane; ++e) {
    u32 const* const from = source_row(w, p, e / Element::per_register, buffer);
    for (int l = 0; l < lanes; ++l) to[e][l] = Element::get(from[l], e % Element::per_register);
  }
}

/// BLGP: which lane's B a lane uses.
int permuted_lane(int pattern, int l) {
  switch (pattern) {
    case 1: return l & 31;
    case 2: return 32 + (l & 31);
    case 3: return (l + 16) & 63;
    case 4:
    case 5:
    case 6:
    case 7: return 16 * (pattern - 4) + (l & 15);
  }
  return l;
}
template <class T>
void permute_lanes(T* values, int pattern) {
  T copy[lanes];
  std::memcpy(copy, values, sizeof copy);
  for (int l = 0; l < lanes; ++l) values[l] = copy[permuted_lane(pattern, l)];
}

/// The block of A that `block` multiplies with: CBSZ groups of 2^cbsz blocks share their block ABID.
int broadcast_block(op const& o, int block) { return o.cbsz ? (block & ~((1 << o.cbsz) - 1)) + o.abid : block; }

template <class A, class B, int M, int K, int Blocks>
void multiply(wave& w, op const& o) {
  using T = typename A::type;
  constexpr int N = M, per_lane = K * M * Blocks / lanes;
  // the groups of 4 rows that one register holds side by side, over all blocks
  constexpr int blocks_per_register = std::max(1, lanes / (N * M / 4)),
                groups_per_register = lanes / blocks_per_register / N;
  alignas(64) T a[per_lane][lanes], b[per_lane][lanes];
  unpack<A, per_lane>(w, o.arg[1], a);
  unpack<B, per_lane>(w, o.arg[2], b);
  if (o.blgp)
    for (auto& values : b) permute_lanes(values, o.blgp);
  bool const constant = o.arg[3].kind != source::vgpr;
  T const start = constant ? as<T>(read_scalar32(w, o.arg[3])) : T();
  for (int block = 0; block < Blocks; ++block) {
    int const a_block = broadcast_block(o, block) * M;
    for (int i = 0; i < M; i += 4) {
      int const group = i / 4;
      int const first =
          4 * (group / groups_per_register + M / (4 * groups_per_register) * (block / blocks_per_register));
      int const lane = N * (group % groups_per_register + groups_per_register * (block % blocks_per_register));
      alignas(64) T sum[4][N];
      for (int r = 0; r < 4; ++r)
        if (constant)
          for (int j = 0; j < N; ++j) sum[r][j] = start;
        else std::memcpy(sum[r], &w.v[o.arg[3].reg + first + r][lane], sizeof sum[r]);
      for (int k = 0; k < K; ++k) {
        T const* const column = &a[k % per_lane][k / per_lane * M * Blocks + a_block + i];
        T const* const line = &b[k % per_lane][k / per_lane * N * Blocks + block * N];
        for (int r = 0; r < 4; ++r)
          for (int j = 0; j < N; ++j) sum[r][j] = multiply_add(column[r], line[j], sum[r][j]);
      }
      for (int r = 0; r < 4; ++r) std::memcpy(&w.v[o.arg[0].reg + first + r][lane], sum[r], sizeof sum[r]);
    }
  }
}

/// Doubles: one row per register pair; BLGP negates A, B, C.
template <int M, int K, int Blocks>
void multiply_f64(wave& w, op const& o) {
  constexpr int N = M, rows_per_register = lanes / (N * Blocks);
  double a[lanes], b[lanes], c[M * N * Blocks / lanes][lanes];
  auto const get = [&](operand const& p, int index, int l, int negate) {
    double const x = p.kind == source::vgpr
                         ? as<double>(w.v[p.reg + 2 * index][l] | u64(w.v[p.reg + 2 * index + 1][l]) << 32)
                         : as<double>(read_scalar64(w, p));
    return negate ? -x : x;
  };
  for (int l = 0; l < lanes; ++l) {
    a[l] = get(o.arg[1], 0, l, o.blgp & 1);
    b[l] = get(o.arg[2], 0, l, o.blgp & 2);
  }
  for (int block = 0; block < Blocks; ++block)
    for (int i = 0; i < M; ++i) {
      int const index = Blocks == 1 ? i / rows_per_register : 0;
      int const lane = Blocks == 1 ? N * (i % rows_per_register) : N * (i + M * block);
      for (int j = 0; j < N; ++j) {
        double sum = get(o.arg[3], index, lane + j, o.blgp & 4);
        for (int k = 0; k < K; ++k)
          sum = std::fma(a[i + M * (broadcast_block(o, block) + Blocks * k)], b[j + N * (block + Blocks * k)], sum);
        c[index][lane + j] = sum;
      }
    }
  for (int index = 0; index < M * N * Blocks / lanes; ++index)
    for (int l = 0; l < lanes; ++l) {
      w.v[o.arg[0].reg + 2 * index][l] = u32(as<u64>(c[index][l]));
      w.v[o.arg[0].reg + 2 * index + 1][l] = u32(as<u64>(c[index][l]) >> 32);
    }
}

template <class A, class B>
void add_byte_floats(registry& r, std::string const& types) {
  r.add("v_mfma_f32_16x16x32_" + types, {.run = multiply<A, B, 16, 32, 1>});
  r.add("v_mfma_f32_32x32x16_" + types, {.run = multiply<A, B, 32, 16, 1>});
}
template <class A>
void add_halves(registry& r, std::string const& type) {
  r.add("v_mfma_f32_32x32x4_2b_" + type, {.run = multiply<A, A, 32, 4, 2>});
  r.add("v_mfma_f32_16x16x4_4b_" + type, {.run = multiply<A, A, 16, 4, 4>});
  r.add("v_mfma_f32_4x4x4_16b_" + type, {.run = multiply<A, A, 4, 4, 16>});
  r.add("v_mfma_f32_32x32x8_" + type, {.run = multiply<A, A, 32, 8, 1>});
  r.add("v_mfma_f32_16x16x16_" + type, {.run = multiply<A, A, 16, 16, 1>});
}

}  // namespace

void add_mfma(registry& r) {
  add_halves<f16_element>(r, "f16");
  add_halves<bf16_element>(r, "bf16");
  add_byte_floats<fp8_element, fp8_element>(r, "fp8_fp8");
  add_byte_floats<fp8_element, bf8_element>(r, "fp8_bf8");
  add_byte_floats<bf8_element, fp8_element>(r, "bf8_fp8");
  add_byte_floats<bf8_element, bf8_element>(r, "bf8_bf8");
  r.add({
      {"v_mfma_f32_32x32x1_2b_f32", {.run = multiply<f32_element, f32_element, 32, 1, 2>}},
      {"v_mfma_f32_16x16x1_4b_f32", {.run = multiply<f32_element, f32_element, 16, 1, 4>}},
      {"v_mfma_f32_4x4x1_16b_f32", {.run = multiply<f32_element, f32_element, 4, 1, 16>}},
      {"v_mfma_f32_32x32x2_f32", {.run = multiply<f32_element, f32_element, 32, 2, 1>}},
      {"v_mfma_f32_16x16x4_f32", {.run = multiply<f32_element, f32_element, 16, 4, 1>}},
      {"v_mfma_f32_32x32x4_xf32", {.run = multiply<xf32_element, xf32_element, 32, 4, 1>}},
      {"v_mfma_f32_16x16x8_xf32", {.run = multiply<xf32_element, xf32_element, 16, 8, 1>}},
      {"v_mfma_i32_32x32x4_2b_i8", {.run = multiply<i8_element, i8_element, 32, 4, 2>}},
      {"v_mfma_i32_16x16x4_4b_i8", {.run = multiply<i8_element, i8_element, 16, 4, 4>}},
      {"v_mfma_i32_4x4x4_16b_i8", {.run = multiply<i8_element, i8_element, 4, 4, 16>}},
      {"v_mfma_i32_32x32x16_i8", {.run = multiply<i8_element, i8_element, 32, 16, 1>}},
      {"v_mfma_i32_16x16x32_i8", {.run = multiply<i8_element, i8_element, 16, 32, 1>}},
      {"v_mfma_f64_16x16x4_f64", {.run = multiply_f64<16, 4, 1>}},
      {"v_mfma_f64_4x4x4_4b_f64", {.run = multiply_f64<4, 4, 4>}},
  });
}

}  // namespace fusewire::sim
