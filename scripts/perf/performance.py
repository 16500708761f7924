#!/usr/bin/env python3
"""Makes docs/performance.md, with all tables in performance_tables.md beside it, docs/taxes.md's tables and the parts of README.md between marks, from the files
that the benchmarks wrote. No figure is typed by hand. bench/results/kernels.csv stores which of these files measured older kernels."""
import argparse
import csv
import json
import math
import pathlib
import statistics
import sys

import exchanges
import kernels_since
import taxes as sim_taxes
from figures import ag_gemm_projected, fused_and_twin, key_of, load, one_sequence, shapes_of, times_of, twin_of
from wrap import wrapped

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Fused over the bare GEMM by M, at most; bulk-synchronous over fused, geometric mean, at least: (W, gather, N).
X_GEMM = lambda m: 1.00 if m <= 128 else 1.10 if m <= 1024 else 1.05
SPEEDUP = {(4, "k", 3584): 1.9, (4, "m", 3584): 1.7, (4, "k", 7168): 1.45, (4, "m", 7168): 1.35,
           (2, "k", 3584): 1.75, (2, "m", 3584): 1.55, (2, "k", 7168): 1.35, (2, "m", 7168): 1.3}
MEAN_OVER = {1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192}
VARIANTS = ["gemm", "all_gather", "bsp_eager", "bsp_graph", "pull", "push", "chosen"]


HBM = 5.3e6  # bytes per us of an MI300X, as hbm_gbs in sim/machine/timing.hpp

# Of a GPU: bytes per us of memory; of its links one way, among so many ranks; flops per us of the matrix units.
PEAKS = {"H200": (4.8e6, lambda ranks: 450e3, 989e6), "H100": (3.35e6, lambda ranks: 450e3, 989e6), "MI300X": (HBM, lambda ranks: 64e3 * (ranks - 1), 1307e6)}


def gpu_of(context):
    """Of "4x H200" or "8x MI300X": H200, MI300X."""
    return context.get("machine", "?").split("x ")[-1].split()[0]


def provenance(context):
    runtime, amd = int(context.get("runtime", 0)), "RCCL" in context or "MI3" in context.get("machine", "")
    of_runtime = f"HIP {runtime // 10**7}.{runtime // 10**5 % 100}" if amd else f"CUDA {runtime // 1000}.{runtime % 1000 // 10}"
    parts = [context.get("machine", "?"), f"driver {context.get('driver', '?')}", of_runtime]
    parts += [f"{library} {context[library]}" for library in ("NCCL", "cuBLASLt", "RCCL", "hipBLASLt") if library in context]
    return ", ".join(parts) + f"; commit {context.get('commit', '?')}"


def number(x, digits=1):
    return "-" if x is None else f"{x:.{digits}f}"


def floor_of(gpu, w, m, n, k):
    """What no AG+GEMM can beat, in us: every byte of A, B and C once, every flop, every byte that comes from other ranks. None of a GPU without peaks here."""
    if gpu not in PEAKS:
        return None
    memory, links, matrix = PEAKS[gpu]
    return max(2 * (m * k + k * n + m * n) / memory, 2 * m * n * k / matrix, 2 * m * k * (w - 1) / w / links(w) if w > 1 else 0)


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
                       f" | {number(floor_of(gpu_of(data['context']), w, m, n, k))} | {number(x, 2)} | {X_GEMM(m):.2f} | {number(speedup, 2)} | {number(found.get('chosen', {}).get('tflops'), 0)} |")
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


SINKS = (("gemm_rs", "GEMM + reduce-scatter"), ("gemm_ar", "GEMM + all-reduce"), ("gemm_all_scatter", "GEMM + all-scatter"))


def gemm_sinks(data, out):
    """One of SINKS."""
    shapes = {}
    for b in data["benchmarks"]:
        name = b["name"].split("/")
        keys = dict(part.split(":") for part in name[2:])
        if not b.get("error_occurred"):
            shapes.setdefault((keys["dtype"], int(keys["W"]), int(keys["N"]), int(keys["K"])), {}).setdefault(int(keys["M"]), {})[name[1]] = b
    for (dtype, w, n, k), by_m in sorted(shapes.items()):
        variants = [v for v in SUMS if any(v in found for found in by_m.values())]
        twin_of = lambda us: min((us[v] for v in ("bsp_eager", "bsp_graph") if v in us), default=None)
        out.append(f"### {dtype}, W = {w}, N = {n}, K = {k}, of all ranks\n")
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
            out.append("\nOn one rank the operator launches the GEMM alone. Target: at most 1.03 of the vendor's.")
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
               + ("Measurements of some of them have gone into rules of the plan ([decisions](decisions/all_gather_sm90.md))." if seed in USED_UP else "The plan was made without them."))
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


def chosen_and_fastest(data, columns, text):
    """Of every shape the plan that is chosen beside the fastest of those that were simulated. columns: the shape's keys; text: what was simulated."""
    shapes = {}
    for b in data["benchmarks"]:
        keys = key_of(b["name"])
        plan = ", ".join([keys["plan"], *(f"{keys[key]} {what}" for key, what in (("movers", "movers"), ("columns", "columns")) if key in keys)])
        shapes.setdefault((b["random"], *(int(keys[c]) if keys[c].isdigit() else keys[c] for c in columns)), []).append((b["real_time"], plan, b["chosen"]))
    rows = [(shape, next(p for p in plans if p[2]), min(plans), len(plans)) for shape, plans in sorted(shapes.items()) if any(p[2] for p in plans)]
    out = [text, ""]
    for drawn, what in ((False, "shapes of the sweep"), (True, "random shapes")):
        over = [chosen[0] / best[0] for (d, *_), chosen, best, count in rows if d == drawn and count > 1]
        alone = sum(count == 1 for (d, *_), *_, count in rows if d == drawn)
        if over:
            out.append(f"- {len(over) + alone} {what}: the chosen plan is within 5 % of the fastest in {sum(x <= 1.05 for x in over)} of {len(over)}, worst {max(over):.2f}"
                       + (f"; in {alone} there is one plan, which is compared with nothing." if alone else "."))
    out += ["", "| | " + " | ".join(columns) + " | chosen | us | fastest | us | chosen / fastest | plans |", "|---" * (len(columns) + 7) + "|"]
    for (drawn, *shape), chosen, best, count in rows:
        out.append(f"| {'random' if drawn else 'sweep'} | {' | '.join(map(str, shape))} | {chosen[1]} | {chosen[0]:.1f} | {best[1]} | {best[0]:.1f} | {chosen[0] / best[0]:.2f} | {count} |")
    return out


