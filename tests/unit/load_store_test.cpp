// load() and store(): every width, every element type, own and peers' memory, 1 to 32 elements at a time.
#include "support.hpp"

using namespace support;

namespace {

template <class T>
__host__ __device__ T value_of(int rank, int i) {
  int const v = (rank * 37 + i * 5) % 100 - 50;
  if constexpr (std::is_same_v<T, bytes16>) return {{unsigned(v), unsigned(v + 1), unsigned(v + 2), unsigned(v + 3)}};
  else if constexpr (is_16_bit_float<T>) return T(float(v));
  else return T(v);
}

template <class T>
__host__ __device__ bool same(T const& a, T const& b) {
  if constexpr (std::is_same_v<T, bytes16>)
    return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] && a.word[3] == b.word[3];
  else if constexpr (is_16_bit_float<T>) return a.bits == b.bits;
  else return a == b;
}

/// Blocks move `per_block` elements at a time: they load from the partner's `from`, and store to the partner's
/// `stored`.
template <class T>
__global__ void exchange(world_view w, int partner, sym<T> from, sym<T> loaded, sym<T> stored, int per_block,
                         int count) {
  for (int first = block{}.index() * per_block; first < count; first += block{}.count() * per_block)
    for (int i = first + block{}.rank(); i < first + per_block; i += block{}.size()) {
      w.here(loaded)[i] = load(w.on(partner, from) + i);
      store(w.on(partner, stored) + i, value_of<T>(w.rank(), i + 1));
    }
}

template <class T>
void check_exchange(int ranks) {
  on_ranks(ranks, [](rank_of_test& r) {
    constexpr int count = 96;
    auto const from = r.heap.allocate<T>(count), loaded = r.heap.allocate<T>(count), stored = r.heap.allocate<T>(count);
    std::vector<T> mine(count);
    for (int i = 0; i < count; ++i) mine[std::size_t(i)] = value_of<T>(r.rank(), i);
    r.upload(mine, from);
    for (int per_block : {1, 8, 16, 32}) {
      r.fill(loaded, 0xee);
      r.fill(stored, 0xee);
      r.meet();
      r.launch({4, 64}, exchange<T>, r.view(), r.partner(), from, loaded, stored, per_block, count);
      r.meet();
      auto const l = r.download(loaded), s = r.download(stored);
      int const writer = (r.rank() + r.size() - r.size() / 2) % r.size();
      for (int i = 0; i < count; ++i) {
        r.found.expect(same(l[std::size_t(i)], value_of<T>(r.partner(), i)), "load of ", sizeof(T), " bytes, ",
                       per_block, " a block: element ", i, " is wrong");
        r.found.expect(same(s[std::size_t(i)], value_of<T>(writer, i + 1)), "store of ", sizeof(T), " bytes, ",
                       per_block, " a block: element ", i, " is wrong");
      }
      r.meet();
    }
  });
}

/// *p, which stays in this device's caches.
template <class T>
__device__ T cached(T const* p) {
  unsigned words[sizeof(T) / 4];
  for (std::size_t i = 0; i < sizeof(T) / 4; ++i)
    words[i] = platform::atomic_load<order::relaxed, scope::device>(reinterpret_cast<unsigned const*>(p) + i);
  T value;
  memcpy(&value, words, sizeof(T));
  return value;
}

/// Rank 0 stores one word in its own memory and one in rank 1's, and publishes nothing. Rank 1, whose caches hold the
/// old values, must see both in the end. Or rank 0 tells rank 1 that it has stored; rank 1 acquires nothing, and loads
/// once.
template <class T>
__global__ void look_until_it_comes(world_view w, sym<T> words, sym<flag> flags, sym<unsigned> wrong, bool once) {
  thread const t;
  auto const is = [](T const& x, int i) { return same(x, value_of<T>(0, i)); };
  if (w.rank() == 0) {
    wait(t, w, w.here(flags), 1, 1);
    store(w.here(words), value_of<T>(0, 1));
    store(w.on(1, words) + 1, value_of<T>(0, 1));
    if (once) signal(t, w.on(1, flags) + 2, 1);
    detail::spin(w, w.here(flags) + 1, 1, 1);
  } else {
    unsigned failures = !is(cached(w.on(0, words)), 0) + !is(cached(w.here(words) + 1), 0);
    signal(t, w.on(0, flags), 1);
    if (once) detail::spin(w, w.here(flags) + 2, 1, 0);
    for (T const* p : {w.on(0, words), w.here(words) + 1}) {
      bool seen = false;
      for (int looks = 0; looks < (once ? 1 : 20'000) && !seen; ++looks) {
        platform::backoff();
        seen = is(load(p), 1);
      }
      failures += !seen;
    }
    *w.here(wrong) = failures;
    signal(t, w.on(0, flags) + 1, 1);
  }
}

template <class T>
void check_that_it_comes(bool once) {
  on_ranks(2, [&](rank_of_test& r) {
    auto const words = r.heap.allocate<T>(2);
    auto const flags = r.heap.allocate<flag>(3);
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.fill(wrong, 0);
    r.upload({value_of<T>(0, 0), value_of<T>(0, 0)}, words);
    r.meet();
    r.launch({1, 1}, look_until_it_comes<T>, r.view(), words, flags, wrong, once);
    r.meet();
    r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " of 4 words of ", sizeof(T),
                   " bytes are wrong, or never came");
  });
}

