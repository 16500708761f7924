// Warpgroup matrix instructions of sm_90a: wgmma.m64nNk16. Operands are in shared memory, accumulators in the registers
// of 128 threads.
//
//   K-major, 128-byte swizzle (A; column-major B)      MN-major, 128-byte swizzle (row-major B)
//     row r: 64 k = 128 bytes, 8 rows = 1024 bytes        k-row: 64 n = 128 bytes, 8 k-rows = 1024 bytes
//     next 16 k: +32 bytes                                next 16 k: +2048 bytes; next 64 n: +atom bytes
//
// Layouts: PTX ISA, asynchronous warpgroup-level matrix instructions, shared memory matrix layout.
#pragma once
#include <fusewire/core/types.hpp>
#include <fusewire/arch/sm90/tma.hpp>

namespace fusewire {

/// The descriptor of an operand in shared memory, with 128-byte swizzle: where it begins, and how its rows follow each
/// other. atom_bytes: for MN-major operands, the distance from one 64 n to the next, in bytes.
/// Requires: `at` aligned to 1024 bytes, except after steps along k inside a tile.
__device__ inline std::uint64_t matrix_descriptor(shared_address_t at, int atom_bytes = 16) {
  constexpr std::uint64_t swizzle_128 = 1ull << 62, eight_rows = 1024;  // bytes
  return ((at & 0x3ffffu) >> 4 | std::uint32_t(atom_bytes >> 4) << 16) | (eight_rows >> 4) << 32 | swizzle_128;
}
/// The descriptor of the operand `bytes` bytes further on. Only the lower half changes.
__device__ inline std::uint64_t further(std::uint64_t descriptor, int bytes) {
  return (std::uint32_t(descriptor) + std::uint32_t(bytes >> 4)) | descriptor >> 32 << 32;
}

// m64n{N}k16 with its accumulators as operands 0 to N / 2 - 1. The five operands after them are the descriptors of A
// and B, whether to accumulate, and the layouts of A and B.
#define FUSEWIRE_WGMMA(N, TYPE, REGISTERS, A, B, ACCUMULATE, A_TRANSPOSED, B_TRANSPOSED, ...)                          \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" ACCUMULATE ", 0; wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE \
               "." TYPE " {" REGISTERS "}, %" A ", %" B ", p, 1, 1, %" A_TRANSPOSED ", %" B_TRANSPOSED ";}"            \
               : __VA_ARGS__                                                                                           \
               : "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(ATransposed)), "n"(int(BTransposed)))
// NAMES_G and VALUES_G are the first 8 x G accumulators: their names in the instruction, and their registers.
#define FUSEWIRE_8(i)                                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define FUSEWIRE_NAMES_7                                                                                               \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55"
#define FUSEWIRE_NAMES_8 FUSEWIRE_NAMES_7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define FUSEWIRE_NAMES_9 FUSEWIRE_NAMES_8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define FUSEWIRE_NAMES_10 FUSEWIRE_NAMES_9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define FUSEWIRE_NAMES_11 FUSEWIRE_NAMES_10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define FUSEWIRE_NAMES_12 FUSEWIRE_NAMES_11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define FUSEWIRE_NAMES_13 FUSEWIRE_NAMES_12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define FUSEWIRE_NAMES_14 FUSEWIRE_NAMES_13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define FUSEWIRE_NAMES_15 FUSEWIRE_NAMES_14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define FUSEWIRE_NAMES_16 FUSEWIRE_NAMES_15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define FUSEWIRE_VALUES_7 \
  FUSEWIRE_8(0), FUSEWIRE_8(8), FUSEWIRE_8(16), FUSEWIRE_8(24), FUSEWIRE_8(32), FUSEWIRE_8(40), FUSEWIRE_8(48)
#define FUSEWIRE_VALUES_8 FUSEWIRE_VALUES_7, FUSEWIRE_8(56)
#define FUSEWIRE_VALUES_9 FUSEWIRE_VALUES_8, FUSEWIRE_8(64)
#define FUSEWIRE_VALUES_10 FUSEWIRE_VALUES_9, FUSEWIRE_8(72)
#define FUSEWIRE_VALUES_11 FUSEWIRE_VALUES_10, FUSEWIRE_8(80)
#define FUSEWIRE_VALUES_12 FUSEWIRE_VALUES_11, FUSEWIRE_8(88)
#define FUSEWIRE_VALUES_13 FUSEWIRE_VALUES_12, FUSEWIRE_8(96)
#define FUSEWIRE_VALUES_14 FUSEWIRE_VALUES_13, FUSEWIRE_8(104)
#define FUSEWIRE_VALUES_15 FUSEWIRE_VALUES_14, FUSEWIRE_8(112)
#define FUSEWIRE_VALUES_16 FUSEWIRE_VALUES_15, FUSEWIRE_8(120)
#define FUSEWIRE_WGMMA_OF(TYPE)                                                                            \
  if constexpr (N == 112)                                                                                  \
    FUSEWIRE_WGMMA("112", TYPE, FUSEWIRE_NAMES_7, "56", "57", "58", "59", "60", FUSEWIRE_VALUES_7);        \
  else if constexpr (N == 128)                                                                             \
    FUSEWIRE_WGMMA("128", TYPE, FUSEWIRE_NAMES_8, "64", "65", "66", "67", "68", FUSEWIRE_VALUES_8);        \
  else if constexpr (N == 144)                                                                             \
    FUSEWIRE_WGMMA("144", TYPE, FUSEWIRE_NAMES_9, "72", "73", "74", "75", "76", FUSEWIRE_VALUES_9);        \
  else if constexpr (N == 160)                                                                             \
    FUSEWIRE_WGMMA("160", TYPE, FUSEWIRE_NAMES_10, "80", "81", "82", "83", "84", FUSEWIRE_VALUES_10);      \
  else if constexpr (N == 176)                                                                             \
    FUSEWIRE_WGMMA("176", TYPE, FUSEWIRE_NAMES_11, "88", "89", "90", "91", "92", FUSEWIRE_VALUES_11);      \
  else if constexpr (N == 192)                                                                             \
    FUSEWIRE_WGMMA("192", TYPE, FUSEWIRE_NAMES_12, "96", "97", "98", "99", "100", FUSEWIRE_VALUES_12);     \
  else if constexpr (N == 224)                                                                             \
    FUSEWIRE_WGMMA("224", TYPE, FUSEWIRE_NAMES_14, "112", "113", "114", "115", "116", FUSEWIRE_VALUES_14); \
  else if constexpr (N == 256)                                                                             \
    FUSEWIRE_WGMMA("256", TYPE, FUSEWIRE_NAMES_16, "128", "129", "130", "131", "132", FUSEWIRE_VALUES_16);

/// D [64, n] += A [64, 16] * B [16, n] by one warpgroup. An operand is transposed if it is not contiguous along k.
template <class T, int N, bool ATransposed, bool BTransposed>
struct wgmma_atom {
  static_assert(is_16_bit_float<T> &&
                (N == 112 || N == 128 || N == 144 || N == 160 || N == 176 || N == 192 || N == 224 || N == 256));
  static constexpr int m = 64, n = N, k = 16;  // of D, and k of one instruction
  static constexpr int c_values = n / 2;       // registers of a thread
  using c_fragment = float[c_values];          // of a thread

