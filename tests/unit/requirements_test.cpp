// A heap made from requirements holds exactly what they are of, and one with a unit less does not and says what is
// enough.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <fusewire/ops/gemm_rs.hpp>

#include "support.hpp"

using namespace support;

namespace {

std::source_location here(std::source_location where = std::source_location::current()) { return where; }

/// The number behind `key` in a message.
std::size_t number_after(std::string const& message, std::string const& key) {
  auto const at = message.find(key);
  return at == message.npos ? 0 : std::stoull(message.substr(at + key.size()));
}

/// make(heap) takes all of r and keeps it until it returns. Arrays beside it lift both segments over their least sizes.
template <class Make>
void takes_exactly(world& w, findings& found, std::string const& what, requirements const& r, bool exactly, Make make) {
  auto const beside = requirements::of<char>(1_MiB) + requirements::of<flag>(512);
  heap_options const enough = heap_options::of(r + beside);
  auto const try_with = [&](heap_options const& o) {
    heap h(w, o);
    h.allocate<char>(1_MiB);
    h.allocate<flag>(512);
    make(h);
  };
  try {
    try_with(enough);
  } catch (std::exception const& e) {
    found.expect(false, what, ", with what is required: ", e.what());
  }
  if (!exactly) return;
  for (auto segment : {&heap_options::bulk, &heap_options::signal}) {
    std::string const key = segment == &heap_options::bulk ? "heap_options::bulk is " : "heap_options::signal is ";
    if ((segment == &heap_options::bulk ? r.bulk() : r.signal()) == 0) continue;
    heap_options less = enough;
    less.*segment -= 1;
    found.throws<out_of_space>(what + ", with a byte less", {key, " is enough for this"}, [&] { try_with(less); });
  }
}

}  // namespace

TEST_CASE("requirements: a heap made from them holds arrays, channels and inboxes, and one with less does not") {
  none_found_anything(on_worlds(GENERATE(1, 2, 3, 4, 5, 6, 7, 8), [](world& w) {
    findings found;
    found.rank = w.rank();
    takes_exactly(w, found, "arrays", 3 * requirements::of<int>(1000) + requirements::of<barrier_state>(2), true,
                  [](heap& h) {
                    for (int i = 0; i < 3; ++i) h.allocate<int>(1000);
                    h.allocate<barrier_state>(2);
                  });
    for (channel_options const o : {channel_options{.max_bytes = 1, .flags_per_source = 1},
                                    {.max_bytes = 12345, .flags_per_source = 7},
                                    {.max_bytes = 600'000, .flags_per_source = 1024}}) {
      auto const r = channel::requirements(w.size(), o);
      takes_exactly(w, found, text("a channel of ", o.flags_per_source, " flags"), r, true,
                    [&](heap& h) { channel const c(h, r); });
    }
    ll_buffer_options const s{.records = 3, .words = 100};
    auto const r =
        channel::requirements(w.size(), {.max_bytes = 1, .flags_per_source = 1}) + ll_buffer::requirements(w.size(), s);
    takes_exactly(w, found, "a buffer of LL words", r, true, [&](heap& h) {
      channel c(h, r);
      ll_buffer const i(c, s);
    });
    auto const two = r.separate() + r;
    takes_exactly(w, found, "two channels", two, false, [&](heap& h) {
      channel a(h, r), b(h, r);
      ll_buffer const i(a, s), j(b, s);
    });
    return found.summary();
  }));
}

TEST_CASE("requirements: operators on a heap and a channel made from their sum") {
  none_found_anything(on_worlds(GENERATE(1, 2, 3, 5, 8), [](world& w) {
    findings found;
    found.rank = w.rank();
    ag_gemm_options const a{.max_m = 130, .k = 64 * w.size(), .gather = gather::k};
    gemm_rs_options const g{.max_m = 70, .max_n = 144, .k = 64};
    flash_decode_options const d{
        .max_batch = 2, .q_heads = 8, .kv_heads = 2, .head_dim = 64, .page_size = 16, .max_pages = 20};
    auto const r = ag_gemm<bf16>::requirements(w.size(), a) + gemm_rs<bf16>::requirements(w.size(), g) +
                   flash_decode<bf16>::requirements(w.size(), d);
    heap h(w, r);
    channel ch(h, r);
    ag_gemm<bf16> const first(ch, a);
    gemm_rs<bf16> const second(ch, g);
    flash_decode<bf16> const third(ch, d);
    found.expect(ch.options().max_bytes == r.max_bytes(), "max_bytes = ", ch.options().max_bytes);
    return found.summary();
  }));
}

TEST_CASE("requirements: what out_of_space says is enough, is enough") {
  none_found_anything(on_worlds(2, [](world& w) {
    findings found;
    found.rank = w.rank();
    // One at the end, one in a hole before it, one with a wide alignment
    for (std::size_t const alignment : {256, 4096})
      for (bool const full : {false, true}) {
        auto const fill = [&](heap& h) {
          auto const hole = h.allocate<char>(1000);
          h.allocate<char>(full ? 1_MiB - 1280 : 900'000);
          h.free(hole);
          h.allocate<char>(3_MiB, alignment, here());
        };
        std::size_t enough = 0;
        try {
          heap h(w, {.bulk = 1_MiB, .signal = 64_KiB});
          fill(h);
        } catch (out_of_space const& e) {
          enough = number_after(e.what(), "heap_options::bulk is 1048576, and ");
        }
        if (!found.expect(enough > 3_MiB, "no number: ", enough)) continue;
        try {
          heap h(w, {.bulk = enough, .signal = 64_KiB});
          fill(h);
        } catch (std::exception const& e) {
          found.expect(false, e.what());
        }
      }
    return found.summary();
  }));
}

TEST_CASE("requirements: without a channel none can be made from them") {
  on_ranks(1, [](rank_of_test& r) {
    r.found.throws<bad_argument>("no channel", {"have no channel"},
                                 [&] { channel const c(r.heap, requirements::of<int>(1)); });
  });
}
