// What users get wrong with a channel and a heap, one case per run: misuse CASE. Every rank sends words to the next
// one, three times, in a kernel that is right but for the case. Prints what run() throws, with status 1; the
// simulator's reports have its own status.
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/flash_decode.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>

using namespace fusewire;

namespace {

constexpr int words = 500, blocks = 3, threads = 128;

enum class mistake {
  none,
  missing_signal,
  no_end,
  early_return,
  end_twice,
  begin_again,
  few_blocks,
  two_streams,
  captured_stream,
  check_in_capture,
  different_grid,
  inbox_too_small,
  inbox_far_too_small,
  flag_too_large,
  flag_negative,
  wait_flag_too_large,
  no_such_rank,
  heap_overflow,
  heap_overflow_on_peer,
  use_after_free,
  not_checked,
  long_name,
  no_such_page,
  too_long,
  ll,
  record_too_short,
  no_such_record,
  record_negative,
  no_such_peer,
  no_such_source,
  host_memory
};
constexpr std::string_view names[] = {"none",
                                      "missing_signal",
                                      "no_end",
                                      "early_return",
                                      "end_twice",
                                      "begin_again",
                                      "few_blocks",
                                      "two_streams",
                                      "captured_stream",
                                      "check_in_capture",
                                      "different_grid",
                                      "inbox_too_small",
                                      "inbox_far_too_small",
                                      "flag_too_large",
                                      "flag_negative",
                                      "wait_flag_too_large",
                                      "no_such_rank",
                                      "heap_overflow",
                                      "heap_overflow_on_peer",
                                      "use_after_free",
                                      "not_checked",
                                      "long_name",
                                      "no_such_page",
                                      "too_long",
                                      "ll",
                                      "record_too_short",
                                      "no_such_record",
                                      "record_negative",
                                      "no_such_peer",
                                      "no_such_source",
                                      "host_memory"};

template <mistake M>
__device__ void exchange(channel_view const& ch, block b, int const* mine, int* sum, int n) {
  auto const e = M == mistake::few_blocks ? ch.begin_readable(b) : ch.begin(b);
  world_view const& w = ch.world;
  int const to = w.next(1), from = w.next(w.size() - 1), first = b.index() * b.size() + b.rank(),
            step = b.count() * b.size();
  if (M == mistake::early_return && b.index() == 2) return;
  for (int i = first; i < n; i += step) e.inbox<int>(to)[i + (M == mistake::inbox_far_too_small ? 20000 : 0)] = mine[i];
  int const last = b.count() - 1;
  if (M != mistake::missing_signal || w.rank() != 1)
    e.signal(b, M == mistake::no_such_rank ? to + 2 * w.size() : to,
             M == mistake::flag_too_large && b.index() == last  ? blocks
             : M == mistake::flag_negative && b.index() == last ? -1
                                                                : b.index());
  if (M == mistake::wait_flag_too_large && b.index() == last) e.wait(b, from, blocks + 1);
  else if (M != mistake::different_grid && M != mistake::early_return) e.wait(b, from, b.index());
  for (int i = first; i < n; i += step) sum[i] = e.inbox<int>()[i] + mine[i];
  if (M == mistake::no_end) return;
  e.end(b);
  if (M == mistake::end_twice) e.end(b);
}

template <mistake M>
__global__ void kernel(channel_view ch, int const* mine, int* sum, int n) {
  block const b;
  exchange<M>(ch, b, mine, sum, n);
  if (M == mistake::begin_again) exchange<M>(ch, b, mine, sum, n);
}

__global__ void fill(int* p, int n) {
  for (int i = block{}.rank(); i < n; i += block{}.size()) p[i] = 1;
}

/// One sequence of 20 tokens on every rank, in pages of 16.
template <mistake M>
void decode(world& w) {
  constexpr int d = 64, pages = 4;
  heap h(w, {.bulk = 2_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(500)});
  channel ch(h, {.max_bytes = 1, .flags_per_source = 1});
  flash_decode<bf16> op(ch,
                        {.max_batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = d, .page_size = 16, .max_pages = 2});
  auto const q = h.allocate<bf16>(d), cache = h.allocate<bf16>(pages * 16 * d), out = h.allocate<bf16>(d);
  auto const table = h.allocate<std::int32_t>(2), lengths = h.allocate<std::int32_t>(1);
  auto const upload = [&](auto to, auto const& from) {
    check_hip(hipMemcpy(h.view().here(to), &from, sizeof from, hipMemcpyHostToDevice), "hipMemcpy");
  };
  upload(table, std::array<std::int32_t, 2>{0, M == mistake::no_such_page && w.rank() == 1 ? pages : 1});
  upload(lengths, std::int32_t(M == mistake::too_long && w.rank() == 1 ? 33 : 20));
  alignas(16) static bf16 const q_on_host[d] = {};
  w.barrier();
  op(w.stream(), {.q = M == mistake::host_memory ? q_on_host : h.view().here(q),
                  .k_cache = h.view().here(cache),
                  .v_cache = h.view().here(cache),
                  .block_table = h.view().here(table),
                  .lengths = h.view().here(lengths),
                  .out = h.view().here(out),
                  .batch = 1,
                  .pages = pages});
  w.check(w.stream());
}

/// Every rank sends record 1 of 2 to the next one, in LL words.
template <mistake M>
__global__ void send_ll(channel_view ch, ll_buffer_view inbox, int pairs, int* sum) {
  block const b;
  auto const e = ch.begin(b);
  world_view const& w = ch.world;
  ll_slot const slot(inbox, w, e.number());
  int const to = w.next(1), from = w.next(w.size() - 1);
  int const record = M == mistake::no_such_record ? 2 : M == mistake::record_negative ? -1 : 1;
  for (int j = b.rank(); j < pairs; j += b.size())
    slot.send(M == mistake::no_such_peer ? to + w.size() : to, record, j, j);
  ll_word<> const* const records = slot.from(M == mistake::no_such_source ? -1 : from);
  ll_reader read(e, w);
  for (int j = b.rank(); j < pairs; j += b.size()) {
    ll_word<> const* const p = slot.word(records, 1, j);
    int x;
    do x = read.as<int>(p, from);
    while (read.again());
    sum[j] = x;
  }
  slot.refresh(b, [](int, int i) { return i == 1; });
  e.end(b);
}

template <mistake M>
void exchange_ll(world& w) {
  constexpr int pairs = 128;
  heap h(w, {.bulk = 2_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(500)});
  channel ch(h, {.max_bytes = 1, .flags_per_source = 1});
  ll_buffer inbox(ch, {.records = 2, .words = M == mistake::record_too_short ? pairs - 32 : pairs, .name = "row"});
  auto const sum = h.allocate<int>(pairs);
  for (int i = 0; i < 3; ++i)
    launch(w, w.stream(), {.blocks = 1, .threads = threads}, send_ll<M>, ch.view(make_header("ll", 0)), inbox.view(),
           pairs, h.view().here(sum));
  w.check(w.stream());
  auto const found = h.download(sum);
  for (int j = 0; j < pairs; ++j) require(found[std::size_t(j)] == j, std::source_location::current(), "word ", j);
}

template <mistake M>
void on_rank(world& w) {
  if constexpr (M >= mistake::ll && M <= mistake::no_such_source) return exchange_ll<M>(w);
  if constexpr (M == mistake::no_such_page || M == mistake::too_long || M == mistake::host_memory) return decode<M>(w);
  heap h(w, {.bulk = 2_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(500)});
  channel ch(
      h, {.max_bytes = M == mistake::inbox_too_small || M == mistake::inbox_far_too_small ? 1024 : words * sizeof(int),
          .flags_per_source = blocks});
  auto const mine = h.allocate<int>(words), sum = h.allocate<int>(words);
  if constexpr (M == mistake::heap_overflow) launch(w, w.stream(), {}, fill, h.view().here(mine), words + 1);
  if constexpr (M == mistake::heap_overflow_on_peer)
    launch(w, w.stream(), {}, fill, h.view().on(h.view().next(1), mine), words + 1);
  if constexpr (M == mistake::use_after_free) {
    h.free(mine);
    w.collect();
    launch(w, w.stream(), {}, fill, h.view().here(mine), 1);
    w.check(w.stream());
    return;
  }
  hipStream_t second = nullptr;
  if (M == mistake::two_streams || M == mistake::captured_stream)
    check_hip(hipStreamCreateWithFlags(&second, hipStreamNonBlocking), "hipStreamCreateWithFlags");
  char const* const name = M == mistake::long_name ? "exchange_of_words" : "exchange";
  for (int i = 0; i < 3; ++i) {
    auto const view = ch.view(make_header(name, 0));
    int const grid = M == mistake::different_grid && w.rank() == 1 ? blocks - 1 : blocks;
    if ((M == mistake::captured_stream || M == mistake::check_in_capture) && i == 1)
      check_hip(hipStreamBeginCapture(w.stream(), hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
    if (M == mistake::check_in_capture && i == 1) w.check(w.stream());
    // Where launch() does not see it
    if (M == mistake::two_streams && i == 1)
      kernel<M><<<blocks, threads, 0, second>>>(view, h.view().here(mine), h.view().here(sum), words);
    else
      launch(w, M == mistake::captured_stream && i == 1 ? second : w.stream(), {.blocks = grid, .threads = threads},
             kernel<M>, view, h.view().here(mine), h.view().here(sum), words);
    if (M == mistake::no_end || M == mistake::early_return) w.check(w.stream());
  }
  if (M == mistake::not_checked) {
    launch(w, w.stream(), {.blocks = blocks, .threads = threads}, kernel<mistake::missing_signal>,
           ch.view(make_header(name, 0)), h.view().here(mine), h.view().here(sum), words);
    check_hip(hipStreamSynchronize(w.stream()), "hipStreamSynchronize");
    return;
  }
  if (second) check_hip(hipStreamSynchronize(second), "hipStreamSynchronize");
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
