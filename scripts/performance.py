#!/usr/bin/env python3
"""Makes docs/performance.md, and the part of README.md between its two marks, from the JSON files that the benchmarks wrote. No
figure is typed by hand."""
import argparse
import json
import math
import pathlib
import statistics
import sys

# Fused over the bare GEMM by M, at most; bulk-synchronous over fused, geometric mean, at least: (W, gather, N).
X_GEMM = lambda m: 1.00 if m <= 128 else 1.10 if m <= 1024 else 1.05
SPEEDUP = {(4, "k", 3584): 1.9, (4, "m", 3584): 1.7, (4, "k", 7168): 1.45, (4, "m", 7168): 1.35,
           (2, "k", 3584): 1.75, (2, "m", 3584): 1.55, (2, "k", 7168): 1.35, (2, "m", 7168): 1.3}
MEAN_OVER = {1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192}
VARIANTS = ["gemm", "all_gather", "bsp_eager", "bsp_graph", "pull", "push", "chosen"]


# H200: bytes per us of memory and of the links one way, flops per us of the tensor cores.
MEMORY, LINKS, TENSOR = 4.8e6, 450e3, 989e6


def provenance(context):
    runtime = int(context.get("runtime", 0))
    parts = [context.get("machine", "?"), f"driver {context.get('driver', '?')}", f"CUDA {runtime // 1000}.{runtime % 1000 // 10}"]
    parts += [f"{library} {context[library]}" for library in ("NCCL", "cuBLASLt", "RCCL", "hipBLASLt") if library in context]
    return ", ".join(parts) + f"; commit {context.get('commit', '?')}"


def number(x, digits=1):
    return "-" if x is None else f"{x:.{digits}f}"


def floor_of(w, m, n, k):
    """What no AG+GEMM can beat, in us: every byte of A, B and C once, every flop, every byte that comes from other ranks."""
    return max(2 * (m * k + k * n + m * n) / MEMORY, 2 * m * n * k / TENSOR, 2 * m * k * (w - 1) / w / LINKS)


def ag_gemm_shapes(data):
    """(type, W, N, gather, K) -> M -> variant -> what was measured."""
    shapes = {}
    for b in data["benchmarks"]:
        name = b["name"].split("/")
        keys = dict(part.split(":") for part in name[2:] if ":" in part)
        if not b.get("error_occurred"):
            shape = (keys["dtype"], int(keys["W"]), int(keys["N"]), keys["gather"], int(keys["K"]))
            shapes.setdefault(shape, {}).setdefault(int(keys["M"]), {})[name[1]] = b
    return shapes


def ag_gemm(data, out):
    shapes = ag_gemm_shapes(data)
    clocks = [b["sm_mhz"] for by_m in shapes.values() for found in by_m.values() for b in found.values()]
    failures = [f"`{b['name']}`: {b['error_message']}" for b in data["benchmarks"] if b.get("error_occurred")]
    out.append(f"Clocks of the compute units right after the timed replays: {min(clocks):.0f} to {max(clocks):.0f} MHz.\n")
    for shape, by_m in sorted(shapes.items()):
        dtype, w, n, gather, k = shape
        out.append(f"### gather::{gather}, {dtype}, W = {w}, N = {n} per rank, K = {k}\n")
        out.append("| M | " + " | ".join(VARIANTS) + " | floor | chosen / gemm | target | twin / chosen | TFLOP/s |")
        out.append("|" + "---|" * (len(VARIANTS) + 6))
        speedups, at_target, missed = [], [], 0
        for m, found in sorted(by_m.items()):
            us = {v: found[v]["real_time"] for v in VARIANTS if v in found}
            twins = [us[v] for v in ("bsp_eager", "bsp_graph") if v in us]
            x = us["chosen"] / us["gemm"] if {"chosen", "gemm"} <= us.keys() else None
            speedup = min(twins) / us["chosen"] if twins and "chosen" in us else None
            missed += x is not None and x > X_GEMM(m)
            if speedup and m in MEAN_OVER and (m > 1 or gather == "k"):
                speedups.append(speedup)
                at_target += [min(twins) / (X_GEMM(m) * us["gemm"])] if "gemm" in us else []
            out.append(f"| {m} | " + " | ".join(number(us.get(v)) for v in VARIANTS) +
                       f" | {number(floor_of(w, m, n, k))} | {number(x, 2)} | {X_GEMM(m):.2f} | {number(speedup, 2)} | {number(found.get('chosen', {}).get('tflops'), 0)} |")
        if speedups:
            mean = lambda values: math.exp(sum(map(math.log, values)) / len(values)) if values else None
            out.append(f"\nTwin over chosen, geometric mean: {mean(speedups):.2f} (target: at least {SPEEDUP.get((w, gather, n), '-')}; with chosen at its target over gemm in every row it "
                       f"would be {number(mean(at_target), 2)}). Rows above the target of chosen over gemm: {missed} of {len(by_m)}.\n")
    out += [f"- {f}" for f in failures]


