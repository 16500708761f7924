// Planted faults between ranks: a rank does not launch, comes late, throws, loses a push, or launches something else.
// Every rank must report it within the limit of a wait plus a second, in a message that says what happened. It must
// stay invalid until reset(), and give right results after it. Only these tests look at a clock, because the limit is a
// promise.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>

#include "channel_kernels.hpp"
#include "faults.hpp"
#include "push_losing.hpp"

using namespace support;

namespace {

constexpr int ranks = 3, culprit = 1;

/// Something that is launched on a channel, in one of two shapes.
class subject {
 public:
  virtual ~subject() = default;
  /// Inputs of shape 0, and outputs that are wrong. Other values than the last time if `salt` is another.
  virtual void prepare(int salt = 0) = 0;
  /// Launches together: ranks that meet before start together.
  virtual void launch(int shape) = 0;
  /// One launch in which this rank's first push to rank `to` gets lost. Only where can_lose().
  virtual void launch_losing(int) {}
  virtual bool can_lose() const { return false; }
  /// A call that throws bad_argument.
  virtual void refuse() = 0;
  /// What the last launch of shape 0 has computed. `or_nan`: or NaN, but not as prepare() left it.
  virtual void expect_right(bool or_nan = false) = 0;
  /// How messages call a launch.
  virtual std::string name(int shape) const = 0;
};

constexpr int as_prepared = 0x7b;  // every byte of an output: a number that nobody computes, and not NaN

void expect_element(rank_of_test& r, std::string const& what, int i, int j, float found, float wanted, bool or_nan) {
  r.found.expect(found == wanted || (or_nan && std::isnan(found)), what, "(", i, ", ", j, ") = ", found, ", wanted ",
                 wanted);
}

class words_subject final : public subject {
 public:
  words_subject(rank_of_test& r, channel& ch) : r_(r), ch_(ch), wrong_(r.heap.allocate<unsigned>(1)) {
    r.fill(wrong_, 0);
    load_kernel(r.world, gather_words<>, 64);
  }
  void prepare(int) override { r_.fill(wrong_, 0); }
  void launch(int shape) override { start(shape, -1); }
  void launch_losing(int to) override { start(0, r_.rank() == culprit ? to : -1); }
  bool can_lose() const override { return true; }
  void refuse() override { r_.launch({1 << 20, 64}, gather_words<>, ch_.view(header_of(own(0))), gather_words_args{}); }
  void expect_right(bool) override {
    r_.found.expect(r_.download(wrong_)[0] == 0, r_.download(wrong_)[0], " wrong words");
  }
  std::string name(int shape) const override {
    return shape ? "gather (variant 1, extents 360, 120, 120, 120)" : "gather (variant 1, extents 450, 150, 150, 150)";
  }

 private:
  ownership own(int shape) const {
    ownership o;
    for (int i = 0; i < 8; ++i) o.before[i + 1] = o.before[i] + (o.count[i] = i < r_.size() ? shape ? 120 : 150 : 0);
    return o;
  }
  void start(int shape, int lost_to) {
    gather_words_args const a{.own = own(shape), .wrong = r_.here(wrong_), .skip_signal_to = lost_to};
    r_.launch({2, 64}, gather_words<>, ch_.view(header_of(a.own)), a);
  }

