// What the host's runtime keeps for a thread, and is not the library's: the last error, the current device, a capture
// in progress. Calls of the library work whatever these are, and leave them as they were.
#include "support.hpp"

#include <fusewire/ops/flash_decode.hpp>
#include <fusewire/ops/gemm.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <optional>

using namespace support;

namespace {

/// Every rank tells every rank its number, plus the epoch.
__global__ void tell_all(channel_view ch, int* out) {
  block const b;
  auto const e = ch.begin(b);
  world_view const& w = ch.world;
  for (int p = 0; p < w.size(); ++p) {
    if (b.leader()) store(e.inbox<int>(p) + w.rank(), 10 * w.rank() + int(e.number()));
    e.signal(b, p, 0);
  }
  for (int p = 0; p < w.size(); ++p) {
    e.wait(b, p, 0);
    if (b.leader()) out[p] = load(e.inbox<int>() + p);
  }
  e.end(b);
}

/// A heap, a channel on it, and operators of every kind of memory: none, parts of sums, an inbox. Calls of each.
struct everything {
  static constexpr int d = 64, k = 64;
  static constexpr gemm_ar_options product{.max_m = 8, .max_n = 64, .k = k};
  rank_of_test r;
  channel ch;
  gemm_ar<bf16> add;
  flash_decode<bf16> decode;
  sym<bf16> a, b, c, q, cache, o;
  sym<std::int32_t> table, lengths;
  sym<int> out;
  int launches = 0;

  explicit everything(world& w)
      : r(w, small_heap()), ch(r.heap, room(w)), add(ch, product),
        decode(ch, {.max_batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = d, .page_size = 16, .max_pages = 1}),
        a(r.heap.allocate<bf16>(8 * k)), b(r.heap.allocate<bf16>(k * 64)), c(r.heap.allocate<bf16>(8 * 64)),
        q(r.heap.allocate<bf16>(d)), cache(r.heap.allocate<bf16>(16 * d)), o(r.heap.allocate<bf16>(d)),
        table(r.heap.allocate<std::int32_t>(1)), lengths(r.heap.allocate<std::int32_t>(1)),
        out(r.heap.allocate<int>(8)) {
    r.heap.upload(a, std::vector<bf16>(8 * k, bf16(1.0f)));
    r.heap.upload(b, std::vector<bf16>(k * 64, bf16(1.0f)));
    r.heap.upload(q, std::vector<bf16>(d, bf16(0.0f)));
    r.heap.upload(cache, std::vector<bf16>(16 * d, bf16(2.0f)));
    r.heap.upload(table, std::vector<std::int32_t>{0});
    r.heap.upload(lengths, std::vector<std::int32_t>{16});
  }
  static channel_options room(world const& w) {
    return {.max_bytes = gemm_ar<bf16>::max_bytes(w.size(), product),
            .flags_per_source = gemm_ar<bf16>::flags_per_source(w.size(), product)};
  }
  void launch_all(hipStream_t s) {
    launch(r.world, s, {.blocks = 1, .threads = 64}, tell_all, ch.view(make_header("tell", 0)), r.here(out));
    add(s, {.a = {r.here(a), 8, k, k}, .b = {r.here(b), k, 64, 64}, .c = {r.here(c), 8, 64, 64}, .m = 8});
    decode(s, {.q = r.here(q),
               .k_cache = r.here(cache),
               .v_cache = r.here(cache),
               .block_table = r.here(table),
               .lengths = r.here(lengths),
               .out = r.here(o),
               .batch = 1,
               .pages = 1});
    launches += 3;
  }
  /// After the latest launch_all().
  void expect_results() {
    auto const told = r.heap.download(out);
    for (int p = 0; p < r.size(); ++p)
      r.found.expect(told[std::size_t(p)] == 10 * p + launches - 2, "word ", p, " is ", told[std::size_t(p)]);
    float const sum = float(r.heap.download(c)[77]), mean = float(r.heap.download(o)[5]);
    r.found.expect(sum == float(k * r.size()), "a sum is ", sum);
    r.found.expect(mean == 2, "a mean is ", mean);
  }
};

template <class F>
void with_everything(int ranks, F f) {
  auto const said = on_worlds(ranks, [&](world& w) { return f(w).summary(); });
  none_found_anything(said);
}

/// Fails, and leaves its error behind as somebody's earlier call would.
struct earlier_failure {
  char const* name;
  hipError_t (*fail)();
};
earlier_failure const failures[] = {
    {"hipMalloc",
     [] {
       void* p = nullptr;
       return hipMalloc(&p, std::size_t(1) << 60);
     }},
    {"hipSetDevice", [] { return hipSetDevice(1 << 20); }},
    {"hipMemcpyAsync", [] { return hipMemcpyAsync(nullptr, nullptr, 64, hipMemcpyDeviceToDevice, nullptr); }},
};

int device_now() {
  int d = -1;
  check_hip(hipGetDevice(&d), "hipGetDevice");
  return d;
}

}  // namespace

