#!/usr/bin/env python3
"""usage: torchrun --nproc-per-node 2 test_gpu.py [--bench FILE] [--seconds N] [SECTION ...]

The operators on GPUs, a rank each: results beside torch's own in fp32, gradients, graphs, torch.compile, refusals,
failures. With
--bench also times: device time of a call in a graph, and the host's time of a call, beside torch's fused operators and
NCCL; as JSON. What has not begun after N seconds (150) is left out, and says so. The exit status is 1 if a check fails.
NVLink multicast stays off.
"""
import argparse
import dataclasses
import datetime
import faulthandler
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
BEGIN = time.monotonic()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._symmetric_memory  # noqa: E402, F401  (defines torch.ops.symm_mem)
import torch.nn.functional as F  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # a checkout that is not installed
import fusewire  # noqa: E402
from fusewire import _compiler, _symm_mem  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "examples"))

parser = argparse.ArgumentParser(usage=__doc__.split("\n")[0][7:])
parser.add_argument("--bench", metavar="FILE")
parser.add_argument("--seconds", type=float, default=150)
parser.add_argument("sections", nargs="*")
given = parser.parse_args()
faulthandler.dump_traceback_later(given.seconds + 45, exit=True)

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL = int(os.environ.get("LOCAL_RANK", RANK))
ops, bf16 = torch.ops.fusewire, torch.bfloat16
MAX_M, UP_N, WIDTH, DOWN_K = 8192, 7168 // RANKS, 8192, 28672 // RANKS  # of a 70 B model's MLP, and a part of its QKV
REDUCE_ROWS, MAX_BYTES = 512, 32 << 20  # of all_reduce with its norm; of the other collectives
PAGES, PAGE, BATCH, Q_HEADS, KV_HEADS, HEAD = 256, 16, 8, 32, 8, 128
CAP = 2.0  # of scores, most of which are below it
EXPERTS = fusewire.Experts(max_tokens=512, experts=16 * RANKS, top_k=4, max_cols=1024)
report = {"failed": [], "left_out": [], "sections": {}, "host_us": {}, "device_us": []}


def say(*words):
    if RANK == 0:
        print(*words, flush=True)


def on_all(value, op=dist.ReduceOp.MAX):
    """The largest of all ranks' numbers."""
    t = torch.tensor([float(value)], device="cuda", dtype=torch.float64)
    dist.all_reduce(t, op)
    return t.item()


def meet():
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def expect(what, fine, detail=""):
    """Whether it is fine on all ranks."""
    bad = on_all(0 if fine else 1) > 0
    say(f"  {'FAILED' if bad else 'ok    '} {what}{': ' if detail else ''}{detail}")
    if bad:
        report["failed"].append(what)
        if not fine and RANK != 0:
            print(f"  rank {RANK}: {what}: {detail}", flush=True)


def expect_near(what, got, wanted, limit=0.01):
    wanted, error = wanted.float(), float("nan")
    if got.shape == wanted.shape:
        error = ((got.float() - wanted).norm() / wanted.norm().clamp_min(1e-9)).item()
    worst = on_all(error if error == error else 9)
    expect(what, worst <= limit, f"relative error {worst:.5f}" if worst < 9 else f"NaN, or shape {tuple(got.shape)}")


def expect_refusal(what, kind, call, part):
    """call() raises `kind`, whose sentence has `part` in it."""
    try:
        call()
        expect(what, False, "was accepted")
    except kind as problem:
        expect(what, part in str(problem), f"{type(problem).__name__}: {str(problem)[:150]}")
    except Exception as problem:
        expect(what, False, f"{type(problem).__name__} instead of {kind.__name__}: {str(problem)[:200]}")


def normal(*shape, seed, scale=1.0, dtype=bf16):
    """Normal-distributed; a long one repeats itself."""
    count = 1
    for extent in shape:
        count *= extent
    some = torch.randn(min(count, (1 << 20) + 17), generator=torch.Generator().manual_seed(seed)) * scale
    some = some.to("cuda").to(dtype)
    return some.repeat(count // some.numel() + 1)[:count].view(shape)


def gathered(x):
    rows = torch.empty(x.shape[0] * RANKS, x.shape[1], device="cuda", dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x.contiguous())
    return rows


def summed(y):
    y = y.float().contiguous()
    dist.all_reduce(y)
    return y


def small_numbers(*shape, seed, dtype=bf16):
    """Integers, whose sums are exact in every type."""
    return torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(seed)).to("cuda").to(dtype)


