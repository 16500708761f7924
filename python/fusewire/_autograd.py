"""Gradients of ag_gemm and gemm_rs, each of which is the other's for x. Every rank wants the same ones: the backward
pass has collectives of its own, in the same order on all ranks."""
from __future__ import annotations

import torch

from ._operators import library

ops = torch.ops.fusewire


def _keep(ctx, inputs, keyword_only_inputs, output) -> None:
    x, w, group = inputs
    needs_x, needs_w = ctx.needs_input_grad[:2]
    ctx.group = group
    ctx.save_for_backward(x if needs_w else None, w if needs_x else None)


def _of_ag_gemm(ctx, grad):
    """y = gather(x) w^T. x is gathered once more for w's gradient, and not kept: it is W times as large."""
    x, w = ctx.saved_tensors
    grad = grad.contiguous()
    of_x = ops.gemm_rs(grad, w.t(), ctx.group) if ctx.needs_input_grad[0] else None
    of_w = grad.t() @ ops.all_gather(x.contiguous(), ctx.group) if ctx.needs_input_grad[1] else None
    return of_x, of_w, None


def _of_gemm_rs(ctx, grad):
    """y = this rank's rows of the sum of x w^T. One gather of y's gradient serves both."""
    x, w = ctx.saved_tensors
    needs_x, needs_w, _ = ctx.needs_input_grad
    grad, of_x, of_w = grad.contiguous(), None, None
    if needs_x and needs_w:
        of_x, grad = ops.ag_gemm_with_x(grad, w.t(), ctx.group)
    elif needs_x:
        of_x = ops.ag_gemm(grad, w.t(), ctx.group)
    else:
        grad = ops.all_gather(grad, ctx.group)
    if needs_w:
        of_w = grad.t() @ x
    return of_x, of_w, None


def _keep_whole(ctx, inputs, keyword_only_inputs, output) -> None:
    """Of an operator that returns the gathered x with its products, which is kept then. It has no gradient itself."""
    _, ws, ctx.group = inputs
    whole, _ = output
    ctx.mark_non_differentiable(whole)
    ctx.save_for_backward(whole, *ws)


def _of_ag_gemms(ctx, _, grads):
    whole, *ws = ctx.saved_tensors
    needs_x, needs_w, _ = ctx.needs_input_grad
    of_w = [g.t() @ whole if needed else None for g, needed in zip(grads, needs_w)]
    of_x = ops.gemm_rs(torch.cat(grads, 1), torch.cat(ws).t(), ctx.group) if needs_x else None  # one sum for all
    return of_x, of_w, None


torch.library.register_autograd("fusewire::ag_gemm", _of_ag_gemm, setup_context=_keep, lib=library)
torch.library.register_autograd("fusewire::gemm_rs", _of_gemm_rs, setup_context=_keep, lib=library)
torch.library.register_autograd("fusewire::ag_gemms", _of_ag_gemms, setup_context=_keep_whole, lib=library)
