"""The shared object: loaded once, when something needs it."""
import ctypes
import pathlib

import torch

from ._errors import NotBuilt, from_text

_HERE = pathlib.Path(__file__).resolve().parent
_OBJECT = _HERE / "_C.so"
_loaded = None


class DecodeOptions(ctypes.Structure):
    """decode_shape in communicator.hpp."""
    _fields_ = [(name, ctypes.c_int) for name in
                ("type", "max_batch", "q_heads", "kv_heads", "head_dim", "page_size", "max_pages")]
    _fields_ += [("scale", ctypes.c_float)]


AllGather = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
                             ctypes.c_size_t)
Fail = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class Options(ctypes.Structure):
    """communicator_options in communicator.hpp."""
    _fields_ = [(name, ctypes.c_int) for name in ("rank", "size", "device", "max_m", "max_k", "max_n")]
    _fields_ += [("wait_seconds", ctypes.c_double), ("all_gather", AllGather), ("fail", Fail),
                 ("decode", ctypes.POINTER(DecodeOptions)), ("decodes", ctypes.c_int)]


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
        c = ctypes.CDLL(str(_OBJECT))
        text, number, long = ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
        arguments = {"init": [text, ctypes.POINTER(Options)], "destroy": [text], "abandon": [text],
                     "check": [text, ctypes.c_void_p], "poll_errors": [text], "reset": [text],
                     "prepare": [text, number, number, number],
                     "describe": [text, number, number, long, long, long, long, text, ctypes.c_size_t]}
        for name, types in arguments.items():
            function = getattr(c, "fusewire_" + name)
            function.argtypes, function.restype = types, text
        c.fusewire_size_of_options.restype = ctypes.c_size_t
        if c.fusewire_size_of_options() != ctypes.sizeof(Options):
            raise NotBuilt(f"{_OBJECT} is of another version of fusewire; install it again")
        _loaded = c
    return _loaded


def call(name, *arguments):
    """Calls a C function. Fails: with the exception that it describes."""
    why = getattr(load(), "fusewire_" + name)(*arguments)
    if why is not None:
        raise from_text(why.decode(errors="replace"))