# The mainloop alone, one rank, over the vendor's best: up to 64 rows the GEMM is bound by memory and meant to win; in between nothing is asked.
ALONE = lambda m: 1.00 if m <= 64 else 1 / 0.98 if m >= 1024 else None


def gemm_alone(data, out):
    shapes = {(dtype, n, k): by_m for (dtype, w, n, gather, k), by_m in sorted(ag_gemm_shapes(data).items())}
    out.append(f"B is {data['context']['b_layout']}. Each cell: microseconds of the vendor's best heuristic, of `ag_gemm` on one rank, and their ratio. Target: at most 1.00 up to M = 64,")
    out.append("1.02 from 1024 on.\n")
    out.append("| M | " + " | ".join(f"{dtype}, N = {n}, K = {k}" for dtype, n, k in shapes) + " |")
    out.append("|" + "---|" * (len(shapes) + 1))
    asked = missed = 0
    for m in sorted({m for by_m in shapes.values() for m in by_m}):
        cells = []
        for by_m in shapes.values():
            us = {v: b["real_time"] for v, b in by_m.get(m, {}).items()}
            if not {"gemm", "chosen"} <= us.keys():
                cells.append("-")
                continue
            x = us["chosen"] / us["gemm"]
            if ALONE(m):
                asked += 1
                missed += x > ALONE(m)
            cells.append(f"{us['gemm']:.1f}, {us['chosen']:.1f}: {x:.2f}")
        out.append(f"| {m} | " + " | ".join(cells) + " |")
    out.append(f"\nAbove the target: {missed} of {asked}.\n")


SUMS = ["gemm", "collective", "bsp_eager", "bsp_graph", "one_shot", "two_shot", "fused"]


def gemm_sums(data, out):
    """GEMM + reduce-scatter or + all-reduce."""
    shapes = {}
    for b in data["benchmarks"]:
        name = b["name"].split("/")
        keys = dict(part.split(":") for part in name[2:])
        if not b.get("error_occurred"):
            shapes.setdefault((keys["dtype"], int(keys["W"]), int(keys["N"]), int(keys["K"])), {}).setdefault(int(keys["M"]), {})[name[1]] = b
    for (dtype, w, n, k), by_m in sorted(shapes.items()):
        variants = [v for v in SUMS if any(v in found for found in by_m.values())]
        twin_of = lambda us: min((us[v] for v in ("bsp_eager", "bsp_graph") if v in us), default=None)
        out.append(f"### {dtype}, W = {w}, N = {n}, K = {k} of all ranks\n")
        out.append("| M | " + " | ".join(variants) + " | fused / gemm | twin / fused |")
        out.append("|" + "---|" * (len(variants) + 3))
        speedups = []
        for m, found in sorted(by_m.items()):
            us = {v: found[v]["real_time"] for v in variants if v in found}
            twin = twin_of(us)
            speedup = twin / us["fused"] if twin and "fused" in us else None
            speedups += [speedup] if speedup else []
            over = us["fused"] / us["gemm"] if {"fused", "gemm"} <= us.keys() else None
            out.append(f"| {m} | " + " | ".join(number(us.get(v)) for v in variants) + f" | {number(over, 2)} | {number(speedup, 2)} |")
        if speedups:
            out.append(f"\nTwin over fused, geometric mean: {math.exp(sum(map(math.log, speedups)) / len(speedups)):.2f} (target: at least 1.25); least {min(speedups):.2f} (target: 1.00).")
        elif w == 1:
            out.append("\nOn one rank both operators launch the GEMM alone. Target: at most 1.03 of the vendor's.")
        out.append("")


USED_UP = {"2511", "1"}  # seeds whose measurements have gone into rules of the plan


