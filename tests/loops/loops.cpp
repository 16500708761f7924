// Right loops around the library's calls, in the forms in which users write them. A compiler that threads lanes from
// one test of the leader to the next, past the barriers between them, makes their own loop for the lanes that do
// not lead: they go round while the leader waits to draw the next piece.
//
//   fusewire_loops [loop]        all of them, or the one of this name
//
// A lane that does more pieces than there are writes where there is no memory, so that a loop that does not end is
// noticed: without a branch, which would change the loop.
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <string_view>
#include <vector>

using namespace fusewire;

enum class loop {
  endless,
  condition,
  for_statement,
  all_signalled,
  acknowledged,
  own_leader,
  own_tickets,
  register_counter,
  waits_first,
  waves,
  barriers,
  waits_for_all,
};
constexpr char const* names[] = {"endless",      "condition",  "for_statement", "all_signalled",
                                 "acknowledged", "own_leader", "own_tickets",   "register_counter",
                                 "waits_first",  "waves",      "barriers",      "waits_for_all"};

constexpr int count = 8;  // pieces

/// Every piece t, `b.size()` words of t, reaches the next rank, which copies it to `out`.
template <loop L>
__global__ void pieces(channel_view ch, int* out, int* notes, sym<barrier_state> meeting, unsigned* tickets) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  int const to = w.next(1), from = w.next(w.size() - 1);
  __shared__ int word;
  __shared__ int done[256];
  done[b.rank()] = 0;
  auto const too_often = [&] { return std::int64_t(++done[b.rank()] / (count + 1)) << 40; };
  auto const work = [&](int t) { e.inbox<int>(to)[too_often() + t * b.size() + b.rank()] = t; };
  auto const take = [&](int t) {
    e.wait(b, from, t);
    out[t * b.size() + b.rank()] = e.inbox<int>()[t * b.size() + b.rank()];
  };
  auto const ticket = [&](auto g, int* shared) {
    if (g.leader()) *shared = int(atomic_ref<unsigned, scope::device>(tickets).fetch_add(1u, order::relaxed));
    g.sync();
    int const t = *shared;
    g.sync();
    return t;
  };

  if constexpr (L == loop::endless) {
    while (true) {
      int const t = e.next(b, &word);
      if (t >= count) break;
      work(t);
      e.signal(b, to, t);
    }
  } else if constexpr (L == loop::condition) {
    int t;
    while ((t = e.next(b, &word)) < count) {
      work(t);
      e.signal(b, to, t);
    }
  } else if constexpr (L == loop::for_statement) {
    for (int t = e.next(b, &word); t < count; t = e.next(b, &word)) {
      work(t);
      e.signal(b, to, t);
    }
  } else if constexpr (L == loop::all_signalled) {
    while (true) {
      int const t = e.next(b, &word);
      if (t >= count) break;
      work(t);
      signal_all(b, 1, [&](int) { return e.to(to, t); }, e.number());
    }
  } else if constexpr (L == loop::acknowledged) {
    while (true) {
      int const t = e.next(b, &word);
      if (t >= count) break;
      work(t);
      e.signal(b, to, t);
      e.pull().acknowledge(b, from, unsigned(count));
    }
  } else if constexpr (L == loop::own_leader) {
    while (true) {
      int const t = e.next(b, &word);
      if (t >= count) break;
      work(t);
      e.signal(b, to, t);
      if (b.leader()) notes[t] = t;
    }
  } else if constexpr (L == loop::own_tickets) {
    while (true) {
      int const t = ticket(b, &word);
      if (t >= count) break;
      work(t);
      e.signal(b, to, t);
    }
  } else if constexpr (L == loop::register_counter || L == loop::waits_first) {
    int t = b.index();
    while (true) {
      if (t >= count) break;
      work(t);
      e.signal(b, to, t);
      t += b.count();
    }
  } else if constexpr (L == loop::waves) {
    if (wave{}.index() == 0) {
      wave const g;
      while (true) {
        int const t = ticket(g, &word);
        if (t >= count) break;
        std::int64_t const far = too_often();
        for (int i = g.rank(); i < b.size(); i += g.size()) e.inbox<int>(to)[far + t * b.size() + i] = t;
        e.signal(g, to, t);
      }
    }
  } else if constexpr (L == loop::barriers) {
    if (b.index() == 0)
      for (int i = 0; i < count; ++i) {
        barrier(b, w, meeting);
        if (b.leader()) notes[i] = i;
      }
    for (int t = b.index(); t < count; t += b.count()) {
      work(t);
      e.signal(b, to, t);
    }
  } else if constexpr (L == loop::waits_for_all) {
    // Else clang merges the number with what signal() loads in one lane: the same in all, but the check cannot know
    int const ranks = platform::uniform(w.size());
    for (int t = b.index(); t < count; t += b.count()) {
      work(t);
      for (int p = 0; p < ranks; ++p) e.signal(b, p, t);
    }
    int t = b.index();
    while (true) {
      e.wait(b, 0, w.size() - 1, t);
      t += b.count();
      if (t >= count) break;
      for (int p = b.rank(); p < w.size(); p += b.size()) notes[p] = t;
    }
  }

  if constexpr (L == loop::waits_first) {
    int t = b.index();
    while (true) {
      if (t >= count) break;
      take(t);
      if (b.leader()) notes[t] = t;
      t += b.count();
    }
  } else {
    for (int t = b.index(); t < count; t += b.count()) take(t);
  }
  e.end(b);
}

