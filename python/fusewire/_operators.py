"""The operators as torch knows them: schemas, shapes of results, and functions with exceptions of fusewire's own."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ._errors import BadArgument, NotBuilt, from_text
from ._groups import name_of, rank_of, routing_of, size_of
from ._library import missing

Tensor = torch.Tensor
PRODUCTS = ("ag_gemm", "gemm_rs", "gemm_ar", "gemm_all_scatter")

COLLECTIVES = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")

library = torch.library.Library("fusewire", "DEF")
# Which the shared object brings
kernels_of_gpus = ["ag_gemm_with_x", "flash_decode", "all_to_all_v", "all_reduce_norm", "all_reduce_norm_quantised",
                   "moe_dispatch", "moe_combine", "grouped_gemm", "launch_kernel"]
for _name in PRODUCTS:
    _tags = (torch.Tag.pt2_compliant_tag,)
    library.define(f"{_name}(Tensor x, Tensor w, str group, *, bool w_is_constant=False) -> Tensor", tags=_tags)
    library.define(f"{_name}_out(Tensor x, Tensor w, Tensor(a!) out, str group, *, bool w_is_constant=False) -> ()",
                tags=_tags)
    library.define(f"{_name}_custom(Tensor x, Tensor w, str group, int epilogue, Tensor[] tensors, float[] numbers, *, "
                   "bool w_is_constant=False) -> Tensor", tags=_tags)
    kernels_of_gpus += [_name, _name + "_out", _name + "_custom"]
for _name in COLLECTIVES:
    library.define(f"{_name}(Tensor x, str group) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    library.define(f"{_name}_out(Tensor x, Tensor(a!) out, str group) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
    kernels_of_gpus += [_name, _name + "_out"]
for _schema in ("ag_gemm_with_x(Tensor x, Tensor w, str group, *, bool w_is_constant=False) -> (Tensor, Tensor)",
                "all_to_all_v(Tensor x, Tensor counts, Tensor? offsets, SymInt rows, str group) -> (Tensor, Tensor, "
                "Tensor)",
                "all_reduce_norm(Tensor x, Tensor? residual, Tensor gamma, str group, *, float eps=1e-06) -> (Tensor, "
                "Tensor)",
                "all_reduce_norm_quantised(Tensor x, Tensor? residual, Tensor gamma, Tensor? scale, ScalarType dtype, "
                "str group, *, float eps=1e-06) -> (Tensor, Tensor, Tensor, Tensor)",
                "moe_dispatch(Tensor x, Tensor experts, Tensor? weights, Tensor(a!) routing, SymInt rows, str group, "
                "*, bool routed=False) -> Tensor",
                "moe_combine(Tensor y, Tensor routing, SymInt tokens, str group, *, bool weighted=False) -> Tensor",
                "grouped_gemm(Tensor x, Tensor w, Tensor begins, Tensor ends, str group, *, bool gated=False, "
                "SymInt rows_of_group=0) -> Tensor",
                "launch_kernel(Tensor[] reads, Tensor(a!)[] writes, SymInt[] integers, float[] floats, str group, "
                "int kernel, *, SymInt[] extents, SymInt blocks, int threads, int shared_bytes) -> ()",
                "ag_gemms(Tensor x, Tensor[] ws, str group, *, bool w_is_constant=False) -> (Tensor, Tensor[])",
                "flash_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor lengths, str group, "
                "*, float scale=0., bool kv_is_ready=False, Tensor? window_begins=None, float soft_cap=0., "
                "bool by_heads=False, bool batch_invariant=False) -> (Tensor, Tensor)"):
    library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def _refuse(name: str) -> Callable:
    def kernel(first, *others, **__):
        why = missing()
        if isinstance(first, Sequence):
            first, = (*first, *others[0])[:1]
        if why is None:
            why = f"its tensors are on {first.device}" if not first.is_cuda else "fusewire.init() has not been called"
        raise NotBuilt(f"torch.ops.fusewire.{name} has no kernel here: {why}")
    return kernel


for _name in kernels_of_gpus:
    library.impl(_name, _refuse(_name), "CompositeExplicitAutograd")


def _ag_gemms(x, ws, group, *, w_is_constant=False):
    """gather(x), and its product with each w: one launch for the widest w, torch's mm of gather(x) for the others."""
    if not ws:
        raise BadArgument("ag_gemms: no weights; expected one or more")
    widest = max(range(len(ws)), key=lambda i: ws[i].shape[0])
    y, whole = torch.ops.fusewire.ag_gemm_with_x(x, ws[widest], group, w_is_constant=w_is_constant)
    return whole, [y if i == widest else torch.mm(whole, w.t()) for i, w in enumerate(ws)]


