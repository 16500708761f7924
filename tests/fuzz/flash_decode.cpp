// flash_decode with any options and any call. Lengths are anything, tables name pages that are there; calls whose
// arrays would be longer than what is there are only captured.
#include <fusewire/ops/flash_decode.hpp>

#include "input.hpp"

using namespace fuzz;

namespace {

constexpr std::size_t elements = 32768;  // of each array

void use(input& in, world& w) {
  heap h(w, small_heap());
  channel ch(h, {.max_bytes = 32_KiB, .flags_per_source = 1 + int(in.byte())});
  auto const q = h.allocate<bf16>(elements), kv = h.allocate<bf16>(elements), out = h.allocate<bf16>(elements);
  auto const table = h.allocate<std::int32_t>(4096), lengths = h.allocate<std::int32_t>(4096);
  auto const here = [&](auto x) { return h.view().here(x); };
  check_hip(hipMemset(here(q), 0, 2 * elements), "hipMemset");
  check_hip(hipMemset(here(kv), 0, 2 * elements), "hipMemset");
  check_hip(hipMemset(here(table), 0, 4 * 4096), "hipMemset");
  std::vector<std::int32_t> numbers(4096);
  for (int i = 0; i < 4; ++i) numbers[std::size_t(i)] = in.integer();
  check_hip(hipMemcpy(here(lengths), numbers.data(), 4 * 4096, hipMemcpyHostToDevice), "hipMemcpy");
  check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  auto const extent = [&](int ordinary) { return in.rarely() ? in.integer() : ordinary; };
  int const kv_heads = extent(1 + in.below(2));
  flash_decode_options o{.max_batch = extent(1 + in.below(4)),
                         .q_heads = in.rarely() ? in.integer() : int(unsigned(kv_heads) * unsigned(1 + in.below(4))),
                         .kv_heads = kv_heads,
                         .head_dim = in.rarely() ? in.integer() : 64 + 64 * in.below(2),
                         .page_size = in.rarely() ? in.integer() : 1 << in.below(8),
                         .max_pages = extent(1 + in.below(4)),
                         .reserved_cus = extent(in.below(3)),
                         .shots = reduce_algorithm(extent(in.below(3)))};
  if (in.rarely()) {
    auto const bits = std::uint32_t(in.raw(4));
    std::memcpy(&o.scale, &bits, sizeof bits);
  }
  flash_decode<bf16> op(ch, o);
  double const cache = double(o.page_size) * o.kv_heads * o.head_dim,
               queries = double(o.max_batch) * o.q_heads * o.head_dim, entries = double(o.max_batch) * o.max_pages;
  bool const there = cache <= double(elements) && queries <= double(elements) && entries <= 4096;
  for (int i = 0; i < 3 && !in.done(); ++i) {
    bool bad = false;
    auto const pointer = [&]<class T>(T* good) -> T* {
      if (!in.rarely()) return good;
      bad = true;
      return in.one_of<T*>({nullptr, reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(good) + 1),
                            reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(good) + 8), good + 1});
    };
    flash_decode_call<bf16> const call{.q = pointer(here(q)),
                                       .k_cache = pointer(here(kv)),
                                       .v_cache = pointer(here(kv)),
                                       .block_table = pointer(here(table)),
                                       .lengths = pointer(here(lengths)),
                                       .out = pointer(here(out)),
                                       .lse = nullptr,
                                       .batch = in.rarely() ? in.integer() : 1 + in.below(4) % o.max_batch};
    if (bad || !there) {
      without_running(w, [&] { op(w.stream(), call); });
      continue;
    }
    if (accepted([&] { op(w.stream(), call); })) w.check(w.stream());
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