PLANS_OF_GEMM = """One GPU, bf16, column-major B, weights in no cache. A plan is a tile and the number of blocks that share it, each with a part of k. Simulated are the chosen plan and, of each tile, up to two more whose
modelled time is at most 1.4 times its, by the operator's model with 304 resident blocks. Random: drawn by `scripts/bench sim plans --seed 1`. Microseconds, projected."""
PLANS_OF_AG_GEMM = """bf16, column-major B, weights in no cache, pushed. Simulated are, beside the chosen plan, those of other tiles and numbers of blocks that share a tile whose modelled time is up to 1.15 times its,
and for most shapes the chosen one with half and twice its sender blocks, and with chunks of half and twice its columns. No shape takes long to simulate: M up to 512, W x N x K up to 2^26. Random: drawn by `scripts/bench sim ag_gemm_plans --seed 1`. Microseconds, projected."""


def other_runs(plans, sweep):
    """What is to be said of GEMMs that stand in both files with other figures: each file holds what was simulated when its kernels were in hand."""
    chosen = {tuple(key_of(b["name"])[x] for x in "MNK"): b["real_time"] for b in plans["benchmarks"] if b["chosen"]}
    own = {tuple(key_of(b["name"])[x] for x in "MNK"): b["real_time"] for b in sweep["benchmarks"] if "/own_gemm/" in b["name"]} if sweep else {}
    over = [own[shape] / chosen[shape] for shape in own if shape in chosen and f"{own[shape]:.1f}" != f"{chosen[shape]:.1f}"]
    return f"\nShapes that stand above as own gemm, too: another run, with other kernels, in which the chosen plan takes {span(over)} times as long as here. Plans of one shape were run together." if over else ""


AG_GEMM_PROJECTED = ["**own gemm**: this library's `gemm` on one GPU, on the same clock; what the fused kernel is divided by. ag_gemm alone: `ag_gemm` on one rank, which gathers nothing. RCCL: its all-gather, as half the time of a",
                     "published all-reduce of as many bytes, interpolated. bulk-synchronous: the sum of RCCL, of own gemm, of a transposing copy where gather::k needs it, and of a graph's gaps. fused: `ag_gemm` as it chooses, simulated.",
                     "own all-gather: a kernel of this library's primitives, simulated. vendor's gemm: hipBLASLt, interpolated over sizes from rates that others published. It is on no clock of ours, and a ratio to it is a guess. Microseconds, projected.\n"]


