"""The shared object: loaded once, when something needs it."""
import ctypes
import pathlib

import torch

from . import _compiler, _interface
from ._errors import NotBuilt

_HERE = pathlib.Path(__file__).resolve().parent
_OBJECT = _HERE / "_C.so"
_loaded = None
_kernels = None


def _not_built():
    """Why there is no shared object; None if there is one."""
    if _OBJECT.exists():
        return None
    note = _HERE / "_missing.txt"
    if note.exists():
        return note.read_text()
    return "fusewire's operators are not compiled; `pip install ./python` or python/compile_operators.py does it"


def missing():
    """What keeps the operators from working, as a sentence; None if nothing does."""
    why = _not_built()
    if why:
        return why
    if not torch.cuda.is_available():
        return "torch finds no GPU"
    if torch.version.hip is None and torch.cuda.get_device_capability() != (9, 0):
        return f"{torch.cuda.get_device_name()} is not a GPU that fusewire is compiled for: H100 and H200 (sm_90)"
    return None


def is_available():
    """Whether the operators work here."""
    return missing() is None


def load():
    """The shared object; its kernels are torch's from now on. Fails: NotBuilt."""
    global _loaded
    if _loaded is None:
        why = _not_built()
        if why:
            raise NotBuilt(why)
        torch.ops.load_library(str(_OBJECT))
        _loaded = _interface.declare(ctypes.CDLL(str(_OBJECT)))
        _loaded.fusewire_set_find_kernel(kernels().function)
    return _loaded


def kernels():
    """What custom epilogues are compiled to."""
    global _kernels
    if _kernels is None:
        from . import include
        _kernels = _compiler.Kernels(include(), torch.version.hip is not None)
    return _kernels


def call(name, *arguments):
    """Calls a C function. Fails: with the exception that it describes."""
    _interface.call(load(), name, *arguments)
