"""Kernels of the caller's own: C++ over the device headers, compiled while the program runs, each with a channel."""
from __future__ import annotations

import ctypes

import torch

from . import _compiler, _groups, _interface, _library, include
from ._errors import BadArgument, Error
from ._operators import _call

Tensor = torch.Tensor


class Kernel:
    """What kernel() returns: a call launches it once, on the current stream. It lives until destroy() of it or of its
    group; then graphs that have captured it must not be replayed any more."""

    def __init__(self, name: str, group: str, number: int, parameters: list[_compiler.Parameter]):
        self.name, self.group, self.number = name, group, number
        self._owner = _groups._groups[group]
        self._takes = [(str(p), p.form, bool(p.is_const), p.element.decode()) for p in parameters]
        self._types = [getattr(torch, element) if form != _compiler.NUMBER_FORM and element else None
                       for _, form, _, element in self._takes]

    def __str__(self):
        return f"{self.name}({', '.join(words for words, *_ in self._takes)})"

    def __call__(self, *arguments: Tensor | int | float | bool, blocks: int, threads: int = 256, shared_bytes: int = 0,
                 extents: tuple[int, ...] | None = None) -> None:
        """Launches it with what its parameters after the channel take: for T* a contiguous tensor, for matrix<T> one of
        two dimensions with columns side by side, both of type T; and numbers. Ranks compare the blocks and `extents`,
        up to four integers; None: all integers and
        bools among the arguments. Every rank makes its calls in the same order. No
        gradient. Blocks must all fit concurrently.
        Fails: BadArgument; as check(), with what an earlier launch has noted."""
        if len(arguments) != len(self._takes):
            raise BadArgument(f"{self.name}: {len(arguments)} arguments; expected {len(self._takes)}: {self}")
        reads, writes, integers, floats = [], [], [], []
        for i, argument in enumerate(arguments):
            words, form, is_const, element = self._takes[i]
            if form != _compiler.NUMBER_FORM:
                self._check_tensor(i, argument)
                (reads if is_const else writes).append(argument)
            elif element.startswith("float"):
                if not isinstance(argument, (float, int)):
                    raise BadArgument(f"{self.name}: argument {i + 1} is {type(argument).__name__}; expected {words}")
                floats.append(float(argument))
            else:
                if not isinstance(argument, int):
                    raise BadArgument(f"{self.name}: argument {i + 1} is {type(argument).__name__}; expected {words}")
                integers.append(int(argument) if element == "bool" else argument)
        if extents is None:
            extents = integers
        if len(extents) > 4:
            raise BadArgument(f"{self.name}: {len(extents)} integers to compare; expected up to four as extents")
        _call(torch.ops.fusewire.launch_kernel.default, reads, writes, integers, floats, self.group, self.number,
              extents=extents, blocks=blocks, threads=threads, shared_bytes=shared_bytes)

    def _check_tensor(self, i: int, t: Tensor) -> None:
        words, form, _, _ = self._takes[i]
        is_matrix, dtype = form == _compiler.MATRIX_FORM, self._types[i]
        if (isinstance(t, Tensor) and (dtype is None or t.dtype == dtype) and t.get_device() == self._owner.device
                and (t.dim() == 2 and (t.stride(1) == 1 or t.shape[1] <= 1) if is_matrix else t.is_contiguous())
                and not (t.requires_grad and torch.is_grad_enabled())):
            return
        found = f"{t.dtype} {tuple(t.shape)} with strides {t.stride()} on {t.device}" if isinstance(t, Tensor) else (
            type(t).__name__)
        form = "[rows, columns], columns side by side" if is_matrix else "contiguous"
        raise BadArgument(f"{self.name}: argument {i + 1} is {found}; expected for {words} a tensor of "
                          f"{dtype or 'any type'} on device {self._owner.device}, {form}, that needs no gradient")

    def destroy(self) -> None:
        """Collective; waits for this kernel's launches. Frees its memory."""
        if _groups._groups.get(self.group) is self._owner and self.number:
            _library.call("end_kernel", self.group.encode(), self.number)
        self.number = 0


def kernel(name: str, source: str, *, max_bytes: int, flags_per_source: int, programmatic: bool = False,
           group=None) -> Kernel:
    """Collective, behind init(group). The kernel `name` of a source in C++ over fusewire's device headers. Its first
    parameter is a channel_view; others are numbers, pointers and matrix<T>:

        ring = fusewire.kernel("ring", "__global__ void ring(channel_view ch, int const* x, int* y, int n) {...}",
                               max_bytes=4096, flags_per_source=1, group=group)
        ring(x, y, x.numel(), blocks=1)

    It is compiled here, in seconds, and stays in ~/.cache/fusewire. Its channel is its own, of the group's ranks:
    max_bytes of inbox and flags_per_source as in C++ (docs/writing_kernels.md), in twice as much memory. A wait lasts
    up to init()'s wait_seconds. programmatic: the kernel calls wait_prior_grid(), so it may start before earlier work
    of the stream is over.
    Fails: NotBuilt; BadArgument, with the compiler's words; RankMismatch, where ranks pass different things or another
    rank could not compile; OutOfSpace."""
    _library.load()
    group = _groups.name_of(group)
    if group not in _groups._groups:
        raise BadArgument(f"kernel: no communicator for the group '{group}'; expected fusewire.init(group) before")
    compiled = problem = None
    try:
        compiled = _compiler.CompiledKernel(_compiler.KernelSource(name, source), include(),
                                            torch.version.hip is not None)
        if all(p.form == _compiler.NUMBER_FORM for p in compiled.parameters):
            raise BadArgument(f"kernel: {name} takes no tensor; expected a parameter T* or matrix<T>")
    except Exception as its_problem:  # the other ranks wait
        problem = its_problem
    options = _interface.KernelOptions(
        None if problem else compiled.address, None if problem else compiled.parameters_address, name.encode(),
        compiled.hash if compiled else 0, max_bytes, flags_per_source, programmatic)
    number = ctypes.c_int()
    try:
        _library.call("make_kernel", group.encode(), ctypes.byref(options), ctypes.byref(number))
    except Error:
        if problem:
            raise problem from None
        raise
    return Kernel(name, group, number.value, compiled.parameters)
