// Times moe_dispatch and moe_combine, by token and by expert, and prints a line for each:
//
//   fusewire-sim --time --gpus 8 projection_moe RANKS TOKENS [HIDDEN [EXPERTS [TOP_K [by_token|by_expert]]]]
#include "projection.hpp"

#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <random>
#include <string_view>

using namespace fusewire;
using namespace fusewire::projected;

namespace {

/// us of a dispatch, and of a combine, one of several. Checks how many rows came.
std::pair<double, double> times_of(world& w, moe_options const& o, int hidden) {
  auto const needs = moe_dispatch::requirements(w.size(), o) + moe_combine<bf16>::requirements(w.size(), o);
  heap h(w, needs + requirements::of<barrier_state>(1));
  channel ch(h, needs);
  moe_dispatch dispatch(ch, o);
  moe_combine<bf16> combine(ch, o);
  moe_routing const routing(w, o);
  stopwatch watch(w, h);
  std::mt19937 random(unsigned(w.rank()) + 1);
  std::vector<std::int32_t> table;
  for (int t = 0; t < o.max_tokens; ++t)
    for (int j = 0; j < o.top_k; ++j) {
      auto const first = table.end() - j;
      int e = int(random() % unsigned(o.experts));
      while (std::find(first, table.end(), e) != table.end()) e = (e + 1) % o.experts;
      table.push_back(e);
    }
  int const max_rows = routing.view().shape.max_rows;
  matrix<bf16> const x{allocate<bf16>(std::size_t(o.max_tokens) * std::size_t(hidden)), o.max_tokens, hidden, hidden},
      rows{allocate<bf16>(std::size_t(max_rows) * std::size_t(hidden)), max_rows, hidden, hidden};
  moe_dispatch_call const c{.x = x,
                            .out = rows,
                            .experts = upload(allocate<std::int32_t>(table.size()), table),
                            .tokens = o.max_tokens,
                            .routing = routing};
  auto const time = [&](auto const& call) {
    auto const several = [&](int n) {
      return stopwatch::slowest(watch.of_ranks([&] {
        for (int i = 0; i < n; ++i) call();
      }));
    };
    double const two = several(2);
    return (several(6) - two) / 4;
  };
  double const there = time([&] { dispatch(w.stream(), c); });
  double const back = time([&] { combine(w.stream(), {.in = rows, .out = x, .routing = routing}); });
  int received = 0;
  check_hip(hipMemcpy(&received, routing.view().source_rows + w.size(), sizeof received, hipMemcpyDeviceToHost),
            "hipMemcpy");
  if (received < 1) throw error("no rows came");
  return {there, back};
}

}  // namespace

int main(int argc, char** argv) try {
  auto const number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  int const ranks = number(1, 0), tokens = number(2, 0), hidden = number(3, 7168);
  if (ranks < 1 || tokens < 1 || hidden % 8 != 0) return 2;
  run(ranks, [&](world& w) {
    for (auto const layout : {moe_layout::by_token, moe_layout::by_expert}) {
      char const* const name = layout == moe_layout::by_token ? "by_token" : "by_expert";
      if (argc > 6 && std::string_view(argv[6]) != name) continue;
      moe_options const o{.max_tokens = tokens,
                          .experts = number(4, 256),
                          .top_k = number(5, 8),
                          .max_row_bytes = hidden * 2,
                          .layout = layout};
      auto const [there, back] = times_of(w, o, hidden);
      if (w.rank() == 0)
        std::printf("%d %d %d %s dispatch %.2f combine %.2f\n", ranks, tokens, hidden, name, there, back),
            std::fflush(stdout);
    }
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
