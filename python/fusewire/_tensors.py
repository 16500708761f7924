"""Tensors on a group's heap."""
import ctypes

import torch

from . import _groups, _library
from ._errors import BadArgument


class _Place:
    """Bytes of a heap, which torch reads by __cuda_array_interface__ and keeps as long as the tensor."""

    def __init__(self, group, data, size):
        self.group, self.data = group, data
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (data, False), "version": 3}

    def __del__(self):
        self.group.given_up.append(self.data)  # no call: a collector may run in one


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16, group=None) -> torch.Tensor:
    """Collective, with the same arguments on every rank. A tensor on the group's heap, at the same place on every rank:
    ag_gemm lets peers read an x that lies there, where that is faster. All ranks pass such an x, or none does.

    Its memory is free again when no rank has a tensor of it and, after that, all ranks call empty(). It ends with the
    communicator: after destroy() nobody uses it any more. init() was given empty_bytes.
    Fails: BadArgument; OutOfSpace; RankMismatch."""
    name = _groups.name_of(group)
    if name not in _groups._groups:
        raise BadArgument(f"empty: no communicator for the group '{name}'; expected init() before")
    made = _groups._groups[name]
    size = torch.Size(shape)
    if size.numel() == 0:
        raise BadArgument(f"empty: {tuple(size)} has no elements; expected at least one")
    while made.given_up:
        _library.call("free", name.encode(), made.given_up.pop())
    data, count = ctypes.c_void_p(), size.numel() * dtype.itemsize
    _library.call("allocate", name.encode(), count, ctypes.byref(data))
    return torch.as_tensor(_Place(made, data.value, count), device=f"cuda:{made.device}").view(dtype).view(size)