def projections(results, out):
    """Nothing here is a measurement, and every table says so."""
    titles = {"ag_gemm": "All-gather + GEMM", "ag_gemm_sustained": "All-gather + GEMM at the clock of full power", "flash_decode": "Flash Decode", **dict(SINKS), "gemm_plans": "The GEMM alone, by plan", "ag_gemm_plans": "All-gather + GEMM, by plan", "primitives": "Primitives"}
    for kind, title in titles.items():
        path = results / f"{kind}.mi300x_projected.json"
        if not path.exists():
            continue
        data = ag_gemm_projected(results) if kind == "ag_gemm" else json.loads(path.read_text())
        how, shapes = data["context"]["projected"], shapes_of(data)
        error = how["error"]
        out.append(f"## Projection: {title}, MI300X\n")
        out.append(f"**Not measured**: projected by `{how['model']}` at {how['mhz']} MHz{' with ' + how['other_constants'] if 'other_constants' in how else ''}, commit {data['context']['commit']}. Its median error on {error['points']} published points that it was not fitted to is "
                   f"{error['median'] * 100:.0f} % ({', '.join(f'{name} {e * 100:.0f} %' for name, e in error['classes'].items())}; docs/simulator.md).\n")
        time = lambda found, variant: found[variant]["real_time"] if variant in found else None
        over = lambda a, b: number(a / b if a and b else None, 2)
        if kind in ("ag_gemm", "ag_gemm_sustained"):
            out += [*AG_GEMM_PROJECTED, "| W | gather | N | M | own gemm | ag_gemm alone | RCCL | bulk-synchronous | fused | fused / own gemm | bulk-synchronous / fused | own all-gather | vendor's gemm | fused / vendor's |", "|---" * 14 + "|"]
            keys = lambda name: (k := key_of(name), (int(k["W"]), k["gather"], int(k["N"]), int(k["M"])))[1]
            alone = {keys(name)[2:]: time(found, "chosen") for name, found in shapes.items() if keys(name)[0] == 1}
            for name, found in sorted(shapes.items(), key=lambda item: keys(item[0])):
                (w, gather, n, m), own, fused, twin, vendors = keys(name), time(found, "own_gemm"), time(found, "chosen"), time(found, "bsp_graph"), time(found, "gemm")
                if w > 1 and fused:
                    out.append(f"| {w} | {gather} | {n} | {m} | {number(own)} | {number(alone.get((n, m)))} | {number(time(found, 'rccl'))} | {number(twin)} | {number(fused)} | {over(fused, own)} | {over(twin, fused)} | "
                               f"{number(time(found, 'all_gather'))} | {number(vendors)} | {over(fused, vendors)} |")
            out += ["", "The GEMMs on one GPU:\n", "| N | M | own gemm | ag_gemm alone | vendor's gemm |", "|---" * 5 + "|"]
            for name, found in sorted(shapes.items(), key=lambda item: keys(item[0])):
                if keys(name)[0] == 1:
                    out.append(f"| {keys(name)[2]} | {keys(name)[3]} | {number(time(found, 'own_gemm'))} | {number(time(found, 'chosen'))} | {number(time(found, 'gemm'))} |")
        elif kind == "flash_decode":
            out.append("One sequence, 96 query and 12 KV heads of 128, f16, pages of 16 in random order. local: the kernel without any exchange, on the same clock. bulk-synchronous: it, RCCL's all-gather at half")
            out.append("the time of a published all-reduce of as many bytes, and a combining kernel, composed. Projected.\n")
            out += ["| W | tokens | local | RCCL | bulk-synchronous | fused | fused / local | bulk-synchronous / fused | TB/s of a GPU |", "|---" * 9 + "|"]
            for name, found in shapes.items():
                if "fused" in found:
                    k, fused, twin, local = key_of(name), time(found, "fused"), time(found, "bsp_graph"), time(found, "local")
                    out.append(f"| {k['W']} | {k['kv']} | {number(local)} | {number(time(found, 'rccl'))} | {number(twin)} | {number(fused)} | {over(fused, local)} | {over(twin, fused)} | {number(found['fused']['bytes'] / fused * 1e-6, 2)} |")
        elif kind in dict(SINKS):
            out.append("bf16; K and N are all ranks'. own gemm: this library's `gemm` with a rank's K or N, on the same clock. link: bytes of the busiest link over 48 GB/s. bulk-synchronous: own gemm, RCCL at")
            out.append("published rates, interpolated (half of an all-reduce for the other two), and a graph's gap, composed. Target: 1.15 times the longer of own gemm and link, and 6 us. Microseconds, projected.\n")
            out += ["| W | K | M | own gemm | link | RCCL | bulk-synchronous | fused | target | fused / own gemm | bulk-synchronous / fused |", "|---" * 11 + "|"]
            missed = 0
            for name, found in sorted(shapes.items(), key=lambda item: [int(key_of(item[0])[x]) for x in ("W", "K", "M")]):
                if "fused" in found and "own_gemm" in found:
                    k, own, link, fused, twin = key_of(name), time(found, "own_gemm"), time(found, "link"), time(found, "fused"), time(found, "bsp_graph")
                    target = 1.15 * max(own, link) + 6
                    missed += fused > target
                    out.append(f"| {k['W']} | {k['K']} | {k['M']} | {number(own)} | {number(link)} | {number(time(found, 'rccl'))} | {number(twin)} | {number(fused)} | {number(target)} | {over(fused, own)} | {over(twin, fused)} |")
            out.append(f"\nAbove the target: {missed} of {sum('fused' in f and 'own_gemm' in f for f in shapes.values())}.")
        elif kind == "gemm_plans":
            out += chosen_and_fastest(data, ["N", "K", "M"], PLANS_OF_GEMM + other_runs(data, ag_gemm_projected(results)))
        elif kind == "ag_gemm_plans":
            out += chosen_and_fastest(data, ["W", "gather", "N", "K", "M"], PLANS_OF_AG_GEMM)
        else:
            out += ["| | microseconds, projected | GB/s |", "|---|---|---|"]
            for b in data["benchmarks"]:
                out.append(f"| `{b['name']}` | {b['real_time']:.2f} | {number(b['bytes_per_second'] / 1e9 if 'bytes_per_second' in b else None)} |")
        out.append("")


def span(values, digits=2, unit=""):
    """The least and the greatest, as one text."""
    low, high = f"{min(values):.{digits}f}{unit}", f"{max(values):.{digits}f}{unit}"
    return low if low == high else f"{low} to {high}"


STATES = {False: "measured", True: "measured, older kernels"}
ROWS = (("ag_gemm", "all-gather + GEMM", "M"), ("flash_decode", "Flash Decode, 1 sequence", "kv"), ("gemm_rs", "GEMM + reduce-scatter", "M"), ("gemm_ar", "GEMM + all-reduce", "M"), ("gemm_all_scatter", "GEMM + all-scatter", "M"))


def of_machines(results, older):
    """(kind, title, machine, state, commit, extents, fused over the kernel alone, twin over fused) of every operator and machine with several ranks."""
    for kind, title, extent in ROWS:
        for path in [*sorted(measured(results, kind), reverse=True), results / f"{kind}.mi300x_projected.json"]:
            if not path.exists():
                continue
            data = one_sequence(ag_gemm_projected(results) if path.stem == "ag_gemm.mi300x_projected" else json.loads(path.read_text()))
            how, of_ranks = data["context"].get("projected"), {}
            for keys, over, speedup in fused_and_twin(data) if data["benchmarks"] else []:
                if int(keys["W"]) > 1:
                    of_ranks.setdefault(int(keys["W"]), []).append((int(keys[extent]), over, speedup))
            for w, rows in sorted(of_ranks.items(), reverse=True):
                state = f"**projected**, median error {100 * how['error']['median']:.0f} %" if how else STATES[older.get(path.stem, {}).get("older", True)]
                yield (kind, title, f"{w} {gpu_of(data['context'])}", state, data["context"].get("commit", "?"), *zip(*rows))


def speedup_text(speedup):
    return f"{span(speedup)}, mean {geometric_mean(speedup):.2f}"


def of_operator(kind, extents):
    return f"{'tokens' if kind == 'flash_decode' else 'M'} = {min(extents)} to {max(extents)}: {len(extents)}"


def in_short(results, older):
    """A row for each operator and machine, what was measured there or is projected."""
    out = ["| operator | machine | | shapes | fused / kernel alone | bulk-synchronous / fused |", "|---|---|---|---|---|---|"]
    for kind, title, machine, state, commit, extents, over, speedup in of_machines(results, older):
        out.append(f"| {title} | {machine} | {state.replace('measured', f'measured at {commit}')} | {of_operator(kind, extents)} | {span(over)} | {speedup_text(speedup)} |")
    out += [f"| {title} | none | not measured | | | |" for kind, title, _ in ROWS if not measured(results, kind)]
    out.append("\n" + IN_SHORT)
    return "\n".join(out)


