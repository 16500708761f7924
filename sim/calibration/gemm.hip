// C [m, n] = A [m, k] B [n, k]^T in bf16, one or a batch of them, sum in fp32.   gemm BATCH M N K TILE
//
//   memory -> registers (the next step's) | LDS [TM + TN][TK], 16-byte chunks swizzled by row | fragments
//          | MFMA 16x16x16 | C
//
//     per launch: 2 m n k flop per product; (m / TM) n k + (n / TN) m k elements into the CUs, A, B and C at least once
//     from memory
//
// Tiles: 128x128 with TK = 64; 32x64 with TK = 128, which reads B at the rate of memory for few rows. Blocks go to XCDs
// in turn; each XCD gets neighbouring tiles, in groups of 8 rows of tiles. The timed launch has a B that none has read
// before.
#include "point.hpp"

using namespace calibration;

namespace {

constexpr char const* how = "gemm BATCH M N K 128x128|32x64";
constexpr int xcds = 8;
using bf16x4 = short __attribute__((ext_vector_type(4)));
using f32x4 = float __attribute__((ext_vector_type(4)));
struct fragment {
  bf16x4 part[2];  // of two MFMAs: which k of a slice of 32 is whose is the same for A and B
};

struct tile_shape {
  int m, n, k, waves_m, waves_n;
  constexpr int threads() const { return waves_m * waves_n * 64; }
  constexpr int chunks() const { return (m + n) * k / 8; }  // of 16 bytes
};
constexpr tile_shape medium{128, 128, 64, 2, 2}, narrow{32, 64, 128, 1, 4};

struct arguments {
  unsigned short const *a, *b;
  unsigned short* c;
  int m, n, k, tiles_m, tiles_n;
};

/// Which tile a block has: neighbours on one XCD, 8 rows of tiles at a time.
__device__ int2 tile_of(int block, int tiles_m, int tiles_n) {
  int const all = tiles_m * tiles_n, per_xcd = all / xcds;
  int const i = block < per_xcd * xcds ? block % xcds * per_xcd + block / xcds : block;
  int const group = i / (8 * tiles_n), first = group * 8, rows = min(8, tiles_m - first), at = i - group * 8 * tiles_n;
  return {first + at % rows, at / rows};
}

template <tile_shape T>
__global__ void __launch_bounds__(T.threads(), T.threads() / 256) gemm(arguments g) {
  constexpr int row_chunks = T.k / 8, loads = T.chunks() / T.threads(), a_loads = T.m * row_chunks / T.threads();
  constexpr int mine_m = T.m / T.waves_m / 16, mine_n = T.n / T.waves_n / 16;
  static_assert(loads * T.threads() == T.chunks() && a_loads * T.threads() == T.m * row_chunks);
  extern __shared__ words lds[];
  int const t = int(threadIdx.x), lane = t % 64, wave = __builtin_amdgcn_readfirstlane(t / 64);
  int2 const tile = tile_of(int(blockIdx.x), g.tiles_m, g.tiles_n);
  int const m0 = tile.x * T.m, n0 = tile.y * T.n, pitch = g.k * 2;  // bytes
  std::int64_t const batch = blockIdx.y;
  // Rows that are not there read as zeros.
  auto const from_a = __builtin_amdgcn_make_buffer_rsrc(const_cast<unsigned short*>(g.a + (batch * g.m + m0) * g.k), 0,
                                                        (g.m - m0) * pitch, 0x00020000);
  auto const from_b = __builtin_amdgcn_make_buffer_rsrc(const_cast<unsigned short*>(g.b + (batch * g.n + n0) * g.k), 0,
                                                        (g.n - n0) * pitch, 0x00020000);
  // Chunk t of a load's threads: row t / row_chunks, further loads are further rows.
  constexpr int rows_of_load = T.threads() / row_chunks;
  int const row = t / row_chunks, chunk = t % row_chunks, offset = row * pitch + chunk * 16;
  int const to = row * row_chunks + (chunk ^ row % 8);
  words next[loads];
  auto const load = [&](int k0) {
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      bool const is_a = i < a_loads;
      next[i] = __builtin_amdgcn_raw_buffer_load_b128(is_a ? from_a : from_b, offset,
                                                      (is_a ? i : i - a_loads) * rows_of_load * pitch + k0 * 2, 0);
    }
  };
  auto const store = [&] {
#pragma unroll
    for (int i = 0; i < loads; ++i) lds[to + i * T.threads()] = next[i];
  };
  int const wave_m = wave / T.waves_n * (T.m / T.waves_m), wave_n = wave % T.waves_n * (T.n / T.waves_n);
  auto const fragment_at = [&](int r, int slice) {
    int const of = r + lane % 16;
    return __builtin_bit_cast(fragment, lds[of * row_chunks + ((slice * 4 + lane / 16) ^ of % 8)]);
  };
  f32x4 sum[mine_m][mine_n] = {};
  load(0);
  store();
  __syncthreads();
  for (int k0 = 0; k0 < g.k; k0 += T.k) {
    load(k0 + T.k);  // past the end: the next rows' or zeros, which nobody multiplies
#pragma unroll
    for (int slice = 0; slice < T.k / 32; ++slice) {
      fragment fa[mine_m], fb[mine_n];
#pragma unroll
      for (int j = 0; j < mine_n; ++j) fb[j] = fragment_at(T.m + wave_n + j * 16, slice);
#pragma unroll
      for (int i = 0; i < mine_m; ++i) fa[i] = fragment_at(wave_m + i * 16, slice);
#pragma unroll
      for (int i = 0; i < mine_m; ++i)
#pragma unroll
        for (int j = 0; j < mine_n; ++j)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            sum[i][j] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(fb[j].part[h], fa[i].part[h], sum[i][j], 0, 0, 0);
    }
    __syncthreads();
    store();
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < mine_m; ++i) {
    int const m = m0 + wave_m + i * 16 + lane % 16;
    if (m >= g.m) continue;
#pragma unroll
    for (int j = 0; j < mine_n; ++j) {
      int const n = n0 + wave_n + j * 16 + lane / 16 * 4;  // of four neighbours
      unsigned short out[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float const y = sum[i][j][e];
        unsigned const x = __builtin_bit_cast(unsigned, y);
        out[e] = static_cast<unsigned short>((x + 0x7fff + (x >> 16 & 1)) >> 16);
      }
      if (n < g.n) *reinterpret_cast<uint2*>(g.c + (batch * g.m + m) * g.n + n) = __builtin_bit_cast(uint2, out);
    }
  }
}

