"""Fused multi-GPU kernels for PyTorch: GEMM and attention that start on data as it arrives from other GPUs.

    fusewire.init(group, max_m=8192, max_k=8192, max_n=8192)             # collective
    h = torch.ops.fusewire.ag_gemm(x, w1, group.group_name)              # [M / W, K], [N, K] -> [M, N]
    y = torch.ops.fusewire.gemm_rs(h, w2, group.group_name)              # [M, K], [N, K] -> [M / W, N]
    fusewire.destroy(group)                                              # collective

One process has one GPU. The package imports everywhere; missing() says what keeps its operators from working.
"""
import importlib
import importlib.util
import pathlib

_HERE = pathlib.Path(__file__).resolve().parent


def include():
    """The folder to compile own kernels with: <fusewire/fusewire.hpp> lies in it."""
    for folder in (_HERE / "include", _HERE.parent.parent / "include"):
        if (folder / "fusewire" / "fusewire.hpp").exists():
            return str(folder)
    raise FileNotFoundError("fusewire's headers are neither in the package nor beside it in a checkout")


from ._errors import (BadArgument, BootstrapFailed, Error, LaunchAbandoned, LaunchUnfinished, NotBuilt,  # noqa: E402
                      OutOfSpace, PeerFailed, RankMismatch, RuntimeFailure, WaitTimeout)

__all__ = ["include", "missing", "is_available", "BadArgument", "BootstrapFailed", "Error", "LaunchAbandoned",
           "LaunchUnfinished", "NotBuilt", "OutOfSpace", "PeerFailed", "RankMismatch", "RuntimeFailure", "WaitTimeout"]

if importlib.util.find_spec("torch") is not None:
    from ._groups import (DecodeShape, Experts, abandon, check, describe, destroy, init, poll_errors, prepare,  # noqa: E402
                          reset)
    from ._library import is_available, missing  # noqa: E402
    from ._operators import (ag_gemm, all_gather, all_reduce, all_reduce_norm, all_to_all, all_to_all_v,  # noqa: E402
                             flash_decode, gemm_all_scatter, gemm_ar, gemm_rs, grouped_gemm, moe_combine, moe_dispatch,
                             moe_groups, moe_routing, reduce_scatter)
    importlib.import_module("fusewire._autograd")  # registers
    from ._epilogues import Epilogue, compile  # noqa: E402
    from ._kernels import Kernel, kernel  # noqa: E402
    from ._modules import ExpertParallelMLP  # noqa: E402
    from ._tensors import empty  # noqa: E402
    from ._symm_mem import patch_symm_mem, unpatch_symm_mem  # noqa: E402
    __all__ += ["DecodeShape", "Epilogue", "ExpertParallelMLP", "Experts", "Kernel", "abandon", "ag_gemm", "all_gather",
                "all_reduce", "all_reduce_norm", "all_to_all", "all_to_all_v", "check", "compile", "describe", "destroy",
                "empty", "flash_decode", "gemm_all_scatter", "gemm_ar", "gemm_rs", "grouped_gemm", "init", "kernel",
                "moe_combine", "moe_dispatch", "moe_groups", "moe_routing", "patch_symm_mem", "poll_errors", "prepare",
                "reduce_scatter", "reset", "unpatch_symm_mem"]
else:
    def missing():
        """What keeps the operators from working, as a sentence; None if nothing does."""
        return "torch is not installed; install torch 2.10 or newer first, then fusewire again"

    def is_available():
        """Whether the operators work here."""
        return False

    def __getattr__(name):
        if name in ("ExpertParallelMLP", "ag_gemm", "all_gather", "all_reduce", "all_reduce_norm", "all_to_all",
                    "all_to_all_v", "compile", "empty", "flash_decode", "gemm_all_scatter", "gemm_ar", "gemm_rs",
                    "grouped_gemm", "init", "kernel", "moe_combine", "moe_dispatch", "reduce_scatter"):
            raise NotBuilt(missing())
        raise AttributeError(f"module 'fusewire' has no attribute '{name}'")