  rank_of_test& r_;
  channel& ch_;
  sym<unsigned> wrong_;
};

template <class T>
class gemm_subject final : public subject {
 public:
  gemm_subject(rank_of_test& r, channel& ch, gather by, method how)
      : r_(r), ch_(ch), by_(by), how_(how), k_(16 * r.size()),
        op_(ch, {.max_m = 56, .k = k_, .gather = by, .method = how}), a_(r.heap.allocate<T>(std::size_t(56 * k_))),
        b_(r.heap.allocate<T>(std::size_t(k_ * n))), c_(r.heap.allocate<T>(56 * n)) {
    std::vector<T> b;
    for (int i = 0; i < k_ * n; ++i) b.push_back(T(b_value(i / n, i % n)));
    r.upload(b, b_);
    load_kernel(r.world, push_losing<T, mainloop>, mainloop::traits.threads, mainloop::shared_bytes());
  }
  void prepare(int salt) override {
    salt_ = salt;
    gather_map const g = map(0);
    std::vector<T> a;
    for (int i = 0; i < g.rows(r_.rank()); ++i)
      for (int j = 0; j < g.cols(); ++j)
        a.push_back(T(a_value(g.first_row(r_.rank()) + i, g.first_col(r_.rank()) + j)));
    r_.upload(a, a_);
    r_.fill(c_, as_prepared);
  }
  void launch(int shape) override { op_(r_.stream, call(shape)); }
  void launch_losing(int to) override {
    auto const c = call(0);
    channel_view const view =
        ch_.view(make_header("ag_gemm", std::uint64_t(by_) << 8, std::uint64_t(rows_of(0)), n, std::uint64_t(k_), 512));
    auto const inbox = [&](int slot) { return gathered_in(view.slot<T const>(slot), map(0)); };
    gather_order const order = order_of_gather(map(0), r_.rank(), false, chunk_order::nest::by_group, 8);
    ag_gemm_arguments<T> const g{{c.a, map(0), order.chunks, false, false, false},
                                 c.c,
                                 {map(0).m_tiles(), ceil_div(n, mainloop::traits.tile_n), 0, 8}};
    typename mainloop::template operands<gathered_buffers> const x{
        {{c.a, inbox(0), inbox(1)}, {c.b.data, c.b.ld, c.b_layout, n}}, 1};
    fusewire::launch(r_.world, r_.stream,
                     {.blocks = 3, .threads = mainloop::traits.threads, .shared_bytes = mainloop::shared_bytes()},
                     push_losing<T, mainloop>, view, g, x, r_.rank() == culprit ? to : -1);
  }
  bool can_lose() const override { return how_ == method::push; }
  void refuse() override {
    auto c = call(0);
    c.c.ld = n - 1;
    op_(r_.stream, c);
  }
  void expect_right(bool or_nan) override {
    auto const c = r_.download(static_cast<T const*>(r_.here(c_)), std::size_t(rows_of(0) * n));
    for (int i = 0; i < rows_of(0); ++i)
      for (int j = 0; j < n; ++j) {
        float wanted = 0;
        for (int x = 0; x < k_; ++x) wanted += a_value(i, x) * b_value(x, j);
        expect_element(r_, "c", i, j, float(c[std::size_t(i * n + j)]), float(T(wanted)), or_nan);
      }
  }
  std::string name(int shape) const override {
    return text("ag_gemm ", how_ == method::push ? "push" : "pull", " gather::", by_ == gather::k ? "k" : "m",
                std::is_same_v<T, f16> ? " f16" : " bf16", ", m = ", rows_of(shape), ", n = 24, k = ", k_);
  }

 private:
  using mainloop = block_mainloop<T, small_tile>;
  static constexpr int n = 24;
  static int rows_of(int shape) { return shape ? 56 : 40; }
  float a_value(int i, int j) const { return float((i * 7 + j * 3) % 5) - 2 + float(9 * salt_); }
  static float b_value(int j, int c) { return float((j * 5 + c * 3) % 3) - 1; }
  gather_map map(int shape) const { return {by_, rows_of(shape), k_, r_.size(), mainloop::traits.tile_m, 512}; }
  ag_gemm_call<T> call(int shape) const {
    gather_map const g = map(shape);
    return {.a = {r_.here(a_), g.rows(r_.rank()), g.cols(), g.cols()},
            .b = {r_.here(b_), k_, n, n},
            .c = {r_.here(c_), rows_of(shape), n, n},
            .m = rows_of(shape)};
  }

