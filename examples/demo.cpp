// The demonstration that scripts/demo runs: all-gather + GEMM, pull and push, and Flash Decode, each one kernel launch
// per rank and checked against an fp32 reference.
//
//   fusewire_demo [ranks]     1 to 8; default: 8 under fusewire-sim, else 1, 2, 4 or 8 with a GPU per rank
#include <dlfcn.h>
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <fusewire_sim.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

using clock_type = std::chrono::steady_clock;
clock_type::time_point const started = clock_type::now();

template <class... Parts>
void progress(Parts const&... parts) {
  std::printf("[%6.1f s] %s\n", std::chrono::duration<double>(clock_type::now() - started).count(),
              text(parts...).c_str());
  std::fflush(stdout);
}

/// Totals of the simulator, when this is one.
struct simulator {
  fusewire_sim_stats_function stats =
      reinterpret_cast<fusewire_sim_stats_function>(dlsym(RTLD_DEFAULT, "fusewireSimStats"));
  fusewire_sim_reset_function reset =
      reinterpret_cast<fusewire_sim_reset_function>(dlsym(RTLD_DEFAULT, "fusewireSimReset"));

  explicit operator bool() const { return stats && reset; }
};

struct result {
  std::string what, shape;
  double relative_error = 0, seconds = 0;
  // Of all ranks; measured by the simulator, else the bytes that the algorithm sends
  double link_bytes = 0, instructions = 0;
  bool correct() const { return relative_error < limit; }
  double limit = 1e-2;
};

/// |found - wanted| / |wanted|, Frobenius norms.
template <class T>
double relative_error(std::vector<T> const& found, std::vector<float> const& wanted) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    double const f = double(float(found[i])), w = double(wanted[i]);
    difference += f == f ? (f - w) * (f - w) : 1e30;
    norm += w * w;
  }
  return std::sqrt(difference / norm);
}

template <class T>
std::vector<T> normal_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<T> v(count);
  for (auto& x : v) x = T(normal(generator));
  return v;
}

template <class T>
T* upload(heap& h, std::vector<T> const& from) {
  T* const to = h.view().here(h.allocate<T>(from.size()));
  check_hip(hipMemcpy(to, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice), "hipMemcpy");
  return to;
}

/// Runs f(world&) -> relative error on every rank, and fills in what the whole run took.
template <class F>
void measure(result& r, int ranks, F f) {
  progress(r.what, "  ", r.shape);
  std::vector<double> errors(static_cast<std::size_t>(ranks));
  auto const t0 = clock_type::now();
  run_local(ranks, [&](world& w) { errors[static_cast<std::size_t>(w.rank())] = f(w); });
  r.seconds = std::chrono::duration<double>(clock_type::now() - t0).count();
  r.relative_error = *std::max_element(errors.begin(), errors.end());
}

/// Launches once on all ranks; rank 0 reads the simulator's totals around it.
template <class F>
void launch_counted(world& w, result& r, F launch) {
  simulator const sim;
  w.barrier();
  if (sim && w.rank() == 0) sim.reset();
  w.barrier();
  launch();
  w.barrier();
  if (!sim || w.rank() != 0) return;
  fusewire_sim_stats s{};
  s.size = sizeof s;
  if (sim.stats(&s) != 0) return;
  r.instructions = double(s.instructions);
  r.link_bytes = 0;
  for (std::size_t a = 0; a < s.gpus; ++a)
    for (std::size_t b = 0; b < s.gpus; ++b)
      if (a != b)
        r.link_bytes += double(s.links[a][b].load_bytes + s.links[a][b].store_bytes + s.links[a][b].atomic_bytes);
}

