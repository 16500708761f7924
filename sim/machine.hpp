// fusewire-sim: what the two halves of the simulator share.
//
//   code object --decode--> program --execute--> wave --global memory access--> memory
//      (isa/)                (isa/)               |                             (machine/)
//                                                 +-- scheduled by machine/, launched by hip/
//
// isa/ knows instructions and nothing of HIP; machine/ knows memory, residency and time and nothing of instructions.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fusewire::sim {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

inline constexpr int lanes = 64;

// -------------------------------------------------------------------------------------------------------------- memory

/// Cache bits of one vector memory instruction (CDNA3 ISA, "Memory scopes"): sc1 sc0 = 00 wave, 01 group, 10 agent, 11
/// system.
struct cache_bits {
  bool sc0 = false, sc1 = false, nt = false;
};

enum class rmw {
  swap,
  cmpswap,
  add,
  sub,
  smin,
  umin,
  smax,
  umax,
  and_,
  or_,
  xor_,
  inc,
  dec,
  add_f32,
  add_f64,
  min_f64,
  max_f64,
  pk_add_f16,
  pk_add_bf16
};

struct wave;

/// Where the value goes that a load or an atomic brings.
struct destination {
  /// Takes data[dword][lane] for the lanes in `mask`; data are rows, aligned to 64 bytes. Null: nobody wants the value.
  void (*put)(wave&, destination const&, u64 mask, u32 const (*data)[lanes]) = nullptr;
  u16 reg = 0;  // the first row of wave::v
  u8 dwords = 1;
  u32 lds = 0;  // bytes, for loads to LDS

  /// The part of it that begins with dword `first`.
  destination from(int first, int count) const {
    return {put, static_cast<u16>(reg + first), static_cast<u8>(count), lds};
  }
};

/// Global memory as one wave's instruction sees it. Every call names all lanes at once: lane l takes part when bit l of
/// `mask` is set, at address[l]. A call that cannot be done (out of bounds, freed, no peer access, misaligned atomic)
/// raises a fault on the wave (see fault()) and returns false; destination registers are then undefined. What a load or
/// an atomic brings is put where it belongs at once, or any time before wait_vmcnt() says that it is there, all lanes
/// together or some after the others.
class memory_port {
 public:
  virtual ~memory_port() = default;
  /// A vector memory instruction begins, of any kind and with any lanes: vmcnt counts it. The calls up to the next one
  /// belong to it.
  virtual void issue(wave&) = 0;
  /// Reads `bytes` (1, 2, 4, 8, 12, 16) per lane; the bits of a dword above the size are zero.
  virtual bool load(wave&, cache_bits, u64 mask, u64 const* address, int bytes, destination const&) = 0;
  /// Writes the low `bytes` of in[dword][lane].
  virtual bool store(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) = 0;
  /// Atomic read-modify-write of 4 or 8 bytes, lane after lane. data[dword][lane]; for cmpswap data holds the new value
  /// and `compare` the expected one. The cache bits are the scope as for loads (agent or system), not the encoding's
  /// sc0, which asks for the old value.
  virtual bool atomic(wave&, cache_bits, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
                      u32 const (*compare)[lanes], destination const& old) = 0;
  /// s_load: `bytes` contiguous bytes through the scalar cache (never used for memory that changes during a kernel).
  /// `fresh` (glc): past the scalar cache.
  virtual bool scalar_load(wave&, u64 address, int bytes, bool fresh, u32* out) = 0;
  /// s_store, s_atomic: one read-modify-write of 4 or 8 bytes that acts now, at agent scope.
  virtual bool scalar_atomic(wave&, rmw, u64 address, int bytes, u64 data, u64 compare, destination const& old) = 0;
  virtual void invalidate_scalars(wave&) {}        // s_dcache_inv
  virtual void writeback(wave&, cache_bits) = 0;   // buffer_wbl2
  virtual void invalidate(wave&, cache_bits) = 0;  // buffer_inv
  // s_waitcnt vmcnt(n): at most n vector memory operations stay in flight
  virtual void wait_vmcnt(wave&, int outstanding) = 0;
  // Whether an LDS operation or scalar load that is issued now takes effect later
  virtual bool late(wave&) { return false; }
  virtual u64 clock(wave&) = 0;      // s_memtime, in core cycles
  virtual u64 real_time(wave&) = 0;  // s_memrealtime, 100 MHz
};

// ------------------------------------------------------------------------------------------------------------- program

struct op;       // one decoded instruction, private to isa/
struct program;  // a decoded code object, private to isa/