  rank_of_test& r_;
  channel& ch_;
  gather by_;
  method how_;
  int k_, salt_ = 0;
  ag_gemm<T> op_;
  sym<T> a_, b_, c_;
};

/// flash_decode_kernel whose results for rank `lost_to` get lost: they go to this rank itself instead.
template <class T, int D>
__global__ void __launch_bounds__(decode_threads(D))
    decode_losing(channel_view ch, decode_arguments<T> g, int lost_to) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  channel_view broken = ch;
  if (lost_to >= 0) broken.world.signal[lost_to] = ch.world.signal[ch.world.rank()];
  detail::decode_block<T, D> work(broken, g, shared);
  work.run_splits();
  work.reduce_slices();
  work.combine();
  e.end(b);
}

/// Scores that are all 0: the output is the mean of V.
class decode_subject final : public subject {
 public:
  decode_subject(rank_of_test& r, channel& ch, reduce_algorithm how)
      : r_(r), ch_(ch), shots_(how), op_(ch, {.max_batch = 2,
                                              .q_heads = 2,
                                              .kv_heads = 1,
                                              .head_dim = d,
                                              .page_size = 16,
                                              .max_pages = 4,
                                              .shots = how}),
        q_(r.heap.allocate<bf16>(2 * 2 * d)), k_(r.heap.allocate<bf16>(8 * 16 * d)),
        v_(r.heap.allocate<bf16>(8 * 16 * d)), out_(r.heap.allocate<bf16>(2 * 2 * d)),
        table_(r.heap.allocate<std::int32_t>(8)), lengths_(r.heap.allocate<std::int32_t>(2)),
        workspace_(r.heap.allocate<split_kv_view::word>(split_kv_view::size(4, record))),
        inbox_(ch, {.records = 2, .words = record.words(), .name = "a result"}) {
    r.fill(q_, 0);
    r.fill(k_, 0);
    r.fill(workspace_, 0);
    r.upload(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, table_);
    r.upload(std::vector<std::int32_t>{tokens(r.rank(), 0), tokens(r.rank(), 1)}, lengths_);
    load_kernel(r.world, decode_losing<bf16, d>, decode_threads(d), decode_shared::bytes(2, d));
  }
  void prepare(int salt) override {
    salt_ = salt;
    std::vector<bf16> v;
    for (int page = 0; page < 8; ++page)
      for (int t = 0; t < 16; ++t)
        for (int j = 0; j < d; ++j) v.push_back(bf16(v_value(r_.rank(), page / 4, page % 4 * 16 + t, j)));
    r_.upload(v, v_);
    r_.fill(out_, as_prepared);
  }
  void launch(int shape) override { op_(r_.stream, call(shape)); }
  void launch_losing(int to) override {
    auto const c = call(0);
    decode_arguments<bf16> const g{.q = c.q,
                                   .k = c.k_cache,
                                   .v = c.v_cache,
                                   .pages = c.block_table,
                                   .out = c.out,
                                   .lse = nullptr,
                                   .lengths = {c.lengths, 2, 64, 1, 2},
                                   .max_pages = 4,
                                   .page_shift = 4,
                                   .group = 2,
                                   .two_shot = shots_ == reduce_algorithm::two_shot,
                                   .kv_is_ready = false,
                                   .scores = {0.125f * log2_of_e, 0},
                                   .lse_unit = ln_of_2,
                                   .inbox = inbox_.view(),
                                   .workspace = {r_.here(workspace_), 4},
                                   .vec4s = record.vec4s(),
                                   .pages_to_check = 0,
                                   .scattered = false,
                                   .own = {0, 2},
                                   .owners = {2, 2}};
    fusewire::launch(r_.world, r_.stream,
                     {.blocks = 2, .threads = decode_threads(d), .shared_bytes = decode_shared::bytes(2, d)},
                     decode_losing<bf16, d>, ch_.view(make_header("flashdec", std::uint64_t(d) << 8, 2, 2, 1, 2)), g,
                     r_.rank() == culprit ? to : -1);
  }
  bool can_lose() const override { return true; }
  void refuse() override {
    auto c = call(0);
    c.lengths = nullptr;
    op_(r_.stream, c);
  }
  void expect_right(bool or_nan) override {
    auto const out = r_.download(out_);
    for (int s = 0; s < 2; ++s)
      for (int head = 0; head < 2; ++head)
        for (int j = 0; j < d; ++j) {
          float sum = 0, count = 0;
          for (int rank = 0; rank < r_.size(); ++rank)
            for (int t = 0; t < tokens(rank, s); ++t) sum += v_value(rank, s, t, j), ++count;
          expect_element(r_, text("out of sequence ", s), head, j, float(out[std::size_t((s * 2 + head) * d + j)]),
                         float(bf16(sum / count)), or_nan);
        }
  }
  std::string name(int shape) const override {
    return text("flash_decode bf16, head_dim = 64, batch = ", shape ? 1 : 2,
                ", q_heads = 2, kv_heads = 1, max_batch = 2");
  }

