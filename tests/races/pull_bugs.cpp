// The pull of the tutorial's step 6 with a bug: pull_bugs BUG each|queued. Another kernel of the stream fills the array
// before each launch. The host calls check() after each launch, or once behind all of them. Ends with 1 where a sum is
// wrong. scripts/perf/planted_bugs.py counts how often each bug shows, for docs/testing_kernels.md.
#include <fusewire/fusewire.hpp>

#include <algorithm>
#include <cstdio>
#include <string_view>

using namespace fusewire;

namespace {

constexpr int tile = 64, tiles = 12, count = tile * tiles, launches = 5;

enum class bug {
  none,
  begin,          // in place of begin_readable
  no_wait_begun,  // nobody asks whether the owner's array is there
  no_acknowledge  // the owner does not know that its array has been read
};
constexpr std::string_view names[] = {"none", "begin", "no_wait_begun", "no_acknowledge"};

template <bug B>
__global__ void sum_arrays(channel_view ch, sym<float> array, float* sum) {
  __shared__ int word;
  block const b;
  channel_epoch const e = B == bug::begin ? ch.begin(b) : ch.begin_readable(b);
  channel_pull const pull = e.pull();
  world_view const& w = ch.world;
  bool begun = true;
  if constexpr (B != bug::no_wait_begun)
    for (int r = 0; r < w.size(); ++r) begun &= pull.wait_begun(b, r);
  for (int t = e.next(b, &word); t < tiles; t = e.next(b, &word)) {
    int const i = t * tile + b.rank();
    float all = 0;
    if (begun)
      for (int r = 0; r < w.size(); ++r) all += load(w.on(r, array) + i);
    sum[i] = all;
  }
  if constexpr (B != bug::no_acknowledge) {
    for (int r = 0; r < w.size(); ++r) pull.acknowledge(b, r, unsigned(b.count()));
    if (b.index() == 0) pull.wait_acknowledged(b);
  }
  e.end(b);
}

__host__ __device__ float value(int rank, int i, int n) { return float((rank * 5 + i * 3 + n) % 11); }

__global__ void fill(float* array, int rank, int n) {
  int const i = block{}.index() * block{}.size() + block{}.rank();
  array[i] = value(rank, i, n);
}

/// Whether all sums are right.
template <bug B>
bool on_rank(world& w, bool check_each) {
  heap h(w, {.bulk = 1_MiB, .signal = 256_KiB});
  channel ch(h, {.max_bytes = 1, .flags_per_source = 1});
  auto const array = h.allocate<float>(count), sums = h.allocate<float>(count * launches);
  load_kernel(w, fill, tile);
  load_kernel(w, sum_arrays<B>, tile);
  w.barrier();
  for (int n = 0; n < launches; ++n) {
    launch(w, w.stream(), {.blocks = tiles, .threads = tile}, fill, h.here(array), w.rank(), n);
    launch(w, w.stream(), {.blocks = std::max(3, w.xcd_count()), .threads = tile}, sum_arrays<B>,
           ch.view(make_header("pull", 0)), array, h.here(sums) + n * count);
    if (check_each) w.check(w.stream());
  }
  w.check(w.stream());
  auto const found = h.download(sums);
  bool right = true;
  for (int n = 0; n < launches; ++n)
    for (int i = 0; i < count; ++i) {
      float wanted = 0;
      for (int r = 0; r < w.size(); ++r) wanted += value(r, i, n);
      right &= found[std::size_t(n * count + i)] == wanted;
    }
  auto const all = w.exchange().all_gather(int(right));
  return std::ranges::count(all, 1) == w.size();
}

template <int B = 0>
bool run_bug(int which, bool check_each) {
  if constexpr (B < int(std::size(names))) {
    if (which != B) return run_bug<B + 1>(which, check_each);
    bool right = true;
    run(3, [&](world& w) {
      bool const mine = on_rank<bug(B)>(w, check_each);
      if (w.rank() == 0) right = mine;
    });
    return right;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) try {
  auto const found = std::ranges::find(names, std::string_view(argc > 1 ? argv[1] : ""));
  std::string_view const when = argc > 2 ? argv[2] : "";
  if (found == std::end(names) || (when != "each" && when != "queued")) return 2;
  bool const right = run_bug(int(found - names), when == "each");
  std::puts(right ? "all sums are right" : "wrong sums");
  return right ? 0 : 1;
} catch (std::exception const& e) {
  std::printf("%s\n", e.what());
  return 3;
}
