// Kernels that clang compiled, at -O0 and -O3, through the loader.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "../../isa/numeric.hpp"
#include "../../isa/program.hpp"
#include "flat_machine.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

constexpr char const* source = R"(
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned short u16;
typedef float f16v __attribute__((ext_vector_type(16)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef u32 u4 __attribute__((ext_vector_type(4)));
#define TID __builtin_amdgcn_workitem_id_x()
#define BID __builtin_amdgcn_workgroup_id_x()
#define CONSTANT const __attribute__((address_space(4)))
__device__ inline u32 block_size() { return ((CONSTANT u16*)__builtin_amdgcn_implicitarg_ptr())[6]; }
__device__ inline u32 grid_size() { return ((CONSTANT u32*)__builtin_amdgcn_implicitarg_ptr())[0]; }
__device__ inline void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

extern "C" __global__ void add(float const* a, float const* b, float* c, int n) {
  for (int i = BID * block_size() + TID; i < n; i += block_size() * grid_size()) c[i] = a[i] + b[i];
}

// A [m, k] and B [n, k] bf16, C [m, n]; 64 x 64 tiles, four waves of 32 x 32
extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(256, 256)))
void gemm(u16 const* a, u16 const* b, float* c, int m, int n, int k) {
  __shared__ __attribute__((aligned(16))) u16 sa[64][40], sb[64][40];
  int t = TID, wave = t / 64, l = t % 64, row = BID / (n / 64) * 64, column = BID % (n / 64) * 64;
  int r = t / 4, q = t % 4 * 8, wm = wave / 2 * 32, wn = wave % 2 * 32;
  f16v sum = {0};
  for (int k0 = 0; k0 < k; k0 += 32) {
    u4 x = *(u4 const*)(a + (row + r) * k + k0 + q), y = *(u4 const*)(b + (column + r) * k + k0 + q);
    barrier();
    *(u4*)&sa[r][q] = x; *(u4*)&sb[r][q] = y;
    barrier();
    for (int kk = 0; kk < 32; kk += 8)
      sum = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(*(s4*)&sa[wm + l % 32][kk + l / 32 * 4],
                                                     *(s4*)&sb[wn + l % 32][kk + l / 32 * 4], sum, 0, 0, 0);
  }
  for (int i = 0; i < 16; i++) c[(row + wm + 8 * (i / 4) + 4 * (l / 32) + i % 4) * n + column + wn + l % 32] = sum[i];
}

__device__ __attribute__((noinline)) int weighted(int* p, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += p[i] * i;
  return s;
}
__device__ __attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
// generic pointers to scratch, LDS and global memory; a stack; recursion
extern "C" __global__ void call(int* a, int n) {
  int t = TID, local[16];
  for (int i = 0; i < 16; i++) local[i] = a[i + t];
  __shared__ int shared[64];
  shared[t] = a[t];
  barrier();
  a[128 + t] = weighted(local, n) + 1000 * weighted(shared, n) + 7 * weighted(a, n) + fibonacci(t % 8);
}

__device__ int counter = 5;
__device__ int table[4] = {1, 2, 3, 4};
__device__ int* pointer = &table[1];
extern "C" __global__ void globals(int* a) {
  int t = TID;
  a[t] = table[a[t] & 3] + *pointer;
  __hip_atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  switch (a[64 + t]) {
    case 0: a[128 + t] = 11; break; case 1: a[128 + t] = t; break; case 2: a[128 + t] = a[t] * 3; break;
    case 3: a[128 + t] = -1; break; case 4: a[128 + t] = t * t; break; case 5: a[128 + t] = 77; break;
    default: a[128 + t] = 9;
  }
}

