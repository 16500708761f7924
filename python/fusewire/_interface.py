"""The C functions of the shared object, and the structures that they take: csrc/communicator.hpp, csrc/c_interface.cpp.
Needs no torch."""
import ctypes

from ._compiler import FindKernel
from ._errors import NotBuilt, from_text

KINDS = {"ag_gemm": 0, "gemm_rs": 1, "gemm_ar": 2, "gemm_all_scatter": 3}  # product_kind
COLLECTIVES = {"all_gather": 0, "reduce_scatter": 1, "all_to_all": 2, "all_reduce": 3}  # collective_kind

AllGather = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
                             ctypes.c_size_t)
Fail = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class DecodeOptions(ctypes.Structure):
    """decode_shape."""
    _fields_ = [(name, ctypes.c_int) for name in
                ("type", "max_batch", "q_heads", "kv_heads", "head_dim", "page_size", "max_pages")]
    _fields_ += [("scale", ctypes.c_float)]
    _fields_ += [(name, ctypes.c_bool) for name in ("by_heads", "masked", "batch_invariant")]


class ExpertShape(ctypes.Structure):
    """expert_shape."""
    _fields_ = [(name, ctypes.c_int) for name in
                ("max_tokens", "experts", "top_k", "max_cols", "max_rows", "alignment")]


class RoutingLayout(ctypes.Structure):
    """routing_layout."""
    _fields_ = [(name, ctypes.c_int64) for name in ("bytes", "rows", "expert_rows", "expert_begins", "row_weights")]


class Options(ctypes.Structure):
    """communicator_options."""
    _fields_ = [(name, ctypes.c_int) for name in
                ("rank", "size", "device", "max_m", "max_k", "max_n", "reduce_rows", "reduce_cols")]
    _fields_ += [("max_bytes", ctypes.c_int64), ("wait_seconds", ctypes.c_double), ("all_gather", AllGather),
                 ("fail", Fail),
                 ("decode", ctypes.POINTER(DecodeOptions)), ("decodes", ctypes.c_int), ("experts", ExpertShape),
                 ("batch_invariant", ctypes.c_bool), ("spare_bytes", ctypes.c_int64),
                 ("data_at", ctypes.POINTER(ctypes.c_void_p))]


class Matrix(ctypes.Structure):
    """matrix_of_torch."""
    _fields_ = [("data", ctypes.c_void_p)] + [(name, ctypes.c_int64) for name in ("rows", "cols", "ld")]


class CustomEpilogue(ctypes.Structure):
    """custom_epilogue."""
    _fields_ = [("number", ctypes.c_int), ("values", ctypes.c_int64 * 16)]


class ProductCall(ctypes.Structure):
    """product_call."""
    _fields_ = [("stream", ctypes.c_void_p), ("type", ctypes.c_int), ("x", Matrix), ("w", Matrix), ("y", Matrix),
                ("gathered", Matrix), ("scratch", ctypes.c_void_p), ("custom", CustomEpilogue),
                ("w_is_transposed", ctypes.c_bool), ("w_is_constant", ctypes.c_bool)]


class DecodeCall(ctypes.Structure):
    """decode_call."""
    _fields_ = [(name, ctypes.c_void_p) for name in
                ("stream", "q", "k_cache", "v_cache", "block_table", "lengths", "out", "lse")]
    _fields_ += [("batch", ctypes.c_int), ("pages", ctypes.c_int), ("kv_is_ready", ctypes.c_bool),
                 ("window_begins", ctypes.c_void_p), ("soft_cap", ctypes.c_float)]


class CollectiveCall(ctypes.Structure):
    """collective_call."""
    _fields_ = [("stream", ctypes.c_void_p), ("type", ctypes.c_int), ("x", ctypes.c_void_p), ("y", ctypes.c_void_p),
                ("count", ctypes.c_int64)]


class RowsCall(ctypes.Structure):
    """rows_call."""
    _fields_ = [(name, ctypes.c_void_p) for name in ("stream", "x", "y")]
    _fields_ += [(name, ctypes.c_int64) for name in ("x_rows", "y_rows", "row_bytes")]
    _fields_ += [(name, ctypes.c_void_p) for name in ("x_counts", "x_offsets", "y_counts", "y_offsets")]
    _fields_ += [("wide", ctypes.c_bool)]


class NormCall(ctypes.Structure):
    """norm_call."""
    _fields_ = [("stream", ctypes.c_void_p), ("type", ctypes.c_int), ("quantised", ctypes.c_int)]
    _fields_ += [(name, Matrix) for name in ("x", "residual", "residual_out", "norm_out", "quantised_out")]
    _fields_ += [(name, ctypes.c_void_p) for name in ("gamma", "scale", "row_scales")] + [("eps", ctypes.c_float)]


class DispatchCall(ctypes.Structure):
    """dispatch_call."""
    _fields_ = [("stream", ctypes.c_void_p), ("type", ctypes.c_int), ("x", Matrix), ("out", Matrix),
                ("experts", ctypes.c_void_p), ("wide", ctypes.c_bool), ("weights", ctypes.c_void_p),
                ("routing", ctypes.c_void_p), ("routed", ctypes.c_bool)]


