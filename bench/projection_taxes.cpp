// From all-gather, then GEMM, to one fused kernel in steps that differ in one thing each, and each tax alone; on
// fusewire-sim --time. docs/taxes.md says what each is; scripts/perf/project.py runs it and writes the JSON.
//
//   projection_taxes VARIANT W M N K [once | LATE,...]
//
//   bsp_eager     all_gather, join_columns, GEMM    one launch after the other by the host
//   bsp_graph     the same                          a graph
//   bsp_in_place  all_gather, GEMM                  a graph; the all-gather stores where the GEMM reads
//   after_all     one kernel                        ag_gemm's, of which no block multiplies before all of A is there
//   chosen        one kernel                        ag_gemm
//   marked        one kernel                        ag_gemm's, with spans for fusewire-sim --trace
//   all_gather, join_columns, gemm                  one of the twin's kernels, alone in its graph
//   empty_1, empty_3, empty_1_eager, empty_3_eager  so many kernels that do nothing
//
// once: one call, and no check. LATE: rank 0 begins so many us late, in one call for each, and the others' times are
// told.
//
// A is gathered by k, in bf16; weights are others in every call; outputs are checked. Prints "us: TIME", the slowest
// rank's; with LATE, for each, "late US: TIME of the slowest rank, MEDIAN of the ranks that are not late".
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/gemm.hpp>

#include <cstring>
#include <string>

#include "device_side.hpp"
#include "projection.hpp"

using namespace fusewire;
using namespace fusewire::projected;

namespace {

[[noreturn]] void usage() {
  std::fprintf(stderr, "usage: projection_taxes VARIANT W M N K [once | LATE,...]\n");
  std::exit(2);
}

// The bulk-synchronous twin's kernels, in place of the vendor's.

/// Blocks b, b + W, ... of a rank bring rank b's shard [M, K/W]: below the others, or beside them (in_place). Blocks
/// with one index sync on all ranks before and after.
///   Deadlock: all blocks are resident, and a block waits for nobody but those with its index.
__global__ void __launch_bounds__(512)
    pull_shards(world_view w, sym<barrier_state> meet, sym<bf16> shards, bf16* out, int m, int cols, bool in_place) {
  block const b;
  sym<barrier_state> const mine = meet + b.index();
  barrier(b, w, mine);
  int const from = w.next(b.index() % w.size()), slice = b.index() / w.size(), slices = b.count() / w.size();
  int const first = m * slice / slices, rows = m * (slice + 1) / slices - first;
  matrix<bf16> const shard{w.on(from, shards), m, cols, cols},
      below{out + std::int64_t(from) * m * cols, m, cols, cols},
      beside{out + from * cols, m, cols, std::int64_t(cols) * w.size()};
  copy_aligned<8>(b, matrix<bf16 const>(shard.submatrix(first, 0, rows, cols)),
                  (in_place ? beside : below).submatrix(first, 0, rows, cols));
  barrier(b, w, mine);
}

__global__ void do_nothing() {}

// ag_gemm's kernel with one thing changed.

/// A source whose first tile waits until all chunks of all ranks have arrived.
///   Deadlock: blocks that move chunks do it before they ask for a tile.
template <class Source>
class after_all_of : public Source {
 public:
  template <class... X>
  __device__ after_all_of(channel_epoch const& e, int rank, gather_map const& map, X const&... x)
      : Source(e, rank, map, x...), e_(e), map_(map), rank_(rank) {}

  __device__ int begin(tile_coord t) {
    if (!there_) {
      block const b;
      int const flags = map_.flags_per_source(), all = flags * map_.ranks;
      for (int i = b.rank(); i < all; i += b.size()) {
        int const source = i / flags;
        if (source == rank_) continue;
        flag const* const f = e_.from(source, i % flags);
        while (platform::atomic_load<order::relaxed, scope::system>(&f->value) != e_.number()) platform::backoff();
      }
      platform::acquire_loaded<scope::system>();
      b.sync();
      there_ = true;
    }
    return Source::begin(t);
  }

