// gemm_combine: the experts' last GEMM, and its results to the ranks of their tokens, and their sums, one kernel launch
// per call. The kernel is in gemm_combine_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/gemm_combine_kernel.hpp>
#include <fusewire/ops/detail/grouped_launcher.hpp>
#include <fusewire/ops/detail/moe_combiner.hpp>

namespace fusewire {

/// One call: what grouped_gemm and moe_combine are told, and no more. All ranks pass the same N, and the routing of the
/// same call of dispatch_gemm or moe_dispatch.
template <class T>
struct gemm_combine_call {
  matrix<T const> a;                // [max_rows, K]: rows by_expert, in the routing's layout; K a multiple of 8
  matrix<T const> b;                // [K, N] of this rank's expert 0; N a multiple of 8
  std::int64_t b_group_stride = 0;  // elements from one expert's b to the next
  matrix<T> y;    // [max_rows, N]: what the experts make, as grouped_gemm leaves it; ld a multiple of 8
  matrix<T> out;  // [tokens, N]: a sum for each token of this rank, as moe_combine leaves it
  float const* weights = nullptr;       // [max_received, top_k] as the routing's row_weights; null: all 1
  moe_routing_view routing;             // of the dispatch
  layout b_layout = layout::row_major;  // how each b lies
  /// Rows that an expert is expected to have, by which a tile is chosen; 0: max_rows / experts. Any number gives right
  /// results
  int rows_of_group = 0;
};

/// What grouped_gemm, and moe_combine on what the experts have made, make: the same sums in the same order, and the
/// same bits. A token's results leave when the tiles of its rows are stored.
template <class T>
  requires is_16_bit_float<T>
class gemm_combine : moe_combiner<T> {
 public:
  /// Collective. Loads the kernels of calls without an epilogue. Fails: bad_argument, also where the layout is not
  /// by_expert; rank_mismatch; out_of_space when the channel cannot hold the rows or their flags.
  gemm_combine(channel& ch, moe_options const& o, gemm_tile const& tile = gemm_tile::automatic,
               std::source_location where = std::source_location::current())
      : moe_combiner<T>("gemm_combine", ch, o, where),
        launcher_(ch.world(), "gemm_combine", tile, o.reserved_cus, where, int(sizeof(detail::moe_partials_shared))) {
    this->require_by_expert(where);
    prepare<identity>(where);
    ch.heap().names().add_launch("gemmcomb", describe_launch);
    this->agree(max_bytes(ch.world().size(), o), flags_per_source(ch.world().size(), o), where);
  }
  gemm_combine(gemm_combine const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~gemm_combine() = default;

  /// What the operator needs of a channel. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, moe_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  using moe_combiner<T>::max_bytes;
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int ranks, moe_options const& o) {
    moe_shape const s = detail::moe_shape_of("gemm_combine", ranks, o, std::source_location::current());
    return moe_combiner<T>::flags_of_combine(o) + 1 + moe_pieces::of(s).count;
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <grouped_epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    launcher_.load(kernels<Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph, whose replays see the routing of their time. The epilogue is that of y, before weights and sums.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <grouped_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_combine_call<T> const& c, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    kernels<Epilogue> const kernel_of;
    moe_combine_call<T> const sums{.in = c.y, .out = c.out, .weights = c.weights, .routing = c.routing};
    grouped_gemm_call<T> const product = product_of(c, sums, where);
    gemm_plan const& plan = launcher_.template plan<Epilogue>(kernel_of, product, where);
    int const fit = launcher_.resident(kernel_of, product, plan, where), chunks = this->received(sums);
    moe_blocks const blocks = moe_blocks::of((this->shape_.ranks - 1) * chunks, chunks, fit);
    launcher_.launch(
        stream, kernel_of, product, plan, {.min_blocks = blocks.all, .where = where}, e,
        this->ch_.view(this->header("gemmcomb", sums)),
        gemm_combine_arguments<T>{launcher_.arguments(product, plan), this->arguments(sums, blocks.senders),
                                  moe_pieces::of(this->shape_), moe_combiner<T>::flags_of_combine(this->o_)});
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <grouped_epilogue Epilogue = identity>
  std::string describe(gemm_combine_call<T> const& c, std::source_location where = std::source_location::current()) {
    moe_combine_call<T> const sums{.in = c.y, .out = c.out, .weights = c.weights, .routing = c.routing};
    return text("gemm_combine: ", fusewire::in_words<T>(launcher_.template plan<Epilogue>(
                                                            kernels<Epilogue>{}, product_of(c, sums, where), where),
                                                        c.b_layout));
  }

 private:
  /// operator()<M>() is the kernel with mainloop M.
  template <class Epilogue>
  struct kernels {
    template <class M>
    auto operator()() const {
      return &gemm_combine_kernel<T, M, Epilogue>;
    }
  };

  static std::string describe_launch(std::uint64_t const (&what)[launch_words]) {
    return moe_combiner<T>::in_words("gemm_combine", what);
  }
  /// The checked call's product. Fails: bad_argument.
  grouped_gemm_call<T> product_of(gemm_combine_call<T> const& c, moe_combine_call<T> const& sums,
                                  std::source_location where) const {
    this->check(sums, where);
    require(c.a.rows == this->shape_.max_rows, where, "gemm_combine: a has ", c.a.rows,
            " rows; expected max_rows = ", this->shape_.max_rows);
    detail::operand const read[] = {detail::operand_of("a", c.a), detail::operand_of("y", c.y)},
                          written[] = {detail::operand_of("out", c.out)};
    detail::check_operands("gemm_combine", written, read, where);
    return {.a = c.a,
            .b = c.b,
            .b_group_stride = c.b_group_stride,
            .c = c.y,
            .offsets = c.routing.expert_begins,
            .ends = c.routing.expert_ends,
            .groups = this->shape_.experts,
            .b_layout = c.b_layout,
            .rows_of_group = c.rows_of_group};
  }

  grouped_launcher<T> launcher_;
};

}  // namespace fusewire
