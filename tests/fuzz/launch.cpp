// Worlds, parts of worlds, channels and launch shapes. A launch that is accepted runs with the shape that was asked
// for.
#include "input.hpp"

using namespace fuzz;

namespace {

__global__ void count_threads(unsigned* n) { atomic_ref<unsigned, scope::device>(n).fetch_add(1u, order::relaxed); }

void launch_something(input& in, world& w, heap& h) {
  auto const n = h.allocate<unsigned>(1);
  check_hip(hipMemset(h.view().here(n), 0, sizeof(unsigned)), "hipMemset");
  check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  launch_shape const s{.blocks = in.integer(), .threads = in.integer(), .shared_bytes = in.integer()};
  hipStream_t const stream = in.rarely() ? nullptr : w.stream();
  bool const ran = accepted([&] { launch(w, stream, s, count_threads, h.view().here(n)); });
  check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  unsigned found = 0;
  check_hip(hipMemcpy(&found, h.view().here(n), sizeof found, hipMemcpyDeviceToHost), "hipMemcpy");
  must(found == (ran ? unsigned(s.blocks) * unsigned(s.threads) : 0u), "another number of threads ran");
  h.free(n);
}

void use(input& in, world& w) {
  for (int i = 0; i < 16 && !in.done(); ++i) switch (in.below(6)) {
      case 0: accepted([&] { (void)w.device_of(in.integer()); }); break;
      case 1: accepted([&] { must(w.cus_per_rank(in.integer()) >= 0, "cus_per_rank"); }); break;
      case 2:
        accepted([&] {
          must(resident_blocks(w, count_threads, in.integer(), in.integer(), in.integer()) >= 0, "resident_blocks");
        });
        break;
      case 3: {
        int const color = in.below(4) ? in.integer() : in.integer() / (1 + w.rank());
        world part = w.split(color);
        must(part.size() <= w.size() && part.rank() < part.size(), "split");
        break;
      }
      case 4: {
        heap h(w, small_heap());
        channel_options o{.max_bytes = in.integer<std::size_t>(), .flags_per_source = in.integer()};
        accepted([&] {
          channel ch(h, o);
          (void)ch.view(make_header("fuzz", in.byte()));
          if (in.coin()) ch.reset();
        });
        must(h.allocations() == 0, "a channel keeps memory");
        break;
      }
      default: {
        heap h(w, small_heap());
        launch_something(in, w, h);
      }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  input first(data, size);
  if (first.below(4)) {
    on_ranks(false, [&](world& w) { use(first, w); });
    return 0;
  }
  int const ranks = first.below(8) ? 1 + first.below(3) : first.integer();
  run_options o;
  if (first.coin())
    for (int n = first.below(4); n > 0; --n) o.devices.push_back(first.below(8) ? first.below(2) : first.integer());
  accepted([&] {
    run_local(ranks, o, [&](world& w) {
      input in = first;
      use(in, w);
    });
  });
  return 0;
}