IN_SHORT = """The kernel alone: on NVIDIA the vendor's GEMM, measured in the same run; on MI300X this library's GEMM on the same clock; Flash Decode's local kernel. At 1.00 communication costs nothing. Below 1.00 our GEMM is faster
than the vendor's. The last column says how many times as long a kernel and a collective take. For MI300X these are our GEMM, or our local kernel, and RCCL at half the time of a published all-reduce.

*Older kernels*: the headers of these kernels have changed since the commit that was measured. [Where these figures come from](#where-these-figures-come-from) has the commits."""


def where_from(results, older):
    """Machines, commits and libraries of the files with measurements."""
    out, rows = ["| file | commit | kernels | machine and libraries |", "|---|---|---|---|"], []
    for path in sorted(results.glob("*.json")):
        if path.stem.endswith("_projected"):
            continue
        context = json.loads(path.read_text())["context"]
        rows.append(f"| `{path.name}` | {context.get('commit', '?')} | {'older' if older.get(path.stem, {}).get('older', True) else 'as here'} | {provenance(context).rpartition('; commit ')[0]} |")
    return out + rows if rows else []


READER = (("ag_gemm", "`ag_gemm`: all-gather + GEMM", "NCCL's all-gather, then cuBLASLt"),
          ("flash_decode", "`flash_decode`: the KV cache over ranks", "local kernel, all-gather, combining kernel"),
          ("gemm_rs", "`gemm_rs`: GEMM + reduce-scatter", "cuBLASLt, then NCCL's reduce-scatter"),
          ("gemm_ar", "`gemm_ar`: GEMM + all-reduce", "cuBLASLt, then NCCL's all-reduce"),
          ("gemm_all_scatter", "`gemm_all_scatter`: GEMM + all-gather of C", "cuBLASLt, then NCCL's all-gather"))


def for_readers(results, older):
    """README.md's table: a row for each operator, with the machines that have most GPUs."""
    out = ["| operator | replaces | H100, H200: measured | MI300X: simulated, never run on hardware |", "|---|---|---|---|"]
    rows, beside, old = {}, [], False
    for kind, _, machine, state, _, extents, over, speedup in of_machines(results, older):
        rows.setdefault((kind, "projected" in state), (machine, state, extents, over, speedup))
    for kind, title, replaces in READER:
        cells = []
        for projected, otherwise in ((False, "not measured"), (True, "not simulated")):
            if found := rows.get((kind, projected)):
                machine, state, extents, over, speedup = found
                what = "tokens" if kind == "flash_decode" else "rows"
                cells.append(f"{machine}, {min(extents)} to {max(extents)} {what}: {speedup_text(speedup)}")
                old = old or "older" in state
                if kind == "ag_gemm":
                    beside.append(f"{span(over)} on {machine}" + (f" ({state.replace('**', '')})" if projected else ""))
            else:
                cells.append(otherwise)
        out.append(f"| {title} | {replaces} | {cells[0]} | {cells[1]} |")
    out += exchanges.for_readers(results)
    out.append("\nA figure says how many times as long what is replaced takes, each side at its best in the same run. Below 1.00 the fused kernel loses. "
               "On MI300X the other side is our own GEMM or local kernel on the same clock, and RCCL at half the time of a published all-reduce.")
    if beside:
        out.append(f"Beside the GEMM alone, which gathers nothing, `ag_gemm` takes so many times as long: {', '.join(beside)}.")
    if old:
        out.append("Kernels have changed since they were measured: [performance](docs/performance.md#where-these-figures-come-from) has the commits.")
    return "\n".join(out)


def gains(results):
    """README.md's picture with what it shows."""
    return (picture("ag_gemm", "All-gather + GEMM on H200: time over the GEMM alone by rows, fused and bulk-synchronous", "docs/pictures", 560)
            + "\nMeasured on H200: how many times as long as the GEMM alone. At 1 communication is free. [Performance](docs/performance.md#all-gather--gemm) says what the lines are.")


def of_timeline(results):
    """Why the timeline's figures are not those of the taxes."""
    for found in sim_taxes.read(results)[0].values():
        if {"timeline"} <= found["bsp_graph"].keys() and "marked" in found and "timeline" in found["marked"]:
            twin, fused, spans = found["bsp_graph"], found["chosen"], found["marked"]
            return (f"From one iteration to the next the bulk-synchronous side takes {twin['real_time']:.1f} us, the fused kernel {fused['real_time']:.1f}. The picture has less of both: it ends with the last kernel, "
                    f"after {twin['timeline']['us']:.1f} and {spans['timeline']['us']:.1f} us. The fused kernel in it has spans, with which it takes {spans['real_time']:.1f}.")
    return ""


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def of_mi300x(results):
    """Whether an MI300X has measured anything, and what is to be said of that."""
    if list(results.glob("*.mi300xx[0-9]*.json")):
        return "MI300X has been measured; what is called a projection of one is a projection"
    return "Nothing was measured on an MI300X: what is said of one is a projection"


def picture(name, alt, folder="pictures", width=None):
    size = f'width="{width}" ' if width else ""
    return (f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}.dark.svg">\n  <img {size}alt="{alt}" src="{folder}/{name}.light.svg">\n</picture>\n')


def of_error(data):
    error = data["context"]["projected"]["error"]
    return f"median error of the model: {100 * error['median']:.0f} % on {error['points']} published points that it was not fitted to"


AG_BANDS = ((1, 32), (33, 128), (129, 1024), (1025, 8192))  # rows; a target holds for all of a band


