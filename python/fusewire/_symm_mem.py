"""One switch that gives torch's fused operators of symmetric memory to fusewire: also those that torch.compile makes of
collectives beside matmuls (torch._inductor.config._micro_pipeline_tp)."""
from __future__ import annotations

import warnings

import torch

from ._groups import _groups

Tensor = torch.Tensor
ops = torch.ops.fusewire
_patches: dict[str, torch.library.Library] = {}  # by dispatch key


def _torchs():
    """The module that defines torch.ops.symm_mem; importing torch does not."""
    import torch.distributed._symmetric_memory as module
    return module


def patch_symm_mem(dispatch_key: str = "CUDA") -> None:
    """From now on torch.ops.symm_mem.fused_all_gather_matmul and fused_matmul_reduce_scatter are fusewire's ag_gemm and
    gemm_rs in groups that init() was called for, where it was given room for the columns: max_k for the former, max_n
    for the latter. All else stays torch's: other groups and types, and shards along the columns of A. Every rank calls
    it. Called again it does nothing."""
    if dispatch_key in _patches:
        return
    _torchs()
    library = torch.library.Library("symm_mem", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        for kernel in (fused_all_gather_matmul, fused_matmul_reduce_scatter):
            library.impl(kernel.__name__, kernel, dispatch_key, allow_override=True)
    _patches[dispatch_key] = library


def unpatch_symm_mem(dispatch_key: str = "CUDA") -> None:
    """Takes patch_symm_mem() back."""
    if dispatch_key in _patches:
        _patches.pop(dispatch_key)._destroy()


def _takes(a: Tensor, bs: list[Tensor], dim: int) -> bool:
    """Whether fusewire has an operator for it: A is cut along a dimension `dim` of its rows. The same on every rank."""
    return (0 <= dim < a.dim() - 1 and a.dtype in (torch.bfloat16, torch.float16) and a.shape[-1] % 8 == 0
            and a.numel() > 0 and len(bs) > 0
            and all(b.dim() == 2 and b.dtype == a.dtype and b.shape[0] == a.shape[-1] for b in bs))


def _as_rows(a: Tensor, dim: int) -> Tensor:
    """[rows, K], the dimension `dim` outermost; copied where the rows do not lie as the kernels read them."""
    rows = a.movedim(dim, 0).reshape(-1, a.shape[-1])
    if rows.stride(1) != 1 or rows.stride(0) % 8 != 0 or rows.data_ptr() % 16 != 0:
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows


def _from_rows(rows: Tensor, a: Tensor, dim: int) -> Tensor:
    """Back to the dimensions of A, of which `dim` has another extent now."""
    others = [extent for i, extent in enumerate(a.shape[:-1]) if i != dim]
    return rows.view(-1, *others, rows.shape[1]).movedim(0, dim)


def _as_weight(b: Tensor) -> Tensor:
    """[N, K], one of the two side by side."""
    return b.t() if 1 in b.stride() else b.contiguous().t()


def fused_all_gather_matmul(A: Tensor, Bs: list[Tensor], gather_dim: int, group_name: str, *,
                            return_A: bool = True) -> tuple[Tensor | None, list[Tensor]]:
    """gather(A) along gather_dim, and its product with each B [K, N]."""
    group = _groups.get(group_name)
    if group is None or group.max_k < A.shape[-1] or not _takes(A, Bs, gather_dim):
        return _torchs()._fused_all_gather_matmul(A, Bs, gather_dim, group_name, return_A=return_A)
    x, ws, whole = _as_rows(A, gather_dim), [_as_weight(b) for b in Bs], None
    if len(ws) == 1 and not return_A:
        ys = [ops.ag_gemm(x, ws[0], group_name)]
    else:
        whole, ys = ops.ag_gemms(x, ws, group_name)
    ys = [_from_rows(y, A, gather_dim) for y in ys]
    return _from_rows(whole, A, gather_dim) if return_A else None, ys


def fused_matmul_reduce_scatter(A: Tensor, B: Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> Tensor:
    """This rank's part, along scatter_dim, of the ranks' sum or mean of A B [K, N]."""
    group = _groups.get(group_name)
    if (group is None or group.max_n < B.shape[-1] or reduce_op not in ("sum", "avg")
            or not _takes(A, [B], scatter_dim) or A.shape[scatter_dim] % group.size != 0):
        return _torchs()._fused_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, group_name)
    y = ops.gemm_rs(_as_rows(A, scatter_dim), _as_weight(B), group_name)
    if reduce_op == "avg":
        y /= group.size
    return _from_rows(y, A, scatter_dim).contiguous()  # as torch's is
