// ag_gemm with any options and any call. Calls whose matrices are really there run; of others the library cannot know
// how long the memory is, so that they are only captured.
#include <fusewire/ops/ag_gemm.hpp>

#include "input.hpp"

using namespace fuzz;

namespace {

constexpr std::size_t elements = 16384;  // of each operand

template <class T>
matrix<T> some_matrix(input& in, bf16* base, int rows, int cols, std::int64_t ld) {
  matrix<T> x{base, rows, cols, ld};
  if (in.rarely()) x.rows = in.integer();
  if (in.rarely()) x.cols = in.integer();
  if (in.below(4) == 0) x.ld = in.coin() ? ld + in.below(64) : in.integer<std::int64_t>();
  if (in.rarely())
    x.data =
        in.one_of<T*>({nullptr, base + 1, base + 8, reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(base) + 1),
                       reinterpret_cast<T*>(std::uintptr_t(16))});
  return x;
}

template <class T>
bool is_there(matrix<T> x, bf16 const* base, bool column_major = false) {
  if (x.data < base || x.data > base + 16 || x.rows < 0 || x.cols < 0 || x.ld < 0 || x.ld > std::int64_t(elements))
    return false;
  std::int64_t const lines = column_major ? x.cols : x.rows, along = column_major ? x.rows : x.cols;
  return (lines - 1) * x.ld + along + 16 <= std::int64_t(elements);
}

template <class E>
E some_enum(input& in, int values) {
  int const i = in.below(32);
  return E(i == 31 ? in.integer() : i % values);
}

gemm_tile some_tile(input& in) {
  int const i = in.below(32);
  if (i == 31) return {in.integer(), in.integer(), in.integer(), in.coin()};
  return i % 3 == 0 ? gemm_tile::automatic : i % 3 == 1 ? gemm_tile::small : gemm_tile::large;
}

void use(input& in, world& w) {
  heap h(w, small_heap());
  bool const large_channel = in.below(8) == 0;
  channel ch(h, {.max_bytes = large_channel ? 128_KiB : 16_KiB, .flags_per_source = 1 + int(in.byte())});
  auto const a = h.allocate<bf16>(elements), b = h.allocate<bf16>(elements), c = h.allocate<bf16>(elements);
  auto const here = [&](sym<bf16> x) { return h.view().here(x); };
  check_hip(hipMemset(here(a), 0, 2 * elements), "hipMemset");
  check_hip(hipMemset(here(b), 0, 2 * elements), "hipMemset");
  check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  auto const extent = [&](int ordinary) { return in.rarely() ? in.integer() : ordinary; };
  ag_gemm_options const o{.max_m = extent(1 + in.below(96)),
                          .k = extent(8 * w.size() * (1 + in.below(8))),
                          .gather = some_enum<gather>(in, 2),
                          .method = some_enum<method>(in, 3),
                          .tile = some_tile(in),
                          .comm_blocks = extent(in.below(4)),
                          .chunk_k = extent(8 * in.below(4)),
                          .reserved_cus = extent(in.below(3)),
                          .local_shard_first = in.coin()};
  ag_gemm<bf16> op(ch, o);
  for (int i = 0; i < 3 && !in.done(); ++i) {
    ag_gemm_call<bf16> call;
    call.m = in.rarely() ? in.integer() : 1 + int(in.byte()) % o.max_m;
    call.b_layout = some_enum<layout>(in, 2);
    int const n = extent(1 + in.below(100));
    int rows = 0;
    accepted([&] { rows = op.rows(call.m); });
    int const cols = o.gather == gather::k ? o.k / w.size() : o.k;
    call.a = some_matrix<bf16 const>(in, here(a), rows, cols, cols);
    call.b = some_matrix<bf16 const>(in, here(b), o.k, n, call.b_layout == layout::column_major ? o.k : n);
    call.c = some_matrix<bf16>(in, here(c), call.m, n, n);
    int const runs = is_there(call.a, here(a)) && is_there(call.b, here(b), call.b_layout == layout::column_major) &&
                     is_there(call.c, here(c));
    auto const all = w.exchange().all_gather(runs);
    if (!std::ranges::all_of(all, [](int x) { return x; })) {
      without_running(w, [&] { op(w.stream(), call); });
      continue;
    }
    int const started = accepted([&] { op(w.stream(), call); });
    for (int of_rank : w.exchange().all_gather(started))
      if (of_rank != started) throw wait_timeout("another rank refused its part");
    if (started) w.check(w.stream());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  input first(data, size);
  bool const two = first.below(16) == 15;
  on_ranks(two, [&](world& w) {
    input in = first;
    use(in, w);
  });
  return 0;
}
