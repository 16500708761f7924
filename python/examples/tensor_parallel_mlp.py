"""usage: torchrun --nproc-per-node N tensor_parallel_mlp.py

A tensor-parallel MLP with sequence-parallel activations: two kernels of fusewire where others have four of NCCL and
GEMMs. Every rank holds M / W rows of x, a W-th of the hidden columns, and gets its rows of the result.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import fusewire


class ParallelMLP(torch.nn.Module):
    """x [M / W, width] -> [M / W, width]; the group's communicator exists while it is called."""

    def __init__(self, width, hidden, group, **kinds):
        super().__init__()
        self.group, share = group.group_name, hidden // group.size()
        self.up = torch.nn.Linear(width, share, bias=False, **kinds)    # rows [rank * share, ...) of the whole weight
        self.down = torch.nn.Linear(share, width, bias=False, **kinds)  # columns of the whole weight

    def forward(self, x):
        h = torch.ops.fusewire.ag_gemm(x, self.up.weight, self.group, w_is_constant=True)
        return torch.ops.fusewire.gemm_rs(F.silu(h), self.down.weight, self.group, w_is_constant=True)


def reference(mlp, x, group):
    """The same by torch's own collectives."""
    rows = torch.empty(x.shape[0] * group.size(), x.shape[1], device=x.device, dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x, group)
    y, mine = mlp.down(F.silu(mlp.up(rows))), torch.empty_like(x)
    dist.reduce_scatter_tensor(mine, y, group=group)
    return mine


@torch.inference_mode()
def main(group, width=2048, hidden=8192, rows=512):
    """The relative error beside the reference, eager and as a graph."""
    fusewire.init(group, max_m=rows, max_k=width, max_n=width)
    mlp = ParallelMLP(width, hidden, group, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(rows // group.size(), width, device="cuda", dtype=torch.bfloat16)
    errors = {"eager": (mlp(x), reference(mlp, x, group))}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = mlp(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    errors["graph"] = (y, reference(mlp, x, group))
    fusewire.check(group)
    errors = {name: ((a.float() - b.float()).norm() / b.float().norm()).item() for name, (a, b) in errors.items()}
    fusewire.destroy(group)  # collective; the graph is not replayed any more
    return errors


if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    print(f"rank {dist.get_rank()}: relative errors {main(dist.group.WORLD)}")
    dist.destroy_process_group()