TEST_CASE("host state: an error that somebody else has left behind is not thrown, and stays for its owner") {
  for (earlier_failure const& f : failures) {
    CAPTURE(f.name);
    with_everything(2, [&](world& w) {
      bool const plants = w.rank() == 1;
      hipError_t const wanted = plants ? f.fail() : hipSuccess;
      everything x(w);  // enables peer access, which may fail and so take the place of that error
      // All kernels are loaded first: on CUDA, a cudaFuncSetAttribute that succeeds clears the error of others
      x.launch_all(w.stream());
      w.check(w.stream());
      { gemm<bf16> const first(w); }
      findings& found = x.r.found;
      found.expect(!plants || wanted != hipSuccess, f.name, " did not fail");
      (void)hipGetLastError();
      if (plants) (void)f.fail();
      auto const stays = [&](char const* call) {
        hipError_t const e = hipPeekAtLastError();
        found.expect(e == wanted, f.name, ": after ", call, " the last error is ", hipGetErrorName(e));
      };
      x.launch_all(w.stream());
      stays("launches");
      w.check(w.stream());
      stays("check");
      x.expect_results();
      stays("download");
      auto const flags = x.r.heap.allocate<flag>(1);
      stays("allocate");
      { channel const second(x.r.heap, {.max_bytes = 1, .flags_per_source = 1}); }
      stays("channel");
      { gemm<bf16> const alone(w); }
      stays("gemm");
      x.ch.reset();
      stays("reset");
      x.launch_all(w.stream());
      w.check(w.stream());
      stays("check");
      x.r.heap.free(flags);
      w.barrier();
      found.expect(hipGetLastError() == wanted, f.name, ": the error is gone");
      return found;
    });
  }
}

TEST_CASE("host state: any device may be the current one, and stays it") {
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
  if (devices < 2) SKIP("one GPU");
  with_everything(2, [&](world& w) {
    int const other = (w.device() + 1) % devices;
    auto const set = [&] { check_hip(hipSetDevice(other), "hipSetDevice"); };
    set();
    everything x(w);
    findings& found = x.r.found;
    auto const stays = [&](char const* call) {
      found.expect(device_now() == other, "after ", call, " the current device is ", device_now());
      set();
    };
    stays("constructors");
    for (int i = 0; i < 2; ++i) x.launch_all(w.stream());
    stays("launches");
    w.check(w.stream());
    stays("check");
    x.expect_results();
    stays("download");
    (void)resident_blocks(w, tell_all, 128, 0);
    (void)load_kernel(w, tell_all, 192);
    (void)w.masked_units(nullptr);
    stays("resident_blocks");
    { channel const second(x.r.heap, {.max_bytes = 1, .flags_per_source = 1}); }
    stays("channel");
    { gemm<bf16> const alone(w); }
    stays("gemm");
    x.ch.reset();
    stays("reset");
    {
      world part = w.split(0);
      stays("split");
      heap h(part, small_heap());
      stays("heap");
    }
    stays("~heap");
    w.barrier();
    return found;
  });
}

TEST_CASE("host state: calls that wait for a stream that is being captured are refused, and the capture goes on") {
  with_everything(2, [](world& w) {
    everything x(w);
    findings& found = x.r.found;
    auto const word = x.r.heap.allocate<int>(1);
    x.launch_all(w.stream());
    w.check(w.stream());
    graph const g(w.stream(), [&] {
      auto const refused = [&](char const* call, auto f) {
        found.throws<bad_argument>(call, {"the stream is being captured", "host_state_test.cpp:"}, f);
      };
      x.launch_all(w.stream());
      refused("check", [&] { w.check(w.stream()); });
      refused("upload", [&] { x.r.heap.upload(word, std::vector<int>{1}); });
      refused("download", [&] { (void)x.r.heap.download(word); });
      refused("allocate", [&] { (void)x.r.heap.allocate<flag>(1); });
      refused("reset", [&] { x.ch.reset(); });
      refused("heap::reset", [&] { x.r.heap.reset(); });
      refused("heap", [&] { heap const second(w, small_heap()); });
      refused("channel", [&] { channel const second(x.ch.heap(), {.max_bytes = 1, .flags_per_source = 1}); });
    });
    w.barrier();
    for (int i = 0; i < 3; ++i) g.launch(w.stream());
    x.launches += 6;  // as captured, and twice more
    w.check(w.stream());
    x.expect_results();
    w.barrier();
    return found;
  });
}

TEST_CASE("host state: a capture on another stream does not notice what is made meanwhile") {
  auto const mode = GENERATE(hipStreamCaptureModeThreadLocal, hipStreamCaptureModeGlobal);
  with_everything(2, [&](world& w) {
    everything x(w);
    findings& found = x.r.found;
    hipStream_t captured = nullptr;
    check_hip(hipStreamCreateWithFlags(&captured, hipStreamNonBlocking), "hipStreamCreateWithFlags");
    x.launch_all(w.stream());
    w.check(w.stream());
    w.barrier();
    std::optional<channel> second;
    std::optional<gemm_ar<bf16>> add;
    check_hip(hipStreamBeginCapture(captured, mode), "hipStreamBeginCapture");
    w.barrier();  // all ranks capture
    x.launch_all(captured);
    second.emplace(x.r.heap, everything::room(w));
    add.emplace(*second, x.product);
    auto const flags = x.r.heap.allocate<flag>(1);
    x.r.heap.upload(x.lengths, std::vector<std::int32_t>{8});
    found.expect(x.r.heap.download(x.lengths)[0] == 8, "download");
    w.barrier();
    hipGraph_t graph = nullptr;
    check_hip(hipStreamEndCapture(captured, &graph), "hipStreamEndCapture");
    w.barrier();  // a wait during a capture in mode global would end it
    hipGraphExec_t exec = nullptr;
    check_hip(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
    check_hip(hipGraphLaunch(exec, captured), "hipGraphLaunch");
    check_hip(hipStreamSynchronize(captured), "hipStreamSynchronize");
    w.check(captured);
    x.expect_results();
    x.r.heap.free(flags);
    w.barrier();
    (void)hipGraphExecDestroy(exec);
    (void)hipGraphDestroy(graph);
    (void)hipStreamDestroy(captured);
    return found;
  });
}
