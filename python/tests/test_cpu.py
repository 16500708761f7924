#!/usr/bin/env python3
"""usage: test_cpu.py [TEST ...]

What holds without a GPU: the package imports and says what is missing, schemas and fake kernels, torch.compile of a
model, gradients, ranks that meet over torch's store, exceptions, what pip installs. Processes of torch on the CPU are
the ranks. The exit status is 77 where there is no torch of 2.10 or newer; it ends after 300 s at the latest.
"""
import ctypes
import faulthandler
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

try:
    import torch
except ImportError:
    print("no torch: nothing is tested")
    sys.exit(77)
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
    print(f"torch is {torch.__version__}, older than 2.10: nothing is tested")
    sys.exit(77)
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # a checkout that is not installed
import fusewire  # noqa: E402
from fusewire import _compiler, _errors, _groups, _library, _symm_mem  # noqa: E402

RANKS, bf16 = 2, torch.bfloat16
ops = torch.ops.fusewire
NO_GPU = not torch.cuda.is_available()


def rank_main(rank, body, store):
    faulthandler.dump_traceback_later(120, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    globals()[body](rank)
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(body):
    """Calls a function of this module with its rank in each of RANKS processes; what one raises is raised here."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(body.__name__, folder + "/store"), nprocs=RANKS)


def raised(kind, call, part=""):
    try:
        call()
    except kind as problem:
        assert part in str(problem), str(problem)
        return problem
    raise AssertionError(f"no {kind.__name__}")


def meeting(limit=20.0):
    name = _groups.name_of(None)
    _groups._made[name] = _groups._made.get(name, 0) + 1
    return _groups._Meeting(dist.group.WORLD, name, limit)


# ---------------------------------------------------------------- bodies of ranks

def all_gathers(rank):
    m = meeting()
    for n in range(5):
        assert m.all_gather(bytes([rank, n])) == [bytes([r, n]) for r in range(RANKS)]
    assert m.all_gather(b"") == [b""] * RANKS
    assert not m.store.check([f"1/{rank}"]), "keys that all have read are removed"
    raised(fusewire.RankMismatch, lambda: m.all_gather(b"x" * (1 + rank)), "different collectives")
    second = meeting()  # of the same group: nothing of the first is seen
    assert second.all_gather(b"a") == [b"a"] * RANKS


def failures(rank):
    m = meeting()
    if rank == 0:
        m.fail("rank 0: the reason")
    else:
        begin = time.monotonic()
        raised(fusewire.PeerFailed, lambda: m.all_gather(b"a"), "rank 0: the reason")
        assert time.monotonic() - begin < 10
    dist.barrier()
    m = meeting(2.0)
    if rank == 0:
        raised(fusewire.PeerFailed, lambda: m.all_gather(b"a"), "ranks [1] did not come")
    dist.barrier()


def functions_of_c(rank):
    """As C++ calls them."""
    m = meeting(2.0)
    all_gather, fail = m.functions()
    everything, why = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"untouched", 32)
    assert all_gather(ctypes.c_char_p(b"rank" if rank else b"zero"), 4, everything, why, 32) == 0
    assert everything.raw == b"zerorank"
    assert all_gather(None, 0, None, why, 32) == 0, "a barrier"
    assert all_gather(ctypes.c_char_p(b"abcdef"), 4 + rank, everything, why, 32) == 2
    assert b"different" in why.value and len(why.value) == 31, why.value
    fail(b"it is over")
    assert m.store.get("failed") == b"it is over"


def reference_kernels():
    """The operators from torch's own parts, as kernels of the CPU, for as long as the process lives."""
    global library
    library = torch.library.Library("fusewire", "IMPL")

    def all_gather(x, group):
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    def ag_gemm(x, w, group, *, w_is_constant=False):
        return all_gather(x, group) @ w.t()

    def ag_gemm_with_x(x, w, group, *, w_is_constant=False):
        whole = all_gather(x, group)
        return whole @ w.t(), whole

    def gemm_ar(x, w, group, *, w_is_constant=False):
        y = (x @ w.t()).float()
        dist.all_reduce(y)
        return y.to(x.dtype)

    def gemm_rs(x, w, group, *, w_is_constant=False):
        return gemm_ar(x, w, group).chunk(RANKS)[dist.get_rank()].clone()

    def gemm_all_scatter(x, w, group, *, w_is_constant=False):
        return torch.cat(all_gather(x @ w.t(), group).chunk(RANKS), 1)

    def flash_decode(q, k_cache, v_cache, block_table, lengths, group, *, by_heads=False, **_):
        heads = q.shape[1] // (RANKS if by_heads else 1)
        return torch.zeros_like(q[:, :heads]), torch.zeros(q.shape[0], heads)

    def all_reduce(x, group):
        y = x.float()
        if y is x:
            y = x.clone()
        dist.all_reduce(y)
        return y.to(x.dtype)

    def reduce_scatter(x, group):
        return all_reduce(x, group).chunk(RANKS)[dist.get_rank()].clone()

    def all_to_all(x, group):
        everything, mine = all_gather(x, group).chunk(RANKS), dist.get_rank()
        return torch.cat([theirs.chunk(RANKS)[mine] for theirs in everything])

    def all_to_all_v(x, counts, offsets, rows, group):
        if offsets is None:
            offsets = counts.cumsum(0).to(counts.dtype) - counts
        parts = [None] * RANKS
        dist.all_gather_object(parts, [x[o:o + n] for o, n in zip(offsets.tolist(), counts.tolist())])
        mine = [part[dist.get_rank()] for part in parts]
        came = counts.new_tensor([len(part) for part in mine])
        y = x.new_zeros(rows, *x.shape[1:])
        y[:int(came.sum())] = torch.cat(mine)
        return y, came, came.cumsum(0).to(counts.dtype) - came

    def all_reduce_norm(x, residual, gamma, group, *, eps=1e-6):
        h = all_reduce(x, group) if residual is None else all_reduce(x, group) + residual
        return h, torch.nn.functional.rms_norm(h.float(), gamma.shape, gamma.float(), eps).to(x.dtype)

    def all_reduce_norm_quantised(x, residual, gamma, scale, dtype, group, *, eps=1e-6):
        h, y = all_reduce_norm(x, residual, gamma, group, eps=eps)
        top = 127 if dtype == torch.int8 else torch.finfo(dtype).max
        scales = y.float().abs().amax(1) / top if scale is None else x.new_empty(0, dtype=torch.float32)
        by = scales[:, None] if scale is None else scale
        q = y.float() / by
        return h, y, (q.round() if dtype == torch.int8 else q).to(dtype), scales

    dispatched = []  # everybody's tables, and where the rows of this rank came from; a routing has the number at 512

    def moe_dispatch(x, experts, weights, routing, rows, group, *, routed=False):
        where = _groups.routing_of(group)
        everybody = [None] * RANKS
        dist.all_gather_object(everybody, (x, experts, weights))
        first, y, came = dist.get_rank() * where.experts, x.new_zeros(rows, x.shape[1]), []
        for e in range(first, first + where.experts):
            begin = len(came)
            came += [(r, t, j) for r, (_, table, _) in enumerate(everybody) for t, j in (table == e).nonzero().tolist()]
            for at, value in ((where.expert_begins, begin), (where.expert_rows, len(came) - begin)):
                routing[at + 4 * (e - first):][:4].view(torch.int32)[0] = value
        for i, (r, t, _) in enumerate(came):
            y[i] = everybody[r][0][t]
        routing[512:516].view(torch.int32)[0] = len(dispatched)
        dispatched.append((everybody, came))
        return y

    def moe_combine(y, routing, tokens, group, *, weighted=False):
        everybody, came = dispatched[routing[512:516].view(torch.int32)]
        sums = [torch.zeros(len(table), y.shape[1]) for _, table, _ in everybody]
        for i, (r, t, j) in enumerate(came):
            sums[r][t] += y[i].float() * (everybody[r][2][t, j] if weighted else 1)
        for part in sums:
            dist.all_reduce(part)
        return sums[dist.get_rank()].to(y.dtype)

    def grouped_gemm(x, w, begins, ends, group, *, gated=False, rows_of_group=0):
        y = x.new_zeros(x.shape[0], w.shape[1] // (1 + gated))
        for one, begin, end in zip(w, begins.tolist(), ends.tolist()):
            h = x[begin:end] @ one.t()
            y[begin:end] = torch.nn.functional.silu(h[:, ::2]) * h[:, 1::2] if gated else h
        return y

    for kernel in (moe_dispatch, moe_combine, grouped_gemm):
        library.impl(kernel.__name__, kernel, "CPU")

    def into(kernel):
        def call(x, out, group):
            out.copy_(kernel(x, group))
        return call

    for kernel in (all_gather, reduce_scatter, all_to_all, all_reduce):
        library.impl(kernel.__name__ + "_out", into(kernel), "CPU")
    for kernel in (reduce_scatter, all_to_all, all_reduce, all_to_all_v, all_reduce_norm, all_reduce_norm_quantised):
        library.impl(kernel.__name__, kernel, "CPU")
    for kernel in (all_gather, ag_gemm, ag_gemm_with_x, gemm_ar, gemm_rs, gemm_all_scatter, flash_decode):
        library.impl(kernel.__name__, kernel, "CPU")

    def into_out(kernel):
        def call(x, w, out, group, *, w_is_constant=False):
            out.copy_(kernel(x, w, group))
        return call

    def plus_fields(kernel):
        def call(x, w, group, epilogue, tensors, numbers, *, w_is_constant=False):
            return kernel(x, w, group) + sum(tensors) + sum(numbers)
        return call

    for kernel in (ag_gemm, gemm_ar, gemm_rs, gemm_all_scatter):
        library.impl(kernel.__name__ + "_out", into_out(kernel), "CPU")
        library.impl(kernel.__name__ + "_custom", plus_fields(kernel), "CPU")


def mlp(x, up, down, group):
    h = ops.ag_gemm(x, up, group, w_is_constant=True)
    return x + ops.gemm_rs(torch.nn.functional.silu(h), down, group)


def compiled_model(rank):
    reference_kernels()
    group = dist.group.WORLD.group_name
    torch.manual_seed(rank)
    up, down = torch.randn(48, 32, dtype=bf16), torch.randn(32, 48, dtype=bf16)
    f = torch.compile(mlp, fullgraph=True, backend="aot_eager")
    for rows in (4, 8, 12):
        x = torch.randn(rows, 32, dtype=bf16)
        torch.testing.assert_close(f(x, up, down, group), mlp(x, up, down, group))
    # The functions of the package in a graph, too
    g = torch.compile(lambda x: fusewire.gemm_ar(x, up, group=group), fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 32, dtype=bf16)
    torch.testing.assert_close(g(x), fusewire.gemm_ar(x, up, group=group))
    for op in (ops.ag_gemm, ops.gemm_rs, ops.gemm_ar, ops.gemm_all_scatter, ops.ag_gemm_with_x):
        torch.library.opcheck(op.default, (torch.randn(4, 32, dtype=bf16), up, group))
    torch.library.opcheck(ops.ag_gemms.default, (torch.randn(4, 32, dtype=bf16), [up, up[:8]], group))
    torch.library.opcheck(ops.all_gather.default, (torch.randn(4, 32, dtype=bf16), group))
    for op, shape in ((ops.ag_gemm_out, (8, 48)), (ops.gemm_rs_out, (2, 48)), (ops.gemm_ar_out, (4, 48)),
                      (ops.gemm_all_scatter_out, (4, 96))):
        torch.library.opcheck(op.default, (torch.randn(4, 32, dtype=bf16), up, torch.empty(shape, dtype=bf16), group))
    cache, table = torch.zeros(8, 16, 2, 64, dtype=bf16), torch.zeros(3, 4, dtype=torch.int32)
    q = torch.zeros(3, 4, 64, dtype=bf16)
    for options in ({}, {"by_heads": True, "soft_cap": 30.0, "window_begins": table[:, 0]}):
        torch.library.opcheck(ops.flash_decode.default, (q, cache, cache, table, table[:, 0], group), options)


def results(rank):
    """Given results, several weights, the gathered x; eager and compiled."""
    reference_kernels()
    torch.manual_seed(rank)
    x, ws = torch.randn(4, 32, dtype=bf16), [torch.randn(n, 32, dtype=bf16) for n in (16, 48, 8)]
    whole, w = fusewire.all_gather(x), ws[1]

    def all_of_it(x, a, b, c):
        y, rows = fusewire.ag_gemm(x, a, gathered=True)
        return y, rows, *fusewire.ag_gemm(x, [a, b, c]), *fusewire.ag_gemm(x, [b], gathered=True)[0]

    for f in (all_of_it, torch.compile(all_of_it, fullgraph=True, backend="aot_eager")):
        found = f(x, *ws)
        wanted = [whole @ ws[0].t(), whole, *(whole @ w.t() for w in ws), whole @ w.t()]
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)

    def given(x, w, out):
        return fusewire.ag_gemm(x, w, out=out[:, :48]) + 1

    for f in (given, torch.compile(given, fullgraph=True, backend="aot_eager")):
        out = torch.zeros(8, 64, dtype=bf16)
        torch.testing.assert_close(f(x, w, out), whole @ w.t() + 1)
        torch.testing.assert_close(out[:, :48], whole @ w.t())
        assert not out[:, 48:].any()
    for function, shape in ((fusewire.gemm_rs, (2, 48)), (fusewire.gemm_ar, (4, 48)),
                            (fusewire.gemm_all_scatter, (4, 96))):
        out = torch.empty(shape, dtype=bf16)
        assert function(x, w, out=out) is out
        torch.testing.assert_close(out, function(x, w))
    own, bias = fusewire.compile("return x;", scale=float, bias=torch.Tensor), torch.randn(48, dtype=bf16)
    for f in (own.ag_gemm, torch.compile(own.ag_gemm, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(f(x, w, scale=2, bias=bias), whole @ w.t() + bias + 2)
    torch.testing.assert_close(own.gemm_rs(x, w, bias=bias, scale=0), fusewire.gemm_rs(x, w) + bias)
    raised(fusewire.BadArgument, lambda: own.gemm_ar(x, w, scale=1), "expected ['bias', 'scale']")
    torch.library.opcheck(ops.gemm_ar_custom.default, (x, w, dist.group.WORLD.group_name, 1, [bias], [0.5]))
    out = torch.empty(8, 48, dtype=bf16)
    raised(fusewire.BadArgument, lambda: fusewire.ag_gemm(x, [w], out=out), "one w alone")
    raised(fusewire.BadArgument, lambda: fusewire.ag_gemm(x, [], gathered=True), "no weights")
    needs = w.clone().requires_grad_()
    raised(fusewire.BadArgument, lambda: fusewire.ag_gemm(x, needs, out=out), "a gradient is wanted")
    with torch.no_grad():
        fusewire.ag_gemm(x, needs, out=out)


def collectives(rank):
    """Eager, compiled, into given tensors; shapes, and what opcheck looks at."""
    reference_kernels()
    group = dist.group.WORLD.group_name
    torch.manual_seed(rank)
    x = torch.randint(-8, 8, (6, 5, 4)).to(bf16)
    everything = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(everything, x)
    wanted = {"all_gather": torch.cat(everything), "all_reduce": sum(everything),
              "reduce_scatter": sum(everything).chunk(RANKS)[rank],
              "all_to_all": torch.cat([theirs.chunk(RANKS)[rank] for theirs in everything])}
    for name, right in wanted.items():
        f = getattr(fusewire, name)
        torch.testing.assert_close(f(x), right)
        g = torch.compile(lambda x, f=f: f(x + 1) - 1, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(g(x), f(x + 1) - 1)
        out = torch.zeros_like(right)
        assert f(x, out=out) is out
        torch.testing.assert_close(out, right)
        turned = x.transpose(1, 2)  # not contiguous
        torch.testing.assert_close(f(turned), f(turned.contiguous()))
        torch.library.opcheck(getattr(ops, name).default, (x, group))
        torch.library.opcheck(getattr(ops, name + "_out").default, (x, out, group))
    with FakeTensorMode():
        odd = torch.empty(5, 4)
        raised(RuntimeError, lambda: ops.reduce_scatter(odd, group), "2 ranks can share")
        raised(RuntimeError, lambda: ops.all_to_all(odd, group), "2 ranks can share")
        raised(RuntimeError, lambda: ops.all_gather_out(odd, odd, group), "expected (10, 4)")

    # Rank r sends 1 + r rows to rank 0 and 2 to rank 1
    counts = torch.tensor([1 + rank, 2])
    rows = torch.arange(4 * 3).view(4, 3) + 100 * rank
    y, came, first = fusewire.all_to_all_v(rows, counts, 8)
    assert came.tolist() == ([1, 2], [2, 2])[rank] and first.tolist() == ([0, 1], [0, 2])[rank]
    assert y[:came[0], 0].tolist() == ([0], [3, 6])[rank] and y[came[0], 0] == (100, 106)[rank]
    apart = torch.tensor([0, 2])
    assert fusewire.all_to_all_v(rows, counts, 8, offsets=apart)[0][0, 0] == (0, 6)[rank]
    for offsets in (None, apart):
        torch.library.opcheck(ops.all_to_all_v.default, (rows, counts, offsets, 8, group))
    g = torch.compile(lambda r, c: fusewire.all_to_all_v(r, c, 8)[0] + 0, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(g(rows, counts), y)

    x, residual, gamma = torch.randn(6, 32, dtype=bf16), torch.ones(6, 32, dtype=bf16), torch.ones(32, dtype=bf16)
    h, y = fusewire.all_reduce_norm(x, gamma, residual=residual, eps=1e-5)
    torch.testing.assert_close(h, fusewire.all_reduce(x) + residual)
    for dtype, scale in ((torch.int8, None), (torch.float8_e4m3fn, torch.tensor(0.01))):
        _, same, q, scales = fusewire.all_reduce_norm(x, gamma, residual=residual, eps=1e-5, dtype=dtype, scale=scale)
        torch.testing.assert_close(same, y)
        assert q.dtype == dtype and (scales is scale or scales.shape == (6,))
        torch.library.opcheck(ops.all_reduce_norm_quantised.default, (x, residual, gamma, scale, dtype, group))
    torch.library.opcheck(ops.all_reduce_norm.default, (x, None, gamma, group))
    g = torch.compile(lambda x: fusewire.all_reduce_norm(x, gamma, residual=residual, dtype=torch.int8)[2],
                      fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(g(x), fusewire.all_reduce_norm(x, gamma, residual=residual, dtype=torch.int8)[2])
    raised(fusewire.BadArgument, lambda: fusewire.all_reduce_norm(x, gamma, scale=torch.tensor(1.0)), "without dtype")
    with FakeTensorMode():
        x, gamma = torch.empty(6, 32, dtype=bf16), torch.empty(31, dtype=bf16)
        raised(RuntimeError, lambda: ops.all_reduce_norm(x, None, gamma, group), "expected (32,)")


def experts(rank):
    """The operators, and the layer that is made of them, eager and compiled, beside a layer that one rank has."""
    reference_kernels()
    group = dist.group.WORLD.group_name
    tokens, width, hidden, count = 5 + rank, 32, 16, 4
    _groups._groups[group] = _groups._Group(RANKS, 0, 0, 0, (), fusewire.Experts(8, count, 2, width))
    where = _groups._routings[group] = _groups._Routing(1024, 40, 0, 256, count // RANKS)
    torch.manual_seed(5)
    up, down = torch.randn(count, 2 * hidden, width, dtype=bf16), torch.randn(count, width, hidden, dtype=bf16)
    torch.manual_seed(rank)
    x, chosen = torch.randn(tokens, width, dtype=bf16), torch.rand(tokens, count).topk(2).indices
    chosen[1, 1] = -1
    weights = torch.rand(tokens, 2)
    layer = fusewire.ExpertParallelMLP(width, hidden, count, dtype=bf16)
    mine = slice(rank * where.experts, (rank + 1) * where.experts)
    layer.up.copy_(up[mine]), layer.down.copy_(down[mine])
    layer.routing = torch.zeros(where.bytes, dtype=torch.uint8)
    wanted = torch.zeros(tokens, width)
    for t, j in (chosen >= 0).nonzero().tolist():
        h = x[t] @ up[chosen[t, j]].t()
        wanted[t] += weights[t, j] * (down[chosen[t, j]] @ (torch.nn.functional.silu(h[::2]) * h[1::2])).float()
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(f(x, chosen, weights).float(), wanted, atol=1, rtol=0.05)
    begins = torch.zeros(2, dtype=torch.int32)
    torch.library.opcheck(ops.moe_dispatch.default, (x, chosen, weights, layer.routing, 40, group))
    torch.library.opcheck(ops.moe_combine.default, (x.new_zeros(40, width), layer.routing, tokens, group))
    torch.library.opcheck(ops.grouped_gemm.default, (x, layer.up, begins, begins, group), {"gated": True})
    with FakeTensorMode():
        x, odd, begins = torch.empty(5, 32, dtype=bf16), torch.empty(2, 7, 32, dtype=bf16), torch.empty(2)
        raised(RuntimeError, lambda: ops.grouped_gemm(x, odd, begins, begins, group, gated=True), "an even N")
        raised(RuntimeError, lambda: ops.moe_dispatch(x, torch.empty(4, 2, dtype=torch.int32), None, x, 8, group),
               "experts [tokens, top_k]")
    _groups._groups.clear(), _groups._routings.clear()


def gradients(rank):
    """Beside those of the whole computation, which every rank can make: the loss is the sum of all ranks'."""
    reference_kernels()
    group, double = dist.group.WORLD.group_name, torch.float64
    some = torch.Generator().manual_seed(3)

    def random(*shape):
        return (torch.randint(-3, 4, shape, generator=some) / 4).to(bf16)

    # Of all ranks: x of 3 rows each, one w for each product, the weights of the losses
    xs, ups, downs = ([random(*shape) for _ in range(RANKS)] for shape in ((3, 16), (24, 16), (16, 24)))
    sides, of_y, of_side = ([random(*shape) for _ in range(RANKS)] for shape in ((8, 16), (3, 16), (3 * RANKS, 8)))

    leaves = [[t.to(double).requires_grad_() for t in ts] for ts in (xs, ups, downs, sides)]
    x, up, down, side = leaves
    whole = torch.cat(x)
    y = sum((whole @ a.t()) @ b.t() for a, b in zip(up, down))
    loss = sum((part * c.to(double)).sum() for part, c in zip(y.chunk(RANKS), of_y))
    loss = loss + sum(((whole @ a.t()) * c.to(double)).sum() for a, c in zip(side, of_side))
    loss.backward()
    wanted = [ts[rank].grad for ts in leaves]

    def own_loss(x, up, down, side):
        h, beside = fusewire.ag_gemm(x, [up, side], group=group)
        return (ops.gemm_rs(h, down, group) * of_y[rank]).sum() + (beside * of_side[rank]).sum()

    def own_loss_in_single_calls(x, up, down, side):
        h, beside = ops.ag_gemm(x, up, group), ops.ag_gemm(x, side, group)
        return (ops.gemm_rs(h, down, group) * of_y[rank]).sum() + (beside * of_side[rank]).sum()

    for f in (own_loss, own_loss_in_single_calls,
              torch.compile(own_loss, fullgraph=True, backend="aot_eager"),
              torch.compile(own_loss_in_single_calls, fullgraph=True, backend="aot_eager")):
        mine = [ts[rank].clone().requires_grad_() for ts in (xs, ups, downs, sides)]
        f(*mine).backward()
        for found, right in zip(mine, wanted):
            torch.testing.assert_close(found.grad.to(double), right, rtol=0.02, atol=0.05 * right.abs().max().item())
    # Only what is asked for; a loss without structure, whose gradient has stride 0
    for chosen in range(3):
        mine = [ts[rank].clone().requires_grad_(i == chosen) for i, ts in enumerate((xs, ups, downs))]
        ops.gemm_rs(ops.ag_gemm(mine[0], mine[1], group), mine[2], group).sum().backward()
        assert [t.grad is not None for t in mine] == [i == chosen for i in range(3)]
    whole = fusewire.ag_gemm(xs[rank].clone().requires_grad_(), ups[rank], group=group, gathered=True)[1]
    assert not whole.requires_grad
    x, w = xs[rank].clone().requires_grad_(), ups[rank].clone().requires_grad_()
    torch.library.opcheck(ops.ag_gemm.default, (x, w, group))
    torch.library.opcheck(ops.ag_gemms.default, (x, [w, sides[rank]], group))
    torch.library.opcheck(ops.gemm_rs.default, (torch.cat([x.detach()] * RANKS).requires_grad_(), w, group))


def symm_mem_operators(rank):
    """torch's own, which it makes of collectives in its test mode, beside fusewire's behind the same names."""
    import torch.distributed._symmetric_memory as torchs
    torchs._is_test_mode = True
    group, fused = dist.group.WORLD.group_name, torch.ops.symm_mem
    reference_kernels()
    called, stand_in = [], types.SimpleNamespace()
    for name in ("ag_gemm", "ag_gemms", "gemm_rs"):
        kernel = getattr(_symm_mem.ops, name)
        setattr(stand_in, name, lambda *a, kernel=kernel, name=name: called.append(name) or kernel(*a))
    _symm_mem.ops = stand_in
    _groups._groups[group] = _groups._Group(RANKS, 0, 32, 48, ())
    torch.manual_seed(rank)

    def small(*shape):
        return (torch.randint(-3, 4, shape) / 4).to(bf16)

    b, turned = small(32, 48), small(24, 32).t()
    gathers = [((small(4, 32), [b], 0), {}, "ag_gemms"), ((small(4, 32), [b], 0), {"return_A": False}, "ag_gemm"),
               ((small(4, 32), [b, turned], 0), {}, "ag_gemms"), ((small(2, 3, 32), [b], 0), {}, "ag_gemms"),
               ((small(2, 3, 32), [turned, b], 1), {}, "ag_gemms"),
               ((small(4, 64)[:, 7:39], [b], 0), {}, "ag_gemms"),  # at an address that kernels do not read
               ((small(2, 3, 16), [b], 2), {}, None), ((small(4, 32).float(), [b.float()], 0), {}, None),
               ((small(4, 40), [small(40, 8)], 0), {}, None)]  # more columns than max_k
    sums = [((small(4, 32), b, "sum", 0), "gemm_rs"), ((small(4, 32), turned, "avg", 0), "gemm_rs"),
            ((small(2, 3, 32), b, "sum", 0), "gemm_rs"), ((small(3, 4, 32), b, "avg", 1), "gemm_rs"),
            ((small(3, 4, 32), b, "sum", 2), None), ((small(4, 32), small(32, 56), "sum", 0), None)]
    # What torch itself has on the CPU is what it has in its test mode
    own = torch.library.Library("symm_mem", "IMPL")
    own.impl("fused_all_gather_matmul", torchs._fused_all_gather_matmul, "CPU")
    own.impl("fused_matmul_reduce_scatter", torchs._fused_matmul_reduce_scatter, "CPU")

    def everything():
        for arguments, options, _ in gathers:
            whole, ys = fused.fused_all_gather_matmul(*arguments, group, **options)
            yield from ([] if whole is None else [whole]) + list(ys)
        for arguments, _ in sums:
            yield fused.fused_matmul_reduce_scatter(*arguments, group)

    wanted = list(everything())
    assert not called
    _symm_mem.patch_symm_mem("CPU")
    _symm_mem.patch_symm_mem("CPU")
    found = list(everything())
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, check_stride=True)  # which torch.compile counts on
    expected = [name for *_, name in gathers + sums if name]
    assert called == expected, (called, expected)
    del _groups._groups[group]  # a group without a communicator
    assert len(list(everything())) == len(wanted) and called == expected
    _groups._groups[group] = _groups._Group(RANKS, 0, 32, 48, ())
    _symm_mem.unpatch_symm_mem("CPU")
    assert len(list(everything())) == len(wanted) and called == expected
    del _groups._groups[group]


# ---------------------------------------------------------------- tests

class Package(unittest.TestCase):
    def test_headers_are_found(self):
        self.assertTrue((pathlib.Path(fusewire.include()) / "fusewire" / "fusewire.hpp").exists())

    @unittest.skipUnless(NO_GPU, "there is a GPU")
    def test_what_is_missing_is_said(self):
        self.assertRegex(fusewire.missing(), r"\w+ \w+")
        self.assertFalse(fusewire.is_available())

    def test_an_operator_says_what_is_missing(self):
        x, w = torch.zeros(4, 64, dtype=bf16), torch.zeros(8, 64, dtype=bf16)
        problem = raised(fusewire.NotBuilt, lambda: ops.ag_gemm(x, w, "group"), "ag_gemm has no kernel here")
        self.assertIn(fusewire.missing() or "cpu", str(problem))
        raised(fusewire.NotBuilt, lambda: fusewire.gemm_ar(x, w, group="group"), "gemm_ar has no kernel here")
        raised(fusewire.NotBuilt, lambda: fusewire.ag_gemm(x, [w], group="group"), "ag_gemm_with_x has no kernel here")

    def test_exceptions_have_the_kind_of_cpp(self):
        problem = _errors.from_text("fusewire::launch_abandoned: rank 1\nsecond line")
        self.assertIs(type(problem), fusewire.LaunchAbandoned)
        self.assertIsInstance(problem, fusewire.WaitTimeout)
        self.assertIsInstance(problem, RuntimeError)
        self.assertEqual(str(problem), "rank 1\nsecond line")
        self.assertIsInstance(_errors.from_text("fusewire::bad_argument: a"), ValueError)
        self.assertIsNone(_errors.from_text("CUDA error: fusewire::bad_argument: a"))
        names = {_errors.from_text(f"fusewire::{kind}: a").__class__.__name__ for kind in _errors._OF_KIND}
        self.assertEqual(len(names), len(_errors._OF_KIND))

    def test_import_without_torch(self):
        code = ("import sys, importlib.util\n"
                "find = importlib.util.find_spec\n"
                "importlib.util.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
                f"sys.path.insert(0, {str(HERE.parent)!r})\n"
                "import fusewire\n"
                "assert 'torch' not in sys.modules and 'torch is not installed' in fusewire.missing()\n"
                "assert fusewire.include()\n"
                "try: fusewire.init()\n"
                "except fusewire.NotBuilt as problem: print(problem)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertIn("torch is not installed", done.stdout, done.stderr)


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        cls.group = dist.group.WORLD.group_name
        _groups._groups["four"] = _groups._Group(4, 0, 64, 64, ())

    @classmethod
    def tearDownClass(cls):
        del _groups._groups["four"]
        dist.destroy_process_group()

    def test_fake_kernels(self):
        with FakeTensorMode():
            x, w = torch.empty(8, 64, dtype=bf16), torch.empty(24, 64, dtype=bf16)
            self.assertEqual(ops.ag_gemm(x, w, "four").shape, (32, 24))
            self.assertEqual(ops.gemm_rs(x, w, "four").shape, (2, 24))
            self.assertEqual(ops.gemm_ar(x, w, "four", w_is_constant=True).shape, (8, 24))
            self.assertEqual(ops.gemm_all_scatter(x, w, "four").shape, (8, 96))
            self.assertEqual([t.shape for t in ops.ag_gemm_with_x(x, w, "four")], [(32, 24), (32, 64)])
            whole, ys = ops.ag_gemms(x, [w, w[:3]], "four")
            self.assertEqual([t.shape for t in (whole, *ys)], [(32, 64), (32, 24), (32, 3)])
            self.assertEqual(ops.all_gather(x, "four").shape, (32, 64))
            self.assertIsNone(ops.gemm_rs_out(x, w, torch.empty(2, 24, dtype=bf16), "four"))
            self.assertEqual(ops.ag_gemm(x, w, self.group).shape, (8, 24))
            q, cache = torch.empty(3, 8, 128, dtype=bf16), torch.empty(9, 16, 2, 128, dtype=bf16)
            table, lengths = torch.empty(3, 4, dtype=torch.int32), torch.empty(3, dtype=torch.int32)
            out, lse = ops.flash_decode(q, cache, cache, table, lengths, "four", scale=0.5)
            self.assertEqual((out.shape, out.dtype, lse.shape, lse.dtype), (q.shape, bf16, (3, 8), torch.float32))

    def test_fake_kernels_refuse(self):
        with FakeTensorMode():
            x, w = torch.empty(6, 64, dtype=bf16), torch.empty(24, 64, dtype=bf16)
            raised(RuntimeError, lambda: ops.gemm_rs(x, w, "four"), "rows that 4 ranks can share")
            raised(RuntimeError, lambda: ops.ag_gemm(x, w[:, :32], "four"), "as many columns")
            raised(RuntimeError, lambda: ops.ag_gemm(x, w.half(), "four"), "one type")
            raised(RuntimeError, lambda: ops.gemm_ar_out(x, w, x, "four"), "expected (6, 24)")

    def test_meta_tensors(self):
        x, w = (torch.empty(8, 64, dtype=bf16, device="meta") for _ in range(2))
        self.assertEqual(ops.ag_gemm(x, w, "four").shape, (32, 8))


class Ranks(unittest.TestCase):
    def test_all_gathers(self):
        on_ranks(all_gathers)

    def test_failures(self):
        on_ranks(failures)

    def test_functions_of_c(self):
        on_ranks(functions_of_c)

    def test_compiled_model(self):
        on_ranks(compiled_model)

    def test_results(self):
        on_ranks(results)

    def test_collectives(self):
        on_ranks(collectives)

    def test_experts(self):
        on_ranks(experts)

    def test_gradients(self):
        on_ranks(gradients)

    def test_symm_mem_operators(self):
        on_ranks(symm_mem_operators)


@unittest.skipUnless(_library._OBJECT.exists(), "the operators are not compiled")
class SharedObject(unittest.TestCase):
    """In a process of its own, as it stays loaded."""

    def run_code(self, code):
        head = f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\nimport torch, fusewire\n"
        head += "import torch.distributed as dist\nfrom fusewire import _library\n"
        done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_kernels_are_registered(self):
        self.run_code("_library.load()\n"
                      "for op in fusewire._operators.kernels_of_gpus:\n"
                      "    assert torch._C._dispatch_has_kernel_for_dispatch_key('fusewire::' + op, 'CUDA'), op\n")

    def test_errors_cross(self):
        out = self.run_code("def kernel(g): fusewire.kernel('k', '', max_bytes=1, flags_per_source=1, group=g)\n"
                            "for call in (fusewire.check, fusewire.reset, fusewire.poll_errors, kernel):\n"
                            "    try: call('nobody')\n"
                            "    except fusewire.BadArgument as problem: print(problem)\n")
        self.assertEqual(out.count("no communicator for the group 'nobody'"), 4)
        self.assertNotIn("[", out)

    @unittest.skipUnless(NO_GPU, "there is a GPU")
    def test_init_without_a_gpu(self):
        out = self.run_code("dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
                            "try: fusewire.init(max_m=64, max_k=64)\n"
                            "except Exception as problem: print(type(problem).__name__, problem)\n")
        self.assertRegex(out, "NVIDIA|CUDA|cuda")


class CustomEpilogues(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log, here = pathlib.Path(self.folder.name, "log"), pathlib.Path(self.folder.name, "compiler")
        here.write_text(f"""#!/bin/sh
echo called >> {self.log}
grep -q no_such_thing {"$(for a; do case $a in *.cu) echo $a;; esac; done)"} && echo there is no such thing >&2 && exit 1
while [ "$1" != -o ]; do shift; done
echo 'void* fusewire_kernel(void) {{ return (void*)4096; }}' | gcc -shared -fPIC -x c - -o "$2"
""")
        here.chmod(0o755)
        for name, value in (("FUSEWIRE_COMPILER", str(here)), ("FUSEWIRE_CACHE", self.folder.name + "/cache")):
            before = os.environ.get(name)
            os.environ[name] = value
            self.addCleanup(lambda n=name, b=before: os.environ.pop(n) if b is None else os.environ.update({n: b}))

    @unittest.skipUnless(shutil.which("gcc"), "no gcc")
    def test_a_kernel_is_compiled_once(self):
        source = _compiler.Source("return x + b;", (("b", _compiler.NUMBER),))
        for _ in range(2):  # the second finds what the first has left
            kernels = _compiler.Kernels(fusewire.include(), hip=False)
            number = kernels.add(source)
            self.assertEqual((number, kernels.add(source)), (1, 1))
            self.assertEqual([kernels.find(1, 0, "gemm_rs_kernel", "M") for _ in range(2)], [4096, 4096])
        self.assertEqual(self.log.read_text(), "called\n")
        kernels.find(1, 1, "gemm_rs_kernel", "M")  # f16
        kernels.find(1, 0, "ag_gemm_kernel", "M")
        self.assertEqual(self.log.read_text(), "called\n" * 3)

    @unittest.skipUnless(shutil.which("gcc"), "no gcc")
    def test_what_does_not_compile_is_said(self):
        kernels = _compiler.Kernels(fusewire.include(), hip=False)
        kernels.add(_compiler.Source("return no_such_thing;", ()))
        why = ctypes.create_string_buffer(4096)
        self.assertIsNone(kernels.function(1, 0, b"gemm_rs_kernel", b"M", why, 4096))
        self.assertIn(b"there is no such thing", why.value)

    def test_fields(self):
        raised(fusewire.BadArgument, lambda: fusewire.compile("return x;", x=float), "'x'")
        raised(fusewire.BadArgument, lambda: fusewire.compile("return x;", a=int), "expected torch.Tensor or float")
        many = {f"t{i}": torch.Tensor for i in range(17)}
        raised(fusewire.BadArgument, lambda: fusewire.compile("return x;", **many), "136 bytes")
        text = _compiler.Source("return x;", (("a", _compiler.POINTER), ("b", _compiler.NUMBER))).text(
            "bf16", "gemm_ar_one_shot", "M")
        self.assertRegex(text, r"ops/detail/gemm_ar_kernel\.hpp[\s\S]*T const\* a;\s*float b;")


def own_kernel(rank):
    """What Kernel gives to the operator: eager and compiled; what it refuses."""
    library = torch.library.Library("fusewire", "IMPL")
    called = []

    def launch_kernel(reads, writes, integers, floats, group, number, *, extents, blocks, threads, shared_bytes):
        called.append((list(integers), list(floats), number, list(extents), blocks, threads, shared_bytes))
        writes[0].copy_(reads[0] * integers[0] + floats[0])

    library.impl("launch_kernel", launch_kernel, "CPU")
    group = dist.group.WORLD.group_name
    _groups._groups[group] = _groups._Group(RANKS, -1, 0, 0, ())
    P = _compiler.Parameter
    k = fusewire.Kernel("k", group, 7, [P(1, 1, b"float32"), P(2, 0, b"float32"), P(0, 1, b"int32"),
                                        P(0, 1, b"float32"), P(0, 1, b"bool")])
    assert str(k) == "k(float32 const*, matrix<float32>, int32, float32, bool)", str(k)
    x, wide = torch.arange(6.0).view(2, 3), torch.zeros(2, 5)
    y = wide[:, :3]
    k(x, y, 4, 0.5, True, blocks=3)
    torch.testing.assert_close(wide, torch.nn.functional.pad(x * 4 + 0.5, (0, 2)))
    assert called.pop() == ([4, 1], [0.5], 7, [4, 1], 3, 256, 0)
    k(x, y, 4, 1, False, blocks=3, threads=64, shared_bytes=8, extents=(9,))
    assert called.pop() == ([4, 0], [1.0], 7, [9], 3, 64, 8)

    def graph(x):
        y = torch.empty_like(x)
        k(x + 1, y, x.shape[0], 0.5, True, blocks=1)
        return y + 1

    for rows in (2, 3, 5):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(torch.compile(graph, fullgraph=True, backend="aot_eager")(x),
                                   (x + 1) * rows + 1.5)
    torch.library.opcheck(ops.launch_kernel.default, ([x], [torch.zeros(5, 3)], [2], [0.0], group, 7),
                          {"extents": [], "blocks": 1, "threads": 32, "shared_bytes": 0})
    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    for part, call in (("3 arguments; expected 5", lambda: k(x, y, 1, blocks=1)),
                       ("argument 1 is torch.float64", lambda: k(x.double(), y, 1, 1, True, blocks=1)),
                       ("for float32 const* a tensor", lambda: k(x.t(), y, 1, 1, True, blocks=1)),
                       ("argument 1 is NoneType", lambda: k(None, y, 1, 1, True, blocks=1)),
                       ("columns side by side", lambda: k(x, y.t(), 1, 1, True, blocks=1)),
                       ("columns side by side", lambda: k(x, y[0], 1, 1, True, blocks=1)),
                       ("argument 3 is float; expected int32", lambda: k(x, y, 1.0, 1, True, blocks=1)),
                       ("argument 4 is Tensor; expected float32", lambda: k(x, y, 1, x, True, blocks=1)),
                       ("no gradient", lambda: k(x.clone().requires_grad_(), y, 1, 1, True, blocks=1)),
                       ("5 integers", lambda: k(x, y, 1, 1, True, blocks=1, extents=range(5)))):
        raised(fusewire.BadArgument, call, part)
    with torch.no_grad():
        k(x.clone().requires_grad_(), y, 1, 1, True, blocks=1)
    del _groups._groups[group]


class OwnKernels(unittest.TestCase):
    def test_calls(self):
        on_ranks(own_kernel)

    def test_without_a_gpu_it_says_so(self):
        raised(fusewire.NotBuilt, lambda: ops.launch_kernel([], [torch.zeros(1)], [], [], "g", 1, extents=[], blocks=1,
                                                            threads=1, shared_bytes=0), "launch_kernel has no kernel")

    @unittest.skipUnless(shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc"), "no nvcc")
    def test_compiling(self):
        """By nvcc: parameters in words, the cache, the compiler's words."""
        sys.path.append(str(HERE.parent / "examples"))
        example = (HERE.parent / "examples" / "own_kernel.py").read_text().split('"""')[3]

        def compiled(name, body):
            return _compiler.CompiledKernel(_compiler.KernelSource(name, body), fusewire.include(), hip=False)

        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, FUSEWIRE_CACHE=folder):
            os.environ.pop("FUSEWIRE_COMPILER", None)
            k = compiled("sum_rows", example)
            self.assertEqual(list(map(str, k.parameters)), ["matrix<float32 const>", "matrix<float32>"])
            self.assertTrue(k.address)
            made, = pathlib.Path(folder).glob("*.so")
            before = made.stat().st_mtime_ns
            self.assertEqual(compiled("sum_rows", example).hash, k.hash)
            self.assertEqual([f.stat().st_mtime_ns for f in pathlib.Path(folder).glob("*.so")], [before])
            k = compiled("k", "__global__ void k(channel_view, int const* a, void* b, bf16* c, float4* d, long e, "
                              "unsigned char f, double g, bool h) {}")
            self.assertEqual(list(map(str, k.parameters)), ["int32 const*", "void*", "bfloat16*", "void*", "int64",
                                                            "uint8", "float64", "bool"])
            for body, part in (("__global__ void k(channel_view ch, int* y) { no_such_thing(); }", "no_such_thing"),
                               ("__global__ void k(int* y) {}", "first parameter is a fusewire::channel_view"),
                               ("struct s {}; __global__ void k(channel_view ch, s y) {}", "then numbers, pointers")):
                raised(fusewire.BadArgument, lambda: compiled("k", body), part)


class Installation(unittest.TestCase):
    def test_wheel_without_a_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            subprocess.run(["cp", "-r", HERE.parent.parent / "include", tree / "include"], check=True)
            subprocess.run(["cp", "-r", HERE.parent, tree / "python"], check=True)
            subprocess.run(["rm", "-rf", tree / "python/build", tree / "python/fusewire/_C.so"], check=True)
            here = {**os.environ, "PATH": "/usr/bin:/bin", "CUDA_HOME": "/nowhere", "ROCM_PATH": "/nowhere"}
            here.pop("NVCC", None)
            if subprocess.run(["sh", "-c", "command -v nvcc"], env=here, capture_output=True).returncode == 0:
                self.skipTest("nvcc is beside the system's programs")
            done = subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel", "-d", tree / "out"], env=here,
                                  cwd=tree / "python", capture_output=True, text=True, timeout=200)
            if "No module named 'setuptools" in done.stderr:
                self.skipTest("setuptools is not there, or too old")
            self.assertEqual(done.returncode, 0, done.stderr)
            wheel, = (tree / "out").glob("fusewire-*.whl")
            self.assertIn("py3-none", wheel.name)
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, tree / "site"], check=True)
            code = (f"import sys; sys.path.insert(0, {folder + '/site'!r}); import fusewire\n"
                    "assert fusewire.__file__.startswith(sys.path[0]) and fusewire.include().startswith(sys.path[0])\n"
                    "print(fusewire.missing())")
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=100)
            self.assertRegex(done.stdout, "no nvcc was found|CPUs alone", done.stderr)

    def test_a_process_that_raises_ends(self):
        code = (f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); import fusewire\n"
                "from fusewire import _groups\n_groups._groups['g'] = _groups._Group(2, 0, 0, 0, ())\n"
                "_groups._library.call = lambda *a: print('called', *a)\nraise SystemExit(3)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout.strip()), (3, "called abandon b'g'"))


if __name__ == "__main__":
    faulthandler.dump_traceback_later(300, exit=True)
    unittest.main(verbosity=2)
