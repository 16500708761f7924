// atomic_ref: every operation, type, order and scope. Threads of all ranks meet on the same words.
#include "support.hpp"

using namespace support;

namespace {

enum class op { add, sub, bit_and, bit_or, bit_xor, min, max, exchange, compare_exchange, load_store };
constexpr op integer_ops[] = {op::add, op::sub, op::bit_and,  op::bit_or,           op::bit_xor,
                              op::min, op::max, op::exchange, op::compare_exchange, op::load_store};
constexpr op float_ops[] = {op::add, op::sub, op::exchange, op::compare_exchange, op::load_store};
constexpr order orders[] = {order::relaxed, order::acquire, order::release, order::acq_rel};

/// Thread t of T threads that act on one word. The final value of each operation shows whether every thread took part
/// exactly once.
template <class T, scope S>
__device__ void act(atomic_ref<T, S> word, op what, order o, int t, T* returned) {
  if constexpr (atomic_integer<T>) {
    T const bit = T(1) << (t % 16);
    switch (what) {
      case op::bit_and: *returned = word.fetch_and(T(~bit), o); return;
      case op::bit_or: *returned = word.fetch_or(bit, o); return;
      case op::bit_xor: *returned = word.fetch_xor(bit, o); return;
      case op::min: *returned = word.fetch_min(T(1000 - t), o); return;
      case op::max: *returned = word.fetch_max(T(100 + t), o); return;
      default: break;
    }
  }
  switch (what) {
    case op::add: *returned = word.fetch_add(T(t + 1), o); return;
    case op::sub: *returned = word.fetch_sub(T(t + 1), o); return;
    case op::exchange: *returned = word.exchange(T(t + 1000), o); return;
    case op::compare_exchange: {
      T old = word.load(order::relaxed);
      while (!word.compare_exchange(old, old + T(t + 1), o)) {}
      *returned = old;
      return;
    }
    default: word.store(T(77), o); *returned = word.load(o);
  }
}

template <class T, scope S>
__global__ void everybody(world_view w, int owner, sym<T> words, int word, op what, order o, sym<T> returned) {
  int const t = w.rank() * block{}.size() * block{}.count() + block{}.index() * block{}.size() + block{}.rank();
  act<T, S>(atomic_ref<T, S>(w.on(owner, words) + word), what, o, t,
            w.here(returned) + (t - w.rank() * block{}.size() * block{}.count()));
}

template <class T>
T start_of(op what) {
  switch (what) {
    case op::bit_and: return T(0xfffff);
    case op::min: return T(5000);
    default: return T(0);
  }
}

template <class T>
bool final_is_right(op what, T last, int threads) {
  long long const sum = (long long)(threads) * (threads + 1) / 2;
  auto const mask = (1LL << (threads < 16 ? threads : 16)) - 1;
  switch (what) {
    case op::add:
    case op::compare_exchange: return last == T(sum);
    case op::sub: return last == T(T(0) - T(sum));
    case op::bit_and: return last == T(0xfffffLL & ~mask);
    case op::bit_or: return last == T(mask);
    case op::bit_xor: return last == T(threads % 32 == 0 ? 0 : mask);  // threads is 16 or a multiple of 32
    case op::min: return last == T(1000 - (threads - 1));
    case op::max: return last == T(100 + (threads - 1));
    case op::exchange: return last >= T(1000) && last < T(1000 + threads);
    default: return last == T(77);
  }
}

/// Whether each value that exchange stored occurs exactly once among the returned values and the final one.
template <class T>
bool exchanged_once(std::vector<T> all, T last, int threads) {
  all.push_back(last);
  std::sort(all.begin(), all.end());
  if (all[0] != T(0)) return false;
  for (int i = 0; i < threads; ++i)
    if (all[std::size_t(i + 1)] != T(1000 + i)) return false;
  return true;
}

template <class T, scope S, std::size_t N>
void check_atomics(rank_of_test& r, op const (&ops)[N]) {
  constexpr int blocks = 2, threads = 16, mine = blocks * threads;
  auto const words = r.heap.allocate<T>(N * 4), returned = r.heap.allocate<T>(mine);
  std::vector<T> start;
  for (op what : ops)
    for ([[maybe_unused]] order o : orders) start.push_back(start_of<T>(what));
  r.upload(start, words);
  r.meet();
  bool const far = S == scope::system;  // otherwise every rank works on its own words
  int const all = far ? mine * r.size() : mine;
  for (std::size_t i = 0; i < N * 4; ++i) {
    op const what = ops[i / 4];
    world_view own(0, r.size());
    own.bulk[0] = r.view().bulk[r.rank()];
    world_view const w = far ? r.view() : own;
    r.launch({S == scope::block ? 1 : blocks, S == scope::block ? mine : threads}, everybody<T, S>, w,
             far ? r.size() - 1 : 0, words, int(i), what, orders[i % 4], returned);
    if (what == op::exchange) {
      r.meet();
      auto const last = r.download(static_cast<T const*>(r.view().on(far ? r.size() - 1 : r.rank(), words)) + i, 1)[0];
      auto got = r.download(returned);
      if (far)
        for (int p = 1; p < r.size(); ++p) {
          auto const more = r.download(static_cast<T const*>(r.view().on(r.view().next(p), returned)), mine);
          got.insert(got.end(), more.begin(), more.end());
        }
      r.found.expect(exchanged_once(got, last, all), "exchange, order ", i % 4, ", scope ", int(S), ", ", sizeof(T),
                     " bytes: a value was lost");
      r.meet();
    }
  }
  r.meet();
  if (!far || r.rank() == r.size() - 1) {
    auto const last = r.download(words);
    for (std::size_t i = 0; i < last.size(); ++i)
      r.found.expect(final_is_right(ops[i / 4], last[i], all), "operation ", int(ops[i / 4]), ", order ", i % 4,
                     ", scope ", int(S), ", ", sizeof(T), " bytes: ", last[i], " in the end");
  }
  r.meet();
}

template <class T, std::size_t N>
void check_scopes(int ranks, op const (&ops)[N]) {
  on_ranks(ranks, [&](rank_of_test& r) {
    check_atomics<T, scope::system>(r, ops);
    check_atomics<T, scope::device>(r, ops);
    check_atomics<T, scope::block>(r, ops);
  });
}

template <class T>
__global__ void add_pairs(world_view w, int owner, sym<T> pairs, int count, order o) {
  for (int i = 0; i < count; ++i) fetch_add_pair(w.on(owner, pairs) + 2 * i, T(1.0f), T(-2.0f), o);
}

template <class T>
void check_pairs(int ranks) {
  on_ranks(ranks, [](rank_of_test& r) {
    constexpr int count = 4, threads = 16;
    auto const pairs = r.heap.allocate<T>(2 * count);
    r.fill(pairs, 0);
    r.meet();
    for (order o : orders) r.launch({1, threads}, add_pairs<T>, r.view(), 0, pairs, count, o);
    r.meet();
    if (r.rank() == 0) {
      auto const sums = r.download(pairs);
      for (std::size_t i = 0; i < sums.size(); ++i)
        r.found.expect(float(sums[i]) == float(4 * threads * r.size()) * (i % 2 ? -2.0f : 1.0f), "pair sum ", i, " is ",
                       float(sums[i]));
    }
    r.meet();
  });
}

/// A compare_exchange that fails must return the value in memory; with this value the next one succeeds.
__global__ void fail_to_exchange(int* word, int* seen) {
  atomic_ref<int> const a(word);
  int expected = 5;
  seen[0] = a.compare_exchange(expected, 9);
  seen[1] = expected;
  seen[2] = a.compare_exchange(expected, 9);
  seen[3] = a.load();
}

// The order that an operation makes. Two sides write words into their own memory and into that of the other side, raise
// a flag of the other side with the operation, and wait for their own flag. The operation on that flag then makes all
// words visible.

constexpr int order_rounds = 6, order_words = 64;
enum class way { release_and_acquire, acq_rel, unsaid };
constexpr op order_ops[] = {op::load_store, op::exchange, op::compare_exchange, op::add, op::sub,
                            op::bit_and,    op::bit_or,   op::bit_xor,          op::min, op::max};

__host__ __device__ epoch_t lowered(op what) {
  return what == op::bit_and ? 3 : what == op::min ? 9 : what == op::sub ? 5 : 0;
}

/// Applies the operation to a flag with the value lowered(what), so that the value changes.
template <scope S, class... Order>
__device__ void raise(op what, atomic_ref<epoch_t, S> f, Order... o) {
  epoch_t expected = lowered(what);
  switch (what) {
    case op::exchange: f.exchange(1, o...); return;
    case op::compare_exchange: f.compare_exchange(expected, 1, o...); return;
    case op::add: f.fetch_add(1, o...); return;
    case op::sub: f.fetch_sub(1, o...); return;
    case op::bit_and: f.fetch_and(1, o...); return;
    case op::bit_or: f.fetch_or(1, o...); return;
    case op::bit_xor: f.fetch_xor(1, o...); return;
    case op::min: f.fetch_min(1, o...); return;
    case op::max: f.fetch_max(1, o...); return;
    default: f.store(1, o...);
  }
}
/// Applies the operation so that the value stays the same. fails: a compare_exchange that fails; it acquires as well.
template <scope S, class... Order>
__device__ void take(op what, atomic_ref<epoch_t, S> f, bool fails, Order... o) {
  epoch_t expected = fails ? lowered(what) : 1;
  switch (what) {
    case op::exchange: f.exchange(1, o...); return;
    case op::compare_exchange: f.compare_exchange(expected, 1, o...); return;
    case op::add: f.fetch_add(0, o...); return;
    case op::sub: f.fetch_sub(0, o...); return;
    case op::bit_and: f.fetch_and(~epoch_t(0), o...); return;
    case op::bit_or: f.fetch_or(0, o...); return;
    case op::bit_xor: f.fetch_xor(0, o...); return;
    case op::min: f.fetch_min(9, o...); return;
    case op::max: f.fetch_max(0, o...); return;
    default: (void)f.load(o...);
  }
}

/// The sides are two ranks, or two blocks of one rank.
/// words: [side][round][own, given][order_words]; flags: [side][round].
template <scope S>
__global__ void write_both_ways(world_view w, sym<int> words, sym<flag> flags, sym<unsigned> wrong, op what, way how) {
  wave const g;
  int const me = S == scope::system ? w.rank() : block{}.index(), other = 1 - me;
  auto const rank_of = [&](int side) { return S == scope::system ? side : w.rank(); };
  auto const words_of = [&](int side, int round, int given) {
    return w.on(rank_of(side), words) + ((side * order_rounds + round) * 2 + given) * order_words + g.rank();
  };
  auto const flag_of = [&](int side, int round) {
    return atomic_ref<epoch_t, S>(&(w.on(rank_of(side), flags) + side * order_rounds + round)->value);
  };
  for (int i = 0; i < order_rounds; ++i) {
    bool const wrong_before = *words_of(me, i, 1) < 0 || *words_of(other, i, 0) < 0;  // now they are cached
    *words_of(me, i, 0) = 100 + i;
    *words_of(other, i, 1) = 200 + i;
    if (g.leader()) {
      auto const theirs = flag_of(other, i), mine = flag_of(me, i);
      if (how == way::release_and_acquire) raise(what, theirs, order::release);
      else if (how == way::acq_rel) raise(what, theirs, order::acq_rel);
      else raise(what, theirs);
      while (mine.load(order::relaxed) == lowered(what)) platform::backoff();
      if (how == way::release_and_acquire) take(what, mine, i % 2, order::acquire);
      else if (how == way::acq_rel) take(what, mine, i % 2, order::acq_rel);
      else take(what, mine, i % 2);
    }
    g.sync();
    if (wrong_before || *words_of(other, i, 0) != 100 + i || *words_of(me, i, 1) != 200 + i)
      atomic_ref<unsigned, scope::device>(w.here(wrong)).fetch_add(1u, order::relaxed);
  }
}

template <scope S>
void check_order(rank_of_test& r) {
  auto const words = r.heap.allocate<int>(2 * order_rounds * 2 * order_words);
  auto const flags = r.heap.allocate<flag>(2 * order_rounds);
  auto const wrong = r.heap.allocate<unsigned>(1);
  load_kernel(r.world, write_both_ways<S>, wave::width);
  for (op what : order_ops)
    for (way how : {way::release_and_acquire, way::acq_rel, way::unsaid}) {
      r.fill(words, 0);
      r.fill(wrong, 0);
      r.upload(std::vector<flag>(flags.count, flag{lowered(what), {}, 0}), flags);
      r.meet();
      r.launch({S == scope::system ? 1 : 2, wave::width}, write_both_ways<S>, r.view(), words, flags, wrong, what, how);
      r.found.expect(r.download(wrong)[0] == 0, r.download(wrong)[0], " wrong words: operation ", int(what), ", order ",
                     int(how), ", scope ", int(S));
      r.meet();
    }
}

}  // namespace

