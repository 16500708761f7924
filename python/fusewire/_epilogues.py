"""Custom epilogues: compiled for the kernel that a call takes, when it is called first."""
from __future__ import annotations

import torch

from . import _compiler, _library
from ._errors import BadArgument
from ._groups import name_of
from ._operators import _call

Tensor = torch.Tensor


class Epilogue:
    """What compile() returns: the four products, each with this epilogue. Their arguments are those of fusewire's
    functions, and the epilogue's fields by name. They have no gradient."""

    def __init__(self, number: int, pointers: tuple[str, ...], numbers: tuple[str, ...]):
        self.number, self.pointers, self.numbers = number, pointers, numbers

    def _run(self, name: str, x: Tensor, w: Tensor, group, w_is_constant: bool, fields: dict) -> Tensor:
        if set(fields) != {*self.pointers, *self.numbers}:
            raise BadArgument(f"{name}: fields {sorted(fields)}; expected {sorted((*self.pointers, *self.numbers))}")
        op = getattr(torch.ops.fusewire, name + "_custom").default
        return _call(op, x, w, name_of(group), self.number, [fields[p] for p in self.pointers],
                     [float(fields[n]) for n in self.numbers], w_is_constant=w_is_constant)

    def ag_gemm(self, x: Tensor, w: Tensor, *, group=None, w_is_constant: bool = False, **fields) -> Tensor:
        """As fusewire.ag_gemm; row and column are those of the result."""
        return self._run("ag_gemm", x, w, group, w_is_constant, fields)

    def gemm_rs(self, x: Tensor, w: Tensor, *, group=None, w_is_constant: bool = False, **fields) -> Tensor:
        """As fusewire.gemm_rs. It sees the sum, and the row within this rank's rows."""
        return self._run("gemm_rs", x, w, group, w_is_constant, fields)

    def gemm_ar(self, x: Tensor, w: Tensor, *, group=None, w_is_constant: bool = False, **fields) -> Tensor:
        """As fusewire.gemm_ar. It sees the sum; fields are equal on all ranks."""
        return self._run("gemm_ar", x, w, group, w_is_constant, fields)

    def gemm_all_scatter(self, x: Tensor, w: Tensor, *, group=None, w_is_constant: bool = False, **fields) -> Tensor:
        """As fusewire.gemm_all_scatter. It sees this rank's columns, counted from 0."""
        return self._run("gemm_all_scatter", x, w, group, w_is_constant, fields)


def compile(body: str, **fields: type) -> Epilogue:
    """An epilogue: `body` is C++ for the device that returns what is stored in place of float x, the element in int row
    and int column. Fields are other names in it, each torch.Tensor (T const*, of the call's type) or float:

        silu = fusewire.compile("float y = x + float(bias[column]); return scale * y / (1 + __expf(-y));",
                                bias=torch.Tensor, scale=float)
        h = silu.ag_gemm(x, w, bias=b, scale=0.5, group=group)

    A kernel is compiled, in some seconds, when a call first needs it: one for each operator, type and tile. It stays in
    ~/.cache/fusewire. Every rank compiles the same epilogues in the same order. A call has up to max_m rows.
    Fails: NotBuilt; BadArgument. Calls fail with the compiler's words where it does not compile."""
    wrong = [name for name, kind in fields.items() if kind not in (Tensor, float)]
    if wrong:
        raise BadArgument(f"compile: fields {wrong}; expected torch.Tensor or float for each")
    pointers, numbers = (tuple(n for n, kind in fields.items() if kind is k) for k in (Tensor, float))
    source = _compiler.Source(body, (*((n, _compiler.POINTER) for n in pointers),
                                     *((n, _compiler.NUMBER) for n in numbers)))
    return Epilogue(_library.kernels().add(source), pointers, numbers)
