"""A heap in memory that torch has mapped."""
import contextlib
import ctypes
import os

import torch


@contextlib.contextmanager
def _without_multicast():
    """torch makes no multicast object in here."""
    key = "TORCH_SYMM_MEM_DISABLE_MULTICAST"
    before = os.environ.get(key)
    os.environ[key] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before


def of_symm_mem(group, size, device):
    """Collective. Memory of torch's symmetric memory that all ranks of the group have mapped: what keeps it, and where
    each rank's `size` bytes are."""
    import torch.distributed._symmetric_memory as symm_mem
    with _without_multicast():
        segment = symm_mem.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))
        handle = symm_mem.rendezvous(segment, group.group_name)
    rest = segment.data_ptr() - handle.buffer_ptrs[handle.rank]  # of the block to the tensor
    return (segment, handle), (ctypes.c_void_p * handle.world_size)(*(p + rest for p in handle.buffer_ptrs))