 private:
  static constexpr int d = 64;
  static constexpr decode_record record{2, d};
  static int tokens(int rank, int s) { return 20 + 7 * rank + 11 * s; }
  float v_value(int rank, int s, int t, int j) const {
    return float((rank * 5 + s + t * 3 + j) % 7) - 3 + float(9 * salt_);
  }
  flash_decode_call<bf16> call(int shape) const {
    return {.q = r_.here(q_),
            .k_cache = r_.here(k_),
            .v_cache = r_.here(v_),
            .block_table = r_.here(table_),
            .lengths = r_.here(lengths_),
            .out = r_.here(out_),
            .batch = shape ? 1 : 2};
  }

  rank_of_test& r_;
  channel& ch_;
  reduce_algorithm shots_;
  int salt_ = 0;
  flash_decode<bf16> op_;
  sym<bf16> q_, k_, v_, out_;
  sym<std::int32_t> table_, lengths_;
  sym<split_kv_view::word> workspace_;
  ll_buffer inbox_;
};

enum class kind { words, push_k, push_m, pull_k, pull_m, decode, decode_two_shot, push_k_f16 };

std::unique_ptr<subject> make(rank_of_test& r, channel& ch, kind k) {
  switch (k) {
    case kind::words: return std::make_unique<words_subject>(r, ch);
    case kind::push_k: return std::make_unique<gemm_subject<bf16>>(r, ch, gather::k, method::push);
    case kind::push_m: return std::make_unique<gemm_subject<bf16>>(r, ch, gather::m, method::push);
    case kind::pull_k: return std::make_unique<gemm_subject<bf16>>(r, ch, gather::k, method::pull);
    case kind::pull_m: return std::make_unique<gemm_subject<bf16>>(r, ch, gather::m, method::pull);
    case kind::push_k_f16: return std::make_unique<gemm_subject<f16>>(r, ch, gather::k, method::push);
    case kind::decode: return std::make_unique<decode_subject>(r, ch, reduce_algorithm::one_shot);
    case kind::decode_two_shot: break;
  }
  return std::make_unique<decode_subject>(r, ch, reduce_algorithm::two_shot);
}

channel_options fault_channel() { return {.max_bytes = 256_KiB, .flags_per_source = 16, .poison = true}; }

void expect_right(rank_of_test& r, subject& s) {
  for (int i = 0; i < 3; ++i) {
    s.prepare();
    s.launch(0);
    std::string const v = verdict(r);
    if (!r.found.expect(v.empty(), s.name(0), ": ", v)) return;
    s.expect_right();
  }
}

/// The waits that an error names: "rank 2, block 0 waited ... wanted", without their launch, which stands in the first.
std::vector<std::string> waits_in(std::string const& said) {
  std::vector<std::string> waits;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);)
    if (auto const block = line.find(", block "); block != line.npos) {
      auto const from = line.rfind("rank ", block), end = line.find("; results are invalid");
      std::string wait = line.substr(from, end == line.npos ? end : end - from);
      if (auto const of = wait.find(" of "), waited = wait.find(" waited"); of < waited) wait.erase(of, waited - of);
      waits.push_back(wait);
    }
  return waits;
}