def random_shapes(data, out):
    seed = data["context"].get("seed", "2511")
    times = {}
    for (dtype, w, n, gather, k), by_m in ag_gemm_shapes(data).items():
        for m, found in by_m.items():
            us = {v: found[v]["real_time"] for v in VARIANTS if v in found}
            if {"pull", "push", "chosen"} <= us.keys():
                times[m, n, k, gather, dtype] = us
    over = sorted(((us["chosen"] / min(us["pull"], us["push"]), shape) for shape, us in times.items()), reverse=True)
    named = lambda m, n, k, gather, dtype: f"M = {m}, N = {n}, K = {k}, gather::{gather}, {dtype}"
    out.append(f"{len(over)} random shapes (`--seed={seed}`), M from 1 to 8192, N from 512 to 8192, K from 1024 to 8192. "
               + ("Measurements of some of them have gone into rules of the plan (docs/tried.md)." if seed in USED_UP else "The plan was made without them."))
    out.append("What `ag_gemm` chooses is within 5 % of the better of pull")
    out.append(f"and push in {sum(x <= 1.05 for x, _ in over)} of them; furthest off: " + "; ".join(f"{x:.2f} ({named(*shape)})" for x, shape in over[:3]) + ".\n")
    speedups = {shape: min(us["bsp_eager"], us["bsp_graph"]) / us["chosen"] for shape, us in times.items() if {"bsp_eager", "bsp_graph"} <= us.keys()}
    if speedups:
        mean = math.exp(sum(map(math.log, speedups.values())) / len(speedups))
        out.append(f"Twin over chosen, geometric mean: {mean:.2f}; the twin is faster in {sum(x < 1 for x in speedups.values())} of {len(speedups)}.\n")
    out.append("| M | N | K | gather | type | " + " | ".join(VARIANTS) + " | chosen / gemm | twin / chosen |")
    out.append("|" + "---|" * (len(VARIANTS) + 7))
    for shape, us in sorted(times.items()):
        x = us["chosen"] / us["gemm"] if "gemm" in us else None
        out.append("| " + " | ".join(map(str, shape)) + " | " + " | ".join(number(us.get(v)) for v in VARIANTS) + f" | {number(x, 2)} | {number(speedups.get(shape), 2)} |")


DECODE_VARIANTS = ["fused", "local", "bsp_eager", "bsp_graph", "read"]


def flash_decode(data, out):
    shapes, failures, missed, beside_read = {}, [], 0, []
    for b in data["benchmarks"]:
        name = b["name"].split("/")
        if b.get("error_occurred"):
            failures.append(f"`{b['name']}`, {b.get('label', '?')}: {b['error_message']}")
            continue
        shapes.setdefault((b["label"], *(part.split(":")[1] for part in name[2:])), {})[name[1]] = b
    out.append("KV of its own per sequence, or all sequences on the same pages; pages lie in random order. The target is the KV of the longest rank at 4.4 TB/s")
    out.append("and 8 us, 4 us for one rank. TB/s: KV, once where it is shared, over the time. `ragged`: lengths drawn from 1 to 131072; the row below has as")
    out.append("many tokens in equal sequences. `read`: a kernel that reads as many bytes, one after the other, and does nothing with them; it tells what this host's memory gives.\n")
    out.append("| type | W | batch | tokens of a sequence | heads | d | page | pages | " + " | ".join(DECODE_VARIANTS) + " | target | fused / target | twin / fused | TB/s |")
    out.append("|" + "---|" * (len(DECODE_VARIANTS) + 12))
    for shape, found in shapes.items():
        us = {v: found[v]["real_time"] for v in DECODE_VARIANTS if v in found}
        twins = [us[v] for v in ("bsp_eager", "bsp_graph") if v in us]
        fused, target = us.get("fused"), found.get("fused", {}).get("target")
        missed += bool(target and fused > target)
        rate = found["fused"]["bytes"] / fused * 1e-6 if fused else None
        if target and fused and "read" in us:
            beside_read.append((found["fused"]["bytes"], fused, us["read"]))
        out.append("| " + " | ".join(shape) + " | " + " | ".join(number(us.get(v)) for v in DECODE_VARIANTS) + f" | {number(target)} | {number(fused / target if target and fused else None, 2)} | "
                   + f"{number(min(twins) / fused if twins and fused else None, 2)} | {number(rate, 2)} |")
    out.append(f"\nRows above the target: {missed} of {sum('target' in found.get('fused', {}) for found in shapes.values())}.\n")
    small, large = [[row for row in beside_read if (row[0] < 2e8) == below] for below in (True, False)]
    if small and large:
        extra, times = [f - r for _, f, r in small], [f / r for _, f, r in large]
        out.append(f"Fused beside `read`: below 200 MB {min(extra):.1f} to {max(extra):.1f} us more (median {statistics.median(extra):.1f}), from there {min(times):.2f} to {max(times):.2f} times as long "
                   f"(median {statistics.median(times):.2f}); `read` itself takes up to {max(b / r for b, _, r in large) * 1e-6:.2f} TB/s.\n")
    out += [f"- {f}" for f in failures]