library.impl("ag_gemms", _ag_gemms, "CompositeExplicitAutograd")


# ---------------------------------------------------------------- shapes

def shape_of_result(op: str, x: Tensor, w: Tensor, group: str) -> tuple:
    """Of a product. Fails: RuntimeError, where x and w do not fit."""
    torch._check(x.dim() == 2 and w.dim() == 2, lambda: f"{op}: expected x and w of two dimensions")
    torch._check(x.shape[1] == w.shape[1], lambda: f"{op}: w is {tuple(w.shape)}; expected as many columns as x "
                                                   f"{tuple(x.shape)}")
    torch._check(x.dtype == w.dtype and x.dtype in (torch.bfloat16, torch.float16),
                 lambda: f"{op}: expected x and w of one type, bfloat16 or float16")
    ranks, rows, columns = size_of(group), x.shape[0], w.shape[0]
    if op == "ag_gemm":
        return rows * ranks, columns
    if op == "gemm_all_scatter":
        return rows, columns * ranks
    if op == "gemm_ar":
        return rows, columns
    torch._check(rows % ranks == 0, lambda: f"gemm_rs: x is {tuple(x.shape)}; expected rows that {ranks} ranks can "
                                            f"share")
    return rows // ranks, columns


def _define_shapes(op: str) -> None:
    @torch.library.register_fake(f"fusewire::{op}", lib=library)
    def _(x, w, group, *, w_is_constant=False):
        return x.new_empty(shape_of_result(op, x, w, group))

    @torch.library.register_fake(f"fusewire::{op}_custom", lib=library)
    def _(x, w, group, epilogue, tensors, numbers, *, w_is_constant=False):
        return x.new_empty(shape_of_result(op, x, w, group))

    @torch.library.register_fake(f"fusewire::{op}_out", lib=library)
    def _(x, w, out, group, *, w_is_constant=False):
        shape = shape_of_result(op, x, w, group)
        torch._check(tuple(out.shape) == shape and out.dtype == x.dtype,
                     lambda: f"{op}: out is {tuple(out.shape)}; expected {shape}, and x's type")


for _name in PRODUCTS:
    _define_shapes(_name)


@torch.library.register_fake("fusewire::ag_gemm_with_x", lib=library)
def _(x, w, group, *, w_is_constant=False):
    rows, columns = shape_of_result("ag_gemm", x, w, group)
    return x.new_empty(rows, columns), x.new_empty(rows, x.shape[1])


@torch.library.register_fake("fusewire::ag_gemms", lib=library)
def _(x, ws, group, *, w_is_constant=False):
    shapes = [shape_of_result("ag_gemm", x, w, group) for w in ws]
    return x.new_empty(x.shape[0] * size_of(group), x.shape[1]), [x.new_empty(shape) for shape in shapes]