def about_ag_gemm(results):
    """A row for each band of M, over all shapes that were measured on 2 and 4 H200."""
    out, rows = [], []
    for name in ("ag_gemm.h200x4", "ag_gemm.h200x2"):
        data = load(results, name)
        rows += fused_and_twin(data) if data else []
    if rows:
        worst_keys, worst, _ = max(rows, key=lambda row: row[1])
        bands = [(low, high, [row for row in rows if low <= int(row[0]["M"]) <= high]) for low, high in (*AG_BANDS, (1, 8192))]
        out += ["In the picture a line says how many times as long as the GEMM alone; at 1 communication is free. Dashed and dotted: a collective, then a GEMM. *Sharded over K*: each rank has all rows of A and a part of its columns. "
                "*Over M*: a part of the rows.\n",
                "On 2 and 4 H200, by rows. *GEMM*: the vendor's alone, in the same run. *Twin*: a collective and that GEMM.\n",
                "| M | shapes | fused / GEMM | target, at most | above it | twin / fused | twin / fused, mean | fused is faster in |", "|---" * 8 + "|"]
        for low, high, found in bands:
            if not found:
                continue
            targets = sorted({X_GEMM(int(keys["M"])) for keys, _, _ in found})
            speedup = [s for _, _, s in found]
            out.append(f"| {low} to {high} | {len(found)} | {span([o for _, o, _ in found])} | {span(targets)} | {sum(o > X_GEMM(int(k['M'])) for k, o, _ in found)} "
                       f"| {span(speedup)} | {geometric_mean(speedup):.2f} | {sum(s > 1 for s in speedup)} |")
        out.append(f"\nThe gather costs most at M = {worst_keys['M']}, W = {worst_keys['W']}, gather::{worst_keys['gather']}: {worst:.2f} times the GEMM.")
    twin_faster, count, close = 0, 0, 0
    for path in sorted(measured(results, "ag_gemm_random")):
        for by_m in ag_gemm_shapes(json.loads(path.read_text())).values():
            for found in by_m.values():
                us = {v: found[v]["real_time"] for v in VARIANTS if v in found}
                if {"pull", "push", "chosen", "bsp_eager", "bsp_graph"} <= us.keys():
                    count += 1
                    close += us["chosen"] <= 1.05 * min(us["pull"], us["push"])
                    twin_faster += min(us["bsp_eager"], us["bsp_graph"]) < us["chosen"]
    if count:
        out.append(f"\nOn {count} random shapes what `ag_gemm` chooses is within 5 % of the better of pull and push in {close}. The twin is faster in {twin_faster}.")
    return out


def about_projected_ag_gemm(results):
    """Under a picture of its own: a row for each number of rows M."""
    data = ag_gemm_projected(results)
    found = [row for row in fused_and_twin(data) if int(row[0]["W"]) > 1] if data else []
    if not found:
        return []
    rows, shapes = {}, sorted({(keys["gather"], int(keys["N"])) for keys, _, _ in found})
    for keys, over, speedup in found:
        rows.setdefault(int(keys["M"]), {})[keys["gather"], int(keys["N"])] = f"{over:.2f}, {speedup:.2f}"
    few, many = ([over for keys, over, _ in found if (int(keys["M"]) <= 32) == below] for below in (True, False))
    out = [f"**8 MI300X, a projection** ({of_error(data)}). Each cell: fused over this library's GEMM alone on the same clock, then the bulk-synchronous twin over fused. The twin is that GEMM and RCCL at half the time of a published all-reduce of as many bytes."]
    if few and many:
        out.append(f"Fused takes {span(few)} times as long as the GEMM up to 32 rows, and {span(many)} times from 64 on. {VENDORS}")
    out += ["", "| M | " + " | ".join(f"gather::{gather}, N = {n}" for gather, n in shapes) + " |", "|---" * (len(shapes) + 1) + "|"]
    return out + [f"| {m} | " + " | ".join(of_m.get(shape, "-") for shape in shapes) + " |" for m, of_m in sorted(rows.items())]


VENDORS = "[The table](performance_tables.md#projection-all-gather--gemm-mi300x) also has hipBLASLt's GEMM, interpolated from published rates. It is on no clock of ours. Shapes whose own GEMM has not been projected are left out."


DECODE_BANDS = ((8192, 32768), (65536, 262144), (524288, 1048576))  # tokens


def about_flash_decode(results):
    """A row for each band of tokens, and for each number of simulated GPUs."""
    def row(machine, state, found):
        tokens = sorted(int(keys["kv"]) for keys, _, _ in found)
        speedup = [s for _, _, s in found]
        return f"| {machine} | {state} | {tokens[0]} to {tokens[-1]} | {len(found)} | {span([o for _, o, _ in found])} | {span(speedup)} | {geometric_mean(speedup):.2f} |"

    out, rows = [], []
    for name in ("flash_decode.h200x4", "flash_decode.h200x2"):
        data = load(results, name)
        rows += fused_and_twin(one_sequence(data)) if data else []
    bands = [[r for r in rows if low <= int(r[0]["kv"]) <= high] for low, high in DECODE_BANDS]
    out += [row("2 and 4 H200", "measured", band) for band in bands if band]
    data = load(results, "flash_decode.mi300x_projected")
    found = [r for r in fused_and_twin(data) if int(r[0]["W"]) > 1] if data else []
    for ranks in sorted({int(keys["W"]) for keys, _, _ in found}):
        out.append(row(f"{ranks} MI300X", "**projected**", [r for r in found if int(r[0]["W"]) == ranks]))
    if not out:
        return []
    head = ["One sequence. *Local*: the kernel without any exchange. *Twin*: that kernel, an all-gather and a combining kernel.\n",
            "| machine | | tokens | shapes | fused / local | twin / fused | twin / fused, mean |", "|---" * 7 + "|"]
    return head + out + ([f"\nThe projected rows are those of the simulator's clock ({of_error(data)})."] if found else [])