def primitives(data, out):
    out += ["| | microseconds, median | GB/s | target |", "|---|---|---|---|"]
    for b in data["benchmarks"]:
        if b.get("error_occurred"):
            continue
        us, target = b["real_time"], b.get("target")
        rate = b["bytes_per_second"] / 1e9 if "bytes_per_second" in b else None
        out.append(f"| `{b['name']}` | {us:.2f} | {number(rate)} | {number(target, 2)} |")


def taxes(data, out):
    """Each shape's twin and fused kernel: what launches, waits for late ranks and the ways between kernels cost, before and after."""
    shapes, late = {}, set()
    for b in data["benchmarks"]:
        if b.get("error_occurred"):
            out.append(f"- `{b['name']}`: {b['error_message']}")
            continue
        _, variant, *keys = b["name"].split("/")
        us = int(keys.pop().split(":")[1]) if keys[-1].startswith("late:") else None
        late |= {us} if us else set()
        shapes.setdefault(" ".join(keys).replace(":", " "), {})[variant, us] = b
    late = sorted(late)
    out.append("Each cell: the bulk-synchronous twin, then the fused kernel. Launches: kernels of an iteration, microseconds that the slowest rank's host needs to enqueue it (ranks are")
    out.append("threads of one process), and an iteration in a loop of calls and in a graph. Between kernels: the twin's graph less the GEMM and the all-gather alone, or less the local kernel (then the")
    out.append("all-gather is in it); the fused kernel's less the GEMM or the local kernel. Late: what an iteration takes longer when in turns one rank begins it that much later: all of it where")
    out.append(f"everybody waits for whoever is late, an equal share of it ({1 / int(data['context']['machine'].split('x')[0]):.2f}) where nobody does; compared with ranks that are late by nothing, since that takes a kernel too.\n")
    out.append("| shape | kernels | host | loop | graph | parts alone | between kernels | " + " | ".join(f"{us} us late" for us in late) + " |")
    out.append("|" + "---|" * (7 + len(late)))
    for shape, found in shapes.items():
        time = lambda variant, us=None: found[variant, us]["real_time"]
        fused = "chosen" if ("chosen", None) in found else "fused"
        sides = [("bsp_graph", "bsp_eager"), (fused, fused + "_eager")]
        alone = [v for v in ("gemm", "all_gather", "local") if (v, None) in found]
        if not alone or not {(v, None) for pair in sides for v in pair} <= found.keys():
            continue
        longer = lambda variant, us: time(variant, us) - time(variant, 0) if {(variant, us), (variant, 0)} <= found.keys() else None
        between = [time("bsp_graph") - sum(map(time, alone)), time(fused) - time(alone[0])]
        both = lambda values, digits=1: ", ".join(number(x, digits) for x in values)
        out.append(f"| {shape} | {both((found[g, None]['kernels'] for g, _ in sides), 0)} | {both(found[e, None]['host_us'] for _, e in sides)} | {both(time(e) for _, e in sides)} | "
                   + f"{both(time(g) for g, _ in sides)} | {' + '.join(number(time(v)) for v in alone)} | {both(between)} | "
                   + " | ".join(both(longer(g, us) for g, _ in sides) for us in late) + " |")
    out.append("")


def measured(results, kind):
    """The files of a kind that a machine made."""
    return [path for path in results.glob(kind + ".*.json") if not path.stem.endswith("_projected")]


def projected_shapes(data):
    """Shape -> variant -> projection."""
    shapes = {}
    for b in data["benchmarks"]:
        parts = b["name"].split("/")
        shapes.setdefault("/".join([parts[0], *parts[2:]]) if len(parts) > 3 else b["name"], {})[parts[1] if len(parts) > 3 else ""] = b
    return shapes


