// Times all_reduce as it chooses, then by every way that rows can travel, and prints a line for each:
//
//   fusewire-sim --time --gpus 8 projection_all_reduce RANKS ROWS COLUMNS [norm] [chosen]
//
// chosen: the first line alone.
#include "projection.hpp"

#include <fusewire/ops/all_reduce.hpp>

#include <string_view>

using namespace fusewire;
using namespace fusewire::projected;

namespace {

/// us of one call of several, with or without RMSNorm. Checks the sums.
double time_of(world& w, all_reduce_options const& o, int rows, int cols, bool norm) {
  auto const needs = all_reduce<bf16>::requirements(w.size(), o);
  std::size_t const count = std::size_t(rows) * std::size_t(cols);
  heap h(w, needs + requirements::of<bf16>(count) + requirements::of<barrier_state>(1));
  channel ch(h, needs);
  all_reduce<bf16> op(ch, o);
  stopwatch watch(w, h);
  std::vector<bf16> mine(count);
  for (std::size_t i = 0; i < count; ++i) mine[i] = bf16(float(small_number(i + std::size_t(w.rank()))));
  bf16* const in = upload(allocate<bf16>(count), mine);
  bf16 *const out = allocate<bf16>(count), *const residual = upload(allocate<bf16>(count), mine),
              *const gamma =
                  upload(allocate<bf16>(std::size_t(cols)), std::vector<bf16>(std::size_t(cols), bf16(1.0f)));
  auto const view = [&](bf16* p) { return matrix<bf16>{p, rows, cols, cols}; };
  auto const call = [&] {
    if (norm)
      op(w.stream(), view(in),
         rms_norm<bf16>{
             .residual = view(residual), .gamma = gamma, .residual_out = view(residual), .norm_out = view(out)});
    else op(w.stream(), {.in = in, .out = out, .count = std::int64_t(count)});
  };
  auto const several = [&](int n) {
    return stopwatch::slowest(watch.of_ranks([&] {
      for (int i = 0; i < n; ++i) call();
    }));
  };
  if (norm) op.template prepare<rms_norm<bf16>>();
  double const two = several(2), us = (several(6) - two) / 4;
  if (norm) return us;
  std::vector<bf16> sums(count);
  check_hip(hipMemcpy(sums.data(), out, count * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  for (std::size_t i = 0; i < count; ++i) {
    int wanted = 0;
    for (int r = 0; r < w.size(); ++r) wanted += small_number(i + std::size_t(r));
    if (float(sums[i]) != float(wanted)) throw error(text("element ", i, " is ", float(sums[i]), ", not ", wanted));
  }
  return us;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = argc > 3 ? std::atoi(argv[1]) : 0, rows = argc > 3 ? std::atoi(argv[2]) : 0,
            cols = argc > 3 ? std::atoi(argv[3]) : 0;
  bool const norm = argc > 4 && std::string_view(argv[4]) == "norm",
             only_chosen = argc > 4 && std::string_view(argv[argc - 1]) == "chosen";
  if (ranks < 1 || rows < 1 || cols < 1) return 2;
  run(ranks, [&](world& w) {
    auto const print = [&](char const* transport, char const* shots, all_reduce_options const& o) {
      double const us = time_of(w, o, rows, cols, norm);
      if (w.rank() == 0)
        std::printf("%d %d %d %s %s %s %.2f\n", ranks, rows, cols, norm ? "norm" : "sum", transport, shots, us),
            std::fflush(stdout);
    };
    all_reduce_options const chosen{.max_rows = rows, .max_cols = cols};
    print("chosen", "chosen", chosen);
    if (only_chosen) return;
    for (auto const transport : {row_transport::ll_words, row_transport::flags})
      for (auto const shots : {reduce_algorithm::one_shot, reduce_algorithm::two_shot}) {
        if (ranks <= 2 && shots == reduce_algorithm::two_shot) continue;
        all_reduce_options o = chosen;
        o.shots = shots, o.transport = transport;
        print(transport == row_transport::flags ? "flags" : "words",
              shots == reduce_algorithm::one_shot ? "one" : "two", o);
      }
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