/// Every rank loads the arrays of all ranks and adds them up.
__global__ void sum_loaded(world_view w, sym<int> from, sym<int> sum, int count) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < count; i += block{}.count() * block{}.size()) {
    int total = 0;
    for (int p = 0; p < w.size(); ++p) total += load(w.on(w.next(p), from) + i);
    w.here(sum)[i] = total;
  }
}

/// Every rank stores its array into its row on every rank.
__global__ void store_all(world_view w, sym<int> from, sym<int> rows, int count) {
  for (int i = block{}.index() * block{}.size() + block{}.rank(); i < count; i += block{}.count() * block{}.size())
    for (int p = 0; p < w.size(); ++p) store(w.on(w.next(p), rows) + w.rank() * count + i, load(w.here(from) + i));
}

}  // namespace

TEST_CASE("load and store: what is stored comes, though nothing publishes it, and past what caches hold") {
  bool const once = GENERATE(false, true);
  check_that_it_comes<int>(once);
  check_that_it_comes<double>(once);
  check_that_it_comes<bytes16>(once);
}

TEST_CASE("load and store: every width and type, with the partner's memory") {
  int const ranks = GENERATE(1, 2, 3);
  check_exchange<std::int8_t>(ranks);
  check_exchange<std::uint16_t>(ranks);
  check_exchange<bf16>(ranks);
  check_exchange<f16>(ranks);
  check_exchange<int>(ranks);
  check_exchange<float>(ranks);
  check_exchange<long long>(ranks);
  check_exchange<double>(ranks);
  check_exchange<bytes16>(ranks);
}

TEST_CASE("load and store: eight ranks") {
  check_exchange<std::uint8_t>(8);
  check_exchange<bytes16>(8);
}

TEST_CASE("load and store: sums over all ranks") {
  on_ranks(GENERATE(1, 2, 3, 4, 8), [](rank_of_test& r) {
    constexpr int count = 300;
    auto const from = r.heap.allocate<int>(count), sum = r.heap.allocate<int>(count);
    auto const rows = r.heap.allocate<int>(std::size_t(count * r.size()));
    std::vector<int> mine(count), wanted(count);
    for (int i = 0; i < count; ++i) {
      mine[std::size_t(i)] = i * (r.rank() + 1);
      wanted[std::size_t(i)] = i * r.size() * (r.size() + 1) / 2;
    }
    r.upload(mine, from);
    r.fill(rows, 0xee);
    r.meet();
    r.launch({3, 64}, sum_loaded, r.view(), from, sum, count);
    r.launch({3, 64}, store_all, r.view(), from, rows, count);
    r.meet();
    r.found.equal(r.download(sum), wanted, "all-load sum");
    auto const all = r.download(rows);
    std::vector<int> total(count);
    for (std::size_t i = 0; i < all.size(); ++i) total[i % count] += all[i];
    r.found.equal(total, wanted, "all-store sum");
  });
}

TEST_CASE("offsets: sym + n, next() and on()") {
  world_view w(2, 3);
  for (int r = 0; r < 3; ++r) {
    w.bulk[r] = reinterpret_cast<std::byte*>(std::uintptr_t(0x10000 * (r + 1)));
    w.signal[r] = reinterpret_cast<std::byte*>(std::uintptr_t(0x1000000 * (r + 1)));
  }
  CHECK(w.next(0) == 2);
  CHECK(w.next(1) == 0);
  CHECK(w.next(2) == 1);
  CHECK(w.next(3) == 2);
  sym<int> const x{256, 10};
  CHECK(reinterpret_cast<std::uintptr_t>(w.on(1, x)) == 0x20100);
  CHECK(reinterpret_cast<std::uintptr_t>(w.here(x + 3)) == 0x3010c);
  CHECK((x + 3).count == 7);
  sym<flag> const f{512, 2};
  CHECK(reinterpret_cast<std::uintptr_t>(w.on(0, f + 1)) == 0x1000000 + 512 + 128);
}