/// One kernel of a code object: what its descriptor and metadata say.
struct kernel_argument {
  int offset, size;
  std::string kind;  // metadata .value_kind: by_value, global_buffer, hidden_block_count_x, ...
};
struct kernel {
  std::string name, demangled;
  program const* code = nullptr;
  u32 entry = 0;                        // index into the program's ops
  int sgprs = 0, vgprs = 0, agprs = 0;  // vgprs + agprs share the 512 registers of a lane
  int lds = 0;                          // bytes, static
  int scratch = 0;                      // bytes per lane, static
  bool dynamic_stack = false;
  int max_threads = 1024;  // flat workgroup size limit
  int kernarg_bytes = 0;
  std::vector<kernel_argument> arguments;
  std::shared_ptr<std::map<u64, std::string> const> formats;  // of the module's buffered printf, by hash; may be null
  std::array<u8, 64> descriptor{};                            // the raw kernel descriptor
};

/// What device code may refer to besides its arguments: variables of the module at their load addresses.
struct module_variable {
  std::string name;
  u64 address;  // where the loader put it
  u64 size;
};

/// A code object, loaded: segments copied to `image` (the caller owns that memory and has made it accessible),
/// relocations done, every instruction of every kernel and device function decoded. Throws std::runtime_error that
/// names each instruction that is not implemented, with kernel and address.
struct loaded_module {
  std::shared_ptr<program const> code;
  std::vector<kernel> kernels;
  std::vector<module_variable> variables;
};
/// Bytes of address space that the code object's segments need. Throws if the ELF is not gfx942.
u64 image_size(std::span<u8 const> elf);
/// `like`: the same code object, loaded for another GPU, whose decoded code is taken where it is the same; or null.
loaded_module load_module(std::span<u8 const> elf, u8* image, program const* like = nullptr);

/// Where a wave stands, for reports: "v_mfma_f32_16x16x16_bf16 v[0:3], ..." and "ag_gemm.hpp:57" (empty without line
/// tables).
struct location {
  u32 offset;  // bytes from the kernel's first instruction
  std::string instruction, source;
};
location where(wave const&);
location where_is(program const&, u32 op);  // its offset is from the image's begin

// ----------------------------------------------------------------------------------------------------------- execution

struct dispatch;

struct workgroup {
  dispatch* launch = nullptr;
  u32 id[3] = {};
  int xcd = 0;  // 0..7
  int cu = 0;   // 0..cus-1 on its GPU
  std::vector<u8> lds;
  std::vector<wave*> waves;
  int running = 0;  // waves that have not ended
  int at_barrier = 0;
};

/// One kernel launch in execution.
struct dispatch {
  sim::kernel const* kernel = nullptr;
  int gpu = 0;
  u32 grid[3] = {}, block[3] = {};  // workgroups, threads
  int lds = 0;                      // bytes, static + dynamic
  std::vector<u8> kernarg;          // visible and hidden arguments; 16-byte aligned, readable by s_load
  u64 dispatch_packet = 0;          // address of a 64-byte AQL packet for kernels that read it
};

enum class wave_state : u8 { running, at_barrier, sleeping, ended };

struct wave_memory;  // private to machine/: this wave's stores in flight
struct late_queue;   // private to isa/: its LDS operations and scalar loads in flight

struct wave {
  alignas(64) u32 v[512][lanes];  // v0..v255, then a0..a255; pooled address space, so unused rows cost nothing
  u32 s[128];                     // s0..s101; 106/107 vcc, 124 m0, 126/127 exec
  bool scc;
  wave_state state;
  u32 pc;     // index into the program's ops
  u32 mode;   // MODE register (round, denormals)
  u32 index;  // in its workgroup
  program const* code;
  workgroup* group;
  memory_port* memory;
  wave_memory* pending;  // machine/'s
  late_queue* late;      // isa/'s
  u8* scratch;           // scratch_bytes per lane, lane after lane
  u32 scratch_bytes;
  u64 executed;  // instructions
  bool faulted;
  std::string* fault_text;  // set by fault()

  u64 exec() const { return s[126] | u64(s[127]) << 32; }
  u64 vcc() const { return s[106] | u64(s[107]) << 32; }
};

/// Marks the wave faulted with what happened; execute() stops after the instruction. machine/ adds who and where.
void fault(wave&, std::string what);

/// LDS operations and scalar loads in flight: whether the wave has any, the next of them takes effect, all are dropped.
bool waits_for_lds(wave const&);
void let_one_arrive(wave&);
void forget(wave&);

/// Registers as the packet processor sets them before the first instruction: kernarg pointer, workgroup ids, work-item
/// ids, exec, scratch. Registers that hardware leaves undefined are filled with a pattern.
void start(wave&, dispatch const&, workgroup&, u32 index_in_group);

/// Runs until `budget` instructions are done or the wave stops by itself: at s_barrier (state at_barrier, pc after it),
/// s_sleep (state sleeping, pc after it), s_endpgm (state ended), or a fault. Returns the instructions executed.
u64 execute(wave&, u64 budget);

}  // namespace fusewire::sim