/// Whether an error is of the same kind as an earlier one, and names all waits that it named. Blocks of other ranks may
/// have reported since, and of an earlier step. An error that names as many as it may leaves out others.
bool says_as_much(std::string const& now, std::string const& before) {
  auto const waits = waits_in(before), named = waits_in(now);
  auto const block = before.find(", block ");
  auto const kind = before.substr(0, block == before.npos ? block : before.rfind("rank ", block));
  bool const left_out = contains(now, " more blocks");
  return now.starts_with(kind) && std::ranges::all_of(waits, [&](std::string const& w) {
           return left_out || std::ranges::find(named, w) != named.end();
         });
}

/// Runs `fault`, which launches and ends, on every rank, and says what every rank's check() said. Whoever is not to be
/// late hears in time; the results stay invalid; more launches return immediately; after reset() all is right.
template <class Fault>
std::vector<std::string> verdicts_of(kind k, std::vector<kind> const& others, bool culprit_is_late, Fault fault) {
  return on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, fault_channel());
        std::vector<std::unique_ptr<subject>> s;
        s.push_back(make(r, ch, k));
        for (kind const other : others) s.push_back(make(r, ch, other));
        load_kernel(r.world, spend<>, 64);
        expect_right(r, *s[0]);
        r.meet();
        double const start = seconds_now();
        fault(r, s);
        std::string const said = r.note = verdict(r);
        double const seconds = seconds_now() - start;
        if (r.rank() != culprit || !culprit_is_late)
          r.found.expect(seconds <= seconds_to_report(), "the report came after ", seconds, " s: ", said);
        r.world.barrier();
        if (!said.empty()) {
          double const again = seconds_now();
          for (int i = 0; i < 3; ++i) s[0]->launch(0);
          std::string const still = verdict(r);
          r.found.expect(says_as_much(still, said), "before reset(), a check says: ", still,
                         "\n  and said before: ", said);
          r.found.expect(seconds_now() - again < 1e-3 * double(limit.count()), "launches before reset() took ",
                         seconds_now() - again, " s");
        }
        ch.reset();
        for (auto const& each : s) expect_right(r, *each);
      },
      short_waits());
}

/// Everybody but the culprit says that it is the culprit that did not come, or that another rank has said so.
void check_culprit_named(std::vector<std::string> const& verdicts, std::string const& launch) {
  bool named = false;
  for (std::size_t r = 0; r < verdicts.size(); ++r) {
    if (r == culprit) continue;
    INFO("rank " << r << ": " << verdicts[r]);
    bool const timeout = verdicts[r].starts_with("timeout: ");
    CHECK((timeout || verdicts[r].starts_with("abandoned: ")));
    if (!timeout) continue;
    named = true;
    CHECK(contains(verdicts[r], text("rank ", r, ", block ")));
    CHECK(contains(verdicts[r], text(" of ", launch)));
    CHECK(contains(verdicts[r], " 500 ms"));  // that block, or another one of the rank
    CHECK(contains(verdicts[r], " for a flag from rank 1 ("));
    CHECK(contains(verdicts[r], " of rank 1, slot "));
    CHECK(contains(verdicts[r], " found, 4 wanted"));
  }
  CHECK(named);
}

std::string name_of(kind k, int shape = 0) {
  return on_ranks(ranks, [&](rank_of_test& r) {
    channel ch(r.heap, fault_channel());
    r.note = make(r, ch, k)->name(shape);
  })[0];
}

}  // namespace

TEST_CASE("fault: a rank does not launch", "[faults]") {
  auto const k = GENERATE(kind::words, kind::push_k, kind::push_m, kind::pull_k, kind::pull_m, kind::decode,
                          kind::decode_two_shot);
  CAPTURE(int(k));
  check_culprit_named(verdicts_of(k, {}, false,
                                  [](rank_of_test& r, auto& s) {
                                    if (r.rank() != culprit) s[0]->launch(0);
                                  }),
                      name_of(k));
}