 private:
  channel_epoch const& e_;
  gather_map const& map_;
  int const rank_;
  bool there_ = false;
};

/// As ag_gemm_kernel, with AfterAll's source, or marked with spans.
template <class T, mainloop Mainloop, bool AfterAll>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    changed_ag_gemm(__grid_constant__ channel_view const ch, __grid_constant__ ag_gemm_arguments<T> const g,
                    __grid_constant__ typename Mainloop::template operands<gathered_buffers> const x) {
  extern __shared__ bytes16 shared[];
  channel_launch launch(ch, g.gather.pull);
  channel_epoch const& e = launch.epoch();
  using usual = gathered_source<Mainloop>;
  std::conditional_t<AfterAll, after_all_of<usual>, usual> source(e, ch.world.rank(), g.gather.map,
                                                                  g.gather.local_shard_first, x.k_slice());
  checked_local_sink<T> const sink{g.c, e, Mainloop::traits.tile_m, Mainloop::traits.tile_n};
  auto const gather = [&](auto group, int worker, int workers, auto const& begin) {
    trace_span<!AfterAll> const s("moves A");
    transfer_chunks(group, e, ch.world, g.gather, worker, workers, begin);
  };
  Mainloop::run(shared, launch, x, g.tiles, source, sink, gather, identity{}, no_tail{});
}

/// Mainloops that read B by columns and have tiles of 64 rows or more, of which there are instances here.
template <class Mainloop>
constexpr bool has_instance = false;
template <class T, int Rows, int Columns>
constexpr bool has_instance<small_m_gfx942<T, Rows, Columns, layout::column_major>> = Rows == 64;
template <class T, int Rows, int Columns>
constexpr bool has_instance<ping_pong_gfx942<T, Rows, Columns, layout::column_major>> = true;

struct problem {
  int ranks, m, n, k;
};

/// Launches changed_ag_gemm as ag_gemm does its own kernel: push, the same plan, the same blocks.
class changed_operator {
 public:
  changed_operator(channel& ch, ag_gemm_options const& o) : ch_(ch), o_(o), memory_(ch.world(), here()) {}

  template <bool AfterAll>
  void launch_once(hipStream_t stream, ag_gemm_call<bf16> const& call) const {
    world const& w = ch_.world();
    int const n = call.c.cols;
    int const k_shards = o_.gather == gather::k ? w.size() : 1;
    gemm_shape const shape{call.m, 1, n, o_.k, k_shards, call.b_layout};
    auto const fit_of = [&]<class M>(int split_k) {
      return resident_groups<M>(w, &ag_gemm_kernel<bf16, M, identity>, split_k, 0, here());
    };
    auto const plan = tuned_ag_gemm_plan(shape, w.size(), o_.gather, false, 0, [&](gemm_plan const& p) {
      return with_mainloop<bf16>(p, call.b_layout, [&]<class M>() { return fit_of.template operator()<M>(p.split_k); });
    });
    require<runtime_failure>(plan.has_value(), here(), "no tuned mainloop is for this shape");
    with_mainloop<bf16>(plan->gemm, call.b_layout, [&]<class M>() {
      if constexpr (has_instance<M>) {
        auto const kernel = &changed_ag_gemm<bf16, M, AfterAll>;
        gather_map const map{o_.gather, call.m, o_.k, w.size(), M::traits.tile_m, plan->chunk_k};
        int const split_k = M::traits.slicing == k_slicing::interleaved
                                ? std::min(plan->gemm.split_k, map.k_chunks() * shape.k_shards)
                                : plan->gemm.split_k;
        gather_order const order = order_of_gather(map, w.rank(), false, plan->chunks, plan->gemm.group_m,
                                                   M::traits.slicing == k_slicing::interleaved ? 1 : split_k);
        channel_view const view = ch_.view(make_header("ag_taxes", AfterAll, std::uint64_t(call.m)));
        auto const inbox = [&](int slot) { return gathered_in(view.template slot<bf16 const>(slot), map); };
        matrix<bf16 const> const a[gathered_buffers] = {call.a, inbox(0), inbox(1)};
        gemm_plan multiply = plan->gemm;
        multiply.split_k = split_k;
        auto x = make_operands<M>(a, b_operand<bf16>{call.b.data, call.b.ld, call.b_layout, n}, o_.k, true, multiply,
                                  map.m, last_tile_rows(map.m, map.tile_m), memory_, here());
        ag_gemm_arguments<bf16> const g{
            {call.a, map, order.chunks, false, o_.local_shard_first, plan->alternating},
            call.c,
            {map.m_tiles(), ceil_div(n, M::traits.tile_n), order.first_m_tile, multiply.group_m, order.first_group}};
        int const tiles = g.tiles.count(), fit = fit_of.template operator()<M>(1);
        int const first = std::max(1, std::min({order.chunks.count(), split_k > 1 ? fit - tiles * split_k : fit / 4,
                                                plan->senders(o_.gather, w.size())}));
        set_blocks(x, first, tiles);
        launch(w, stream,
               {.blocks = std::min(fit, first + tiles * split_k),
                .threads = M::traits.threads,
                .shared_bytes = M::shared_bytes()},
               kernel, view, g, x);
      } else {
        require<runtime_failure>(false, here(), "no instance of changed_ag_gemm has the mainloop of this shape");
      }
    });
  }

