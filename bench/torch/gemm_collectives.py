#!/usr/bin/env python3
"""usage: gemm_collectives.py [--out FILE] [--ranks N] [--n N,...] [--k K,...] [--m M,...]

Times what PyTorch offers in place of gemm_rs and gemm_ar on this machine's GPUs: symm_mem's
fused_matmul_reduce_scatter, and a product followed by NCCL's reduce-scatter or all-reduce. A figure is a call of a CUDA graph of many, the slowest
rank, the median of 7 replays; weights rotate among copies that together are larger than the L2; bf16, K of all ranks.
Writes JSON with the names of bench_gemm_sinks, so that scripts/perf/compare.py finds the same shapes.

Needs torch 2.9 or newer with CUDA, and as many GPUs as ranks (default: 2). NVLink multicast is left off.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
L2_BYTES = 60e6
REPLAYS = 7


def timed(torch, dist, call, copies):
    """us of a call, call(i) with i below `copies`, the slowest rank."""
    calls = max(8, copies)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i % copies)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(calls):
            call(i % copies)
    times = []
    for _ in range(REPLAYS + 1):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    slowest = torch.tensor([statistics.median(times[1:])], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def rank_main(rank, options, port):
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ranks,
                            device_id=torch.device("cuda", rank))
    group = dist.group.WORLD.group_name
    rows = []
    for k in options.k:
        for n in options.n:
            own_k = k // options.ranks
            copies = max(2, int(L2_BYTES * 3 / (2 * n * own_k)) + 1)
            weights = [torch.randn(n, own_k, device="cuda", dtype=torch.bfloat16).t() for _ in range(copies)]
            for m in options.m:
                a = torch.randn(m, own_k, device="cuda", dtype=torch.bfloat16)
                whole = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
                variants = {("gemm_ar", "torch_nccl"): lambda i: dist.all_reduce(torch.mm(a, weights[i], out=whole)),
                            ("gemm", "torch"): lambda i: torch.mm(a, weights[i], out=whole)}
                if m % options.ranks == 0:
                    mine = torch.empty(m // options.ranks, n, device="cuda", dtype=torch.bfloat16)
                    variants["gemm_rs", "torch_nccl"] = lambda i: dist.reduce_scatter_tensor(
                        mine, torch.mm(a, weights[i], out=whole))
                    variants["gemm_rs", "torch_fused"] = lambda i: torch.ops.symm_mem.fused_matmul_reduce_scatter(
                        a, weights[i], "sum", scatter_dim=0, group_name=group)
                for (operator, variant), call in variants.items():
                    try:
                        us = timed(torch, dist, call, copies)
                    except RuntimeError as problem:  # a shape that the operator does not take, on all ranks alike
                        if rank == 0:
                            print(f"{operator} {variant} M = {m}: {str(problem).splitlines()[0]}", file=sys.stderr)
                        continue
                    rows.append({"name": f"{operator}/{variant}/dtype:bf16/W:{options.ranks}/M:{m}/N:{n}/K:{k}",
                                 "real_time": us, "time_unit": "us"})
                    if rank == 0:
                        print(f"{rows[-1]['name']:70} {us:9.1f} us", file=sys.stderr)
    if rank == 0:
        context = {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
                   "device": torch.cuda.get_device_name(), "gpus": options.ranks, "nvls": "off"}
        text = json.dumps({"context": context, "benchmarks": rows}, indent=1)
        options.out.write_text(text + "\n") if options.out else print(text)
    dist.barrier()
    dist.destroy_process_group()


def main():
    def numbers(text):
        return [int(x) for x in text.split(",")]

    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[0][7:], description=__doc__.split("\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--n", type=numbers, default=[8192])
    parser.add_argument("--k", type=numbers, default=[8192, 28672])
    parser.add_argument("--m", type=numbers, default=[2, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192])
    options = parser.parse_args()
    try:
        import torch
        import torch.multiprocessing as mp
    except ImportError:
        sys.exit("error: torch is not installed\n       pip install torch")
    if torch.cuda.device_count() < options.ranks:
        sys.exit(f"error: {torch.cuda.device_count()} GPUs; expected {options.ranks}, as many as --ranks")
    mp.spawn(rank_main, args=(options, 29400 + os.getpid() % 500), nprocs=options.ranks)


if __name__ == "__main__":
    main()