def shape_of_collective(op: str, x: Tensor, group: str) -> tuple:
    """Fails: RuntimeError, where the ranks cannot share x."""
    if op == "all_reduce":
        return tuple(x.shape)
    ranks = size_of(group)
    torch._check(x.dim() > 0, lambda: f"{op}: expected x of one or more dimensions")
    if op == "all_gather":
        return x.shape[0] * ranks, *x.shape[1:]
    torch._check(x.shape[0] % ranks == 0, lambda: f"{op}: x is {tuple(x.shape)}; expected rows that {ranks} ranks can "
                                                  "share")
    return (x.shape[0] // ranks if op == "reduce_scatter" else x.shape[0]), *x.shape[1:]


def _define_collective(op: str) -> None:
    @torch.library.register_fake(f"fusewire::{op}", lib=library)
    def _(x, group):
        return x.new_empty(shape_of_collective(op, x, group))

    @torch.library.register_fake(f"fusewire::{op}_out", lib=library)
    def _(x, out, group):
        shape = shape_of_collective(op, x, group)
        torch._check(tuple(out.shape) == shape and out.dtype == x.dtype,
                     lambda: f"{op}: out is {tuple(out.shape)}; expected {shape}, and x's type")


for _name in COLLECTIVES:
    _define_collective(_name)


@torch.library.register_fake("fusewire::all_to_all_v", lib=library)
def _(x, counts, offsets, rows, group):
    ranks = size_of(group)
    torch._check(counts.dim() == 1 and counts.shape[0] == ranks and counts.dtype in (torch.int32, torch.int64),
                 lambda: f"all_to_all_v: expected counts of {ranks} ranks, int32 or int64")
    return x.new_empty(rows, *x.shape[1:]), counts.new_empty(ranks), counts.new_empty(ranks)


def _check_norm(x, residual, gamma) -> None:
    torch._check(x.dim() == 2 and x.dtype in (torch.bfloat16, torch.float16),
                 lambda: "all_reduce_norm: expected x of two dimensions, bfloat16 or float16")
    torch._check(residual is None or (residual.shape == x.shape and residual.dtype == x.dtype),
                 lambda: f"all_reduce_norm: residual is not {tuple(x.shape)}, as x is")
    torch._check(tuple(gamma.shape) == (x.shape[1],) and gamma.dtype == x.dtype,
                 lambda: f"all_reduce_norm: gamma is {tuple(gamma.shape)}; expected ({x.shape[1]},), of x's type")


@torch.library.register_fake("fusewire::all_reduce_norm", lib=library)
def _(x, residual, gamma, group, *, eps=1e-6):
    _check_norm(x, residual, gamma)
    return x.new_empty(x.shape), x.new_empty(x.shape)


@torch.library.register_fake("fusewire::all_reduce_norm_quantised", lib=library)
def _(x, residual, gamma, scale, dtype, group, *, eps=1e-6):
    _check_norm(x, residual, gamma)
    torch._check(dtype in (torch.int8, torch.float8_e4m3fn, torch.float8_e4m3fnuz),
                 lambda: f"all_reduce_norm: {dtype}; expected int8, float8_e4m3fn, or on AMD float8_e4m3fnuz")
    scales = x.new_empty(x.shape[0] if scale is None else 0, dtype=torch.float32)
    return x.new_empty(x.shape), x.new_empty(x.shape), x.new_empty(x.shape, dtype=dtype), scales


@torch.library.register_fake("fusewire::moe_dispatch", lib=library)
def _(x, experts, weights, routing, rows, group, *, routed=False):
    torch._check(x.dim() == 2 and experts.dim() == 2 and experts.shape[0] == x.shape[0]
                 and experts.dtype in (torch.int32, torch.int64),
                 lambda: "moe_dispatch: expected x [tokens, columns], and experts [tokens, top_k], int32 or int64")
    torch._check(weights is None or (weights.shape == experts.shape and weights.dtype == torch.float32),
                 lambda: f"moe_dispatch: expected weights {tuple(experts.shape)}, float32")
    return x.new_empty(rows, x.shape[1])


@torch.library.register_fake("fusewire::moe_combine", lib=library)
def _(y, routing, tokens, group, *, weighted=False):
    return y.new_empty(tokens, y.shape[1])


@torch.library.register_fake("fusewire::grouped_gemm", lib=library)
def _(x, w, begins, ends, group, *, gated=False, rows_of_group=0):
    torch._check(x.dim() == 2 and w.dim() == 3 and w.shape[2] == x.shape[1] and w.shape[1] % (1 + gated) == 0,
                 lambda: f"grouped_gemm: x is {tuple(x.shape)}, w {tuple(w.shape)}; expected [rows, K] and [groups, N, "
                         "K], gated with an even N")
    return x.new_empty(x.shape[0], w.shape[1] // (1 + gated))


@torch.library.register_fake("fusewire::launch_kernel", lib=library)
def _(reads, writes, integers, floats, group, kernel, *, extents, blocks, threads, shared_bytes):
    return None


@torch.library.register_fake("fusewire::flash_decode", lib=library)
def _(q, k_cache, v_cache, block_table, lengths, group, *, scale=0.0, kv_is_ready=False, window_begins=None,
      soft_cap=0.0, by_heads=False, batch_invariant=False):
    torch._check(q.dim() == 3 and k_cache.dim() == 4 and v_cache.dim() == 4,
                 lambda: "flash_decode: expected q [batch, q_heads, head_dim] and caches [pages, page_size, kv_heads, "
                         "head_dim]")
    batch, heads, d = q.shape
    if by_heads:
        heads = heads // size_of(group) + (rank_of(group) < heads % size_of(group))
    return q.new_empty(batch, heads, d), q.new_empty(batch, heads, dtype=torch.float32)


# ---------------------------------------------------------------- functions

def _call(op, *arguments, **options):
    """Calls an operator. Fails: with exceptions of fusewire's; in a compiled graph with torch's."""
    if torch.compiler.is_compiling():
        return op(*arguments, **options)
    try:
        return op(*arguments, **options)
    except (RuntimeError, ValueError) as problem:
        known = from_text(str(problem))
        if known is None:
            raise
        raise known from None


def _product(name: str, x: Tensor, w: Tensor, group, out: Tensor | None, w_is_constant: bool) -> Tensor:
    ops = torch.ops.fusewire
    if out is None:
        return _call(getattr(ops, name).default, x, w, name_of(group), w_is_constant=w_is_constant)
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad or out.requires_grad):
        raise BadArgument(f"{name}: out is given, and a gradient is wanted; expected one of the two, as torch has it")
    _call(getattr(ops, name + "_out").default, x, w, out, name_of(group), w_is_constant=w_is_constant)
    return out


def ag_gemm(x: Tensor, w: Tensor | Sequence[Tensor], *, group=None, out: Tensor | None = None, gathered: bool = False,
            w_is_constant: bool = False):
    """gather(x) w^T: x [M / W, K] of this rank, w [N, K]. Returns [M, N]; `out`, if it is given. Every rank calls it in
    the same order.

    With several w: a list of products; one launch gathers x and multiplies it by the widest w, torch's mm does the
    others. With gathered=True: (product or products, gather(x) [M, K])."""
    if isinstance(w, Tensor) and not gathered:
        return _product("ag_gemm", x, w, group, out, w_is_constant)
    if out is not None:
        raise BadArgument("ag_gemm: out is given with gathered=True or several w; expected one w alone")
    ws = [w] if isinstance(w, Tensor) else list(w)
    whole, ys = _call(torch.ops.fusewire.ag_gemms.default, x, ws, name_of(group), w_is_constant=w_is_constant)
    y = ys[0] if isinstance(w, Tensor) else ys
    return (y, whole) if gathered else y


def _collective(name: str, x: Tensor, group, out: Tensor | None) -> Tensor:
    ops = torch.ops.fusewire
    if out is None:
        return _call(getattr(ops, name).default, x.contiguous(), name_of(group))
    _call(getattr(ops, name + "_out").default, x.contiguous(), out, name_of(group))
    return out


def all_gather(x: Tensor, *, group=None, out: Tensor | None = None) -> Tensor:
    """All ranks' x [N, ...], in the order of ranks, as torch's all_gather_into_tensor. Returns [W N, ...]; `out`, if it
    is given, of which this rank's part may be x. Of any type. No gradient."""
    return _collective("all_gather", x, group, out)


def reduce_scatter(x: Tensor, *, group=None, out: Tensor | None = None) -> Tensor:
    """This rank's part of the sum over ranks of x [W N, ...], as torch's reduce_scatter_tensor: bfloat16, float16 or
    float32, added in fp32 in the order of ranks. Returns [N, ...]; `out`, if it is given. No gradient."""
    return _collective("reduce_scatter", x, group, out)


def all_to_all(x: Tensor, *, group=None, out: Tensor | None = None) -> Tensor:
    """Part p of x [W N, ...] goes to rank p, as torch's all_to_all_single without sizes. Returns [W N, ...]; `out`, if
    it is given. Of any type. No gradient."""
    return _collective("all_to_all", x, group, out)


def all_to_all_v(x: Tensor, counts: Tensor, rows: int, *, offsets: Tensor | None = None,
                 group=None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of x [N, ...] to the ranks: counts[p] of them to rank p, from row offsets[p] on, or one behind the other.
    Counts stay on the GPU, int32 or int64. Returns what came, [rows, ...], in the order of ranks without gaps; how many
    rows came from each rank; and where they begin. Rows behind those that came are arbitrary; what does not fit into
    `rows` is left out. init() was given max_bytes of the most that a rank sends to another one. No gradient."""
    return _call(torch.ops.fusewire.all_to_all_v.default, x.contiguous(), counts, offsets, rows, name_of(group))


def all_reduce(x: Tensor, *, group=None, out: Tensor | None = None) -> Tensor:
    """The sum over ranks of x: bfloat16, float16 or float32, added in fp32 in the order of ranks; the same bits on
    every rank. Returns a tensor like x; `out`, if it is given, which may be x. No gradient."""
    return _collective("all_reduce", x, group, out)


def all_reduce_norm(x: Tensor, gamma: Tensor, *, residual: Tensor | None = None, eps: float = 1e-6,
                    dtype: torch.dtype | None = None, scale: Tensor | None = None, group=None) -> tuple[Tensor, ...]:
    """h = residual + the sum over ranks of x [rows, columns], and y = h / rms(h) * gamma, in one launch. Returns
    (h, y). With a dtype, int8 or float8_e4m3fn (on AMD float8_e4m3fnuz): (h, y, y / scale of that type, scales): the scale that
    is given, or one of each row, [rows]. No gradient."""
    ops = torch.ops.fusewire
    if dtype is None:
        if scale is not None:
            raise BadArgument("all_reduce_norm: scale is given without dtype; expected both")
        return _call(ops.all_reduce_norm.default, x, residual, gamma, name_of(group), eps=eps)
    h, y, q, scales = _call(ops.all_reduce_norm_quantised.default, x, residual, gamma, scale, dtype, name_of(group),
                            eps=eps)
    return h, y, q, scales if scale is None else scale


def gemm_rs(x: Tensor, w: Tensor, *, group=None, out: Tensor | None = None, w_is_constant: bool = False) -> Tensor:
    """This rank's rows of the sum over ranks of x w^T: x [M, K], w [N, K]. Returns [M / W, N]. As ag_gemm."""
    return _product("gemm_rs", x, w, group, out, w_is_constant)


def gemm_ar(x: Tensor, w: Tensor, *, group=None, out: Tensor | None = None, w_is_constant: bool = False) -> Tensor:
    """The sum over ranks of x w^T: x [M, K], w [N, K]. Returns [M, N], the same bits on every rank. As ag_gemm."""
    return _product("gemm_ar", x, w, group, out, w_is_constant)


def gemm_all_scatter(x: Tensor, w: Tensor, *, group=None, out: Tensor | None = None,
                     w_is_constant: bool = False) -> Tensor:
    """Every rank's x w^T, side by side: x [M, K], w [N, K], of as many rows on every rank. Returns [M, W N]. As
    ag_gemm."""
    return _product("gemm_all_scatter", x, w, group, out, w_is_constant)


def flash_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Tensor, *, group=None,
                 scale: float = 0.0, kv_is_ready: bool = False, window_begins: Tensor | None = None,
                 soft_cap: float = 0.0, by_heads: bool = False,
                 batch_invariant: bool = False) -> tuple[Tensor, Tensor]:
    """Attention of one query token per sequence over a paged cache whose tokens lie on several ranks. Returns [batch,
    q_heads, head_dim] and the log-sum-exp [batch, q_heads]; by_heads: those of the heads that this rank owns.
    window_begins: [batch], int32: tokens of this rank's shard before the window. soft_cap: c tanh(score / c). init() was
    given a DecodeShape that fits: by_heads, batch_invariant, and masked with a window or a cap."""
    return _call(torch.ops.fusewire.flash_decode.default, q, k_cache, v_cache, block_table, lengths, name_of(group),
                 scale=scale, kv_is_ready=kv_is_ready, window_begins=window_begins, soft_cap=soft_cap,
                 by_heads=by_heads, batch_invariant=batch_invariant)


def moe_routing(group=None) -> Tensor:
    """Memory for where the tokens of a layer go, on the current device: moe_dispatch writes it, moe_combine and later
    layers read it. A layer keeps one for all of its calls. init() was given experts."""
    return torch.zeros(routing_of(name_of(group)).bytes, dtype=torch.uint8, device="cuda")


def moe_dispatch(x: Tensor, experts: Tensor, routing: Tensor, *, weights: Tensor | None = None, routed: bool = False,
                 group=None) -> Tensor:
    """Rows of x [tokens, columns] to the ranks of their experts [tokens, top_k], int32 or int64, -1 for none; weights
    are float32. Returns [rows, columns]: what came here, by expert (moe_groups), with as many rows as init() has made
    room for. routed=True: `routing` is that of an earlier call with the same experts. No gradient."""
    return _call(torch.ops.fusewire.moe_dispatch.default, x, experts, weights, routing,
                 routing_of(name_of(group)).rows, name_of(group), routed=routed)


def moe_groups(routing: Tensor, *, group=None) -> tuple[Tensor, Tensor]:
    """Where the rows of each expert of this rank begin and end, int32, as grouped_gemm takes them."""
    where = routing_of(name_of(group))
    bytes_of_experts = 4 * where.experts
    begins, rows = (routing[at:at + bytes_of_experts].view(torch.int32)
                    for at in (where.expert_begins, where.expert_rows))
    return begins.clone(), begins + rows


def grouped_gemm(x: Tensor, w: Tensor, begins: Tensor, ends: Tensor, *, gated: bool = False, rows_of_group: int = 0,
                 group=None) -> Tensor:
    """Rows begins[g] to ends[g] - 1 of the result = those of x [rows, K] times w[g] [N, K] transposed, of every group g
    of w [groups, N, K]. Other rows are arbitrary. gated=True: rows of w are in turn gate and up, and the result is
    silu(gate) up, [rows, N / 2]. rows_of_group: how many to expect, by which a kernel is chosen. Of this rank alone.
    No gradient."""
    return _call(torch.ops.fusewire.grouped_gemm.default, x, w, begins, ends, name_of(group), gated=gated,
                 rows_of_group=rows_of_group)


def moe_combine(y: Tensor, routing: Tensor, tokens: int, *, weighted: bool = True, group=None) -> Tensor:
    """The sum over the experts of each of this rank's tokens, [tokens, columns], of their rows y in the order in which
    moe_dispatch gave them; weighted: by its weights. Added in fp32, in a fixed order. No gradient."""
    return _call(torch.ops.fusewire.moe_combine.default, y, routing, tokens, name_of(group), weighted=weighted)