def about_gemm(results):
    """A row for each kind of GEMM on one GPU: its time over that of cuBLASLt's best."""
    def row(title, over):
        mean = lambda values: f"{geometric_mean(values):.2f}" if values else "-"
        return (f"| {title} | {len(over)} | {span([o for _, o in over])} | {mean([o for _, o in over])} | {mean([o for m, o in over if m <= 64])} "
                f"| {mean([o for m, o in over if m >= 1024])} |")

    out = []
    for name, title in (("gemm.h200x1", "`ag_gemm`, column-major B"), ("gemm_row_major.h200x1", "`ag_gemm`, row-major B")):
        data = load(results, name)
        over = [(m, found["chosen"]["real_time"] / found["gemm"]["real_time"]) for by_m in (ag_gemm_shapes(data).values() if data else []) for m, found in by_m.items() if {"chosen", "gemm"} <= found.keys()]
        out += [row(title, over)] if over else []
    sinks = [(kind, data) for kind, _ in SINKS if (data := load(results, f"{kind}.h200x1"))]
    alone = [(int(key_of(name)["M"]), us["fused"] / us["gemm"]) for _, data in sinks for name, us in times_of(data).items() if {"fused", "gemm"} <= us.keys()]
    out += [row(", ".join(f"`{kind}`" for kind, _ in sinks), alone)] if alone else []
    return ["On one H200, where nothing is gathered or sent: the operator's time over that of the best of cuBLASLt's heuristics.\n",
            "| operator | shapes | over cuBLASLt | mean | mean up to 64 rows | mean from 1024 rows |", "|---" * 6 + "|", *out] if out else []


BANDS = ((1, 64), (128, 2048), (4096, 8192))  # rows


def torch_over_fused(results, kind, data):
    """Of every shape that PyTorch ran, its best time over the fused kernel's."""
    beside, fused = load(results, "torch/gemm_collectives.h200x2"), {}
    for b in data["benchmarks"]:
        operator, variant, *keys = b["name"].split("/")
        if variant == "fused" and not b.get("error_occurred"):
            fused[tuple(keys)] = b["real_time"]
    best = {}
    for b in beside["benchmarks"] if beside else []:
        operator, variant, *keys = b["name"].split("/")
        if operator == kind and tuple(keys) in fused:
            best[tuple(keys)] = min(best.get(tuple(keys), math.inf), b["real_time"])
    return [us / fused[keys] for keys, us in best.items()]


def about_sums(results):
    out, slower = [], []
    for kind, title in SINKS:
        data = load(results, f"{kind}.h200x2")
        rows = fused_and_twin(data) if data else []
        slower += [(1 / s, title, keys) for keys, _, s in rows]
        if rows:
            bands = [[s for keys, _, s in rows if low <= int(keys["M"]) <= high] for low, high in BANDS]
            beside = torch_over_fused(results, kind, data)
            cells = [*(speedup_text(band) if band else "-" for band in bands),
                     f"{sum(s > 1 for _, _, s in rows)} of {len(rows)}", speedup_text(beside) if beside else "-"]
            out.append(f"| {title} | " + " | ".join(cells) + " |")
    if out:
        longer, title, keys = max(slower, key=lambda row: row[0])
        head = [*(f"twin, {low} to {high} rows" for low, high in BANDS), "faster than the twin in", "PyTorch's best"]
        out = ["On 2 H200, the other's time over the fused kernel's. The twin is a GEMM of cuBLASLt and NCCL; PyTorch's "
               "best is its fused operator or `mm` and NCCL, on the same machine:\n",
               "| | " + " | ".join(head) + " |",
               "|---" * (len(BANDS) + 3) + "|", *out, ""]
        out.append(f"The slowest is {title} with M = {keys['M']}, N = {keys['N']}, K = {keys['K']}: {longer:.2f} times as "
                   "long as the twin. From 1024 rows on the warps that multiply also store to the peer, and wait while "
                   "the link is busy ([decisions](decisions/reductions.md)).")
        out += [f"- {title} has not been measured between GPUs."
                for kind, title in SINKS if not load(results, f"{kind}.h200x2")]
    return out


def published_points():
    """(class, use, published us, projected us)"""
    with open(ROOT / "sim" / "calibration" / "predicted.csv", newline="") as file:
        return [(r["class"], r["use"], float(r["published_us"]), float(r["predicted_us"])) for r in csv.DictReader(file)]


def points_row(title, errors):
    return (f"| {title} | {len(errors)} | {sum(abs(e) <= 0.15 for e in errors)} | {100 * statistics.median(map(abs, errors)):.0f} % | {100 * max(errors, key=abs):+.0f} % | {sum(e < 0 for e in errors)} |")


def about_model():
    """A row for the points that constants may have been fitted to, one for the others, one for all-reduce by size."""
    rows = [(name, use, predicted / published - 1) for name, use, published, predicted in published_points()]
    return ["Projected over published time less one, by points.\n",
            "| points | number | within 15 % | median error | worst | too fast |", "|---" * 6 + "|",
            points_row("that constants may have been fitted to", [e for _, use, e in rows if use == "fit"]),
            points_row("**that none was fitted to**", [e for _, use, e in rows if use == "check"]),
            points_row("all-reduce by size, of both", [e for name, _, e in rows if name.startswith("push, W = ")]),
            "\nThe kernels behind the points are likenesses of ours, written after what the sources say. [The simulator's page](simulator.md#what-the-clocks-projections-are-worth) has each point and its source, "
            "and [a picture](simulator.md#all-reduce-by-size) of all-reduce by size."]


STEPS = {"bsp_eager": "three kernels, launched one by one", "bsp_graph": "the same three in a graph", "bsp_in_place": "the all-gather stores where the GEMM reads: no `join_columns`",
         "after_all": "one kernel; no block multiplies before all of A is there", "chosen": "`ag_gemm`: a block multiplies what has come"}