  /// Row of values 0 and 1 of a thread among its warpgroup's 64. Values 2 and 3 are 8 rows below; values 4 to 7 are
  /// like 0 to 3, 8 columns to the right.
  __device__ static int c_row(int thread) { return thread / 32 * 16 + thread % 32 / 4; }
  /// Column of value 0 of a thread.
  __device__ static int c_col(int thread) { return thread % 4 * 2; }

  /// Starts d = a * b + (accumulate ? d : 0).
  /// Called by: every thread of the warpgroup, between wgmma_begin() and wgmma_commit().
  __device__ static void multiply(c_fragment& d, std::uint64_t a, std::uint64_t b, bool accumulate) {
    if constexpr (std::is_same_v<T, bf16>) {
      FUSEWIRE_WGMMA_OF("bf16");
    } else {
      FUSEWIRE_WGMMA_OF("f16");
    }
  }
  /// Keeps the compiler from reading d before wgmma_wait<0>(). Order: after that call, before d is read.
  __device__ static void fence_accumulator(c_fragment& d) {
#pragma unroll
    for (int v = 0; v < c_values; ++v) asm volatile("" : "+f"(d[v])::"memory");
  }
};

#undef FUSEWIRE_WGMMA_OF
#undef FUSEWIRE_VALUES_16
#undef FUSEWIRE_VALUES_15
#undef FUSEWIRE_VALUES_14
#undef FUSEWIRE_VALUES_13
#undef FUSEWIRE_VALUES_12
#undef FUSEWIRE_VALUES_11
#undef FUSEWIRE_VALUES_10
#undef FUSEWIRE_VALUES_9
#undef FUSEWIRE_VALUES_8
#undef FUSEWIRE_VALUES_7
#undef FUSEWIRE_NAMES_16
#undef FUSEWIRE_NAMES_15
#undef FUSEWIRE_NAMES_14
#undef FUSEWIRE_NAMES_13
#undef FUSEWIRE_NAMES_12
#undef FUSEWIRE_NAMES_11
#undef FUSEWIRE_NAMES_10
#undef FUSEWIRE_NAMES_9
#undef FUSEWIRE_NAMES_8
#undef FUSEWIRE_NAMES_7
#undef FUSEWIRE_8
#undef FUSEWIRE_WGMMA

/// Orders a warpgroup's earlier accesses to the registers of its accumulators before its first multiply().
__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes the group of multiplications started since the last commit.
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Returns when at most `Pending` groups are unfinished.
template <int Pending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Gives registers of this warpgroup back, for the block's other warpgroups, until it has `Registers` per thread, a
/// multiple of 8. The others take them with increase_registers().
/// Called by: every thread of the warpgroup.
template <int Registers>
__device__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
/// The counterpart of decrease_registers(): waits until the block has enough free registers.
/// Called by: every thread of the warpgroup.
template <int Registers>
__device__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace fusewire