def of_torch(name, x):
    """What torch.distributed's collective makes of x."""
    if name == "all_reduce":
        y = x.clone()
        dist.all_reduce(y)
        return y
    y = torch.empty({"all_gather": x.shape[0] * RANKS, "reduce_scatter": x.shape[0] // RANKS}.get(name, x.shape[0]),
                    *x.shape[1:], device="cuda", dtype=x.dtype)
    {"all_gather": dist.all_gather_into_tensor, "reduce_scatter": dist.reduce_scatter_tensor,
     "all_to_all": dist.all_to_all_single}[name](y, x)
    return y


def own_rows(y):
    rows = y.shape[0] // RANKS
    return y[RANK * rows:(RANK + 1) * rows]


def product(x, w):
    return x.float() @ w.float().t()


def side_by_side(y):
    """The columns of all ranks."""
    return torch.cat(gathered(y).chunk(RANKS), 1)


def weights():
    """w of the first product, and of the second."""
    return (normal(UP_N, WIDTH, seed=1 + RANK, scale=WIDTH ** -0.5),
            normal(WIDTH, DOWN_K, seed=11 + RANK, scale=DOWN_K ** -0.5))


def make():
    begin = time.monotonic()
    shape = fusewire.DecodeShape(BATCH, Q_HEADS, KV_HEADS, HEAD, PAGE, PAGES)
    fusewire.init(max_m=MAX_M, max_k=WIDTH, max_n=WIDTH, max_bytes=MAX_BYTES, all_reduce=(REDUCE_ROWS, WIDTH),
                  decode=[shape, dataclasses.replace(shape, by_heads=True, masked=True, batch_invariant=True)], experts=EXPERTS, wait_seconds=30)
    made = time.monotonic()
    fusewire.prepare(ag_gemm=[WIDTH], gemm_rs=[DOWN_K], gemm_ar=[DOWN_K])
    say(f"  init {made - begin:.2f} s, prepare {time.monotonic() - made:.2f} s")
    for m in (16, 512, MAX_M):
        for op, n, k in (("ag_gemm", UP_N, WIDTH), ("gemm_rs", WIDTH, DOWN_K), ("gemm_ar", WIDTH, DOWN_K),
                         ("gemm_all_scatter", WIDTH // RANKS, WIDTH)):
            say(f"    M = {m}:", fusewire.describe(op, m, n, k))
    meet()


def eager():
    up, down = weights()
    part_of_down = down[:WIDTH // RANKS]
    for m in (2, 16, 100, 256, 1000, 4096, 8192):
        m -= m % RANKS
        x, a = normal(m // RANKS, WIDTH, seed=21 + RANK), normal(m, DOWN_K, seed=31 + RANK)
        whole, total = product(gathered(x), up), summed(product(a, down))
        for constant in (False, True, False):  # both slots of the inbox
            y = ops.ag_gemm(x, up, GROUP, w_is_constant=constant)
            part = ops.gemm_rs(a, down, GROUP, w_is_constant=constant)
            everything = ops.gemm_ar(a, down, GROUP, w_is_constant=constant)
            columns = ops.gemm_all_scatter(a, part_of_down, GROUP, w_is_constant=constant)
        expect_near(f"ag_gemm, M = {m}", y, whole)
        expect_near(f"gemm_rs, M = {m}", part, own_rows(total))
        expect_near(f"gemm_ar, M = {m}", everything, total)
        expect_near(f"gemm_all_scatter, M = {m}", columns, side_by_side(product(a, part_of_down)))
    fusewire.check()
    # A part of a wider tensor; another K, whose operator is made on the way; a part of a weight; a transposed weight
    half = WIDTH // 2
    wide, w = normal(64, 2 * half, seed=41 + RANK), normal(UP_N, 2 * half, seed=51 + RANK, scale=half ** -0.5)
    expect_near("ag_gemm of parts of tensors", ops.ag_gemm(wide[:, :half], w[:, half:], GROUP),
                product(gathered(wide[:, :half]), w[:, half:]))
    turned = w[:, :half].t().contiguous().t()
    expect_near("ag_gemm of a transposed weight", ops.ag_gemm(wide[:, :half], turned, GROUP),
                product(gathered(wide[:, :half]), turned))
    x = wide[:, :half].requires_grad_(False)
    expect("no rows", ops.ag_gemm(x[:0], turned, GROUP).shape == (0, UP_N)
           and ops.gemm_rs(x[:0], turned, GROUP).shape == (0, UP_N))
    fusewire.check()


def results():
    """Given results, the gathered x, several weights."""
    up, down = weights()
    for m in (2 * RANKS, 256, 4096):
        x, a = normal(m // RANKS, WIDTH, seed=211 + RANK), normal(m, DOWN_K, seed=212 + RANK)
        whole, total = gathered(x), summed(product(a, down))
        for _ in range(3):  # both slots of the inbox
            y, rows = fusewire.ag_gemm(x, up, gathered=True)
        expect_near(f"ag_gemm with the gathered x, M = {m}", y, product(whole, up))
        expect("  the gathered x", torch.equal(rows, whole))
        expect("  all_gather", torch.equal(fusewire.all_gather(x), whole))
        ws = [up[:256], up, up[:, :].roll(1, 0), up[3:4]]
        for i, (y, w) in enumerate(zip(fusewire.ag_gemm(x, ws), ws)):
            expect_near(f"  weight {i} of several", y, product(whole, w))
        wide = torch.zeros(m, UP_N + 64, device="cuda", dtype=bf16)
        fusewire.ag_gemm(x, up, out=wide[:, :UP_N])
        expect_near("  ag_gemm into a part of a tensor", wide[:, :UP_N], product(whole, up))
        expect("  what is beside it", not wide[:, UP_N:].any().item())
        for op, wanted in ((fusewire.gemm_rs, own_rows(total)), (fusewire.gemm_ar, total)):
            out = torch.empty_like(wanted, dtype=bf16)
            expect_near(f"  {op.__name__} into a tensor", op(a, down, out=out), wanted)
            expect("  which is returned", op(a, down, out=out) is out)
        out = torch.empty(m, RANKS * 512, device="cuda", dtype=bf16)
        fusewire.gemm_all_scatter(a, down[:512], out=out)
        expect_near("  gemm_all_scatter into a tensor", out, side_by_side(product(a, down[:512])))
    part = normal(64, 2 * WIDTH, seed=213 + RANK)[:, WIDTH:]  # rows that are not side by side
    y, rows = fusewire.ag_gemm(part, up, gathered=True)
    expect("the gathered x of a part of a tensor", torch.equal(rows, gathered(part)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, rows = fusewire.ag_gemm(part, up, gathered=True)
    for i in range(3):
        part.copy_(normal(64, WIDTH, seed=214 + RANK + 10 * i))
        graph.replay()
        expect_near(f"the gathered x in a graph, replay {i}", rows, gathered(part), 0)
        expect_near("  the product", y, product(gathered(part), up))
    fusewire.check()


def collectives():
    """Beside torch.distributed's: the same numbers, of small integers."""
    kinds = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
    rows_of_one = MAX_BYTES // 8192 + 8  # more bytes than a launch takes
    for name in kinds:
        for dtype in (bf16, torch.float16, torch.float32, torch.uint8, torch.int64):
            if not dtype.is_floating_point and name in ("reduce_scatter", "all_reduce"):
                continue
            fine, shapes = True, ((RANKS, 1), (3 * RANKS, 5), (RANKS * 64, 129), (RANKS * 512, 1024))
            for i, shape in enumerate((*shapes, (RANKS * rows_of_one, 4096)) if dtype == bf16 else shapes):
                x = small_numbers(*shape, seed=400 + 10 * i + RANK, dtype=dtype)
                wanted = of_torch(name, x)
                for _ in range(3):  # both slots of the inbox
                    y = getattr(fusewire, name)(x)
                fine = fine and torch.equal(y, wanted)
                fine = fine and torch.equal(getattr(fusewire, name)(x, out=torch.empty_like(wanted)), wanted)
            expect(f"{name} of {dtype}", fine)
    x = small_numbers(64 * RANKS, 100, seed=451 + RANK)
    wanted = {name: of_torch(name, x) for name in kinds}
    whole = torch.zeros_like(wanted["all_gather"])
    whole.chunk(RANKS)[RANK].copy_(x)
    fusewire.all_gather(whole.chunk(RANKS)[RANK], out=whole)
    expect("all_gather in place", torch.equal(whole, wanted["all_gather"]))
    for name in ("all_to_all", "all_reduce"):
        y = x.clone()
        getattr(fusewire, name)(y, out=y)
        expect(f"{name} in place", torch.equal(y, wanted[name]))
    y = x.clone()
    fusewire.reduce_scatter(y, out=y.chunk(RANKS)[RANK])
    expect("reduce_scatter in place", torch.equal(y.chunk(RANKS)[RANK], wanted["reduce_scatter"]))
    fusewire.check()

    # Rows whose numbers stay on the GPU; in a graph, whose replays have other ones
    most, columns = 300, 513
    rows, counts = small_numbers(RANKS * most, columns, seed=461 + RANK), None

    def counts_of(seed):
        return torch.randint(0, most + 1, (RANKS, RANKS), generator=torch.Generator().manual_seed(seed))

    def expect_rows(what, result, all_counts):
        sent, came = all_counts[RANK].tolist(), all_counts[:, RANK].tolist()
        right = torch.empty(sum(came), columns, device="cuda", dtype=bf16)
        dist.all_to_all_single(right, rows[:sum(sent)], came, sent)
        y, got, first = result
        expect(what, got.tolist() == came and first.tolist() == [sum(came[:s]) for s in range(RANKS)]
               and torch.equal(y[:sum(came)], right))

    for i, dtype in enumerate((torch.int32, torch.int64)):
        all_counts = counts_of(470 + i)
        counts = all_counts[RANK].to("cuda").to(dtype)
        expect_rows(f"all_to_all_v, counts of {dtype}", fusewire.all_to_all_v(rows, counts, RANKS * most), all_counts)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = fusewire.all_to_all_v(rows, counts, RANKS * most)
    for i in range(3):
        all_counts = counts_of(480 + i)
        counts.copy_(all_counts[RANK])
        graph.replay()
        expect_rows(f"all_to_all_v, replay {i}", result, all_counts)
    fusewire.check()

    for m, columns in ((1, 8), (5, 1000), (64, WIDTH), (REDUCE_ROWS + 40, WIDTH)):
        x, residual = normal(m, columns, seed=491 + RANK), normal(m, columns, seed=492)
        gamma, scale = normal(columns, seed=493), torch.tensor(0.02, device="cuda")
        h = summed(x).to(bf16).float() + residual.float()
        y = F.rms_norm(h, (columns,), gamma.float(), 1e-5)
        options = {"residual": residual, "eps": 1e-5}
        got_h, got_y = fusewire.all_reduce_norm(x, gamma, **options)
        expect_near(f"all_reduce_norm [{m}, {columns}]: h", got_h, h)
        expect_near("  its norm", got_y, y)
        expect_near("  without a residual", fusewire.all_reduce_norm(x, gamma, eps=1e-5)[1],
                    F.rms_norm(summed(x), (columns,), gamma.float(), 1e-5))
        for dtype, limit in ((torch.int8, 0.02), (torch.float8_e4m3fn, 0.05)):
            _, _, q, scales = fusewire.all_reduce_norm(x, gamma, dtype=dtype, **options)
            expect_near(f"  in {dtype} with a scale of each row", q.float() * scales[:, None], y, limit)
            _, _, q, _ = fusewire.all_reduce_norm(x, gamma, dtype=dtype, scale=scale, **options)
            top = 127 if dtype == torch.int8 else torch.finfo(dtype).max
            expect_near("  with a given one", q.float(), (y / scale).clamp(-top, top), limit)
    x, gamma = normal(8, 64, seed=494), normal(64, seed=495)
    for what, call in {"all_gather": lambda: ops.all_gather(x, GROUP), "all_reduce": lambda: ops.all_reduce(x, GROUP),
                       "reduce_scatter": lambda: ops.reduce_scatter(x, GROUP),
                       "all_reduce_norm": lambda: ops.all_reduce_norm(x, x, gamma, GROUP)[1]}.items():
        compiled = torch.compile(lambda call=call: call() + 1, fullgraph=True, backend="aot_eager")
        expect(f"{what}, compiled", torch.equal(compiled(), call() + 1))
    for op, arguments in ((ops.all_gather, (x,)), (ops.reduce_scatter, (x,)), (ops.all_to_all, (x,)),
                          (ops.all_reduce, (x,)), (ops.all_reduce_norm, (x, x, gamma)),
                          (ops.all_reduce_norm_quantised, (x, x, gamma, None, torch.int8)),
                          # all rows come, so that none of the result is what memory had
                          (ops.all_to_all_v, (rows, torch.full_like(counts, most), None, RANKS * most))):
        try:
            torch.library.opcheck(op.default, (*arguments, GROUP))
            expect(f"opcheck of {op.default}", True)
        except Exception as problem:
            expect(f"opcheck of {op.default}", False, str(problem)[-300:])
    expect_refusal("int32 has no sums", fusewire.BadArgument, lambda: fusewire.all_reduce(x.int()), "bfloat16")
    expect_refusal("rows that cannot be shared", fusewire.BadArgument,
                   lambda: fusewire.reduce_scatter(normal(RANKS + 1, 8, seed=1)) if RANKS > 1 else _refuse(), "share")
    expect_refusal("x that is not contiguous", ValueError, lambda: ops.all_gather(x.t(), GROUP), "contiguous")
    expect_refusal("a row longer than a block's", fusewire.BadArgument,
                   lambda: fusewire.all_reduce_norm(normal(1, 2 * WIDTH, seed=1), normal(2 * WIDTH, seed=1)), "columns")
    fusewire.check()


def experts():
    """A layer of experts beside one that has them all: eager, and in a graph with other tables in each replay."""
    hidden, tokens = 128, EXPERTS.max_tokens
    up = normal(EXPERTS.experts, 2 * hidden, EXPERTS.max_cols, seed=601) / EXPERTS.max_cols ** 0.5
    down = normal(EXPERTS.experts, EXPERTS.max_cols, hidden, seed=602) / hidden ** 0.5
    own = EXPERTS.experts // RANKS
    layer = fusewire.ExpertParallelMLP(EXPERTS.max_cols, hidden, EXPERTS.experts, device="cuda", dtype=bf16)
    layer.up.copy_(up[RANK * own:(RANK + 1) * own]), layer.down.copy_(down[RANK * own:(RANK + 1) * own])

    def call_of(seed, count):
        g = torch.Generator("cuda").manual_seed(seed)
        table = torch.rand(count, EXPERTS.experts, device="cuda", generator=g).topk(EXPERTS.top_k).indices
        table[::7, -1] = -1
        return normal(count, EXPERTS.max_cols, seed=seed), table, torch.rand(table.shape, device="cuda", generator=g)

    def whole(x, table, weights):
        y = torch.zeros(x.shape, device="cuda")
        for e in range(EXPERTS.experts):
            t, j = (table == e).nonzero(as_tuple=True)
            h = (x[t] @ up[e].t()).float()
            h = (F.silu(h[:, ::2]) * h[:, 1::2]).to(bf16)
            y.index_add_(0, t, (h @ down[e].t()).float() * weights[t, j, None])
        return y

    for count in (1, 17, tokens):
        call = call_of(610 + RANK, count)
        expect_near(f"experts, {count} tokens", layer(*call).float(), whole(*call))
        x, table, weights = call
        expect_near("  tables of int32", layer(x, table.int(), weights).float(), whole(*call))
    graph, call = torch.cuda.CUDAGraph(), call_of(620 + RANK, tokens)
    with torch.cuda.graph(graph):
        y = layer(*call)
    for i in range(3):
        for of_graph, new in zip(call, call_of(630 + 10 * i + RANK, tokens)):
            of_graph.copy_(new)
        graph.replay()
        expect_near(f"experts, replay {i}", y.float(), whole(*call))
    expect_refusal("too many tokens", fusewire.BadArgument, lambda: layer(*call_of(1, tokens + 1)), "max_tokens")
    fusewire.check()


def _refuse():
    raise fusewire.BadArgument("share")


def collective_times():
    """us of a call in a graph, beside NCCL's."""
    for kb in (4, 16, 64, 256, 1024, 4096, 16384):
        if over(15):
            report["left_out"].append(f"collectives of {kb} KB")
            continue
        x, gamma = normal(max(kb * 512 // WIDTH, 1), min(kb * 512, WIDTH), seed=RANK), normal(WIDTH, seed=1)
        gamma, row = gamma[:x.shape[1]], {}
        slices = x.view(-1).repeat(RANKS)
        outs = {"all_gather": torch.empty_like(slices), "reduce_scatter": torch.empty_like(x.view(-1)),
                "all_to_all": torch.empty_like(slices)}
        variants = {
            "all_reduce": (lambda i: ops.all_reduce(x, GROUP), lambda i: dist.all_reduce(x.clone())),
            "all_reduce_norm": (lambda i: ops.all_reduce_norm(x, x, gamma, GROUP),
                                lambda i: F.rms_norm(summed(x).to(bf16) + x, gamma.shape, gamma)),
            "all_gather": (lambda i: ops.all_gather_out(x.view(-1), outs["all_gather"], GROUP),
                           lambda i: dist.all_gather_into_tensor(outs["all_gather"], x.view(-1))),
            "reduce_scatter": (lambda i: ops.reduce_scatter_out(slices, outs["reduce_scatter"], GROUP),
                               lambda i: dist.reduce_scatter_tensor(outs["reduce_scatter"], slices)),
            "all_to_all": (lambda i: ops.all_to_all_out(slices, outs["all_to_all"], GROUP),
                           lambda i: dist.all_to_all_single(outs["all_to_all"], slices))}
        for name, (ours, nccl) in variants.items():
            row = {"fusewire": device_time(ours, 1, 16), "NCCL": device_time(nccl, 1, 16)}
            report["device_us"].append({"operator": name, "kb": kb, **row})
            say(f"    {name} {kb:6} KB  fusewire {row['fusewire']:8.1f}  NCCL {row['NCCL']:8.1f}")
    fusewire.check()


def cuts():
    """Calls of more rows than max_m."""
    group = dist.new_group(list(range(RANKS)))
    name, k, n = fusewire.init(group, max_m=256, max_k=2048, max_n=512 * RANKS), 1024, 512
    w = normal(n, k, seed=221 + RANK, scale=k ** -0.5)
    for m in (256, 264 * RANKS, 1000 * RANKS, 4096):
        x, a = normal(m // RANKS, k, seed=222 + RANK), normal(m, k, seed=223 + RANK)
        for _ in range(2):
            y, rows = fusewire.ag_gemm(x, w, group=name, gathered=True)
            part, total = fusewire.gemm_rs(a, w, group=name), fusewire.gemm_ar(a, w, group=name)
            columns = fusewire.gemm_all_scatter(a, w, group=name)
        expect_near(f"ag_gemm of {m} rows, max_m = 256", y, product(gathered(x), w))
        expect("  the gathered x", torch.equal(rows, gathered(x)))
        expect_near("  gemm_rs", part, own_rows(summed(product(a, w))))
        expect_near("  gemm_ar", total, summed(product(a, w)))
        expect_near("  gemm_all_scatter", columns, side_by_side(product(a, w)))
    say("    " + fusewire.describe("ag_gemm", 4096, n, k, name))
    x, a = normal(512, k, seed=224 + RANK), normal(512 * RANKS, k, seed=225 + RANK)
    fusewire.ag_gemm(x, w, group=name)
    meet()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, part = fusewire.ag_gemm(x, w, group=name), fusewire.gemm_rs(a, w, group=name)
    for i in range(3):
        x.copy_(normal(512, k, seed=226 + RANK + 10 * i))
        graph.replay()
        expect_near(f"several launches in a graph, replay {i}", y, product(gathered(x), w))
        expect_near("  gemm_rs", part, own_rows(summed(product(a, w))))
    fusewire.check(name)
    fusewire.destroy(name)
    meet()


def gradients():
    """Beside those of the whole product in fp32: the loss is the sum of all ranks'."""
    width, hidden, m = 1024, 512, 512
    group = dist.new_group(list(range(RANKS)))
    name = fusewire.init(group, max_m=m, max_k=width, max_n=width)
    x, up, down = (normal(m // RANKS, width, seed=231 + RANK), normal(hidden, width, seed=232 + RANK, scale=0.03),
                   normal(width, hidden, seed=233 + RANK, scale=0.04))
    side, c, d = (normal(256, width, seed=234 + RANK, scale=0.03), normal(m // RANKS, width, seed=235 + RANK),
                  normal(m, 256, seed=236 + RANK))

    def loss_of(x, up, down, side):
        h, beside = fusewire.ag_gemm(x, [up, side], group=name)
        return (ops.gemm_rs(h, down, name) * c).sum() + (beside * d).sum()

    def in_single_calls(x, up, down, side):
        h, beside = ops.ag_gemm(x, up, name), ops.ag_gemm(x, side, name)
        return (ops.gemm_rs(h, down, name) * c).sum() + (beside * d).sum()

    # By hand. All ranks' c, one below the other, is the gradient of the sum
    rows, of_sum = gathered(x).float(), gathered(c).float()
    of_h = of_sum @ down.float()
    of_whole = of_h @ up.float() + d.float() @ side.float()
    wanted = (own_rows(summed(of_whole)), of_h.t() @ rows, of_sum.t() @ (rows @ up.float().t()), d.float().t() @ rows)
    for what, f in (("several weights", loss_of), ("single calls", in_single_calls),
                    ("compiled", torch.compile(loss_of, fullgraph=True, backend="aot_eager"))):
        leaves = [t.clone().requires_grad_() for t in (x, up, down, side)]
        f(*leaves).backward()
        for leaf, right, of in zip(leaves, wanted, ("x", "up", "down", "side")):
            expect_near(f"gradient of {of}, {what}", leaf.grad, right, 0.02)
    fusewire.check(name)
    fusewire.destroy(name)
    meet()


def custom_epilogues():
    """Compiled on the way, where a compiler is."""
    os.environ["FUSEWIRE_CACHE"] = f"/tmp/fusewire.{os.getppid()}"  # of this run
    try:
        _compiler.compiler(hip=torch.version.hip is not None)
    except fusewire.NotBuilt as problem:
        say(f"    {problem}")
        return
    up, down = weights()
    wrong = fusewire.compile("return x + no_such_thing;")
    own = fusewire.compile("return scale * fmaxf(x, 0) + float(bias[column]) + row * 0.001f;", scale=float,
                           bias=torch.Tensor)
    fields = {"scale": 0.5, "bias": normal(WIDTH, seed=251)}

    def with_epilogue(y, bias):
        return 0.5 * F.relu(y) + bias.float() + torch.arange(y.shape[0], device="cuda")[:, None] * 0.001

    up, part = up[:2048], down[:1024]
    for m in (16, 2048):
        x, a = normal(m // RANKS, WIDTH, seed=252 + RANK), normal(m, DOWN_K, seed=253 + RANK)
        expect_refusal("an epilogue that does not compile", fusewire.BadArgument, lambda: wrong.ag_gemm(x, up),
                       "no_such_thing")
        sums = summed(product(a, part))
        for name, tensors, wanted in (("ag_gemm", (x, up), product(gathered(x), up)),
                                      ("gemm_rs", (a, part), own_rows(sums)), ("gemm_ar", (a, part), sums),
                                      ("gemm_all_scatter", (a, part), product(a, part))):
            begin = time.monotonic()
            some = {**fields, "bias": fields["bias"][:tensors[1].shape[0]]}
            y, wanted = getattr(own, name)(*tensors, **some), with_epilogue(wanted, some["bias"])
            host = time.monotonic() - begin
            if name == "gemm_all_scatter":
                wanted = side_by_side(wanted)
            expect_near(f"{name} with an epilogue, M = {m}, {host:.1f} s", y, wanted, 0.02)
    f = torch.compile(lambda x: own.ag_gemm(x, up, scale=0.5, bias=fields["bias"][:2048]) + 1, fullgraph=True,
                      backend="aot_eager")
    expect_near("  compiled", f(x), with_epilogue(product(gathered(x), up), fields["bias"][:2048]) + 1, 0.02)
    fusewire.check()


RING = """
__global__ void ring(channel_view ch, int const* x, int* y, int n, int factor) {  // y = factor x of rank - 1
  block const b;
  channel_epoch const e = ch.begin(b);
  int const next = ch.world.next(1), last = ch.world.next(ch.world.size() - 1), part = (n + b.count() - 1) / b.count(),
            first = min(n, part * b.index()), count = min(n - first, part);
  copy(b, x + first, e.inbox<int>(next) + first, count);
  e.signal(b, next, b.index());
  e.wait(b, last, b.index());
  for (int i = first + b.rank(); i < first + count; i += b.size()) y[i] = factor * e.inbox<int>()[i];
  e.end(b);
}
__global__ void early(channel_view ch, int const* x, int* y, int n, int factor) {
  wait_prior_grid();
  block const b;
  channel_epoch const e = ch.begin(b);
  int const next = ch.world.next(1), last = ch.world.next(ch.world.size() - 1);
  copy(b, x, e.inbox<int>(next), n);
  e.signal(b, next, 0);
  e.wait(b, last, 0);
  for (int i = b.rank(); i < n; i += b.size()) y[i] = factor * e.inbox<int>()[i];
  e.end(b);
}"""


def own_kernels():
    """Compiled on the way, where a compiler is. Integers, which are exact."""
    os.environ["FUSEWIRE_CACHE"] = f"/tmp/fusewire.{os.getppid()}"  # of this run
    try:
        _compiler.compiler(hip=torch.version.hip is not None)
    except fusewire.NotBuilt as problem:
        say(f"    {problem}")
        return
    group, n = dist.new_group(list(range(RANKS))), 10007

    def ints(rank, seed):
        return torch.randint(-1000, 1000, (n,), generator=torch.Generator().manual_seed(seed + 97 * rank)).int().cuda()

    before, y = (RANK - 1) % RANKS, torch.zeros(n, dtype=torch.int32, device="cuda")
    for again in range(2):  # init, destroy, init
        fusewire.init(group, wait_seconds=3)
        expect_refusal("what does not compile", fusewire.BadArgument,
                       lambda: fusewire.kernel("k", "__global__ void k(channel_view ch, int* y) { no_such_thing(); }",
                                               max_bytes=64, flags_per_source=1, group=group), "no_such_thing")
        begin, made = time.monotonic(), {"max_bytes": n * 4, "flags_per_source": 64, "group": group}
        ring = fusewire.kernel("ring", RING, **made)
        say(f"    kernel() took {time.monotonic() - begin:.1f} s")
        early = fusewire.kernel("early", RING, programmatic=True, **made)
        meet()
        fine = True
        for launch in range(40):  # without a wait between
            x = ints(RANK, launch)
            ring(x, y, n, launch, blocks=1 + launch % 64)
            z = y.clone()
            early(x, y, n, 3, blocks=1)
            fine = fine and torch.equal(z, launch * ints(before, launch)) and torch.equal(y, 3 * ints(before, launch))
        expect(f"two kernels in turns, init {again}", fine)
        x, graph = ints(RANK, 1), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ring(x, y, n, 5, blocks=8)
            early(y, x, n, 1, blocks=1)
        for replay in range(5):
            x.copy_(ints(RANK, 50 + replay))
            graph.replay()
            expect(f"  replay {replay}", torch.equal(y, 5 * ints(before, 50 + replay))
                   and torch.equal(x, 5 * ints((RANK - 2) % RANKS, 50 + replay)))
        x = ints(RANK, 7)
        f = torch.compile(lambda x: (ring(x + 1, y, x.numel(), 2, blocks=4), y + 1)[1], fullgraph=True,
                          backend="aot_eager")
        expect("  compiled", torch.equal(f(x), 2 * (ints(before, 7) + 1) + 1))
        for what, call, part in (
                ("too many blocks", lambda: ring(x, y, n, 1, blocks=100000), "fit concurrently"),
                ("another type", lambda: ring(x.float(), y, n, 1, blocks=8), "int32 const*"),
                ("not contiguous", lambda: ring(x[::2], y, n, 1, blocks=8), "contiguous"),
                ("a tensor on the CPU", lambda: ring(x.cpu(), y, n, 1, blocks=8), "on device"),
                ("too few arguments", lambda: ring(x, y, n, blocks=8), "3 arguments; expected 4"),
                ("a number that is too large", lambda: ring(x, y, n, 1 << 40, blocks=8), "int32")):
            expect_refusal("  " + what, fusewire.BadArgument, call, part)
        fusewire.check(group)
        if RANKS > 1:
            meet()
            if RANK == 0:  # the others do not come
                ring(x, y, n, 1, blocks=8)
                expect_refusal("  a rank alone", fusewire.WaitTimeout, lambda: fusewire.check(group), "ring")
            else:
                expect("  a rank alone", True)
            meet()
            fusewire.reset(group)
        times = []
        for _ in range(11):
            meet()
            begin = time.perf_counter()
            for _ in range(100):
                ring(x, y, n, 1, blocks=8)
            times.append((time.perf_counter() - begin) * 1e4)
        meet()
        report["host_us"]["a kernel of one's own"] = statistics.median(times[1:])
        say(f"    {statistics.median(times[1:]):.1f} us of the host's time for a call")
        fusewire.check(group)
        early.destroy()
        expect_refusal("  a kernel that was destroyed", fusewire.BadArgument, lambda: early(x, y, n, 1, blocks=1),
                       "destroyed")
        fusewire.destroy(group)
        expect_refusal("  after the group's end", fusewire.BadArgument, lambda: ring(x, y, n, 1, blocks=1), "init")
        meet()
    import own_kernel
    for name, right in own_kernel.main(group).items():
        expect(f"own_kernel.py, {name}", right)
    alone = [dist.new_group([r]) for r in range(RANKS)][RANK]
    fusewire.init(alone)
    ring = fusewire.kernel("ring", RING, max_bytes=n * 4, flags_per_source=8, group=alone)
    ring(x, y, n, 2, blocks=8)
    expect("a group of one rank", torch.equal(y, 2 * x))
    fusewire.destroy(alone)
    meet()


class Counting:
    """torch.ops.fusewire, and what was taken of it."""

    def __init__(self):
        self.taken = []

    def __getattr__(self, name):
        self.taken.append(name)
        return getattr(ops, name)


def symm_mem():
    """torch's fused operators, and fusewire's behind their names."""
    up, down = weights()
    x, a, fused = normal(256, WIDTH, seed=241 + RANK), normal(256 * RANKS, DOWN_K, seed=242 + RANK), torch.ops.symm_mem
    whole, sums = gathered(x), own_rows(summed(product(a, down)))
    fusewire.patch_symm_mem()
    _symm_mem.ops = counting = Counting()
    rows, (y,) = fused.fused_all_gather_matmul(x, [up.t()], 0, GROUP)
    expect_near("symm_mem's all-gather and matmul", y, product(whole, up))
    expect("  the gathered x", torch.equal(rows, whole))
    nothing, (y, z) = fused.fused_all_gather_matmul(x, [up.t(), up[:512].t()], 0, GROUP, return_A=False)
    expect_near("  two weights", torch.cat([y, z], 1), torch.cat([product(whole, up), product(whole, up[:512])], 1))
    expect("  without the gathered x", nothing is None)
    batches = x.view(2, 128, WIDTH)
    rows, (y,) = fused.fused_all_gather_matmul(batches, [up.t()], 1, GROUP)
    right = torch.cat([r.view(2, 128, WIDTH) for r in whole.chunk(RANKS)], 1)
    expect("  along the second dimension", torch.equal(rows, right))
    expect_near("  its product", y, right.float() @ up.float().t())
    expect_near("symm_mem's matmul and reduce-scatter",
                fused.fused_matmul_reduce_scatter(a, down.t(), "sum", 0, GROUP), sums)
    expect_near("  the mean", fused.fused_matmul_reduce_scatter(a, down.t(), "avg", 0, GROUP), sums / RANKS)
    expect("  all by fusewire", counting.taken == ["ag_gemms"] * 3 + ["gemm_rs"] * 2, str(counting.taken))
    _symm_mem.ops = ops
    fusewire.unpatch_symm_mem()
    fusewire.check()


def halves():
    up, down = weights()
    up, down = up.half(), down.half()
    x, a = normal(128, WIDTH, seed=61 + RANK, dtype=torch.half), normal(256, DOWN_K, seed=62 + RANK, dtype=torch.half)
    try:
        y = ops.ag_gemm(x, up, GROUP)
    except ValueError as problem:
        say("    float16 is not in this build:", str(problem)[:120])
        return
    expect_near("ag_gemm, float16", y, product(gathered(x), up), 0.002)
    expect_near("gemm_rs, float16", ops.gemm_rs(a, down, GROUP), own_rows(summed(product(a, down))), 0.002)
    expect_near("gemm_ar, float16", ops.gemm_ar(a, down, GROUP), summed(product(a, down)), 0.002)


def caches(tokens):
    """Sequences of about so many tokens on this rank; the first has none."""
    q = normal(BATCH, Q_HEADS, HEAD, seed=71)
    k, v = (normal(BATCH * PAGES, PAGE, KV_HEADS, HEAD, seed=s + RANK) for s in (72, 82))
    table = torch.randperm(BATCH * PAGES, generator=torch.Generator().manual_seed(5)).to(torch.int32).view(BATCH, PAGES)
    lengths = torch.tensor([min(PAGES * PAGE, max(0, tokens - 3 * s + RANK)) if s else 0 for s in range(BATCH)])
    return q, k, v, table.cuda(), lengths.to(torch.int32).cuda()


def attention(q, k, v, table, lengths, cap=0.0):
    out = torch.zeros(BATCH, Q_HEADS, HEAD, device="cuda")
    lse = torch.full((BATCH, Q_HEADS), -float("inf"), device="cuda")
    for s, tokens in enumerate(lengths.tolist()):
        if tokens == 0:
            continue
        keys, values = (c[table[s].long()].reshape(-1, KV_HEADS, HEAD)[:tokens].float()
                        .repeat_interleave(Q_HEADS // KV_HEADS, 1) for c in (k, v))
        scores = torch.einsum("hd,thd->ht", q[s].float(), keys) * HEAD ** -0.5
        scores = cap * torch.tanh(scores / cap) if cap else scores
        lse[s] = scores.logsumexp(1)
        out[s] = torch.einsum("ht,thd->hd", scores.softmax(1), values)
    all_lse, all_out = ([torch.empty_like(t) for _ in range(RANKS)] for t in (lse, out))
    dist.all_gather(all_lse, lse)
    dist.all_gather(all_out, out)
    all_lse = torch.stack(all_lse)
    total = all_lse.logsumexp(0)
    shares = (all_lse - total).nan_to_num(nan=-float("inf")).exp()
    return (torch.stack(all_out) * shares[..., None]).sum(0), total


def decode():
    for tokens in (5, 300, 4000):
        inputs = caches(tokens)
        out, lse = ops.flash_decode(*inputs, GROUP)
        wanted, wanted_lse = attention(*inputs)
        expect_near(f"flash_decode, {tokens} tokens", out, wanted)
        same = lse.isneginf() == wanted_lse.isneginf()
        off = (lse - wanted_lse).nan_to_num(nan=0.0).abs().max().item()
        expect("  its log-sum-exp", bool(same.all()) and off < 0.01, f"off by {off:.5f}")
        heads = torch.arange(Q_HEADS).tensor_split(RANKS)[RANK]
        own, _ = fusewire.flash_decode(*inputs, soft_cap=CAP, by_heads=True, batch_invariant=True)
        expect_near("  by heads, capped", own, attention(*inputs, cap=CAP)[0][:, heads])
        one = [inputs[0][2:3], *inputs[1:3], inputs[3][2:3], inputs[4][2:3]]
        alone, _ = fusewire.flash_decode(*one, soft_cap=CAP, by_heads=True, batch_invariant=True)
        expect("  the same bits in another batch", torch.equal(alone[0], own[2]))
    expect_refusal("flash_decode of another shape", fusewire.BadArgument,
                   lambda: fusewire.flash_decode(*inputs[:3], inputs[3][:, :8].contiguous(), inputs[4]),
                   "expected one of those that init() was given")
    fusewire.check()


def mlp(x, up, down):
    h = ops.ag_gemm(x, up, GROUP)
    return x + ops.gemm_rs(F.silu(h), down, GROUP)


def mlp_in_fp32(x, up, down):
    h = product(gathered(x), up).to(bf16)
    return x + own_rows(summed(product(F.silu(h), down))).to(bf16)


def mlp_weights():
    return (normal(DOWN_K, WIDTH, seed=91 + RANK, scale=WIDTH ** -0.5),
            normal(WIDTH, DOWN_K, seed=92 + RANK, scale=DOWN_K ** -0.5))


def graphs():
    up, down = mlp_weights()
    x, a = normal(256 // RANKS, WIDTH, seed=101 + RANK), normal(64, DOWN_K, seed=102 + RANK)
    mlp(x, up, down)
    meet()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, total = mlp(x, up, down), ops.gemm_ar(a, down, GROUP)
    for i in range(4):
        x.copy_(normal(256 // RANKS, WIDTH, seed=111 + RANK + 10 * i))
        a.copy_(normal(64, DOWN_K, seed=112 + RANK + 10 * i))
        graph.replay()
        fusewire.check()
        expect_near(f"graph, replay {i}", y, mlp_in_fp32(x, up, down), 0.02)
        expect_near("  gemm_ar in it", total, summed(product(a, down)))
    expect_near("an eager call between replays", mlp(x, up, down), mlp_in_fp32(x, up, down), 0.02)
    graph.replay()
    expect_near("  a replay after it", y, mlp_in_fp32(x, up, down), 0.02)
    # The first call with a new K, in a capture
    x, w = normal(32, WIDTH // 4, seed=121 + RANK), normal(64, WIDTH // 4, seed=122, scale=0.02)
    second = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(second):
            y = ops.ag_gemm(x, w, GROUP)
        second.replay()
        expect_near("a K that is new in a capture", y, product(gathered(x), w))
    except Exception as problem:
        expect("a K that is new in a capture", False, f"{type(problem).__name__}: {str(problem)[:300]}")
    fusewire.check()


def compiled():
    up, down = mlp_weights()
    for backend in ("inductor", "aot_eager"):
        torch._dynamo.reset()
        begin = time.monotonic()
        try:
            f = torch.compile(mlp, fullgraph=True, backend=backend)
            for m in (128, 512, 1024):  # the second compiles for any number of rows
                x = normal(m // RANKS, WIDTH, seed=131 + RANK + m)
                expect_near(f"compiled by {backend}, M = {m}", f(x, up, down), mlp_in_fp32(x, up, down), 0.02)
            say(f"    {time.monotonic() - begin:.1f} s")
        except Exception as problem:  # inductor wants a compiler that the machine may lack
            expect(f"compiled by {backend}", backend == "inductor", f"{type(problem).__name__}: {str(problem)[:300]}")
    x, a = normal(64, WIDTH, seed=141), normal(128, DOWN_K, seed=142)
    for op, tensors in ((ops.ag_gemm, (x, up)), (ops.gemm_rs, (a, down)), (ops.gemm_ar, (a, down)),
                        (ops.gemm_all_scatter, (a, down[:512])), (ops.ag_gemms, (x, [up, up[:64]])),
                        (ops.ag_gemm_with_x, (x, up)), (ops.all_gather, (x,)),
                        (ops.gemm_ar_out, (a, down, torch.empty(128, WIDTH, device="cuda", dtype=bf16)))):
        try:
            torch.library.opcheck(op.default, (*tensors, GROUP))
            expect(f"opcheck of {op.default}", True)
        except Exception as problem:
            expect(f"opcheck of {op.default}", False, str(problem)[-300:])
    try:
        f = torch.compile(mlp, fullgraph=True, mode="reduce-overhead")
        x = normal(128 // RANKS, WIDTH, seed=151 + RANK)
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            y = f(x, up, down).clone()
        expect_near("compiled for graphs (reduce-overhead)", y, mlp_in_fp32(x, up, down), 0.02)
    except Exception as problem:
        say(f"    reduce-overhead: {type(problem).__name__}: {str(problem)[:300]}")
    fusewire.check()


def refusals():
    up, down = weights()
    x, a = normal(64, WIDTH, seed=161), normal(128, DOWN_K, seed=162)
    expect_refusal("float32", fusewire.BadArgument, lambda: fusewire.ag_gemm(x.float(), up), "bfloat16")
    expect_refusal("float32, by torch.ops", ValueError, lambda: ops.ag_gemm(x.float(), up, GROUP), "bad_argument")
    expect_refusal("N over max_n", fusewire.BadArgument,
                   lambda: fusewire.gemm_rs(a[:, :64], normal(2 * WIDTH, 64, seed=1)), "max_n")
    expect_refusal("a result of another shape", fusewire.BadArgument,
                   lambda: fusewire.gemm_ar(a, down, out=torch.empty_like(a)), "out is")
    expect_refusal("a result in the place of x", fusewire.BadArgument,
                   lambda: fusewire.gemm_ar(a, down[:1024], out=a[:, :1024]), "overlaps")
    expect_refusal("K over max_k", fusewire.OutOfSpace,
                   lambda: fusewire.ag_gemm(normal(8, 8 * WIDTH, seed=1), normal(64, 8 * WIDTH, seed=1)), "max_bytes")
    expect_refusal("different K", fusewire.BadArgument, lambda: fusewire.ag_gemm(x, up[:, :64]), "as many columns")
    expect_refusal("columns that are not side by side", fusewire.BadArgument,
                   lambda: fusewire.ag_gemm(x[:, ::2], up[:, ::2]), "side by side")
    if RANKS > 1:
        expect_refusal("rows that do not divide", fusewire.BadArgument, lambda: fusewire.gemm_rs(a[:127], down),
                       "can share")
    expect_refusal("an unknown group", fusewire.BadArgument, lambda: fusewire.gemm_ar(a, down, group="nobody"), "init")
    expect_refusal("a second init", fusewire.BadArgument, lambda: fusewire.init(max_m=8, max_k=64), "already")
    expect_refusal("a tensor on the CPU", fusewire.NotBuilt, lambda: fusewire.ag_gemm(x.cpu(), up.cpu()), "cpu")
    expect_near("calls go on", ops.ag_gemm(x, up, GROUP), product(gathered(x), up))
    fusewire.check()


def streams():
    up, _ = weights()
    x = normal(64, WIDTH, seed=171 + RANK)
    wanted, busy = product(gathered(x), up), normal(8192, 8192, seed=172)
    side = torch.cuda.Stream()
    meet()
    for _ in range(10):
        busy @ busy
    first = ops.ag_gemm(x, up, GROUP)
    with torch.cuda.stream(side):  # no event between the two streams: the library orders its launches
        second = ops.ag_gemm(x, up, GROUP)
    torch.cuda.current_stream().wait_stream(side)
    expect_near("one stream", first, wanted)
    expect_near("another stream behind it", second, wanted)
    del second
    fusewire.check()


def failures():
    if RANKS == 1:
        return
    group = dist.new_group(list(range(RANKS)))
    name = fusewire.init(group, max_m=256, max_k=1024, max_n=1024, wait_seconds=2)
    x, w = normal(64, 1024, seed=181 + RANK), normal(128, 1024, seed=182, scale=0.03)
    fusewire.gemm_ar(x, w, group=name)
    fusewire.check(name)
    meet()
    begin = time.monotonic()
    if RANK == 0:  # the others do not come
        fusewire.gemm_ar(x, w, group=name)
        expect_refusal("a rank alone", fusewire.WaitTimeout, lambda: fusewire.check(name), "rank")
    else:
        expect("a rank alone", True)
    say(f"    {time.monotonic() - begin:.1f} s")
    meet()
    fusewire.reset(name)
    expect_near("after reset()", fusewire.gemm_ar(x, w, group=name), summed(product(x, w)))
    fusewire.check(name)
    meet()
    # Ranks that disagree
    try:
        fusewire.gemm_ar(x[:64 - 8 * RANK], w, group=name)
        fusewire.check(name)
        expect("ranks that pass different M", False, "was accepted")
    except fusewire.Error as problem:
        expect("ranks that pass different M", True, f"{type(problem).__name__}: {str(problem)[:160]}")
    meet()
    fusewire.reset(name)
    fusewire.destroy(name)


def lifetimes():
    group = dist.new_group(list(range(RANKS)))
    x, w = normal(64, 1024, seed=191 + RANK), normal(128, 1024, seed=192, scale=0.03)
    free, one = [], 0
    for _ in range(5):
        begin, before = time.monotonic(), torch.cuda.mem_get_info()[0]
        fusewire.init(group, max_m=4096, max_k=8192, max_n=8192)
        one = max(one, before - torch.cuda.mem_get_info()[0])
        y = fusewire.ag_gemm(x, w, group=group)
        fusewire.destroy(group)
        meet()
        free.append(torch.cuda.mem_get_info()[0])
        expect_near(f"init, call and destroy, {time.monotonic() - begin:.2f} s", y, product(gathered(x), w))
    # Memory is freed when all ranks have let go of it, which a rank may see with its next communicator only
    gone = free[0] - free[-1]
    expect("destroy() frees the memory", gone < 1.5 * one, f"{gone >> 20} MiB are gone, a communicator has {one >> 20}")
    expect_refusal("ranks that ask for different sizes", fusewire.RankMismatch,
                   lambda: fusewire.init(group, max_m=256 + RANK, max_k=1024) if RANKS > 1 else _mismatch(), "rank")
    alone = [dist.new_group([r]) for r in range(RANKS)][RANK]
    fusewire.init(alone, max_m=64, max_k=1024, max_n=128)
    expect_near("a group of one rank", fusewire.ag_gemm(x, w, group=alone), product(x, w))
    fusewire.destroy(alone)
    meet()


def heaps():
    """Tensors on a heap, of its own memory or of torch's symmetric memory."""
    group = dist.new_group(list(range(RANKS)))
    w, down = normal(512, 1024, seed=201 + RANK, scale=0.03), normal(1024, 512, seed=211 + RANK, scale=0.03)
    for memory in ("own", "symm_mem"):
        fusewire.init(group, max_m=1024, max_k=1024, max_n=1024, all_reduce=(64, 1024), empty_bytes=4 << 20,
                      memory=memory)
        places = set()
        for m in (16, 256, 1024):
            x = fusewire.empty(m // RANKS, 1024, group=group)
            places.add(x.data_ptr())
            x.copy_(normal(m // RANKS, 1024, seed=221 + RANK + m))
            expect_near(f"{memory}: ag_gemm of a tensor on the heap, M = {m}", fusewire.ag_gemm(x, w, group=group),
                        product(gathered(x), w))
            h = normal(m, 512, seed=231 + RANK + m)
            expect_near(f"{memory}: gemm_rs, M = {m}", fusewire.gemm_rs(h, down, group=group),
                        own_rows(summed(h.float() @ down.float().t())))
            del x
        small = small_numbers(64, 1024, seed=241 + RANK)
        expect(f"{memory}: all_reduce", torch.equal(fusewire.all_reduce(small, group=group),
                                                    of_torch("all_reduce", small)))
        kept = [fusewire.empty(1 << 20, dtype=torch.uint8, group=group) for _ in range(3)]
        expect_refusal(f"{memory}: more than there is room for", fusewire.OutOfSpace,
                       lambda: fusewire.empty(2 << 20, dtype=torch.uint8, group=group), "heap::allocate")
        del kept
        again = fusewire.empty(3, 1 << 20, dtype=torch.uint8, group=group)
        expect(f"{memory}: what has gone is free again", again.shape == (3, 1 << 20))
        fusewire.destroy(group)
        meet()
    expect_refusal("another memory", fusewire.BadArgument, lambda: fusewire.init(group, memory="shared"), "symm_mem")
    expect_refusal("no communicator", fusewire.BadArgument, lambda: fusewire.empty(8, group=group), "init()")


def _mismatch():
    raise fusewire.RankMismatch("rank")


def example():
    from tensor_parallel_mlp import main
    for name, error in main(dist.new_group(list(range(RANKS)))).items():
        worst = on_all(error)
        expect(f"tensor_parallel_mlp.py, {name}", worst < 0.02, f"relative error {worst:.5f}")


def alternatives(m, x, a, whole, out, up, down):
    """By operator, then by name: a call of weight i."""
    total = torch.empty(m, WIDTH, device="cuda", dtype=bf16)

    def gather_and_mm(i):
        dist.all_gather_into_tensor(whole, x)
        return whole @ up[i].t()

    return {
        "ag_gemm": {"fusewire": lambda i: ops.ag_gemm(x, up[i], GROUP, w_is_constant=True),
                    "fusewire, w may change": lambda i: ops.ag_gemm(x, up[i], GROUP),
                    "NCCL + mm": gather_and_mm,
                    "torch fused": lambda i: torch.ops.symm_mem.fused_all_gather_matmul(x, [up[i].t()], 0, GROUP),
                    "mm": lambda i: whole @ up[i].t()},
        "gemm_rs": {"fusewire": lambda i: ops.gemm_rs(a, down[i], GROUP, w_is_constant=True),
                    "NCCL + mm": lambda i: dist.reduce_scatter_tensor(out, a @ down[i].t()),
                    "torch fused": lambda i: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, down[i].t(), "sum", 0,
                                                                                            GROUP),
                    "mm": lambda i: a @ down[i].t()},
        "gemm_ar": {"fusewire": lambda i: ops.gemm_ar(a, down[i], GROUP, w_is_constant=True),
                    "NCCL + mm": lambda i: dist.all_reduce(torch.mm(a, down[i].t(), out=total)),
                    "mm": lambda i: a @ down[i].t()}}


def inputs_of(m):
    return (normal(m // RANKS, WIDTH, seed=201 + RANK), normal(m, DOWN_K, seed=202 + RANK),
            torch.empty(m, WIDTH, device="cuda", dtype=bf16), torch.empty(m // RANKS, WIDTH, device="cuda", dtype=bf16))


@torch.inference_mode()
def host_time():
    """The median of 10 runs of 100 calls, without a wait inside a run. In inference mode: elsewhere the operators with
    gradients take a way through Python."""
    up, down = weights()
    calls = dict(alternatives(16, *inputs_of(16), [up], [down]))
    tokens = caches(300)
    calls["flash_decode"] = {"fusewire": lambda i: ops.flash_decode(*tokens, GROUP, kv_is_ready=True)}
    calls["torch.empty"] = {"": lambda i: torch.empty(16, WIDTH, device="cuda", dtype=bf16)}
    for op, variants in calls.items():
        for name, call in variants.items():
            times = []
            try:
                for run in range(11):
                    meet()
                    begin = time.perf_counter()
                    for _ in range(100):
                        call(0)
                    times.append((time.perf_counter() - begin) * 1e4)
                meet()
            except Exception as problem:
                say(f"    {op}, {name}: {str(problem)[:150]}")
                continue
            report["host_us"][f"{op}, {name}"] = us = statistics.median(times[1:])
            say(f"    {op + ', ' + name:40} {us:7.1f} us")


def device_time(call, copies, calls):
    """us of a call: a graph of many, the slowest rank, the median of 7 replays."""
    for i in range(3):
        call(i % copies)
    meet()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i % copies)
    times = []
    for _ in range(8):
        meet()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    return on_all(statistics.median(times[1:]))


def device_times():
    copies = 4  # together more than the L2, of either weight
    up = [normal(UP_N, WIDTH, seed=i, scale=WIDTH ** -0.5) for i in range(copies)]
    down = [normal(WIDTH, DOWN_K, seed=i, scale=DOWN_K ** -0.5) for i in range(copies)]
    say(f"    us of a call in a graph; ag_gemm N = {UP_N}, K = {WIDTH}; others N = {WIDTH}, K = {DOWN_K} a rank")
    for m in (16, 64, 256, 1024, 2048, 4096, 8192, 32, 128, 512):
        inputs = inputs_of(m)
        for op, variants in alternatives(m, *inputs, up, down).items():
            if over(15):
                report["left_out"].append(f"device times of {op}, M = {m}")
                continue
            row = {}
            for name, call in variants.items():
                try:
                    row[name] = device_time(call, copies, 16 if m <= 1024 else 4)
                except Exception as problem:
                    torch.cuda.synchronize()
                    say(f"    {op}, M = {m}, {name}: {type(problem).__name__}: {str(problem)[:150]}")
            report["device_us"].append({"operator": op, "m": m, **row})
            best = row.get("fusewire")
            say(f"    {op} M = {m:5}  " + "  ".join(
                f"{name} {us:8.1f}" + (f" (x {us / best:.2f})" if best and "fusewire" not in name else "")
                for name, us in row.items()))
    fusewire.check()


SECTIONS = {"make": make, "eager": eager, "results": results, "collectives": collectives, "experts": experts, "cuts": cuts,
            "gradients": gradients, "symm_mem": symm_mem, "decode": decode, "graphs": graphs,
            "refusals": refusals, "streams": streams, "example": example,
            **({"host_time": host_time, "device_times": device_times,
                "collective_times": collective_times} if given.bench else {}),
            "compiled": compiled, "halves": halves, "custom_epilogues": custom_epilogues,
            "own_kernels": own_kernels, "lifetimes": lifetimes, "heaps": heaps,
            "heaps": heaps, "failures": failures}


def over(reserve=0):
    """Whether rank 0 finds that there is no time left but for `reserve` seconds."""
    late = torch.tensor([float(time.monotonic() - BEGIN > given.seconds - reserve)], device="cuda")
    dist.broadcast(late, 0)
    return bool(late.item())


def write_report():
    if RANK != 0 or not given.bench:
        return
    report.update(torch=torch.__version__, ranks=RANKS, device=torch.cuda.get_device_name(),
                  shapes={"ag_gemm": {"n": UP_N, "k": WIDTH}, "gemm_rs": {"n": WIDTH, "k_of_a_rank": DOWN_K},
                          "gemm_ar": {"n": WIDTH, "k_of_a_rank": DOWN_K}})
    pathlib.Path(given.bench).write_text(json.dumps(report, indent=1) + "\n")


def main():
    for name in ["make", *(s for s in given.sections or SECTIONS if s != "make")]:
        if over():
            report["left_out"].append(name)
            continue
        begin = time.monotonic()
        say(f"--- {name}, at {begin - BEGIN:.1f} s")
        try:
            SECTIONS[name]()
        except Exception as problem:
            report["failed"].append(f"{name}: rank {RANK}: {type(problem).__name__}: {str(problem)[:300]}")
            print(f"  FAILED {report['failed'][-1]}", flush=True)
            traceback.print_exc()
            break  # the other ranks may be elsewhere now
        report["sections"][name] = round(time.monotonic() - begin, 2)
        write_report()
    write_report()
    for name in report["left_out"]:
        say(f"  left out, no time: {name}")
    say(f"--- failed: {report['failed'] or 'nothing'} ({time.monotonic() - BEGIN:.1f} s)")
    # No destroy(), on purpose: a process that ends so must not hang
    sys.exit(1 if report["failed"] else 0)


if fusewire.missing():
    sys.exit("test_gpu.py: " + fusewire.missing())
torch.cuda.set_device(LOCAL)
dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL), timeout=datetime.timedelta(seconds=45))
GROUP = dist.group.WORLD.group_name
main()