extern "C" __global__ void divide(long const* a, long* o, int const* b, int* p, double const* d, double* q,
                                  float const* f, float* g) {
  int t = TID;
  o[t] = a[t] / a[t + 64]; o[t + 64] = a[t] % a[t + 64]; o[t + 128] = (u64)a[t] / (u64)a[t + 64];
  p[t] = b[t] / b[t + 64]; p[t + 64] = b[t] % b[t + 64]; p[t + 128] = (u32)b[t] / (u32)b[t + 64];
  q[t] = d[t] / d[t + 64]; q[t + 64] = __builtin_sqrt(d[t]); g[t] = f[t] / f[t + 64]; g[t + 64] = __builtin_sqrtf(f[t]);
}

extern "C" __global__ void ids(u32* o) {
  u32 x = TID, y = __builtin_amdgcn_workitem_id_y(), z = __builtin_amdgcn_workitem_id_z();
  u32 bx = BID, by = __builtin_amdgcn_workgroup_id_y(), bz = __builtin_amdgcn_workgroup_id_z();
  o[(((bz * 3 + by) * 2 + bx) * 2 + z) * 15 + y * 5 + x] = x | y << 4 | z << 8 | bx << 12 | by << 16 | bz << 20;
}

extern "C" __global__ void halves(_Float16 const* a, _Float16* o, u16* b) {
  int t = TID;
  o[t] = a[t] * a[t + 64] + a[t + 128]; o[t + 64] = a[t] / a[t + 64]; o[t + 128] = a[t] < a[t + 64] ? a[t + 1] : -a[t];
  o[t + 192] = (_Float16)(float)(int)a[t] + (_Float16)0.5f;
  b[t] = __builtin_bit_cast(u16, (__bf16)((float)a[t] * 1.7f));
}

extern "C" __global__ void trap(int* a) { if (a[TID] == 3) __builtin_trap(); a[TID] = 0; }
)";

std::vector<u8> const& built(std::string const& options) {
  static std::vector<std::pair<std::string, std::vector<u8>>> all;
  for (auto const& [name, elf] : all)
    if (name == options) return elf;
  all.emplace_back(options, compile_hip(source, options));
  return all.back().second;
}

std::vector<std::string> const levels{"-O0 -g", "-O3 -gline-tables-only",
                                      "-O3 -mllvm -amdgpu-kernarg-preload-count=16"};

template <class F>
void for_each_level(F f) {
  for (auto const& level : levels) {
    INFO(level);
    REQUIRE_FALSE(built(level).empty());
    test::module const m(built(level));
    f(m);
  }
}

}  // namespace

TEST_CASE("kernels: add, with a ragged end") {
  for_each_level([](test::module const& m) {
    int const n = 3000;
    std::vector<float> a(n), b(n), c(n + 1, -7);
    for (int i = 0; i < n; ++i) a[i] = float(i), b[i] = float(i % 7) / 4;
    auto const r = launch(m["add"], {5}, {192}, pack(a.data(), b.data(), c.data(), n));
    REQUIRE(r.fault == "");
    for (int i = 0; i < n; ++i) REQUIRE(c[i] == a[i] + b[i]);
    CHECK(c[n] == -7);
  });
}

TEST_CASE("kernels: matrix product") {
  for_each_level([](test::module const& m) {
    int const rows = 128, columns = 64, k = 96;
    std::vector<u16> a(rows * k), b(columns * k);
    std::vector<float> c(rows * columns);
    std::mt19937 random(1);
    for (auto& x : a) x = to_bf16(float(int(random() % 9) - 4));
    for (auto& x : b) x = to_bf16(float(int(random() % 9) - 4));
    auto const r =
        launch(m["gemm"], {u32(rows / 64 * columns / 64)}, {256}, pack(a.data(), b.data(), c.data(), rows, columns, k));
    REQUIRE(r.fault == "");
    int wrong = 0;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        float sum = 0;
        for (int x = 0; x < k; ++x) sum += from_bf16(a[i * k + x]) * from_bf16(b[j * k + x]);
        wrong += c[i * columns + j] != sum;
      }
    CHECK(wrong == 0);
  });
}