 private:
  static std::source_location here(std::source_location where = std::source_location::current()) { return where; }
  channel& ch_;
  ag_gemm_options o_;
  tuned_mainloops<bf16>::memory memory_;
};

/// A rank with all variants.
class runner {
 public:
  runner(world& w, problem const& p)
      : w_(w), p_(p), cols_(p.k / p.ranks),
        o_{.max_m = p.m, .k = p.k, .gather = gather::k, .method = method::automatic},
        h_(w, {.bulk = round_up(gathered() * 2 * 2 + shard() * 2 * calls + 64_MiB, 2_MiB), .signal = 128_MiB}),
        ch_(h_, {.max_bytes = gathered() * 2, .flags_per_source = ag_gemm<bf16>::flags_per_source(p.ranks, o_)}),
        watch_(w, h_), meet_(h_.allocate<barrier_state>(std::size_t(gather_blocks()))), op_(ch_, o_), changed_(ch_, o_),
        gemm_(w) {
    std::vector<bf16> a(shard()), whole(gathered());
    for (int r = 0; r < p.m; ++r)
      for (int c = 0; c < p.k; ++c) {
        bf16 const x(a_at(r, c, p.k));
        whole[std::size_t(r) * std::size_t(p.k) + std::size_t(c)] = x;
        if (c / cols_ == w.rank()) a[std::size_t(r) * std::size_t(cols_) + std::size_t(c % cols_)] = x;
      }
    for (int i = 0; i < calls; ++i) {
      shards_.push_back(h_.allocate<bf16>(shard()));
      upload(h_.view().here(shards_.back()), a);
      weights_.push_back(upload(allocate<bf16>(weights_of(count_of_weights()).size()), weights_of(count_of_weights())));
    }
    received_ = allocate<bf16>(gathered());
    whole_ = upload(allocate<bf16>(gathered()), whole);
    c_ = allocate<bf16>(std::size_t(p.m) * std::size_t(p.n));
    w.barrier();
  }

  /// The iteration that a variant's name stands for, and whether its result is C.
  std::pair<std::function<void(int)>, bool> iteration(std::string const& name) {
    auto const plain = [this](int i) { multiply(i, whole_); };
    auto const empty = [this](int kernels) {
      return [this, kernels](int) {
        for (int i = 0; i < kernels; ++i) launch(w_, w_.stream(), {.blocks = 304, .threads = 512}, do_nothing);
      };
    };
    if (name == "bsp_graph" || name == "bsp_eager")
      return {[this, plain](int i) { gather_shards(i, received_, false), join(), plain(i); }, true};
    if (name == "bsp_in_place") return {[this, plain](int i) { gather_shards(i, whole_, true), plain(i); }, true};
    if (name == "after_all") return {[this](int i) { changed_.launch_once<true>(w_.stream(), call(i)); }, true};
    if (name == "marked") return {[this](int i) { changed_.launch_once<false>(w_.stream(), call(i)); }, true};
    if (name == "chosen") return {[this](int i) { op_(w_.stream(), call(i)); }, true};
    if (name == "gemm") return {plain, true};
    if (name == "all_gather") return {[this](int i) { gather_shards(i, received_, false); }, false};
    if (name == "join_columns") return {[this](int) { join(); }, false};
    if (name.rfind("empty_1", 0) == 0) return {empty(1), false};
    if (name.rfind("empty_3", 0) == 0) return {empty(3), false};
    usage();
  }

  double time(std::string const& name, bool once) {
    auto const [call, multiplies] = iteration(name);
    bool const eager = name.size() > 6 && name.substr(name.size() - 6) == "_eager";
    if (name == "chosen" && w_.rank() == 0) std::printf("%s\n", op_.describe(this->call(0)).c_str());
    double const us = watch_.time(once, call, eager ? enqueued::one_by_one : enqueued::as_graph);
    if (multiplies && !once) check_product(w_, {c_, p_.m, p_.n, p_.n}, weights_of(count_of_weights()), p_.n, p_.k);
    return us;
  }