def projections(results, out):
    """Nothing here is a measurement, and every table says so."""
    titles = {"ag_gemm": "All-gather + GEMM", "ag_gemm_sustained": "All-gather + GEMM at the clock of full power", "flash_decode": "Flash Decode", "primitives": "Primitives"}
    for kind, title in titles.items():
        path = results / f"{kind}.mi300x_projected.json"
        if not path.exists():
            continue
        data = json.loads(path.read_text())
        how, shapes = data["context"]["projected"], projected_shapes(data)
        error = how["error"]
        out.append(f"## Projection: {title}, MI300X\n")
        out.append(f"**Not measured**: projected by `{how['model']}` at {how['mhz']} MHz{' with ' + how['other_constants'] if 'other_constants' in how else ''}, commit {data['context']['commit']}. Its median error on {error['points']} published points that it was not fitted to is "
                   f"{error['median'] * 100:.0f} % ({', '.join(f'{name} {e * 100:.0f} %' for name, e in error['classes'].items())}; docs/simulator.md).\n")
        time = lambda found, variant: found[variant]["real_time"] if variant in found else None
        over = lambda a, b: number(a / b if a and b else None, 2)
        if kind.startswith("ag_gemm"):
            out.append("gemm: hipBLASLt at published rates, interpolated over sizes. all-gather: a kernel of this library's primitives in place of RCCL, simulated. bulk-synchronous: the sum of these, of a")
            out.append("transposing copy where gather::k needs it, and of a graph's gaps. fused: `ag_gemm` as it chooses, simulated; with W = 1 the GEMM alone. Microseconds, projected.\n")
            out += ["| W | gather | N | M | gemm | all-gather | bulk-synchronous | fused | fused / gemm | bulk-synchronous / fused |", "|---|---|---|---|---|---|---|---|---|---|"]
            key = lambda name: dict(part.split(":") for part in name.split("/")[1:])
            for name, found in sorted(shapes.items(), key=lambda item: [int(key(item[0])["W"]), key(item[0])["gather"], int(key(item[0])["N"]), int(key(item[0])["M"])]):
                k, gemm, fused, twin = key(name), time(found, "gemm"), time(found, "chosen"), time(found, "bsp_graph")
                out.append(f"| {k['W']} | {k['gather']} | {k['N']} | {k['M']} | {number(gemm)} | {number(time(found, 'all_gather'))} | {number(twin)} | {number(fused)} | {over(fused, gemm)} | {over(twin, fused)} |")
        elif kind == "flash_decode":
            out.append("One sequence, 96 query and 12 KV heads of 128, f16, pages of 16 in random order. bulk-synchronous: the same local kernel, an all-gather and a combining kernel, composed. Projected.\n")
            out += ["| W | tokens | local | bulk-synchronous | fused | bulk-synchronous / fused | TB/s of a GPU |", "|---|---|---|---|---|---|---|"]
            for name, found in shapes.items():
                if "fused" in found:
                    k, fused, twin = dict(part.split(":") for part in name.split("/")[1:]), time(found, "fused"), time(found, "bsp_graph")
                    out.append(f"| {k['W']} | {k['kv']} | {number(time(found, 'local'))} | {number(twin)} | {number(fused)} | {over(twin, fused)} | {number(found['fused']['bytes'] / fused * 1e-6, 2)} |")
        else:
            out += ["| | microseconds, projected | GB/s |", "|---|---|---|"]
            for b in data["benchmarks"]:
                out.append(f"| `{b['name']}` | {b['real_time']:.2f} | {number(b['bytes_per_second'] / 1e9 if 'bytes_per_second' in b else None)} |")
        out.append("")


def of_most_ranks(results, kind):
    """The results of a kind with the most ranks, or None."""
    files = sorted(measured(results, kind), key=lambda path: int(path.stem.rpartition("x")[2]))
    return json.loads(files[-1].read_text()) if files else None


