// Planted races, one case per run: races CASE, under fusewire-sim --races. Every rank gives words to the next one in
// three launches that are queued, in a kernel that is right but for the case. Nobody looks at the words: a race is
// reported whether or not this run reads wrong ones.
#include <fusewire/fusewire.hpp>

#include <algorithm>
#include <cstdio>
#include <string_view>

using namespace fusewire;

namespace {

constexpr int words = 2000, blocks = 16, threads = 128;

enum class mistake {
  none,             // a push through the inbox
  missing_wait,     // the reader does not wait
  missing_drain,    // the leader signals while stores of other waves are in flight
  own_inbox,        // one's own inbox, which the next launch overwrites
  none_in_pull,     // a pull from the owner's memory
  not_readable,     // begin() in place of begin_readable()
  not_acknowledged  // the owner's next kernel does not know that its words have been read
};
constexpr std::string_view names[] = {"none",         "missing_wait", "missing_drain",   "own_inbox",
                                      "none_in_pull", "not_readable", "not_acknowledged"};

template <mistake M>
__global__ void push(channel_view ch, sym<int> inbox, int* sum) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  int const to = w.next(1), from = w.next(w.size() - 1);
  int* const theirs = M == mistake::own_inbox ? w.on(to, inbox) : e.inbox<int>(to);
  int const* const ours = M == mistake::own_inbox ? w.here(inbox) : e.inbox<int>();
  for (int i = b.index() * b.size() + b.rank(); i < words; i += b.count() * b.size()) theirs[i] = i;
  if constexpr (M == mistake::missing_drain) {
    b.sync();
    if (b.leader()) platform::atomic_store<order::release, scope::system>(&e.to(to, b.index())->value, e.number());
  } else {
    e.signal(b, to, b.index());
  }
  if constexpr (M != mistake::missing_wait) e.wait(b, from, b.index());
  for (int i = b.index() * b.size() + b.rank(); i < words; i += b.count() * b.size()) sum[i] += ours[i];
  e.end(b);
}

__global__ void fill(int* mine) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < words; i += block{}.count() * block{}.size())
    mine[i] = i;
}

template <mistake M>
__global__ void pull(channel_view ch, sym<int> data, int* sum) {
  block const b;
  channel_epoch const e = M == mistake::not_readable ? ch.begin(b) : ch.begin_readable(b);
  world_view const& w = ch.world;
  int const source = w.next(1);
  if (e.pull().wait_begun(b, source))
    for (int i = b.index() * b.size() + b.rank(); i < words; i += b.count() * b.size()) sum[i] += w.on(source, data)[i];
  if constexpr (M != mistake::not_acknowledged) {
    e.pull().acknowledge(b, source, unsigned(b.count()));
    if (b.index() == 0)
      for (int r = 0; r < w.size(); ++r)
        if (w.next(r) != source) e.pull().acknowledge_nothing(b, w.next(r));
    if (b.index() == 0) e.pull().wait_acknowledged(b);
  }
  e.end(b);
}

template <mistake M>
void on_rank(world& w) {
  heap h(w, {.bulk = 2_MiB, .signal = 256_KiB});
  channel ch(h, {.max_bytes = words * sizeof(int), .flags_per_source = blocks});
  auto const data = h.allocate<int>(words), sum = h.allocate<int>(words);
  for (int i = 0; i < 3; ++i) {
    channel_view const view = ch.view(make_header("races", 0));
    int* const here = h.view().here(sum);
    if constexpr (M < mistake::none_in_pull) {
      launch(w, w.stream(), {.blocks = blocks, .threads = threads}, push<M>, view, data, here);
    } else {
      launch(w, w.stream(), {.blocks = blocks, .threads = threads}, fill, h.view().here(data));
      launch(w, w.stream(), {.blocks = blocks, .threads = threads}, pull<M>, view, data, here);
    }
  }
  w.check(w.stream());
}

template <int M = 0>
void run_case(int which) {
  if constexpr (M < int(std::size(names))) {
    if (which == M) run(3, on_rank<mistake(M)>);
    else run_case<M + 1>(which);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto const found = std::ranges::find(names, std::string_view(argc > 1 ? argv[1] : ""));
  if (found == std::end(names)) return 2;
  run_case(int(found - names));
  std::puts("passed");
} catch (std::exception const& e) {
  std::printf("%s\n", e.what());
  return 1;
}