TEST_CASE("fault: what has timed out is NaN, and everything else is right", "[faults]") {
  auto const k = GENERATE(kind::push_k, kind::push_m, kind::push_k_f16, kind::pull_k, kind::pull_m, kind::decode,
                          kind::decode_two_shot);
  CAPTURE(int(k));
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        channel ch(r.heap, fault_channel());
        auto const s = make(r, ch, k);
        expect_right(r, *s);  // what its inbox then holds is wrong for others
        for (int salt = 1; salt <= 4; ++salt) {
          s->prepare(salt);
          r.meet();
          if (r.rank() != culprit) {
            s->launch(0);
            r.found.expect(!verdict(r).empty(), "nobody has missed rank 1");
            s->expect_right(true);
          }
          ch.reset();
        }
        expect_right(r, *s);
      },
      short_waits());
}

TEST_CASE("fault: a rank's call throws before its launch", "[faults]") {
  auto const k = GENERATE(kind::words, kind::push_k, kind::pull_m, kind::decode, kind::decode_two_shot);
  CAPTURE(int(k));
  check_culprit_named(verdicts_of(k, {}, false,
                                  [](rank_of_test& r, auto& s) {
                                    if (r.rank() == culprit)
                                      r.found.template throws<bad_argument>("a call that is refused", {},
                                                                            [&] { s[0]->refuse(); });
                                    else s[0]->launch(0);
                                  }),
                      name_of(k));
}

TEST_CASE("fault: a rank comes after the limit", "[faults]") {
  auto const k = GENERATE(kind::words, kind::push_k, kind::push_m, kind::pull_k, kind::pull_m, kind::decode,
                          kind::decode_two_shot);
  CAPTURE(int(k));
  auto const verdicts = verdicts_of(k, {}, true, [](rank_of_test& r, auto& s) {
    if (r.rank() == culprit) r.launch({1, 64}, spend<>, r.view(), ns_of(2.5));
    s[0]->launch(0);
  });
  check_culprit_named(verdicts, name_of(k));
  CHECK(verdicts[culprit].starts_with("abandoned: "));
}

TEST_CASE("fault: a rank comes late, but within the limit, which is none", "[faults]") {
  auto const k = GENERATE(kind::words, kind::push_k, kind::push_m, kind::pull_k, kind::pull_m, kind::decode,
                          kind::decode_two_shot);
  CAPTURE(int(k));
  auto const verdicts = verdicts_of(k, {}, true, [](rank_of_test& r, auto& s) {
    if (r.rank() == culprit) r.launch({1, 64}, spend<>, r.view(), ns_of(0.5));
    s[0]->launch(0);
  });
  for (auto const& said : verdicts) CHECK(said == "");
}

TEST_CASE("fault: one push gets lost", "[faults]") {
  auto const k = GENERATE(kind::words, kind::push_k, kind::push_m, kind::decode, kind::decode_two_shot);
  int const slot = GENERATE(0, 1);
  bool const decodes = k == kind::decode || k == kind::decode_two_shot;
  // Two shots: whoever lacks rank 0's part, which is late for want of rank 1's, may be the first to time out.
  bool const first = k != kind::decode_two_shot;
  CAPTURE(int(k), slot);
  auto const verdicts = verdicts_of(k, {}, false, [slot](rank_of_test&, auto& s) {
    if (slot == 1) s[0]->launch(1);  // so that the report must be of the right slot
    s[0]->launch_losing(0);
  });
  INFO(verdicts[0]);
  CHECK(contains(verdicts[0], text(" of ", name_of(k))));
  CHECK(contains(verdicts[0], text(first ? " waited longer than 500 ms for a flag" : " flag", " from rank 1 (",
                                   decodes ? "a result " : "data flag ")));
  CHECK(contains(verdicts[0], text(" of rank 1, slot ", slot, ", signal segment + ")));
  // decode_losing has its own inbox
  CHECK(contains(verdicts[0], text("): epoch ", decodes ? 0 : 2 + slot, " found, ", 4 + slot, " wanted")));
  for (std::size_t r = 1; r < verdicts.size(); ++r)
    CHECK((verdicts[r].empty() || !first || contains(verdicts[r], "because rank 0 aborted")));
}

