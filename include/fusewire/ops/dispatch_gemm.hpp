// dispatch_gemm: each token's row to the ranks of its experts, and the experts' first GEMM, one kernel launch per call.
// The kernel is in dispatch_gemm_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/dispatch_gemm_kernel.hpp>
#include <fusewire/ops/detail/grouped_launcher.hpp>
#include <fusewire/ops/detail/moe_dispatcher.hpp>

namespace fusewire {

/// One call: what moe_dispatch and grouped_gemm are told, and no more. All ranks pass rows of the same bytes.
template <class T>
struct dispatch_gemm_call {
  /// Rows x of K elements T, without scales; `out` [max_rows, K] holds what has come, by_expert, and the routing is
  /// written as by moe_dispatch
  moe_dispatch_call dispatch;
  matrix<T const> b;                    // [K, N] of this rank's expert 0; column-major: b.ld is that of columns
  std::int64_t b_group_stride = 0;      // elements from one expert's b to the next
  matrix<T> c;                          // [max_rows, N], of a pair epilogue [max_rows, N / 2]; overlaps nothing else
  layout b_layout = layout::row_major;  // how each b lies
  /// Rows that an expert is expected to have, by which a tile is chosen; 0: max_rows / experts. Any number gives right
  /// results
  int rows_of_group = 0;
};

/// What moe_dispatch, and grouped_gemm on what has come, make: the same rows in the same order, and the same bits. A
/// tile waits for its rows alone. Rows of c that belong to no expert are not written.
template <class T>
  requires is_16_bit_float<T>
class dispatch_gemm : moe_dispatcher {
 public:
  /// Collective. Loads the kernels of calls without an epilogue. Fails: bad_argument, also where the layout is not
  /// by_expert; rank_mismatch; out_of_space when the channel cannot hold the rows or their flags.
  dispatch_gemm(channel& ch, moe_options const& o, gemm_tile const& tile = gemm_tile::automatic,
                std::source_location where = std::source_location::current())
      : moe_dispatcher("dispatch_gemm", ch, o, where),
        launcher_(ch.world(), "dispatch_gemm", tile, o.reserved_cus, where, shared_bytes()) {
    require_by_expert(where);
    prepare<identity>(where);
    ch.heap().names().add_launch("dispgemm", describe_launch);
    agree(max_bytes(shape_.ranks, o), flags_per_source(shape_.ranks, o), where);
  }
  dispatch_gemm(dispatch_gemm const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~dispatch_gemm() = default;

  /// What the operator needs of a channel. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, moe_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  using moe_dispatcher::max_bytes;
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int ranks, moe_options const& o) {
    return flags_of_dispatch(ranks, o) + moe_pieces::of(shape_of(ranks, o)).count;
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <grouped_epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    launcher_.load(kernels<Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph, whose replays see the tables of their time.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors(). check() throws bad_argument as for
  /// moe_dispatch.
  template <grouped_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, dispatch_gemm_call<T> const& c, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    kernels<Epilogue> const kernel_of;
    grouped_gemm_call<T> const product = product_of(c, where);
    gemm_plan const& plan = launcher_.template plan<Epilogue>(kernel_of, product, where);
    // A part of the blocks dispatches; the others would have to wait for rows of a dispatch by fewer
    int const fit = launcher_.resident(kernel_of, product, plan, where);
    moe_blocks const blocks = moe_blocks::of(sent(c.dispatch), received(c.dispatch), std::max(1, fit / 4));
    launcher_.launch(
        stream, kernel_of, product, plan, {.comm_workers = blocks.all, .comm_exactly = true, .where = where}, e,
        ch_.view(header("dispgemm", c.dispatch)),
        dispatch_gemm_arguments<T>{arguments(c.dispatch, blocks.senders), launcher_.arguments(product, plan),
                                   moe_pieces::of(shape_), blocks.all});
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <grouped_epilogue Epilogue = identity>
  std::string describe(dispatch_gemm_call<T> const& c, std::source_location where = std::source_location::current()) {
    return text("dispatch_gemm: ",
                fusewire::in_words<T>(
                    launcher_.template plan<Epilogue>(kernels<Epilogue>{}, product_of(c, where), where), c.b_layout));
  }

 private:
  /// operator()<M>() is the kernel with mainloop M.
  template <class Epilogue>
  struct kernels {
    template <class M>
    auto operator()() const {
      return &dispatch_gemm_kernel<T, M, Epilogue>;
    }
  };

  static std::string describe_launch(std::uint64_t const (&what)[launch_words]) {
    return in_words("dispatch_gemm", what);
  }
  /// The checked call's product. Fails: bad_argument.
  grouped_gemm_call<T> product_of(dispatch_gemm_call<T> const& c, std::source_location where) const {
    require(c.dispatch.scales.data == nullptr, where, "dispatch_gemm: scales are given; expected rows without scales");
    check(c.dispatch, where);
    detail::operand const read[] = {{"x", c.dispatch.x.data, std::uint64_t(c.dispatch.tokens),
                                     std::uint64_t(c.dispatch.x.bytes), std::uint64_t(c.dispatch.x.pitch)}},
                          written[] = {detail::operand_of("c", c.c)};
    detail::check_operands("dispatch_gemm", written, read, where);
    int const k = c.dispatch.x.bytes / int(sizeof(T));
    return {.a = {reinterpret_cast<T const*>(c.dispatch.out.data), shape_.max_rows, k,
                  c.dispatch.out.pitch / std::int64_t(sizeof(T))},
            .b = c.b,
            .b_group_stride = c.b_group_stride,
            .c = c.c,
            .offsets = c.dispatch.routing.expert_begins,
            .ends = c.dispatch.routing.expert_ends,
            .groups = shape_.experts,
            .b_layout = c.b_layout,
            .rows_of_group = c.rows_of_group};
  }

  grouped_launcher<T> launcher_;
};

}  // namespace fusewire