TEST_CASE("kernels: calls, stack and generic pointers") {
  for_each_level([](test::module const& m) {
    std::vector<int> a(256);
    for (int i = 0; i < 256; ++i) a[i] = i * 7 % 50;
    auto const before = a;
    auto const r = launch(m["call"], {1}, {64}, pack(a.data(), 8));
    REQUIRE(r.fault == "");
    int const fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13};
    for (int t = 0; t < 64; ++t) {
      int want = fibonacci[t % 8];
      for (int j = 0; j < 8; ++j) want += before[t + j] * j + 1007 * before[j] * j;
      CHECK(a[128 + t] == want);
    }
    CHECK(m["call"].dynamic_stack);
  });
}

TEST_CASE("kernels: module variables, tables, jump tables") {
  for_each_level([](test::module const& m) {
    std::vector<int> a(192);
    for (int i = 0; i < 192; ++i) a[i] = i * 5 % 7;
    auto const before = a;
    auto const r = launch(m["globals"], {1}, {64}, pack(a.data()));
    REQUIRE(r.fault == "");
    for (int t = 0; t < 64; ++t) {
      int const first = (before[t] & 3) + 1 + 2;
      int const cases[] = {11, t, first * 3, -1, t * t, 77, 9};
      CHECK(a[t] == first);
      CHECK(a[128 + t] == cases[before[64 + t]]);
    }
    bool found = false;
    for (auto const& v : m.loaded().variables)
      if (v.name == "counter") {
        found = true;
        CHECK(v.size == 4);
        CHECK(*reinterpret_cast<int const*>(v.address) == 69);
      }
    CHECK(found);
  });
}

TEST_CASE("kernels: division and square roots") {
  for_each_level([](test::module const& m) {
    std::mt19937_64 random(3);
    std::vector<long> a(128), o(192);
    std::vector<int> b(128), p(192);
    std::vector<double> d(128), q(128);
    std::vector<float> f(128), g(128);
    for (int i = 0; i < 128; ++i) {
      a[i] = long(random() >> random() % 60) + 1, b[i] = int(random() >> random() % 28 >> 33) + 1;
      if (random() & 1) a[i] = -a[i], b[i] = -b[i];
      d[i] = double(random() % 1000000 + 1) / 7, f[i] = float(d[i]) / 3;
    }
    auto const r = launch(m["divide"], {1}, {64},
                          pack(a.data(), o.data(), b.data(), p.data(), d.data(), q.data(), f.data(), g.data()));
    REQUIRE(r.fault == "");
    for (int t = 0; t < 64; ++t) {
      CHECK((o[t] == a[t] / a[t + 64] && o[t + 64] == a[t] % a[t + 64] &&
             o[t + 128] == long(u64(a[t]) / u64(a[t + 64]))));
      CHECK(
          (p[t] == b[t] / b[t + 64] && p[t + 64] == b[t] % b[t + 64] && p[t + 128] == int(u32(b[t]) / u32(b[t + 64]))));
      CHECK((q[t] == d[t] / d[t + 64] && q[t + 64] == std::sqrt(d[t])));
      CHECK((g[t] == f[t] / f[t + 64] && g[t + 64] == std::sqrt(f[t])));
    }
  });
}

TEST_CASE("kernels: work-item and workgroup ids") {
  for_each_level([](test::module const& m) {
    std::vector<u32> o(2 * 3 * 2 * 30);
    auto const r = launch(m["ids"], {2, 3, 2}, {5, 3, 2}, pack(o.data()));
    REQUIRE(r.fault == "");
    for (u32 i = 0; i < o.size(); ++i)
      CHECK(o[i] == (i % 5 | i / 5 % 3 << 4 | i / 15 % 2 << 8 | i / 30 % 2 << 12 | i / 60 % 3 << 16 | i / 180 << 20));
  });
}