result all_gather_gemm(int ranks, method how) {
  constexpr int m = 128, n = 256;
  int const k = ranks * int(round_up(std::size_t(ceil_div(8192, ranks)), 8));  // as many columns for every rank
  static std::vector<bf16> const a = normal_values<bf16>(std::size_t(m) * k, 1),
                                 b = normal_values<bf16>(std::size_t(k) * n, 2);
  static std::vector<float> const wanted = [&] {
    progress("reference: all-gather + GEMM on the host");
    std::vector<float> c(std::size_t(m) * n), row(n);
    for (int i = 0; i < m; ++i)
      for (int l = 0; l < k; ++l) {
        float const x = float(a[std::size_t(i) * k + std::size_t(l)]);
        for (int j = 0; j < n; ++j) c[std::size_t(i * n + j)] += x * float(b[std::size_t(l) * n + std::size_t(j)]);
      }
    return c;
  }();
  result r{how == method::push ? "AG+GEMM push" : "AG+GEMM pull", text("M=", m, " N=", n, " K=", k, " bf16")};
  r.link_bytes = double(m) * k * sizeof(bf16) * (ranks - 1);
  measure(r, ranks, [&](world& w) {
    int const k_local = k / w.size();
    ag_gemm_options const options{.max_m = m, .k = k, .gather = gather::k, .method = how};
    requirements const needs = ag_gemm<bf16>::requirements(w.size(), options) +
                               requirements::of<bf16>(std::size_t(m * k_local)) +
                               requirements::of<bf16>(std::size_t(k) * n) + requirements::of<bf16>(m * n);
    heap h(w, needs);
    channel ch(h, needs);
    ag_gemm<bf16> op(ch, options);
    std::vector<bf16> shard(std::size_t(m) * std::size_t(k_local)), c(std::size_t(m) * n, bf16(NAN));
    for (int i = 0; i < m; ++i)
      std::copy_n(&a[std::size_t(i) * k + std::size_t(w.rank() * k_local)], k_local,
                  &shard[std::size_t(i) * std::size_t(k_local)]);
    bf16 *const da = upload(h, shard), *const db = upload(h, b), *const dc = upload(h, c);
    launch_counted(w, r, [&] {
      op(w.stream(), {.a = {da, m, k_local, k_local}, .b = {db, k, n, n}, .c = {dc, m, n, n}, .m = m});
      w.check(w.stream());
    });
    check_hip(hipMemcpy(c.data(), dc, c.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
    return relative_error(c, wanted);
  });
  return r;
}

result decode(int ranks) {
  constexpr int q_heads = 96, kv_heads = 12, d = 128, page = 16, tokens = 256;  // tokens per rank
  constexpr int pages = tokens / page, group = q_heads / kv_heads;
  constexpr std::size_t cache = std::size_t(tokens) * kv_heads * d;
  static std::vector<f16> const q = normal_values<f16>(std::size_t(q_heads) * d, 3);
  static std::vector<f16> const keys = normal_values<f16>(cache * std::size_t(ranks), 4),
                                values = normal_values<f16>(cache * std::size_t(ranks), 5);
  static std::vector<float> const wanted = [&] {
    progress("reference: attention on the host");
    std::vector<float> out(std::size_t(q_heads) * d), p(std::size_t(tokens * ranks));
    for (int h = 0; h < q_heads; ++h) {
      float top = -INFINITY, sum = 0;
      auto const at = [&](int t) { return (std::size_t(t) * kv_heads + std::size_t(h / group)) * d; };
      for (int t = 0; t < tokens * ranks; ++t) {
        float s = 0;
        for (int i = 0; i < d; ++i) s += float(q[std::size_t(h * d + i)]) * float(keys[at(t) + std::size_t(i)]);
        p[std::size_t(t)] = s / std::sqrt(float(d));
        top = std::max(top, p[std::size_t(t)]);
      }
      for (auto& x : p) sum += x = std::exp(x - top);
      for (int t = 0; t < tokens * ranks; ++t)
        for (int i = 0; i < d; ++i)
          out[std::size_t(h * d + i)] += p[std::size_t(t)] / sum * float(values[at(t) + std::size_t(i)]);
    }
    return out;
  }();
  result r{"Flash Decode", text(q_heads, "/", kv_heads, " heads d=", d, " KV=", tokens * ranks, " f16")};
  r.limit = 2e-3;
  r.link_bytes = double(q_heads) * (d + 2) * sizeof(float) * ranks * (ranks - 1);
  measure(r, ranks, [&](world& w) {
    flash_decode_options const options{
        .max_batch = 1, .q_heads = q_heads, .kv_heads = kv_heads, .head_dim = d, .page_size = page, .max_pages = pages};
    requirements const needs = flash_decode<f16>::requirements(w.size(), options) + 2 * requirements::of<f16>(cache) +
                               2 * requirements::of<f16>(q_heads * d) + requirements::of<int>(pages) +
                               requirements::of<int>(1);
    heap h(w, needs);
    channel ch(h, needs);
    flash_decode<f16> op(ch, options);
    std::vector<int> table(pages), length{tokens};
    for (int i = 0; i < pages; ++i) table[std::size_t(i)] = i;
    auto const mine = [&](std::vector<f16> const& all) {
      return std::vector<f16>(all.begin() + std::ptrdiff_t(cache) * w.rank(),
                              all.begin() + std::ptrdiff_t(cache) * (w.rank() + 1));
    };
    std::vector<f16> out(std::size_t(q_heads) * d, f16(NAN));
    f16 *const dq = upload(h, q), *const dk = upload(h, mine(keys)), *const dv = upload(h, mine(values)),
               *const d_out = upload(h, out);
    int *const d_table = upload(h, table), *const d_length = upload(h, length);
    launch_counted(w, r, [&] {
      op(w.stream(), {.q = dq,
                      .k_cache = dk,
                      .v_cache = dv,
                      .block_table = d_table,
                      .lengths = d_length,
                      .out = d_out,
                      .batch = 1});
      w.check(w.stream());
    });
    check_hip(hipMemcpy(out.data(), d_out, out.size() * sizeof(f16), hipMemcpyDeviceToHost), "hipMemcpy");
    return relative_error(out, wanted);
  });
  return r;
}

std::string with_unit(double x, char const* unit) {
  char s[32];
  if (x >= 1e9) std::snprintf(s, sizeof s, "%.2f G%s", x / 1e9, unit);
  else if (x >= 1e6) std::snprintf(s, sizeof s, "%.2f M%s", x / 1e6, unit);
  else std::snprintf(s, sizeof s, "%.1f k%s", x / 1e3, unit);
  return s;
}

}  // namespace

int main(int argc, char** argv) try {
  auto const asked = ranks_of(argc, argv, 8);
  simulator const sim;
  int const gpus = device_count();
  hipDeviceProp_t properties;
  if (gpus > 0) check_hip(hipGetDeviceProperties(&properties, 0), "hipGetDeviceProperties");
  int const ranks = asked.value_or(sim ? 8 : int(std::bit_floor(unsigned(std::clamp(gpus, 1, 8)))));
  std::string const where = sim ? text("fusewire-sim, ", gpus, " simulated MI300X")
                                : text(gpus, " x ", gpus > 0 ? properties.name : "no GPU");

  result const results[] = {all_gather_gemm(ranks, method::pull), all_gather_gemm(ranks, method::push), decode(ranks)};
  progress("done");

  std::printf("\n%d ranks on %s; one kernel launch per rank and row\n\n", ranks, where.c_str());
  std::printf("%-14s %-38s %-14s %-14s %-13s %s\n", "kernel", "problem", "rel. error", sim ? "over links" : "to send",
              "instructions", "result");
  bool ok = true;
  for (auto const& r : results) {
    ok &= r.correct();
    std::printf("%-14s %-38s %-14.2e %-14s %-13s %s\n", r.what.c_str(), r.shape.c_str(), r.relative_error,
                with_unit(r.link_bytes, "B").c_str(), sim ? with_unit(r.instructions, "").c_str() : "-",
                r.correct() ? "correct" : "WRONG");
  }
  std::printf("\nrel. error: |C - reference| / |reference| in Frobenius norms, worst rank; at most 1e-2 (bf16) and "
              "2e-3 (f16) count as correct\n");
  if (sim)
    std::printf("instructions: of 64-lane waves, all GPUs together. Nothing here says how fast an MI300X would be.\n");
  return ok ? 0 : 1;
} catch (std::exception const& e) {
  std::fprintf(stderr, "fusewire_demo: %s\n", e.what());
  return 1;
}
