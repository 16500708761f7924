// Every HIP call of a program fails in turn: the program gets an error that names the call, on no rank does anything
// hang or end the process, everything that was taken is given back, and the next world works.
#include <dlfcn.h>
#include <fusewire_sim.h>
#include <catch2/generators/catch_generators_range.hpp>
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <signal.h>
#include <unistd.h>

#include "../said_on_stderr.hpp"
#include "../unit/support.hpp"
#include <chrono>

using namespace support;

namespace {

struct simulator {
  fusewire_sim_fail_call_function fail_call = find<fusewire_sim_fail_call_function>("fusewireSimFailCall");
  fusewire_sim_failed_call_function failed_call = find<fusewire_sim_failed_call_function>("fusewireSimFailedCall");
  fusewire_sim_held_function held = find<fusewire_sim_held_function>("fusewireSimHeld");

  template <class F>
  static F find(char const* name) {
    return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
  }
};

/// A program went on to the end with results that are wrong.
struct wrong_result : std::logic_error {
  using std::logic_error::logic_error;
};
void must(bool ok, char const* what) {
  if (!ok) throw wrong_result(what);
}

heap_options tiny_heap() { return {.bulk = 1_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(20)}; }
channel_options tiny_channel() { return {.max_bytes = 64_KiB, .flags_per_source = 64}; }

/// Every rank tells every rank its number times ten, plus the epoch.
__global__ void exchange_numbers(channel_view ch, int* out) {
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

void launch_exchange(rank_of_test& r, channel& ch, sym<int> out) {
  r.launch({.blocks = 1, .threads = 64}, exchange_numbers, ch.view(make_header("numbers", 0)), r.here(out));
}
void check_exchange(rank_of_test& r, sym<int> out, int epoch) {
  r.world.check(r.stream);
  auto const found = r.download(out);
  for (int p = 0; p < r.size(); ++p) must(found[std::size_t(p)] == 10 * p + epoch, "exchange_numbers");
}

void channel_program(world& w) {
  rank_of_test r(w, tiny_heap());
  channel ch(r.heap, tiny_channel());
  auto const out = r.heap.allocate<int>(std::size_t(r.size()));
  launch_exchange(r, ch, out);
  check_exchange(r, out, 1);
  graph const twice(r, [&] { launch_exchange(r, ch, out); });
  twice.launch(r.stream);
  r.meet();
  twice.launch(r.stream);
  check_exchange(r, out, 3);
  ch.reset();
  launch_exchange(r, ch, out);
  check_exchange(r, out, 4);
  auto const flags = r.heap.allocate<flag>(3);
  r.heap.free(flags);
  r.heap.free(out);
}

template <method Method>
void ag_gemm_program(world& w) {
  rank_of_test r(w, tiny_heap());
  channel ch(r.heap, tiny_channel());
  constexpr int m = 5, n = 20;
  int const k = 16 * w.size();
  ag_gemm<bf16> op(ch, {.max_m = 8, .k = k, .gather = gather::k, .method = Method});
  auto const a = r.heap.allocate<bf16>(std::size_t(m * 16)), b = r.heap.allocate<bf16>(std::size_t(k * n)),
             c = r.heap.allocate<bf16>(std::size_t(m * n));
  r.upload(std::vector<bf16>(a.count, bf16(float(1 + w.rank()))), a);
  r.upload(std::vector<bf16>(b.count, bf16(1.f)), b);
  r.fill(c, 0xff);
  ag_gemm_call<bf16> const call{
      .a = {r.here(a), m, 16, 16}, .b = {r.here(b), k, n, n}, .c = {r.here(c), m, n, n}, .m = m};
  op(r.stream, call);
  w.check(r.stream);
  auto const right = [&] {
    for (bf16 x : r.download(c)) must(float(x) == float(8 * w.size() * (w.size() + 1)), "ag_gemm");
  };
  right();
  r.fill(c, 0xff);
  graph const again(r, [&] { op(r.stream, call); });
  again.launch(r.stream);
  w.check(r.stream);
  right();
}

void flash_decode_program(world& w) {
  rank_of_test r(w, tiny_heap());
  channel ch(r.heap, tiny_channel());
  flash_decode<bf16> op(ch,
                        {.max_batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64, .page_size = 1, .max_pages = 2});
  auto const q = r.heap.allocate<bf16>(64), k = r.heap.allocate<bf16>(64), v = r.heap.allocate<bf16>(64),
             out = r.heap.allocate<bf16>(64);
  auto const table = r.heap.allocate<std::int32_t>(2), lengths = r.heap.allocate<std::int32_t>(1);
  r.fill(q, 0), r.fill(k, 0), r.fill(table, 0), r.fill(out, 0xff);
  r.upload(std::vector<bf16>(64, bf16(float(2 + 2 * w.rank()))), v);
  r.upload(std::vector<std::int32_t>{1}, lengths);
  op(r.stream, {.q = r.here(q),
                .k_cache = r.here(k),
                .v_cache = r.here(v),
                .block_table = r.here(table),
                .lengths = r.here(lengths),
                .out = r.here(out),
                .batch = 1});
  w.check(r.stream);
  for (bf16 x : r.download(out)) must(float(x) == float(1 + w.size()), "flash_decode");
}

/// Ranks 0 and 2 work together, and rank 1 alone.
void split_program(world& w) {
  world part = w.split(w.rank() % 2);
  rank_of_test r(part, tiny_heap());
  channel ch(r.heap, tiny_channel());
  auto const out = r.heap.allocate<int>(std::size_t(r.size()));
  w.barrier();
  launch_exchange(r, ch, out);
  check_exchange(r, out, 1);
  w.barrier();
}

struct program {
  char const* name;
  int ranks;
  std::vector<int> devices;
  void (*run)(world&);
};
std::vector<program> const programs = {
    {"channel, a rank", 1, {0}, channel_program},
    {"channel, two ranks", 2, {0, 1}, channel_program},
    {"channel, two ranks on a device", 2, {0, 0}, channel_program},
    {"ag_gemm push, two ranks", 2, {0, 1}, ag_gemm_program<method::push>},
    {"ag_gemm pull, a rank", 1, {0}, ag_gemm_program<method::pull>},
    {"flash_decode, two ranks", 2, {0, 1}, flash_decode_program},
    {"split, three ranks", 3, {0, 1, 0}, split_program},
};

/// What check_hip() calls it in its message.
std::string name_in_message(std::string const& call) {
  return call == "hipLaunchKernel"         ? "kernel launch"
         : call == "hipExtMallocWithFlags" ? "malloc(signal segment)"
                                           : call;
}
/// Calls whose failure a program may survive in silence: destructors cannot throw, and by then the results have been
/// checked.
bool may_pass(std::string const& call) {
  return call == "hipFree" || call == "hipHostFree" || call == "hipStreamDestroy" || call == "hipGraphDestroy" ||
         call == "hipGraphExecDestroy" || call == "hipDeviceSynchronize" || call == "hipGetDevice";
}

std::string held(simulator const& sim) {
  std::string text(4096, '\0');
  auto const n = sim.held(text.data(), text.size());
  return n ? text.c_str() : "";
}

char now[200];  // which call of which program fails at the moment

/// Nothing of this takes long: a rank that is not released shows here, not in the time limit of the whole test.
void on_alarm(int) {
  (void)!write(STDERR_FILENO, now, std::strlen(now));
  _exit(1);
}

}  // namespace

TEST_CASE("every HIP call fails in turn") {
  simulator const sim;
  if (!sim.fail_call) SKIP("calls can be made to fail under fusewire-sim only");
  auto const& p = programs[GENERATE(Catch::Generators::range(std::size_t(0), programs.size()))];
  CAPTURE(p.name);
  signal(SIGALRM, on_alarm);
  int failures = 0;
  for (std::uint64_t n = 1;; ++n) {
    CAPTURE(n);
    std::snprintf(now, sizeof now, "hangs: %s, call %llu fails\n", p.name, static_cast<unsigned long long>(n));
    alarm(60);
    std::string error, said;
    bool passed = false;
    sim.fail_call(n, nullptr);
    try {
      said_on_stderr const listen;
      run_local(p.ranks, {.devices = p.devices}, p.run);
      passed = true;
      said = listen.text();
    } catch (fusewire::error const& e) {
      error = e.what();
    }
    char const* const failed = sim.failed_call();
    sim.fail_call(0, nullptr);
    CHECK(held(sim) == "");
    if (!failed) {
      CHECK(passed);
      CHECK(error == "");
      break;
    }
    ++failures;
    CAPTURE(failed, error);
    if (passed) CHECK((may_pass(failed) || said.find(name_in_message(failed)) != std::string::npos));
    else CHECK(error.find(name_in_message(failed)) != std::string::npos);
    if (!passed)
      CHECK_NOTHROW(run_local(p.ranks, {.devices = p.devices}, [](world& w) {
        heap h(w, tiny_heap());
        w.barrier();
      }));
  }
  alarm(0);
  CHECK(failures > 20);
}
