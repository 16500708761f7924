// All constants of the clock, each in one place. A value is `measured` where its source ran it on an MI300X, `document`
// where the vendor or its compiler states it, `derived` where it follows from such values, and `assumed` where no
// source has published it; only `assumed` values may be moved by calibration.
// To change a value for a run, without a rebuild: FUSEWIRE_SIM_TIMING="name=value,name=value", or fusewire-sim
// --timing.
#pragma once
#include <string>

#include "machine.hpp"

// Sources. ISA: AMD, CDNA3 ISA document. WP: AMD, CDNA3 white paper. LLVM: GCNHazardRecognizer.cpp, gfx940. MT4G:
// microbenchmarks on an MI300X VF, ROCm 6.4, in cycles at 2.1 GHz. Kog: Kog AI's launch measurements. Iris: ROCm/iris,
// concurrent/predictor.py. xgmi: ROCm blog "mi300x-rccl-xgmi". rocjitsu: mirage/builtin/src/timing.rs, whose authors
// call their values assumptions.
#define FUSEWIRE_SIM_TIMING(X)                                                                                         \
  X(mhz, 2100, "MHz", document, "WP: peak engine clock; GEMMs that draw full power run slower (--mhz)")                \
  /* issue */                                                                                                          \
  X(issue, 4, "cycles", document,                                                                                      \
    "ISA: a SIMD takes its turn every fourth cycle, and then one instruction of each class, from different waves")     \
  X(vector, 4, "cycles", document, "ISA: 64 lanes on 16")                                                              \
  X(transcendental, 16, "cycles", document, "ISA: a quarter of the rate")                                              \
  X(quarter_rate, 16, "cycles", document, "LLVM: 32-bit integer multiplication")                                       \
  X(branch_taken, 16, "cycles", assumed, "the next instruction comes through the instruction buffer again")            \
  X(branch_not_taken, 8, "cycles", assumed, "a wave issues nothing until its branch is decided")                       \
  X(barrier, 12, "cycles", assumed, "from the last wave's arrival to the first instruction behind it")                 \
  X(sleep_unit, 64, "cycles", document, "ISA: s_sleep n waits 64 n cycles")                                            \
  X(fetch_cache, 65536, "bytes", document, "WP: instruction cache of two CUs")                                         \
  X(fetch_miss, 60, "cycles", assumed,                                                                                 \
    "for each 128 bytes of code that are not in the instruction cache; fetching runs ahead of a wave")                 \
  /* matrix units, multiply-adds per cycle and SIMD */                                                                 \
  X(matrix_half, 256, "/cycle", document, "WP: 1307 TF/s bf16, f16")                                                   \
  X(matrix_byte, 512, "/cycle", document, "WP: 2615 TF/s fp8, int8")                                                   \
  X(matrix_xf32, 128, "/cycle", document, "WP: 654 TF/s xf32")                                                         \
  X(matrix_f32, 32, "/cycle", document, "WP: 163 TF/s f32")                                                            \
  X(matrix_f64, 32, "/cycle", document, "WP: 163 TF/s f64")                                                            \
  X(matrix_result, 16, "cycles", document,                                                                             \
    "LLVM: a result is read by anything but an accumulation after passes + 3 wait states")                             \
  X(matrix_forward, 0, "cycles", document,                                                                             \
    "LLVM: accumulation into the same registers needs no wait state from 4 passes on")                                 \
  /* LDS */                                                                                                            \
  X(lds_bytes, 128, "B/cycle", document, "ISA: 32 banks of 4 bytes")                                                   \
  X(lds_latency, 51, "cycles", measured, "MT4G")                                                                       \
  X(lds_queue, 64, "cycles", assumed, "of work in front of the LDS before waves wait to issue")                        \
  /* vector memory */                                                                                                  \
  X(address_cycles, 4, "cycles", assumed, "of the address unit for one instruction: 16 lanes a cycle")                 \
  X(l1_bytes, 64, "B/cycle", document, "WP: L1 to the CU")                                                             \
  X(l1_latency, 116, "cycles", measured, "MT4G")                                                                       \
  X(l1_queue, 128, "cycles", assumed, "of work in front of the L1 before waves wait to issue")                         \
  X(l1_misses, 256, "lines", assumed,                                                                                  \
    "that a CU may wait for; 16 KB a CU are needed for 4.8 TB/s at the loaded latency")                                \
  X(l2_latency, 288, "cycles", measured, "MT4G: a hit in the L2")                                                      \
  X(l2_arrival, 120, "cycles", assumed,                                                                                \
    "of these, from the CU to the L2: when a store is there for others, when a load takes its value")                  \
  X(l2_bytes, 128, "B/cycle", document, "WP: each of 16 channels of an XCD, reading")                                  \
  X(l2_write_bytes, 64, "B/cycle", document, "WP: the same, writing")                                                  \
  X(l2_efficiency, 0.6, "", assumed,                                                                                   \
    "MT4G reads 24 B per cycle and CU, 45 % of the channels, with one access pattern")                                 \
  X(fabric_bytes, 1024, "B/cycle", derived, "an XCD to the memory side: an eighth of the MALL's 17.2 TB/s")            \
  X(fabric_efficiency, 0.7, "", assumed, "11.9 of 17.2 TB/s is what others read from the MALL")                        \
  X(mall_ns, 237, "ns", measured, "MT4G: L2 hit + 209 cycles")                                                         \
  X(mall_gbs, 17200, "GB/s", document, "rocjitsu, WP: peak of the Infinity Cache")                                     \
  X(hbm_ns, 429, "ns", measured, "MT4G: 900 cycles")                                                                   \
  X(hbm_gbs, 5300, "GB/s", document, "WP: 8 stacks of HBM3")                                                           \
  X(hbm_efficiency, 0.92, "", measured, "GEMV, M = 1: 4.6 to 4.9 TB/s (ROCm/rocm-libraries 12329)")                    \
  X(scalar_hit, 100, "cycles", assumed, "s_load from the scalar cache")                                                \
  X(atomic_service, 24, "cycles", derived,                                                                             \
    "Iris: 304 workgroups on one counter, 3.96 us each at the median: 27 cycles apart")                                \
  X(atomic_latency, 94, "cycles", measured, "MT4G: 382 alone, beyond an L2 hit")                                       \
  /* writebacks and invalidations */                                                                                   \
  X(writeback_walk, 600, "cycles", assumed, "buffer_wbl2 looks through the L2, whatever is dirty")                     \
  X(invalidate, 60, "cycles", assumed, "buffer_inv")                                                                   \
  /* links and the host's bus */                                                                                       \
  X(link_gbs, 64, "GB/s", document, "xGMI, each direction of each link")                                               \
  X(link_efficiency, 0.75, "", measured, "xgmi: 48 GB/s of 64; one peer, 512 MiB: 48.3 (aiter 801)")                   \
  X(link_beside, 0.8, "", assumed,                                                                                     \
    "of a link's rate while its GPU sends over another link too; as two-shot pushes of 4 GPUs want it (quickreduce)")  \
  X(link_ns, 250, "ns", assumed, "one way, nothing published; as vLLM's all-reduce of 2 ranks wants it")               \
  X(link_request, 0, "bytes", derived,                                                                                 \
    "that a read request takes of the other direction: pulls both ways at once reach 47 to 48 GB/s (aiter 801)")       \
  X(host_gbs, 55, "GB/s", assumed, "PCIe 5 x16, each direction")                                                       \
  X(host_ns, 700, "ns", assumed, "one way to host memory")                                                             \
  X(turn, 256, "cycles", assumed,                                                                                      \
    "not the machine's: how long a CU is run at a time; the longer, the fewer times its registers come into the "      \
    "host's caches")                                                                                                   \
  /* dispatch and the host */                                                                                          \
  X(dispatch, 8, "cycles", assumed, "of an XCD's dispatcher for one wave")                                             \
  X(wave_start, 100, "cycles", assumed, "from a place on a CU to the first instruction: registers are set")            \
  X(host_call_us, 0.3, "us", assumed, "host time of a HIP call that starts nothing")                                   \
  X(host_launch_us, 2, "us", assumed, "host time of a launch, a copy or a graph launch; Kog's 4.5 us, less launch_us") \
  X(host_wake_us, 1, "us", assumed, "from the end of what a host thread waits for to its next call")                   \
  X(launch_us, 2.5, "us", derived,                                                                                     \
    "Kog: a launch takes 4.5 us; from the call's end to the dispatch of the first wave")                               \
  X(kernel_gap_us, 2, "us", assumed,                                                                                   \
    "from the end of a kernel to the dispatch of the next in its stream; a tuned GEMM's floor is 3.5 us (AITER)")      \
  X(graph_launch_us, 6, "us", assumed, "from the call's end to the first node")                                        \
  X(graph_gap_us, 1.5, "us", assumed, "from the end of a node to the dispatch of one behind it")                       \
  X(copy_us, 5, "us", assumed, "what a copy takes besides its bytes")                                                  \
  X(copy_gbs, 50, "GB/s", assumed, "of copies by the DMA engines, over links or to the host")                          \
  X(copy_local_gbs, 2000, "GB/s", assumed, "of copies and fills within a GPU")

namespace fusewire::sim {

struct timing {
#define FUSEWIRE_SIM_FIELD(name, value, unit, kind, source) double name = value;
  FUSEWIRE_SIM_TIMING(FUSEWIRE_SIM_FIELD)
#undef FUSEWIRE_SIM_FIELD

  /// Cycles of the engine clock.
  double from_ns(double ns) const { return ns * mhz / 1e3; }
  u64 from_us(double us) const { return static_cast<u64>(us * mhz); }
  double bytes_per_cycle(double gbs) const { return gbs * 1e3 / mhz; }
  double us(u64 cycles) const { return static_cast<double>(cycles) / mhz; }

  /// Sets constants from "name=value,name=value". Returns what is wrong with the text, or nothing.
  std::string set(std::string const& text);
  /// A line for each constant: name, value, unit, kind, source.
  std::string table() const;
};

}  // namespace fusewire::sim