class CombineCall(ctypes.Structure):
    """combine_call."""
    _fields_ = [("stream", ctypes.c_void_p), ("type", ctypes.c_int), ("x", Matrix), ("out", Matrix),
                ("routing", ctypes.c_void_p), ("weighted", ctypes.c_bool)]


class GroupedCall(ctypes.Structure):
    """grouped_call."""
    _fields_ = [("stream", ctypes.c_void_p), ("type", ctypes.c_int), ("x", Matrix), ("w", Matrix), ("y", Matrix),
                ("w_stride", ctypes.c_int64), ("groups", ctypes.c_int64), ("rows_of_group", ctypes.c_int64),
                ("begins", ctypes.c_void_p), ("ends", ctypes.c_void_p), ("gated", ctypes.c_bool)]


class KernelOptions(ctypes.Structure):
    """kernel_options."""
    _fields_ = [("kernel", ctypes.c_void_p), ("parameters", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("source", ctypes.c_uint64), ("max_bytes", ctypes.c_int64), ("flags_per_source", ctypes.c_int),
                ("programmatic", ctypes.c_bool)]


class KernelCall(ctypes.Structure):
    """kernel_call."""
    _fields_ = [("stream", ctypes.c_void_p)]
    _fields_ += [(name, ctypes.c_int) for name in ("number", "blocks", "threads", "shared_bytes")]
    _fields_ += [("reads", ctypes.POINTER(Matrix)), ("writes", ctypes.POINTER(Matrix)),
                 ("integers", ctypes.POINTER(ctypes.c_int64)), ("floats", ctypes.POINTER(ctypes.c_double))]
    _fields_ += [(name, ctypes.c_int) for name in ("read_count", "write_count", "integer_count", "float_count")]
    _fields_ += [("extents", ctypes.c_uint64 * 4)]


def declare(c: ctypes.CDLL) -> ctypes.CDLL:
    """Tells ctypes what the functions take. Fails: NotBuilt where the object is of another version."""
    text, number, long = ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
    product = [text, number, ctypes.POINTER(ProductCall)]
    size = ctypes.POINTER(ctypes.c_size_t)
    arguments = {"init": [text, ctypes.POINTER(Options)], "destroy": [text], "abandon": [text],
                 "bytes_of_data": [ctypes.POINTER(Options), size],
                 "allocate": [text, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)], "free": [text, ctypes.c_void_p],
                 "check": [text, ctypes.c_void_p], "poll_errors": [text], "reset": [text],
                 "prepare": [text, number, number, number],
                 "product": product, "scratch_bytes": [*product, size],
                 "decode": [text, ctypes.POINTER(DecodeOptions), ctypes.POINTER(DecodeCall)],
                 "collective": [text, number, ctypes.POINTER(CollectiveCall)],
                 "exchange_rows": [text, ctypes.POINTER(RowsCall)], "norm": [text, ctypes.POINTER(NormCall)],
                 "moe_dispatch": [text, ctypes.POINTER(DispatchCall)],
                 "moe_combine": [text, ctypes.POINTER(CombineCall)],
                 "grouped_gemm": [text, ctypes.POINTER(GroupedCall)],
                 "make_kernel": [text, ctypes.POINTER(KernelOptions), ctypes.POINTER(number)],
                 "launch_kernel": [text, ctypes.POINTER(KernelCall)], "end_kernel": [text, number],
                 "layout_of_routing": [text, ctypes.POINTER(RoutingLayout)],
                 "describe": [text, number, number, long, long, long, long, text, ctypes.c_size_t]}
    try:
        for name, types in arguments.items():
            function = getattr(c, "fusewire_" + name)
            function.argtypes, function.restype = types, text
        c.fusewire_set_find_kernel.argtypes, c.fusewire_set_find_kernel.restype = [FindKernel], None
        sizes = {"fusewire_size_of_options": Options, "fusewire_size_of_product_call": ProductCall,
                 "fusewire_size_of_decode_call": DecodeCall, "fusewire_size_of_collective_call": CollectiveCall,
                 "fusewire_size_of_rows_call": RowsCall, "fusewire_size_of_norm_call": NormCall,
                 "fusewire_size_of_routing_layout": RoutingLayout, "fusewire_size_of_dispatch_call": DispatchCall,
                 "fusewire_size_of_combine_call": CombineCall, "fusewire_size_of_grouped_call": GroupedCall,
                 "fusewire_size_of_kernel_options": KernelOptions, "fusewire_size_of_kernel_call": KernelCall}
        for name, structure in sizes.items():
            size_of = getattr(c, name)
            size_of.argtypes, size_of.restype = [], ctypes.c_size_t
            if size_of() != ctypes.sizeof(structure):
                raise AttributeError(name)
    except AttributeError as problem:
        raise NotBuilt(f"{c._name} is of another version of fusewire; install it again ({problem})") from None
    return c


def call(c: ctypes.CDLL, name: str, *arguments) -> None:
    """Calls a C function. Fails: with the exception that it describes."""
    why = getattr(c, "fusewire_" + name)(*arguments)
    if why is not None:
        raise from_text(why.decode(errors="replace"))