namespace {

/// Everybody says that ranks launched different things, and which, or that another rank has said so; nobody speaks of a
/// timeout.
void check_disagreement(std::vector<std::string> const& verdicts, std::string const& most,
                        std::string const& of_culprit) {
  int mismatches = 0;
  for (std::size_t r = 0; r < verdicts.size(); ++r) {
    INFO("rank " << r << ": " << verdicts[r]);
    CHECK((verdicts[r].starts_with("mismatch: ") || verdicts[r].starts_with("abandoned: ")));
    if (!verdicts[r].starts_with("mismatch: ")) continue;
    ++mismatches;
    CHECK(contains(verdicts[r], text("rank ", culprit, " launched ", of_culprit)));
    CHECK(contains(verdicts[r], text(" launched ", most)));
  }
  CHECK(mismatches >= 1);
}

}  // namespace

TEST_CASE("fault: a rank launches another shape", "[faults]") {
  auto const k = GENERATE(kind::words, kind::push_k, kind::push_m, kind::pull_k, kind::pull_m, kind::decode,
                          kind::decode_two_shot);
  CAPTURE(int(k));
  check_disagreement(verdicts_of(k, {}, false, [](rank_of_test& r, auto& s) { s[0]->launch(r.rank() == culprit); }),
                     name_of(k), name_of(k, 1));
}

TEST_CASE("fault: a rank launches another variant, or another operator", "[faults]") {
  auto const [k, with] = GENERATE(table<kind, kind>({{kind::push_k, kind::pull_k},
                                                     {kind::pull_m, kind::pull_k},
                                                     {kind::push_k, kind::push_m},
                                                     {kind::push_k, kind::push_k_f16},
                                                     {kind::push_m, kind::decode},
                                                     {kind::pull_k, kind::decode},
                                                     {kind::decode, kind::words},
                                                     {kind::pull_m, kind::words}}));
  CAPTURE(int(k), int(with));
  check_disagreement(verdicts_of(k, {with}, false, [](rank_of_test& r, auto& s) { s[r.rank() == culprit]->launch(0); }),
                     name_of(k), name_of(with));
}

TEST_CASE("fault: a rank launches two operators in another order", "[faults]") {
  auto const [k, with] = GENERATE(table<kind, kind>({{kind::push_k, kind::decode},
                                                     {kind::pull_m, kind::decode},
                                                     {kind::push_m, kind::pull_m},
                                                     {kind::words, kind::push_k}}));
  CAPTURE(int(k), int(with));
  auto const verdicts = verdicts_of(k, {with}, false, [](rank_of_test& r, auto& s) {
    s[r.rank() == culprit]->launch(0);
    anyway([&] { s[r.rank() != culprit]->launch(0); });
  });
  check_disagreement(verdicts, name_of(k), name_of(with));
}

TEST_CASE("fault: launches without a check in between: the first one that failed is the one that is named",
          "[faults]") {
  auto const verdicts = verdicts_of(kind::push_k, {kind::decode, kind::pull_m}, false, [](rank_of_test& r, auto& s) {
    for (int i = 0; i < 12; ++i)
      if (i != 0 || r.rank() != culprit) anyway([&] { s[std::size_t(i % 3)]->launch(i & 1); });
  });
  std::string const said = verdicts[0] + verdicts[2];
  INFO(said);
  CHECK((contains(said, "launched ag_gemm push gather::k bf16, m = 40") ||
         contains(said, " of ag_gemm push gather::k bf16, m = 40")));
}

TEST_CASE("fault: a rank that leaves before its launch is what run_local reports", "[faults]") {
  needs_threads("run_local throws one error for all ranks; processes.killed_rank is about processes");
  std::vector<std::string> verdicts(ranks);
  std::string message;
  try {
    run_local(ranks, [&](world& w) {
      rank_of_test r(w, short_waits());
      channel ch(r.heap, fault_channel());
      auto const s = make(r, ch, kind::pull_k);
      r.meet();
      if (r.rank() == culprit) return;
      double const start = seconds_now();
      s->launch(0);
      verdicts[std::size_t(r.rank())] = verdict(r);
      verdicts[std::size_t(r.rank())] += seconds_now() - start <= seconds_to_report() ? "" : ", late";
      r.world.check(r.stream);
    });
  } catch (std::exception const& e) {
    message = e.what();
  }
  for (int const r : {0, 2}) {
    INFO(verdicts[std::size_t(r)]);
    CHECK((contains(verdicts[std::size_t(r)], "from rank 1 (") || contains(verdicts[std::size_t(r)], "aborted")));
    CHECK(!contains(verdicts[std::size_t(r)], ", late"));
  }
  CHECK(contains(message, "from rank 1 ("));
}

