"""The operators as torch knows them: schemas, shapes of results, and functions with exceptions of fusewire's own."""
import functools

import torch

from ._errors import NotBuilt, from_text
from ._groups import name_of, size_of
from ._library import missing

_ops = torch.library.Library("fusewire", "DEF")
for _schema in ("ag_gemm(Tensor x, Tensor w, str group, *, bool w_is_constant=False) -> Tensor",
                "gemm_rs(Tensor x, Tensor w, str group, *, bool w_is_constant=False) -> Tensor",
                "gemm_ar(Tensor x, Tensor w, str group, *, bool w_is_constant=False) -> Tensor",
                "flash_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor lengths, str group, "
                "*, float scale=0., bool kv_is_ready=False) -> (Tensor, Tensor)"):
    _ops.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def _refuse(name):
    def kernel(first, *_, **__):
        why = missing()
        if why is None:
            why = f"its tensors are on {first.device}" if not first.is_cuda else "fusewire.init() has not been called"
        raise NotBuilt(f"torch.ops.fusewire.{name} has no kernel here: {why}")
    return kernel


# Where no backend has a kernel. The shared object brings those of GPUs.
for _name in ("ag_gemm", "gemm_rs", "gemm_ar", "flash_decode"):
    _ops.impl(_name, _refuse(_name), "CompositeExplicitAutograd")


def _check_product(op, x, w):
    torch._check(x.dim() == 2 and w.dim() == 2, lambda: f"{op}: expected x and w of two dimensions")
    torch._check(x.shape[1] == w.shape[1], lambda: f"{op}: w is {tuple(w.shape)}; expected as many columns as x "
                                                   f"{tuple(x.shape)}")
    torch._check(x.dtype == w.dtype and x.dtype in (torch.bfloat16, torch.float16),
                 lambda: f"{op}: expected x and w of one type, bfloat16 or float16")


@torch.library.register_fake("fusewire::ag_gemm", lib=_ops)
def _(x, w, group, *, w_is_constant=False):
    _check_product("ag_gemm", x, w)
    return x.new_empty(x.shape[0] * size_of(group), w.shape[0])


@torch.library.register_fake("fusewire::gemm_rs", lib=_ops)
def _(x, w, group, *, w_is_constant=False):
    _check_product("gemm_rs", x, w)
    ranks = size_of(group)
    torch._check(x.shape[0] % ranks == 0, lambda: f"gemm_rs: x is {tuple(x.shape)}; expected rows that {ranks} ranks "
                                                  f"can share")
    return x.new_empty(x.shape[0] // ranks, w.shape[0])


@torch.library.register_fake("fusewire::gemm_ar", lib=_ops)
def _(x, w, group, *, w_is_constant=False):
    _check_product("gemm_ar", x, w)
    return x.new_empty(x.shape[0], w.shape[0])


@torch.library.register_fake("fusewire::flash_decode", lib=_ops)
def _(q, k_cache, v_cache, block_table, lengths, group, *, scale=0.0, kv_is_ready=False):
    torch._check(q.dim() == 3 and k_cache.dim() == 4 and v_cache.dim() == 4,
                 lambda: "flash_decode: expected q [batch, q_heads, head_dim] and caches [pages, page_size, kv_heads, "
                         "head_dim]")
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


def _function(op, doc):
    @functools.wraps(op)
    def call(*tensors, group=None, **options):
        if torch.compiler.is_compiling():  # a ValueError or a RuntimeError there
            return op(*tensors, name_of(group), **options)
        try:
            return op(*tensors, name_of(group), **options)
        except (RuntimeError, ValueError) as problem:
            known = from_text(str(problem))
            if known is None:
                raise
            raise known from None
    call.__name__, call.__doc__ = op._opname, doc
    return call


ag_gemm = _function(torch.ops.fusewire.ag_gemm.default, """ag_gemm(x, w, *, group=None, w_is_constant=False)

    gather(x) w^T: x [M / W, K] of this rank, w [N, K]; returns [M, N]. Every rank calls it in the same order.""")
gemm_rs = _function(torch.ops.fusewire.gemm_rs.default, """gemm_rs(x, w, *, group=None, w_is_constant=False)

    This rank's rows of the sum over ranks of x w^T: x [M, K], w [N, K]; returns [M / W, N]. As ag_gemm.""")
gemm_ar = _function(torch.ops.fusewire.gemm_ar.default, """gemm_ar(x, w, *, group=None, w_is_constant=False)

    The sum over ranks of x w^T: x [M, K], w [N, K]; returns [M, N], the same bits on every rank. As ag_gemm.""")
flash_decode = _function(torch.ops.fusewire.flash_decode.default, """flash_decode(q, k_cache, v_cache, block_table,
    lengths, *, group=None, scale=0., kv_is_ready=False)

    Attention of one query token per sequence over a paged cache whose tokens lie on several ranks. Returns [batch,
    q_heads, head_dim] and the log-sum-exp [batch, q_heads]. init() was given a DecodeShape that fits.""")