unsigned short bf16(float x) {
  unsigned const bits = __builtin_bit_cast(unsigned, x);
  return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <tile_shape T>
double run(node& one, arguments g, unsigned short const* other_b, int batch) {
  g.tiles_m = (g.m + T.m - 1) / T.m;
  g.tiles_n = (g.n + T.n - 1) / T.n;
  if (g.k % T.k) usage(how);
  check(hipFuncSetAttribute(reinterpret_cast<void const*>(&gemm<T>), hipFuncAttributeMaxDynamicSharedMemorySize,
                            T.chunks() * 16),
        "hipFuncSetAttribute");
  return one.time(1, 1, [&](int, hipStream_t stream, int i) {
    if (i > 0) g.b = other_b;
    gemm<T><<<dim3(unsigned(g.tiles_m * g.tiles_n), unsigned(batch)), T.threads(), T.chunks() * 16, stream>>>(g);
  });
}

}  // namespace

int main(int argc, char** argv) {
  int const batch = int(number(argc, argv, 1, how)), m = int(number(argc, argv, 2, how)),
            n = int(number(argc, argv, 3, how)), k = int(number(argc, argv, 4, how));
  std::string const tile = argc > 5 ? argv[5] : "";
  if (n % 4) usage(how);
  node one(1);
  auto const bytes = [&](int rows, int cols) { return std::size_t(batch) * std::size_t(rows) * std::size_t(cols); };
  std::vector<unsigned short> a(bytes(m, k)), b(bytes(n, k));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = bf16(float(small_number(i)));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = bf16(float(small_number(i * 3 + 1)));
  arguments g{node::upload(one.allocate<unsigned short>(0, a.size()), a),
              node::upload(one.allocate<unsigned short>(0, b.size()), b),
              one.allocate<unsigned short>(0, bytes(m, n)),
              m,
              n,
              k,
              0,
              0};
  auto* const other_b = node::upload(one.allocate<unsigned short>(0, b.size()), b);
  double us = 0;
  if (tile == "128x128") us = run<medium>(one, g, other_b, batch);
  else if (tile == "32x64") us = run<narrow>(one, g, other_b, batch);
  else usage(how);
  auto const c = node::download(g.c, bytes(m, n));
  bool right = true;
  auto const value = [](unsigned short x) { return __builtin_bit_cast(float, unsigned(x) << 16); };
  for (std::size_t i = 0; i < c.size(); i += c.size() / 199 + 1) {
    std::size_t const row = i / std::size_t(n), of = row / std::size_t(m) * std::size_t(n) + i % std::size_t(n);
    float want = 0;
    for (std::size_t at = 0; at < std::size_t(k); ++at)
      want += value(a[row * std::size_t(k) + at]) * value(b[of * std::size_t(k) + at]);
    right &= c[i] == bf16(want);
  }
  return report(us, right);
}