def in_short(results):
    """What README.md shows: results with the most ranks that were measured, of one type, for some M and one sequence."""
    out = []
    data = of_most_ranks(results, "ag_gemm")
    if data:
        shapes = {(gather, n, k): by_m for (dtype, w, n, gather, k), by_m in ag_gemm_shapes(data).items() if dtype == "bf16"}
        columns = [m for m in (1, 16, 64, 256, 1024, 4096) if any(m in by_m for by_m in shapes.values())]
        out.append(f"All-gather + GEMM, bf16: time over that of the bare cuBLASLt GEMM of the gathered matrix (1.00: the gather is free), and how many times as long NCCL's all-gather and")
        out.append(f"cuBLASLt take one after the other. {provenance(data['context'])}.\n")
        out.append("| M = | " + " | ".join(map(str, columns)) + " |")
        out.append("|" + "---|" * (len(columns) + 1))
        for (gather, n, k), by_m in sorted(shapes.items()):
            cells = []
            for m in columns:
                us = {v: b["real_time"] for v, b in by_m.get(m, {}).items()}
                twins = [us[v] for v in ("bsp_eager", "bsp_graph") if v in us]
                cells.append(f"{us['chosen'] / us['gemm']:.2f}, {min(twins) / us['chosen']:.1f}x" if {"chosen", "gemm"} <= us.keys() and twins else "-")
            out.append(f"| gather::{gather}, N = {n} per rank, K = {k} | " + " | ".join(cells) + " |")
        out.append("")
    data = of_most_ranks(results, "flash_decode")
    if data:
        times = {}
        for b in data["benchmarks"]:
            name = b["name"].split("/")
            if name[3] == "batch:1" and name[5:9] == ["heads:96-12", "d:128", "page:16", "pages:own"] and b["label"] == "f16" and not b.get("error_occurred"):
                times.setdefault(int(name[4].split(":")[1]), {})[name[1]] = b
        columns = sorted(times)
        out.append(f"Flash Decode, one sequence, 96 query and 12 KV heads of 128, f16, pages of 16: microseconds, and how many times as long the same local kernel, NCCL's all-gather and")
        out.append(f"a combining kernel take. {provenance(data['context'])}.\n")
        out.append("| tokens in all | " + " | ".join(map(str, columns)) + " |")
        out.append("|" + "---|" * (len(columns) + 1))
        out.append("| fused | " + " | ".join(f"{times[n]['fused']['real_time']:.1f}, {min(times[n][v]['real_time'] for v in ('bsp_eager', 'bsp_graph')) / times[n]['fused']['real_time']:.2f}x"
                                               for n in columns) + " |")
    return "\n".join(out).rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", metavar="RESULTS", type=pathlib.Path, help="the folder with the JSON files: bench/results")
    parser.add_argument("page", metavar="OUT", type=pathlib.Path, help="what is written: docs/performance.md")
    parser.add_argument("readme", metavar="README", type=pathlib.Path, nargs="?", help="README.md, whose figures are made anew")
    arguments = parser.parse_args()
    results, page, readme = arguments.results, arguments.page, arguments.readme
    if not results.is_dir():
        parser.error(f"{results} is no folder")
    out = ["# Performance\n", "Made by `scripts/performance.py` from `bench/results`; `scripts/bench` runs the benchmarks. Nothing was measured on an MI300X; what is said of one is a projection, under headings that say so.\n",
           "A time is one iteration of the slowest rank in microseconds: the median of replays of one graph with many iterations, in which weights",
           "rotate among more than 1 GB of copies, KV among more than 0.5 GB, and A and the query are others each time. Variants take turns in one run, and the outputs of the timed",
           "replays are checked. NCCL works on registered symmetric windows, with NVLS off; the twin is the better of eager and graph. AG+GEMM is told that B is constant",
           "(`b_is_constant`), so on Hopper its first stages load while the launch before it ends.\n"]
    for kind, title, tell in (("ag_gemm", "All-gather + GEMM", ag_gemm), ("ag_gemm_random", "All-gather + GEMM, random shapes", random_shapes),
                              ("gemm", "The GEMM alone", gemm_alone), ("gemm_row_major", "The GEMM alone, row-major B", gemm_alone),
                              ("gemm_rs", "GEMM + reduce-scatter", gemm_sums), ("gemm_ar", "GEMM + all-reduce", gemm_sums),
                              ("flash_decode", "Flash Decode", flash_decode), ("ag_gemm_taxes", "The taxes: all-gather + GEMM", taxes),
                              ("flash_decode_taxes", "The taxes: Flash Decode", taxes), ("primitives", "Primitives", primitives)):
        for path in sorted(measured(results, kind), reverse=True):
            data = json.loads(path.read_text())
            if all(b.get("error_occurred") for b in data["benchmarks"]):  # primitives on one GPU: all of them are between GPUs
                continue
            out.append(f"## {title}: {provenance(data['context'])}\n")
            tell(data, out)
            out.append("")
    projections(results, out)
    page.write_text("\n".join(out).rstrip() + "\n")
    if readme:
        before, begin, rest = readme.read_text().partition("<!-- scripts/performance.py writes this -->\n")
        _, end, after = rest.partition("<!-- to here -->")
        if not end:
            sys.exit(f"{readme} lacks the marks between which figures go")
        readme.write_text(before + begin + in_short(results) + "\n" + end + after)


main()