  /// The slowest rank's time when rank 0 begins `us` late, and the median of the others'. Call number i.
  std::pair<double, double> time_late(std::string const& name, int us, int i) {
    auto const call = iteration(name).first;
    auto all = watch_.of_ranks([&] {
      std::uint64_t const ns = w_.rank() == 0 ? std::uint64_t(us) * 1000 : 0;
      launch(w_, w_.stream(), {.blocks = 1, .threads = 64}, bench::stand_still, ns);
      call(i);
    });
    double const slowest = stopwatch::slowest(all);
    std::sort(all.begin() + 1, all.end());
    return {slowest, all[1 + (all.size() - 1) / 2]};
  }

  static constexpr int calls = 3;

 private:
  std::size_t gathered() const { return std::size_t(p_.m) * std::size_t(p_.k); }
  std::size_t shard() const { return gathered() / std::size_t(p_.ranks); }
  std::size_t count_of_weights() const { return std::size_t(p_.n) * std::size_t(p_.k); }
  int gather_blocks() const { return p_.ranks * std::clamp(int(shard() / 8 / 4096), 1, 8); }

  void gather_shards(int i, bf16* to, bool in_place) {
    launch(w_, w_.stream(), {.blocks = gather_blocks(), .threads = 512}, pull_shards, h_.view(), meet_,
           shards_[std::size_t(i)], to, p_.m, cols_, in_place);
  }
  void join() {
    launch(w_, w_.stream(), {.blocks = std::min(1056, ceil_div(int(gathered() / 8), 256)), .threads = 256},
           bench::join_columns, reinterpret_cast<bytes16 const*>(received_), reinterpret_cast<bytes16*>(whole_), p_.m,
           cols_ / 8, p_.ranks);
  }
  void multiply(int i, bf16 const* a) {
    gemm_(w_.stream(), {.a = {a, p_.m, p_.k, p_.k},
                        .b = {weights_[std::size_t(i)], p_.k, p_.n, p_.k},
                        .c = {c_, p_.m, p_.n, p_.n},
                        .b_layout = layout::column_major,
                        .b_is_constant = true});
  }
  ag_gemm_call<bf16> call(int i) {
    return {.a = {h_.view().here(shards_[std::size_t(i)]), p_.m, cols_, cols_},
            .b = {weights_[std::size_t(i)], p_.k, p_.n, p_.k},
            .c = {c_, p_.m, p_.n, p_.n},
            .m = p_.m,
            .b_layout = layout::column_major,
            .b_is_constant = true};
  }

  world& w_;
  problem p_;
  int cols_;
  ag_gemm_options o_;
  heap h_;
  channel ch_;
  stopwatch watch_;
  sym<barrier_state> meet_;
  ag_gemm<bf16> op_;
  changed_operator changed_;
  gemm<bf16> gemm_;
  std::vector<sym<bf16>> shards_;
  std::vector<bf16*> weights_;
  bf16 *received_ = nullptr, *whole_ = nullptr, *c_ = nullptr;
};

std::vector<int> numbers(std::string text) {
  std::vector<int> all;
  for (char* at = std::strtok(text.data(), ","); at; at = std::strtok(nullptr, ",")) all.push_back(std::atoi(at));
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6 && argc != 7) usage();
  std::string const name = argv[1], last = argc > 6 ? argv[6] : "";
  problem const p{std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5])};
  bool const once = last == "once";
  std::vector<int> const late = once ? std::vector<int>{} : numbers(last);
  if (p.ranks < 2 || p.m < 1 || p.n < 1 || p.k < 1 || p.k % (8 * p.ranks) || late.size() > runner::calls) usage();
  run_local(p.ranks, [&](world& w) {
    runner r(w, p);
    if (late.empty()) {
      double const us = r.time(name, once);
      if (w.rank() == 0) std::printf("us: %.3f\n", us);
    }
    for (std::size_t i = 0; i < late.size(); ++i) {
      auto const [slowest, others] = r.time_late(name, late[i], int(i));
      if (w.rank() == 0) std::printf("late %d: %.3f %.3f\n", late[i], slowest, others);
    }
    w.barrier();
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