def twin_of_the_tables(results, m):
    """Why the same shape has another bulk-synchronous time in the tables."""
    data = ag_gemm_projected(results)
    us = next((us for name, us in (times_of(data).items() if data else ()) if name.startswith("ag_gemm/gather:k/") and f"/W:8/M:{m}/N:3584/" in name), {})
    if "bsp_graph" not in us:
        return ""
    return (f"\n[The tables](performance_tables.md#projection-all-gather--gemm-mi300x) have the same two figures for the fused kernel and the GEMM. Their bulk-synchronous time is {us['bsp_graph']:.1f}: "
            "it has RCCL's published rate in place of `all_gather`, and a copy that is computed, not simulated.")


def projected_taxes(results):
    """The tables of docs/taxes.md."""
    out = []
    by_m, context = sim_taxes.read(results)
    for m, found in by_m.items():
        us = {variant: b["real_time"] for variant, b in found.items()}
        p = sim_taxes.parts_of(found)
        error = context["projected"]["error"]
        out.append(f"Projected, M = {m}, N = 3584 per rank, K = 8192, gather::k, bf16, W = 8; {context['projected']['mhz']} MHz, commit {context['commit']}. The model's median error is {100 * error['median']:.0f} % on {error['points']} published points that it was not")
        out.append(f"fitted to ({', '.join(f'{name} {e * 100:.0f} %' for name, e in error['classes'].items())}). Differences of a microsecond are less than that error.\n")
        out += ["| each tax by its own experiment, us | twin | fused | tax |", "|---|---|---|---|"]
        out.append(f"| launches in a graph: kernels that do nothing | {us['empty_3']:.1f} (3) | {us['empty_1']:.1f} (1) | {p['launches']:.1f} |")
        out.append(f"| launches one by one, the host ahead of the GPU | {us['empty_3_eager']:.1f} (3) | {us['empty_1_eager']:.1f} (1) | {us['empty_3_eager'] - us['empty_1_eager']:.1f} |")
        out.append(f"| waiting for the whole transfer | {us['after_all']:.1f} | {us['chosen']:.1f} | {p['whole']:.1f} |")
        late = sorted({key[1] for key in found if isinstance(key, tuple)} - {0})
        for d in late:
            if all((v, t) in found for v in ("bsp_graph", "chosen") for t in (0, d)):
                longer = [found[v, d]["others_us"] - found[v, 0]["others_us"] for v in ("bsp_graph", "chosen")]
                out.append(f"| waiting for a rank that is {d} us late: the others end later by | {longer[0]:.1f} | {longer[1]:.1f} | {longer[0] - longer[1]:.1f} |")
        out.append(f"| bytes through memory: the copy, less its launch | {p['copy']:.1f} | 0 | {p['copy']:.1f} |\n")
        twin, fused = found["bsp_graph"], found["chosen"]
        out += ["| bytes of an iteration of a GPU, MB | twin | fused | difference |", "|---|---|---|---|"]
        for key, title in (("hbm_bytes", "HBM"), ("mall_bytes", "memory side: Infinity Cache, with what goes on to HBM"), ("l2_bytes", "L2s")):
            out.append(f"| {title} | {twin[key] / 1e6:.1f} | {fused[key] / 1e6:.1f} | {(twin[key] - fused[key]) / 1e6:.1f} |")
        less = twin["hbm_bytes"] - fused["hbm_bytes"]
        out.append(f"\nA is {2 * m * 8192 / 1e6:.1f} MB beside {2 * 3584 * 8192 / 1e6:.1f} MB of weights. The fused kernel's {less / 1e6:.1f} MB fewer of HBM are {less / HBM:.1f} us at the clock's {HBM * 1e-6:.1f} TB/s.\n")
        out += ["| from one to the other, one step at a time | us | saved | expected of the experiments | left |", "|---|---|---|---|---|"]
        expected = {"bsp_graph": 3 * (p["eager_launch"] - p["launch"]), "bsp_in_place": us["join_columns"], "after_all": p["launch"]}
        for before, step in zip((None, *sim_taxes.CHAIN), sim_taxes.CHAIN):
            saved = us[before] - us[step] if before else None
            of_step = expected.get(step)
            out.append(f"| `{step}`: {STEPS[step]} | {us[step]:.1f} | {number(saved)} | {number(of_step)} | {number(saved - of_step if of_step is not None else None)} |")
        out.append(f"\n**Of the {p['twin'] - p['fused']:.1f} us between the twin in a graph ({p['twin']:.1f}) and the fused kernel ({p['fused']:.1f}), launches explain {p['launches']:.1f}, the copy's bytes {p['copy']:.1f}, waiting for the whole transfer {p['whole']:.1f}; "
                   f"the remainder is {p['remainder']:.1f}.** The GEMM alone takes {p['gemm']:.1f}, the all-gather alone {us['all_gather']:.1f}."
                   + twin_of_the_tables(results, m) + "\n")
    return "\n".join(out).rstrip()


def measured_taxes(results, older):
    """The same for machines with several GPUs: `scripts/bench taxes`."""
    out = []
    for kind, title in (("ag_gemm_taxes", "All-gather + GEMM"), ("flash_decode_taxes", "Flash Decode")):
        for path in sorted(measured(results, kind), reverse=True):
            data = json.loads(path.read_text())
            out.append(f"### {title}: {provenance(data['context'])}\n")
            out += older_kernels(path, older)
            taxes(data, out)
    return "\n".join(out).rstrip()


def about_taxes(results):
    """A row for each step from the twin to the fused kernel."""
    by_m, context = sim_taxes.read(results)
    out = []
    for m, found in by_m.items():
        p = sim_taxes.parts_of(found)
        rows = (("bulk-synchronous twin of this library's own kernels", p["twin"]), ("less: launches", p["launches"]), ("less: the copy's bytes", p["copy"]),
                ("less: waiting for the whole transfer", p["whole"]), ("less: the remainder, which no experiment shows", p["remainder"]), ("**fused kernel**", p["fused"]))
        out += [f"**8 MI300X, a projection** ({of_error({'context': context})}), M = {m}, gather::k.\n", "| from the twin to the fused kernel | us, projected |", "|---|--:|",
                *(f"| {what} | {us:.1f} |" for what, us in rows), "\n[The three taxes](taxes.md) says what each is and shows the iteration in time."]
    return out


