// Heaps of any size; sequences of allocate, free and offset_of. What is allocated is aligned, inside its segment, and
// overlaps nothing.
#include "input.hpp"

using namespace fuzz;

namespace {

struct alignas(4096) page {
  char bytes[4096];
};
struct taken {
  std::uint64_t offset, bytes;
  int type;
};

template <class T>
void allocate(input& in, heap& h, std::vector<taken>& all, int type, std::size_t segment) {
  auto const count = in.integer<std::size_t>(),
             alignment = in.coin() ? alignof(T) << in.below(6) : in.integer<std::size_t>();
  sym<T> x;
  if (!accepted([&] { x = h.allocate<T>(count, alignment); })) return;
  must(x.count == count, "another count");
  must(x.offset % alignment == 0 && reinterpret_cast<std::uintptr_t>(h.view().here(x)) % alignment == 0, "alignment");
  must(x.offset <= segment && x.count * sizeof(T) <= segment - x.offset, "out of the segment");
  constexpr bool in_signal = lives_in_signal_segment<T>;
  for (auto const& t : all)
    if ((t.type == 2 || t.type == 3) == in_signal)
      must(t.offset >= x.offset + count * sizeof(T) || x.offset >= t.offset + t.bytes, "overlaps");
  all.push_back({x.offset, count * sizeof(T), type});
}

template <class T>
bool free(heap& h, std::uint64_t offset) {
  return accepted([&] { h.free(sym<T>{offset, 1}); });
}

bool free(heap& h, std::uint64_t offset, int type) {
  switch (type) {
    case 0: return free<char>(h, offset);
    case 1: return free<page>(h, offset);
    case 2: return free<flag>(h, offset);
    default: return free<barrier_state>(h, offset);
  }
}

void use(input& in, heap& h, heap_options const& o) {
  std::vector<taken> all;
  for (int i = 0; i < 64 && !in.done(); ++i) switch (in.below(8)) {
      case 0:
      case 1: allocate<char>(in, h, all, 0, o.bulk); break;
      case 2: allocate<page>(in, h, all, 1, o.bulk); break;
      case 3: allocate<flag>(in, h, all, 2, o.signal); break;
      case 4: allocate<barrier_state>(in, h, all, 3, o.signal); break;
      case 5: {
        auto const base = reinterpret_cast<std::uintptr_t>(h.view().bulk[h.world().rank()]);
        auto const distance = in.integer<std::uint64_t>(), bytes = in.integer<std::uint64_t>();
        std::uint64_t offset = 0;
        if (accepted([&] {
              offset = h.offset_of(reinterpret_cast<void const*>(base + distance), bytes, "p",
                                   std::source_location::current());
            }))
          must(offset == distance && distance < o.bulk && bytes <= o.bulk - distance, "offset_of");
        break;
      }
      case 6: {
        auto const offset = in.integer<std::uint64_t>();
        int const type = in.below(4);
        auto const found =
            std::ranges::find_if(all, [&](taken const& t) { return t.offset == offset && (t.type < 2) == (type < 2); });
        must(free(h, offset, type) == (found != all.end()), "free of what is not allocated");
        if (found != all.end()) all.erase(found);
        break;
      }
      default:
        if (all.empty()) break;
        auto const victim = all.begin() + int(in.byte() % all.size());
        must(free(h, victim->offset, victim->type), "free of what is allocated");
        all.erase(victim);
    }
  must(h.allocations() == all.size(), "allocations()");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  input first(data, size);
  bool const two = first.below(16) == 15;
  heap_options o = small_heap();
  if (first.coin()) {  // nothing between what is quick to clear and what no device has
    constexpr std::size_t beyond = std::size_t(1) << 40;
    o.bulk = first.one_of<std::size_t>({0, 1, 1_MiB - 1, 1_MiB, 1_MiB + 1, 64_MiB, beyond, SIZE_MAX - 4096, SIZE_MAX});
    o.signal =
        first.one_of<std::size_t>({0, 1, 64_KiB - 1, 64_KiB, 64_KiB + 1, 1_MiB, beyond, SIZE_MAX - 4096, SIZE_MAX});
    o.wait_limit = std::chrono::nanoseconds(first.integer<std::int64_t>());
  }
  on_ranks(two, [&](world& w) {
    input in = first;
    heap h(w, o);
    use(in, h, o);
  });
  return 0;
}