TEST_CASE("kernels: half precision") {
  for (auto const& level : {"-O0 -ffp-contract=off", "-O3 -ffp-contract=off"}) {
    REQUIRE_FALSE(built(level).empty());
    test::module const m(built(level));
    std::vector<f16> a(256), o(256);
    std::vector<u16> b(64);
    for (int i = 0; i < 256; ++i) a[i] = f16(float(i * 37 % 101) / 8 - 5.5f);
    auto const r = launch(m["halves"], {1}, {64}, pack(a.data(), o.data(), b.data()));
    REQUIRE(r.fault == "");
    auto const rounded = [](float x) { return float(f16(x)); };
    for (int t = 0; t < 64; ++t) {
      float const x = float(a[t]), y = float(a[t + 64]), z = float(a[t + 128]);
      CHECK(float(o[t]) == rounded(rounded(x * y) + z));
      CHECK((float(o[t + 64]) == rounded(x / y) || y == 0));
      CHECK(float(o[t + 128]) == (x < y ? float(a[t + 1]) : -x));
      CHECK(float(o[t + 192]) == std::trunc(x) + 0.5f);
      CHECK(b[t] == to_bf16(x * 1.7f));
    }
  }
}

TEST_CASE("kernels: a trap is a fault with its place") {
  for (auto const& level : {levels[0], levels[1]}) {
    REQUIRE_FALSE(built(level).empty());
    test::module const m(built(level));
    std::vector<int> a(64, 3);
    auto const r = launch(m["trap"], {1}, {64}, pack(a.data()));
    CHECK(r.fault.find("s_trap 2") != std::string::npos);
    CHECK(r.where.instruction.starts_with("s_trap"));
    CHECK(r.where.source.starts_with("kernel.hip:"));
    CHECK(r.where.offset > 0);
  }
}

TEST_CASE("loader: descriptors and metadata") {
  REQUIRE_FALSE(built(levels[1]).empty());
  test::module const m(built(levels[1]));
  kernel const& gemm = m["gemm"];
  CHECK(gemm.lds == 2 * 64 * 40 * 2);
  CHECK(gemm.scratch == 0);
  CHECK(gemm.max_threads == 256);
  CHECK(gemm.vgprs + gemm.agprs >= 16);
  CHECK(gemm.arguments.size() >= 6);
  CHECK(gemm.arguments[0].kind == "global_buffer");
  CHECK(gemm.arguments[3].offset == 24);
  CHECK(gemm.arguments[3].size == 4);
  CHECK(m["call"].scratch > 0);
  test::module const preloading(built(levels[2]));
  CHECK(kernel_descriptor::of(preloading["add"]).preload_length() > 0);
}

TEST_CASE("loader: what is no code object is refused") {
  std::vector<u8> junk(4096, 7);
  CHECK_THROWS(image_size(junk));
  auto elf = built(levels[1]);
  REQUIRE_FALSE(elf.empty());
  elf[48] = 0x3f;  // another processor
  CHECK_THROWS_AS(image_size(elf), std::runtime_error);
  elf = built(levels[1]);
  elf.resize(elf.size() / 2);
  std::vector<u8> image(1 << 20);
  CHECK_THROWS(load_module(elf, image.data()));
}

TEST_CASE("loader: instructions that are not implemented are all named") {
  auto const elf = compile_hip("#define __global__ __attribute__((global))\n"
                               "extern \"C\" __global__ void odd(int* p) { asm volatile(\"v_screen_partition_4se_b32 "
                               "v1, v2\\n v_mov_b32 v2, 0\\n s_cbranch_cdbgsys 0\" ::: \"v1\", \"v2\"); p[0] = 1; }",
                               "-O3");
  REQUIRE_FALSE(elf.empty());
  std::vector<u8> image(1 << 16);
  try {
    load_module(elf, image.data());
    FAIL("loaded");
  } catch (std::runtime_error const& e) {
    std::string const text = e.what();
    INFO(text);
    CHECK(text.find("v_screen_partition_4se_b32") != std::string::npos);
    CHECK(text.find("s_cbranch_cdbgsys") != std::string::npos);
    CHECK(text.find(" of odd") != std::string::npos);
    CHECK(text.find("v_mov_b32") == std::string::npos);
  }
}
