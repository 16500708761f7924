"""Layers of a model, made of the operators."""
import torch

from ._groups import name_of, size_of
from ._operators import grouped_gemm, moe_combine, moe_dispatch, moe_groups, moe_routing


class ExpertParallelMLP(torch.nn.Module):
    """A SwiGLU MLP of many experts, which the ranks of a group share: x [tokens, width] -> [tokens, width], in four
    launches. init() of the group was given Experts. Weights are those of this rank's experts; rows of `up` are in turn
    of the gate and of the product. For inference: there is no gradient."""

    def __init__(self, width, hidden, experts, group=None, **kinds):
        super().__init__()
        self.group = name_of(group)
        own = experts // size_of(self.group)
        self.up = torch.nn.Parameter(torch.empty(own, 2 * hidden, width, **kinds), requires_grad=False)
        self.down = torch.nn.Parameter(torch.empty(own, width, hidden, **kinds), requires_grad=False)
        self.routing = None  # made at the first call, on the device of that time

    def forward(self, x, experts, weights):
        """experts: [tokens, top_k], int32 or int64; weights: [tokens, top_k], float32."""
        if self.routing is None:
            self.routing = moe_routing(self.group)
        rows = moe_dispatch(x, experts, self.routing, weights=weights, group=self.group)
        begins, ends = moe_groups(self.routing, group=self.group)
        h = grouped_gemm(rows, self.up, begins, ends, gated=True, group=self.group)
        y = grouped_gemm(h, self.down, begins, ends, group=self.group)
        return moe_combine(y, self.routing, x.shape[0], group=self.group)