TEST_CASE("atomics: what every operation orders, between ranks and between blocks") {
  on_ranks(2, [](rank_of_test& r) {
    check_order<scope::system>(r);
    check_order<scope::device>(r);
  });
}

TEST_CASE("atomics: 32-bit integers") {
  int const ranks = GENERATE(1, 2, 4);
  check_scopes<int>(ranks, integer_ops);
  check_scopes<unsigned>(ranks, integer_ops);
}
TEST_CASE("atomics: 64-bit integers") {
  int const ranks = GENERATE(1, 2, 4);
  check_scopes<long long>(ranks, integer_ops);
  check_scopes<unsigned long long>(ranks, integer_ops);
  check_scopes<std::uint64_t>(ranks, integer_ops);
}
TEST_CASE("atomics: float and double") {
  int const ranks = GENERATE(1, 2, 3);
  check_scopes<float>(ranks, float_ops);
  check_scopes<double>(ranks, float_ops);
}
TEST_CASE("atomics: eight ranks on one word") { check_scopes<int>(8, integer_ops); }

TEST_CASE("atomics: pairs of 16-bit floats") {
  int const ranks = GENERATE(1, 2, 3);
  check_pairs<bf16>(ranks);
  check_pairs<f16>(ranks);
}

TEST_CASE("atomics: compare_exchange that fails") {
  on_ranks(1, [](rank_of_test& r) {
    auto const word = r.heap.allocate<int>(1), seen = r.heap.allocate<int>(4);
    r.upload({3}, word);
    r.launch({1, 1}, fail_to_exchange, r.here(word), r.here(seen));
    r.found.equal(r.download(seen), {0, 3, 1, 9}, "compare_exchange");
  });
}