def summary(results, older):
    out = ["# Performance\n", "Made by `scripts/perf/performance.py` from `bench/results`; all rows are in [the tables](performance_tables.md). "
           f"**{of_mi300x(results)}** by the",
           "simulator's clock, with that model's error beside it. On H200 a time is one iteration of the slowest rank, the median of replays of a graph with many, with weights and KV that no cache holds, and with",
           "checked outputs; [the tables](performance_tables.md) say more. *Twin*: the same work bulk-synchronously, by NCCL and cuBLASLt at their best.\n", in_short(results, older), ""]
    sections = [("All-gather + GEMM", [("ag_gemm", "All-gather + GEMM: time over the GEMM alone by rows, fused and bulk-synchronous")], about_ag_gemm(results)),
                ("All-gather + GEMM on MI300X, projected", [("ag_gemm_projected", "All-gather + GEMM on 8 MI300X, a projection: time over our own GEMM on the same clock by rows")], about_projected_ag_gemm(results)),
                ("Flash Decode", [("flash_decode", "Flash Decode: microseconds by tokens, fused, bulk-synchronous and the floor")], about_flash_decode(results)),
                ("GEMMs on one GPU", [], about_gemm(results)),
                ("GEMM + reduce-scatter, + all-reduce, + all-scatter", [], about_sums(results)),
                ("Collectives, groups of rows", [], exchanges.section(results, older)),
                ("The three taxes", [("taxes", "From the bulk-synchronous twin's time to the fused kernel's, one tax after the other")], about_taxes(results)),
                ("How far to trust the projections", [("published", "Projected over published microseconds of MI300X, each point, with a band of 15 %")], about_model()),
                ("Where these figures come from", [], where_from(results, older))]
    for title, pictures, lines in sections:
        if lines:
            out += [f"## {title}\n", *(picture(*p) for p in pictures), *lines, ""]
    return "\n".join(out).rstrip() + "\n"


def older_kernels(path, older):
    """What stands under the heading of a file that measured other kernels than today's."""
    return ["**Older kernels**: their headers have changed since this commit.\n"] if older.get(path.stem, {}).get("older", True) else []


def tables(results, older):
    out = ["# Performance: all tables\n", "Made by `scripts/perf/performance.py` from `bench/results`; `scripts/bench` runs the benchmarks. [Performance](performance.md) says what to conclude. "
           f"{of_mi300x(results)},",
           "under headings that say so.\n",
           "A time is one iteration of the slowest rank in microseconds: the median of replays of one graph with many iterations, in which weights",
           "rotate among more than 1 GB of copies, KV among more than 0.5 GB, and A and the query are others each time. Variants take turns in one run, and the outputs of the timed",
           "replays are checked. NCCL works on registered symmetric windows, with NVLS off; the twin is the better of eager and graph. AG+GEMM is told that B is constant",
           "(`b_is_constant`), so on Hopper its first stages load while the launch before it ends.\n"]
    for kind, title, tell in (("ag_gemm", "All-gather + GEMM", ag_gemm), ("ag_gemm_random", "All-gather + GEMM, random shapes", random_shapes),
                              ("gemm", "The GEMM alone", gemm_alone), ("gemm_row_major", "The GEMM alone, row-major B", gemm_alone),
                              *((kind, title, gemm_sinks) for kind, title in SINKS),
                              ("flash_decode", "Flash Decode", flash_decode), ("primitives", "Primitives", primitives)):
        for path in sorted(measured(results, kind), reverse=True):
            data = json.loads(path.read_text())
            if all(b.get("error_occurred") for b in data["benchmarks"]):  # primitives on one GPU: all of them are between GPUs
                continue
            out.append(f"## {title}: {provenance(data['context'])}\n")
            out += older_kernels(path, older)
            tell(data, out)
            out.append("")
    projections(results, out)
    return "\n".join(out).rstrip() + "\n"


def between_marks(page, *texts):
    """The page with each text between the next two marks."""
    out, rest = "", page.read_text()
    for text in texts:
        before, begin, rest = rest.partition("<!-- scripts/perf/performance.py writes this -->\n")
        _, end, rest = rest.partition("<!-- to here -->")
        if not end:
            sys.exit(f"{page} lacks the marks between which figures go")
        out += before + begin + wrapped(text) + "\n" + end
    return out + rest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", metavar="RESULTS", type=pathlib.Path, help="the folder with the JSON files: bench/results")
    parser.add_argument("page", metavar="OUT", type=pathlib.Path, help="what is written: docs/performance.md, and performance_tables.md and the tables of taxes.md beside it")
    parser.add_argument("readme", metavar="README", type=pathlib.Path, nargs="?", help="README.md, whose figures are made again")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file would change")
    arguments = parser.parse_args()
    results, page, readme = arguments.results, arguments.page, arguments.readme
    if not results.is_dir():
        parser.error(f"{results} is no folder")
    older = kernels_since.found(ROOT, results)
    made = {results / kernels_since.STORE: kernels_since.text_of(older), page: wrapped(summary(results, older)),
            page.with_stem(page.stem + "_tables"): wrapped(tables(results, older))}
    if (of_taxes := page.with_name("taxes.md")).exists():
        made[of_taxes] = between_marks(of_taxes, projected_taxes(results), of_timeline(results), measured_taxes(results, older))
    if readme:
        made[readme] = between_marks(readme, for_readers(results, older), gains(results))
    if arguments.check:
        stale = [file for file, text in made.items() if not file.exists() or file.read_text() != text]
        sys.exit("\n".join(f"{file}: its figures are not those of {results}; run scripts/perf/performance.py" for file in stale) or 0)
    for file, text in made.items():
        file.write_text(text)


main()
