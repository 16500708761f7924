// What the end of a kernel does to the lines that its blocks left in the L2s of all XCDs.
//
//   stream of rank r    fill: all XCDs write x
//                       | tell: one block releases, raises a flag on rank r+1, waits for that of r-1, reads x of r-1
//
// Pull: x is memory of the rank that fills it. Push: x is memory of the next rank.
#include "questions.hpp"

namespace litmus {
namespace {

__global__ void fill(unsigned* to, int n, unsigned value) {
  int const all = platform::grid_blocks() * platform::block_threads();
  for (int i = platform::block_index() * platform::block_threads() + platform::thread_index(); i < n; i += all)
    to[i] = value;
}

/// counts[which]: words that differ from what the kernel before wrote.
__global__ void tell_and_look(world_view w, sym<flag> flags, unsigned const* from, int n, unsigned value,
                              sym<count_t> counts, int which) {
  int const next = w.next(1), previous = w.next(w.size() - 1);
  count_t* const c = w.here(counts);
  publish(w.on(next, flags), value);
  if (receives(w.here(flags), value, c)) add(c + which, differing(from, n, value));
  give_back(w.on(previous, flags) + 1, value);
  (void)meets(w.here(flags) + 1, value, c);
}

/// Runs the kernels back to back, then in a graph. No rank waits on the host in between.
outcome between_kernels(context& c, bool push) {
  if (!c.far) return needs_peers();
  c.clear();
  world_view const& w = c.view();
  unsigned* const to = w.on(push ? w.next(1) : w.rank(), c.data);
  unsigned const* const from = w.on(push ? w.rank() : w.next(w.size() - 1), c.data);
  hipStream_t const stream = c.w.stream();
  unsigned value = 0;
  auto const rounds = [&](int n, int counter) {
    for (int i = 0; i < n; ++i) {
      ++value;
      fill<<<dim3(64), dim3(256), 0, stream>>>(to, words, value);
      tell_and_look<<<dim3(1), dim3(256), 0, stream>>>(w, c.flags, from, words, value, c.counts, counter);
      check_hip(hipGetLastError(), "kernel launch");
    }
  };
  rounds(c.rounds, 1);
  check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
  c.w.barrier();
  hipGraph_t graph = nullptr;
  hipGraphExec_t ready = nullptr;
  check_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
  rounds(c.rounds, 2);
  check_hip(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
  check_hip(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
  c.w.barrier();
  check_hip(hipGraphLaunch(ready, stream), "hipGraphLaunch");
  auto const all = c.gather();
  check_hip(hipGraphExecDestroy(ready), "hipGraphExecDestroy");
  check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
  if (count_t const n = context::sum(all, 0)) return expired(n);
  count_t const back_to_back = context::sum(all, 1), in_graph = context::sum(all, 2),
                looked_at = count_t(c.rounds) * words * count_t(c.w.size());
  return {
      back_to_back + in_graph ? answer::weak : answer::strong,
      text(back_to_back, " of ", looked_at, " words stale back to back, ", in_graph, " of ", looked_at, " in a graph")};
}

}  // namespace

outcome kernel_end_reaches_peers(context& c) { return between_kernels(c, false); }
outcome kernel_end_pushes_to_peers(context& c) { return between_kernels(c, true); }

}  // namespace litmus