/// Requires: a stream that has ended.
template <class T>
std::vector<T> read(T const* from, std::size_t n) {
  std::vector<T> host(n);
  check_hip(hipMemcpy(host.data(), from, n * sizeof(T), hipMemcpyDeviceToHost), "hipMemcpy");
  return host;
}

template <loop L>
void run_loop(world& w, heap& h, int threads) {
  channel ch(h, {.max_bytes = count * 256 * sizeof(int), .flags_per_source = count});
  auto const out = h.allocate<int>(count * 256), notes = h.allocate<int>(count);
  auto const tickets = h.allocate<unsigned>(1);
  auto const meeting = h.allocate<barrier_state>(1);
  check_hip(hipMemset(h.view().here(out), 0xff, count * 256 * sizeof(int)), "hipMemset");
  check_hip(hipMemset(h.view().here(tickets), 0, sizeof(unsigned)), "hipMemset");
  check_hip(hipDeviceSynchronize(), "hipDeviceSynchronize");
  launch(w, w.stream(), {.blocks = 2, .threads = threads}, pieces<L>, ch.view(make_header("pieces", int(L))),
         h.view().here(out), h.view().here(notes), meeting, h.view().here(tickets));
  w.check(w.stream());
  auto const got = read(h.view().here(out), std::size_t(count * threads));
  for (int i = 0; i < count * threads; ++i)
    if (got[std::size_t(i)] != i / threads)
      throw error(text("loop ", names[int(L)], ", ", threads, " threads: word ", i, " is ", got[std::size_t(i)]));
  h.free(meeting);
  h.free(tickets);
  h.free(notes);
  h.free(out);
}

int main(int argc, char** argv) try {
  std::string_view const only = argc > 1 ? argv[1] : "";
  int found = 0;
  auto const each = [&]<std::size_t... L>(std::index_sequence<L...>) {
    (
        [&] {
          if (!only.empty() && only != names[L]) return;
          ++found;
          std::printf("%s\n", names[L]);
          std::fflush(stdout);
          run(2, [](world& w) {
            heap h(w, {.bulk = 1_MiB, .signal = 256_KiB});
            for (int threads : {64, 256}) run_loop<loop(L)>(w, h, threads);
          });
        }(),
        ...);
  };
  each(std::make_index_sequence<std::size(names)>{});
  if (found == 0) throw error(text("no loop ", only));
  std::printf("%d loops end\n", found);
  return 0;
} catch (std::exception const& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