TEST_CASE("fault: a rank that throws before its launch ends the others immediately, whatever the limit of a wait",
          "[faults]") {
  needs_threads("processes.throwing_rank is the same for processes");
  auto const k = GENERATE(kind::words, kind::push_k, kind::pull_m, kind::decode);
  bool const splits = GENERATE(false, true);  // a world that was split from the one that fails
  CAPTURE(int(k), splits);
  heap_options options = small_heap();
  options.wait_limit = std::chrono::minutes(5);
  std::vector<std::string> verdicts(ranks);
  std::string message;
  try {
    run_local(ranks, [&](world& all) {
      std::optional<world> part;
      if (splits) part.emplace(all.split(0));
      rank_of_test r(splits ? *part : all, options);
      channel ch(r.heap, fault_channel());
      auto const s = make(r, ch, k);
      r.meet();
      if (r.rank() == culprit) throw std::runtime_error("rank 1 has had enough");
      double const start = seconds_now();
      s->launch(0);
      std::string said = verdict(r);
      if (seconds_now() - start > seconds_to_report()) said += ", late";
      s->launch(0);  // it returns immediately
      if (std::string const again = verdict(r); again.substr(0, again.find('\n')) != said.substr(0, said.find('\n')))
        said += ", and then " + again;
      verdicts[std::size_t(r.rank())] = said;
      r.world.check(r.stream);
    });
  } catch (std::exception const& e) {
    message = e.what();
  }
  for (int const r : {0, 2}) {
    INFO(verdicts[std::size_t(r)]);
    CHECK(verdicts[std::size_t(r)].starts_with(
        text("mismatch: rank ", r, ": the launch was ended because a rank has failed: rank 1: rank 1 has had enough")));
    CHECK(!contains(verdicts[std::size_t(r)], ", late"));
    CHECK(!contains(verdicts[std::size_t(r)], ", and then"));
  }
  CHECK(message == "rank 1 has had enough");
}

namespace {

__global__ void wait_for_a_flag(world_view w, sym<flag> flags) { wait(block{}, w, w.here(flags) + 3, 9, 2); }
__global__ void meet(world_view w, sym<barrier_state> state, bool come) {
  if (come) barrier(block{}, w, state);
}

}  // namespace

TEST_CASE("fault: flags and barriers that are no channel's are named too", "[faults]") {
  on_ranks(
      ranks,
      [](rank_of_test& r) {
        auto const flags = r.heap.allocate<flag>(5);
        auto const state = r.heap.allocate<barrier_state>(2);
        r.meet();
        if (r.rank() == 0) {
          r.launch({1, 64}, wait_for_a_flag, r.view(), flags);
          std::string const said = verdict(r);
          r.found.expect(contains(said, "timeout: rank 0, block 0 waited longer than 500 ms for a flag from rank 2 "
                                        "(flag 3 of 5, signal segment + "),
                         said);
          r.found.expect(contains(said, "): epoch 0 found, 9 wanted"), said);
        }
        r.world.barrier();
        r.heap.reset();
        r.launch({1, 64}, meet, r.view(), state + 1, r.rank() != culprit);
        std::string const said = verdict(r);
        if (r.rank() != culprit)
          r.found.expect(contains(said, "for a flag from rank 1 (barrier 1, flag of rank 1, signal segment + ") ||
                             contains(said, "aborted"),
                         said);
        r.world.barrier();
        r.heap.reset();
        r.found.expect(verdict(r).empty(), "reset() leaves ", verdict(r));
      },
      short_waits());
}
