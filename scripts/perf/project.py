#!/usr/bin/env python3
"""Projects benchmarks onto MI300X: runs build/.../bin/projection under fusewire-sim --time, and writes bench/results/NAME.mi300x_projected.json with the benchmarks'
own names, and the error of the clock on points that it was not fitted to (sim/calibration/predicted.csv). A shape whose projection is there from the same simulator
and program is not run again, so a run that ends early is continued by the next.

Where a figure comes from stands beside it: `simulated`; `published`, the vendor's GEMM and RCCL at rates that others measured; `composed`, a sum of such figures.
Beside the fused kernels stands `own_gemm`, this library's GEMM on the same clock: a ratio of two clocks says nothing."""
import argparse
import concurrent.futures
import csv
import hashlib
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOMINAL_MHZ = 2100
GRAPH_GAP = 1.5  # us between kernels of a graph, as graph_gap_us in sim/machine/timing.hpp
MEMORY = 5.3e6 * 0.92  # bytes per us, likewise

# The vendor's GEMM. hipBLASLt, one row: bytes per us of the weights, by their size (ROCm/rocm-libraries pull request 12329); squares of 1024 to 8192: flops per us, by
# flops (HipKittens, MI325X). In between: interpolated over the logarithm of the size; outside: the nearest.
BYTES_RATE = [(90.2e6, 2.75e6), (132.9e6, 3.07e6), (201.3e6, 3.27e6), (473.7e6, 3.98e6), (1012e6, 3.96e6), (2024e6, 4.07e6)]
FLOPS_RATE = [(2 * 1024**3, 79.1e6), (2 * 2048**3, 325e6), (2 * 4096**3, 752.5e6), (2 * 8192**3, 785.3e6)]

# RCCL 2.20.5 of ROCm 6.2: us of an all-reduce of fp16, by ranks and by bytes of a rank's input (mk1-project/quickreduce README).
KIB, MIB = 1024, 1024**2
RCCL_ALL_REDUCE = {
    2: [(32 * KIB, 17.15), (64 * KIB, 17.52), (128 * KIB, 18.31), (256 * KIB, 20.73), (512 * KIB, 25.97), (MIB, 37.22), (2 * MIB, 59.14), (4 * MIB, 105.1), (8 * MIB, 195.2), (16 * MIB, 376.3),
        (32 * MIB, 739.0), (64 * MIB, 1464.3)],
    4: [(32 * KIB, 18.17), (64 * KIB, 18.23), (128 * KIB, 29.42), (256 * KIB, 29.98), (512 * KIB, 32.27), (MIB, 39.40), (2 * MIB, 48.87), (4 * MIB, 70.61), (8 * MIB, 115.7), (16 * MIB, 205.4),
        (32 * MIB, 388.6), (64 * MIB, 761.2)],
    8: [(32 * KIB, 16.22), (64 * KIB, 20.00), (128 * KIB, 22.56), (256 * KIB, 18.01), (512 * KIB, 24.19), (MIB, 26.39), (2 * MIB, 34.05), (4 * MIB, 52.13), (8 * MIB, 83.12), (16 * MIB, 148.4),
        (32 * MIB, 240.4), (64 * MIB, 426.0)]}


def rate(table, size):
    if size <= table[0][0]:
        return table[0][1]
    for (low, at_low), (high, at_high) in zip(table, table[1:]):
        if size <= high:
            return at_low + (at_high - at_low) * math.log(size / low) / math.log(high / low)
    return table[-1][1]


def vendor_gemm(m, n, k):
    weights, flops = 2 * n * k, 2 * m * n * k
    return max(weights / rate(BYTES_RATE, weights), flops / rate(FLOPS_RATE, flops))


def rccl_all_gather(w, nbytes):
    """us; nbytes: what every rank has in the end. An all-reduce is a reduce-scatter and an all-gather of as many bytes, so this is half of one. That is kind to RCCL: its launch is halved, too."""
    return rate(RCCL_ALL_REDUCE[w], nbytes) / 2 if w in RCCL_ALL_REDUCE else None


RCCL_LABEL = "RCCL: half of a published all-reduce of as many bytes, interpolated"


def sustained_mhz():
    return int(re.search(r"^NOMINAL_MHZ, SUSTAINED_MHZ = \d+, (\d+)", (ROOT / "scripts" / "perf" / "calibrate").read_text(), re.M)[1])


def model_error():
    path = ROOT / "sim" / "calibration" / "predicted.csv"
    if not path.exists():
        sys.exit(f"error: {path} is not there\n       scripts/perf/calibrate makes it: no projection without its error")
    with open(path) as file:
        rows = [(r["class"], abs(float(r["predicted_us"]) / float(r["published_us"]) - 1)) for r in csv.DictReader(file) if r["use"] == "check"]
    classes = {name: round(statistics.median(e for n, e in rows if n == name), 3) for name in dict.fromkeys(n for n, _ in rows)}
    return {"median": round(statistics.median(e for _, e in rows), 3), "points": len(rows), "classes": classes}


class Runner:
    def __init__(self, build, out, deadline, limit, timing, wanted="", jobs=1):
        self.launcher, self.program = build / "sim" / "fusewire-sim", build / "bin" / "projection"
        self.primitives, self.taxes = build / "bin" / "bench_primitives", build / "bin" / "projection_taxes"
        self.out, self.deadline, self.limit, self.timing, self.not_run = out, deadline, limit, timing, []
        self.wanted, self.jobs, self.simulated = wanted, jobs, 0
        for path in (self.launcher, self.program):
            if not path.exists():
                sys.exit(f"error: {path} is not there\n       cmake --preset sim && cmake --build build/sim --target projection, or say with FUSEWIRE_BUILD_DIR where the build is")
        digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self.made_with = lambda program: digest((self.launcher.parent / "lib" / "libamdhip64.so.7").resolve()) + " " + digest(program) + " " + timing
        self.left = lambda: self.deadline - time.monotonic()

    def simulate(self, gpus, mhz, *command):
        """stdout of a run, or None: no time, or it failed, which is told."""
        words = " ".join(map(str, command))
        if self.left() < 5:
            self.not_run.append(f"{words} at {mhz} MHz")
            return None
        begin = time.monotonic()
        try:
            done = subprocess.run([self.launcher, "--time", "--gpus", str(gpus), *map(str, command)], env={**os.environ, "FUSEWIRE_SIM_TIMING": ",".join([f"mhz={mhz}", *filter(None, [self.timing])])}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=min(self.limit, self.left()))
        except subprocess.TimeoutExpired:
            self.not_run.append(f"{words} at {mhz} MHz (no end within {time.monotonic() - begin:.0f} s)")
            return None
        if done.returncode:
            self.not_run.append(f"{words} at {mhz} MHz (status {done.returncode})")
            print(done.stdout.strip()[:400], file=sys.stderr)
            return None
        return done.stdout

    def projection(self, gpus, mhz, *arguments):
        text = self.simulate(gpus, mhz, self.program, *arguments)
        found = text and re.search(r"^us: ([0-9.]+)$", text, re.M)
        return float(found[1]) if found else None

    def variants(self, runs, known, fresh, add):
        """runs: (name, more, arguments of projection()). Those that are not fresh are simulated, self.jobs in parallel. Of their shapes nothing else is kept."""
        shape = lambda name: re.sub("/(plan|movers|columns):[^/]*", "", name)
        named, shapes = {name for name, *_ in runs}, {shape(name) for name, *_ in runs}
        for name in [name for name in known if shape(name) in shapes and name not in named]:
            del known[name]
        for name, more, _ in runs:
            if name in known:
                known[name].update(more)
        left = [run for run in runs if not fresh(run[0])]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            times = pool.map(lambda run: self.projection(run[2][0], NOMINAL_MHZ, *run[2][1:]), left)
            for i, ((name, more, _), us) in enumerate(zip(left, times), 1):
                add(name, us, "simulated", label="bf16", **more)
                print(f"[{i} of {len(left)}]", file=sys.stderr, flush=True)

    def file(self, name, mhz, make, plans=True, program=None):
        """make(known, fresh, add): what is not fresh(name) is simulated, and add(name, us, origin) stores it immediately. plans: it says with fresh() what
        it will simulate, so that the time left can be told."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"{name}.mi300x_projected.json"
        old = json.loads(path.read_text()) if path.exists() else {"benchmarks": []}
        known = {b["name"]: b for b in old["benchmarks"]}
        made_by = self.made_with(program or self.program)
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], text=True, stdout=subprocess.PIPE).stdout.strip()
        context = {"machine": "MI300X", "commit": commit, "projected": {"model": "fusewire-sim --time", "mhz": mhz, "error": model_error(), **({"other_constants": self.timing} if self.timing else {})}}
        fresh = lambda key: not re.search(self.wanted, key) or (key in known and known[key]["made_by"] == made_by)
        planned = 0
        def plan(key):
            nonlocal planned
            planned += not fresh(key)
            return True
        if plans:
            make(known, plan, lambda *figure, **more: None)
        begun, before = time.monotonic(), self.simulated
        def store():
            context["commit"] = commit if self.simulated > before else old.get("context", context)["commit"]  # of what was simulated
            path.write_text(json.dumps({"context": context, "benchmarks": list(known.values())}, indent=1) + "\n")
        stored = json.dumps(known)
        def add(key, us, origin, **more):
            if origin == "simulated":
                self.simulated += 1
            if us is None or not re.search(self.wanted, key):
                return
            known[key] = {"name": key, "real_time": round(us, 3), "time_unit": "us", "sm_mhz": mhz, "from": origin, "made_by": made_by, **more}
            store()
            print(f"{key:90s} {us:9.1f} us, {origin}", flush=True)
            if origin == "simulated" and planned:
                spent, done = time.monotonic() - begun, self.simulated - before
                left = min(spent / done * (planned - done), max(0, self.left()))  # as if the others took as long
                print(f"[{done} of {planned} of {name}, {spent / 60:.1f} min; about {left / 60:.1f} min left]", file=sys.stderr, flush=True)
        make(known, fresh, add)
        if json.dumps(known) != stored:
            store()


def ag_gemm(runner, name, mhz, rows, columns, worlds, gathers):
    def make(known, fresh, add):
        for w in worlds:
            for m in rows:
                for n in columns:
                    own = f"ag_gemm/own_gemm/gather:k/dtype:bf16/W:1/M:{m}/N:{n}/K:8192"
                    if w == min(worlds) and not fresh(own):
                        add(own, runner.projection(1, mhz, "gemm", m, n, 8192), "simulated", label="this library's GEMM, the denominator")
                    for by in gathers if w > 1 else ["k"]:
                        if by == "m" and m % w:
                            continue
                        key = lambda variant: f"ag_gemm/{variant}/gather:{by}/dtype:bf16/W:{w}/M:{m}/N:{n}/K:8192"
                        if not fresh(key("chosen")):
                            add(key("chosen"), runner.projection(w, mhz, "ag_gemm", "chosen", by, w, m, n, 8192), "simulated", label="bf16")
                        if w > 1 and not fresh(key("all_gather")):
                            add(key("all_gather"), runner.projection(w, mhz, "all_gather", w, 2 * m * 8192), "simulated", label="a kernel of fusewire's primitives")
                        add(key("gemm"), vendor_gemm(m, n, 8192), "published", label="hipBLASLt at published rates, interpolated")
                        gather = rccl_all_gather(w, 2 * m * 8192)
                        if re.search(runner.wanted, key("bsp_graph")):
                            known.pop(key("bsp_graph"), None)  # of another GEMM
                        if gather and own in known:
                            add(key("rccl"), gather, "published", label=RCCL_LABEL)
                            copy = GRAPH_GAP + 2 * 2 * m * 8192 / MEMORY if by == "k" and m > 1 else 0
                            add(key("bsp_graph"), gather + copy + GRAPH_GAP + known[own]["real_time"], "composed", label="rccl, a transposing copy where gather:k needs it, own_gemm")
    runner.file(name, mhz, make)


def flash_decode(runner, worlds, tokens):
    def make(known, fresh, add):
        for w in worlds:
            for kv in tokens:
                key = lambda variant: f"flash_decode/{variant}/W:{w}/batch:1/kv:{kv}/heads:96-12/d:128/page:16/pages:own"
                nbytes = kv // w * 12 * 128 * 4
                if not fresh(key("fused")):
                    add(key("fused"), runner.projection(w, NOMINAL_MHZ, "flash_decode", "fused", w, 1, kv), "simulated", label="f16", bytes=nbytes)
                if w > 1 and not fresh(key("local")):
                    add(key("local"), runner.projection(w, NOMINAL_MHZ, "flash_decode", "local", w, 1, kv), "simulated", label="f16", bytes=nbytes)
                payload = w * 96 * (128 * 2 + 4)
                if w > 1 and not fresh(gather := f"all_gather/W:{w}/bytes:{payload}"):
                    add(gather, runner.projection(w, NOMINAL_MHZ, "all_gather", w, payload), "simulated", label="a kernel of fusewire's primitives")
                rccl = rccl_all_gather(w, payload)
                if rccl and key("local") in known:
                    add(key("rccl"), rccl, "published", label=RCCL_LABEL)
                    combine = 2 * GRAPH_GAP + 2 * payload / MEMORY
                    add(key("bsp_graph"), known[key("local")]["real_time"] + rccl + GRAPH_GAP + combine, "composed", label="f16", bytes=nbytes)
    runner.file("flash_decode", NOMINAL_MHZ, make)


def random_shapes(count, seed):
    """Rows, columns and k of GEMMs: rows and columns of any number, few as often as many; no shape takes long to simulate."""
    random_, shapes = random.Random(seed), []
    while len(shapes) < count:
        extent = lambda least, most, multiple: int(math.exp(random_.uniform(math.log(least), math.log(most)))) // multiple * multiple
        m, n, k = extent(1, 2048, 1), extent(512, 16384, 8), extent(512, 16384, 64)
        if 2**24 <= n * k <= 2**27 and m * n * k <= 2**35:
            shapes.append((m, n, k))
    return shapes


def random_gathered_shapes(count, seed):
    """gather, ranks, rows, columns and k of AG+GEMMs, drawn likewise."""
    random_, shapes = random.Random(seed), []
    while len(shapes) < count:
        extent = lambda least, most, multiple: int(math.exp(random_.uniform(math.log(least), math.log(most)))) // multiple * multiple
        by, w = random_.choice("km"), random_.choice([2, 4, 8])
        m, n, k = extent(1, 512, w if by == "m" else 1), extent(512, 8192, 8), extent(1024, 8192, 8 * w)
        if m and 2**21 <= n * k <= 2**26 // w and m * n * k * w <= 2**32:
            shapes.append((by, w, m, n, k))
    return shapes


def listed_plans(runner, *arguments):
    """What `projection plans` lists: TILExTILExSPLIT_K, senders, columns of a chunk, modelled us; the chosen one first."""
    for line in (runner.simulate(1, NOMINAL_MHZ, runner.program, "plans", *arguments) or "").splitlines():
        *tile, movers, columns, modelled = line.split()
        yield "x".join(tile), int(movers), int(columns), float(modelled)


def plans(runner, rows, columns, count, seed, factor):
    """One GPU's GEMM with the plan that it chooses, and with those whose modelled time is up to `factor` times as long."""
    shapes = [(m, n, 8192) for n in columns for m in rows] + random_shapes(count, seed)
    def make(known, fresh, add):
        runs = []
        for at, (m, n, k) in enumerate(shapes):
            for rank, (tile, _, _, modelled) in enumerate(listed_plans(runner, "k", 1, m, n, k, factor)):
                more = {"modelled_us": modelled, "chosen": rank == 0, "random": at >= len(rows) * len(columns)}
                runs.append((f"gemm/plan:{tile}/dtype:bf16/M:{m}/N:{n}/K:{k}", more, (1, "gemm", m, n, k, *tile.split("x"))))
        runner.variants(runs, known, fresh, add)
    runner.file("gemm_plans", NOMINAL_MHZ, make, plans=False)


def ag_gemm_plans(runner, rows, columns, worlds, gathers, count, seed, factor):
    """AG+GEMM with the plan that it chooses, with the plans of other tiles and split_k that the model puts next, and with half and twice its senders and its chunks."""
    sweep = [(by, w, m, n, 8192) for w in worlds if w > 1 for n in columns for m in rows for by in gathers if by == "k" or m % w == 0]
    def make(known, fresh, add):
        runs, of_moving = [], []
        for at, (by, w, m, n, k) in enumerate(sweep + random_gathered_shapes(count, seed)):
            all_plans = list(listed_plans(runner, by, w, m, n, k, factor))
            if not all_plans:
                continue
            tile, movers, chunk, modelled = all_plans[0]
            variants = [(tile, 0, 0, modelled)] + [(other, 0, 0, us) for other, _, _, us in all_plans[1:]]
            variants += [(tile, count, 0, modelled) for count in (movers // 2, 2 * movers) if count]
            variants += [(tile, 0, width, modelled) for width in (chunk // 2, 2 * chunk) if 64 <= width <= (k // w if by == "k" else k) and width % 64 == 0]
            for i, (tile, movers, width, modelled) in enumerate(variants):
                name = "".join([f"plan:{tile}", f"/movers:{movers}" if movers else "", f"/columns:{width}" if width else ""])
                more = {"modelled_us": modelled, "chosen": i == 0, "random": at >= len(sweep)}
                arguments = (w, "ag_gemm", "chosen", by, w, m, n, k, *tile.split("x"), movers, width) if i else (w, "ag_gemm", "chosen", by, w, m, n, k)
                (of_moving if "/" in name else runs).append((f"ag_gemm/{name}/gather:{by}/dtype:bf16/W:{w}/M:{m}/N:{n}/K:{k}", more, arguments))
        runner.variants(runs + of_moving, known, fresh, add)
    runner.file("ag_gemm_plans", NOMINAL_MHZ, make, plans=False)


TAX_VARIANTS = ["chosen", "bsp_graph", "bsp_in_place", "after_all", "marked", "gemm", "all_gather", "join_columns", "empty_1", "empty_3", "empty_1_eager", "empty_3_eager", "bsp_eager"]
LATE = [0, 10, 40]  # us
BESIDE = ("begin_together", "try_flags", "stand_still")  # kernels that belong to no iteration


def of_an_iteration(stats, calls):
    """Kernels of an iteration, and its bytes at each level, of the mean GPU."""
    kernels = [k for k in json.loads(stats.read_text())["kernels"] if not any(name in k["kernel"] for name in BESIDE)]
    gpus = len({k["gpu"] for k in kernels})
    mean = lambda key: sum(k[key] for k in kernels) / gpus / calls
    return {"kernels": mean("launches"), **{key: round(mean(key)) for key in ("hbm_bytes", "mall_bytes", "l2_bytes", "link_bytes_out")}}


STEP = 0.25  # us of a timeline's bins


def timeline(trace):
    """What GPU 0 does in the trace's last iteration, in us from its start: its kernels, and in each bin the workgroups that move A, those that multiply, those of each that wait
    for a flag, and the GB/s that come over all links. Of a workgroup its first wave is seen."""
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X" and e["pid"] == 0 and not any(name in e["name"] for name in BESIDE)]
    short = lambda name: re.sub(r"^void |\(anonymous namespace\)::|fusewire::|bench::", "", name).split("<")[0].split("(")[0]
    kernels = sorted(((e["ts"], e["ts"] + e["dur"], short(e["name"])) for e in spans if e["tid"] == 0))
    first = max(i for i, k in enumerate(kernels) if k[2] == kernels[0][2])
    kernels = kernels[first:]
    begin, end = kernels[0][0], kernels[-1][1]
    names = {k[2] for k in kernels}
    bins = math.ceil((end - begin) / STEP)
    seen = {key: [0.0] * bins for key in ("moving", "moving_waits", "multiplying", "multiplying_waits")}

    def put(key, t0, t1, sign=1):
        t0, t1 = max(t0, begin) - begin, min(t1, end) - begin
        for i in range(int(t0 / STEP), min(bins, math.ceil(t1 / STEP)) if t1 > t0 else 0):
            seen[key][i] += sign * (min(t1, (i + 1) * STEP) - max(t0, i * STEP)) / STEP

    moves = {}  # place -> when its workgroup moves A
    for e in spans:
        if e["name"] == "moves A" or (e["tid"] and short(e["name"]) in ("pull_shards", "join_columns")):
            moves.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
            put("moving", e["ts"], e["ts"] + e["dur"])
    for e in spans:
        t0, t1 = e["ts"], e["ts"] + e["dur"]
        inside = [(max(t0, a), min(t1, b)) for a, b in moves.get(e["tid"], []) if a < t1 and t0 < b]
        if e["tid"] and short(e["name"]) in names - {"pull_shards", "join_columns"}:
            put("multiplying", t0, t1)
            for part in inside:
                put("multiplying", *part, -1)
        elif e["name"] == "waits: flags":
            put("moving_waits" if inside else "multiplying_waits", t0, t1)
    links = [0.0] * bins
    for source in range(1, 16):
        steps = sorted((e["ts"], e["args"]["GB/s"]) for e in events if e["ph"] == "C" and e["pid"] == source and e["name"].startswith("link to GPU 0,"))
        for (t0, rate), (t1, _) in zip(steps, steps[1:]):
            for i in range(max(0, int((t0 - begin) / STEP)), min(bins, math.ceil((t1 - begin) / STEP))):
                links[i] += rate * max(0, min(t1 - begin, (i + 1) * STEP) - max(t0 - begin, i * STEP)) / STEP
    rounded = lambda values: [round(max(0, v), 1) for v in values]
    return {"us": round(end - begin, 3), "step_us": STEP, "kernels": [[name, round(a - begin, 3), round(b - begin, 3)] for a, b, name in kernels],
            **{key: rounded(values) for key, values in seen.items()}, "links_gb_s": rounded(links)}


def taxes(runner, rows):
    """AG+GEMM on 8 GPUs from the bulk-synchronous twin to the fused kernel, one step at a time, and each tax alone: docs/taxes.md."""
    if not runner.taxes.exists():
        sys.exit(f"error: {runner.taxes} is not there\n       cmake --build it: target projection_taxes")
    w, n, k, calls = 8, 3584, 8192, 3
    folder = tempfile.TemporaryDirectory()  # removed with the variable
    stats, trace = pathlib.Path(folder.name) / "stats.json", pathlib.Path(folder.name) / "trace.json"

    def run(variant, m, *arguments):
        files = ["--stats-json", stats, *(["--trace", trace] if variant in ("marked", "bsp_graph") and not arguments else [])]
        text = runner.simulate(w, NOMINAL_MHZ, *files, runner.taxes, variant, w, m, n, k, *arguments)
        return text or ""

    def make(known, fresh, add):
        for m in rows:
            key = lambda variant, late="": f"ag_gemm/{variant}/gather:k/dtype:bf16/W:{w}/M:{m}/N:{n}/K:{k}{late}"
            for variant in TAX_VARIANTS:
                if not fresh(key(variant)) and (found := re.search(r"^us: ([0-9.]+)$", run(variant, m), re.M)):
                    add(key(variant), float(found[1]), "simulated", label="bf16", **of_an_iteration(stats, calls), **({"timeline": timeline(trace)} if variant in ("marked", "bsp_graph") else {}))
            for variant in ("bsp_graph", "chosen"):
                if all([fresh(key(variant, f"/late:{us}")) for us in LATE]):
                    continue
                for us, slowest, others in re.findall(r"^late (\d+): ([0-9.]+) ([0-9.]+)$", run(variant, m, ",".join(map(str, LATE))), re.M):
                    add(key(variant, f"/late:{us}"), float(slowest), "simulated", label="bf16", others_us=float(others))
        for file in (stats, trace):
            file.unlink(missing_ok=True)
    runner.file("ag_gemm_taxes", NOMINAL_MHZ, make, program=runner.taxes)


def layers(runner, shapes):
    """A decoder layer of Llama 3 70B's shapes on 8 GPUs, in 7, 8 and 9 launches, and its bulk-synchronous twin, whose GEMMs and collectives are this library's."""
    program, w = runner.program.parent / "projection_layer", 8
    if not program.exists():
        sys.exit(f"error: {program} is not there\n       cmake --build it, in a preset with FUSEWIRE_BENCHMARK_LAYERS: target projection_layer")
    def make(known, fresh, add):
        for batch, tokens in shapes:
            for argument, variant in (("twin", "bsp_graph"), ("7", "fused"), ("8", "fused_8"), ("9", "fused_9")):
                key = f"decoder_layer/{variant}/W:{w}/batch:{batch}/kv:{tokens}"
                if not fresh(key) and (found := re.search(r"^us: ([0-9.]+)$", runner.simulate(w, NOMINAL_MHZ, program, argument, w, batch, tokens) or "", re.M)):
                    add(key, float(found[1]), "simulated", label="bf16")
    runner.file("decoder_layer", NOMINAL_MHZ, make, program=program)


LINK = 48e3  # bytes per us of a link and direction, as link_gbs * link_efficiency in sim/machine/timing.hpp


def gemm_sinks(runner, worlds, rows, ks):
    """GEMM + reduce-scatter, + all-reduce, + all-scatter with N = 8192, each in a file of its own. K and N are all ranks'."""
    program, n = runner.program.parent / "projection_sinks", 8192
    if not program.exists():
        sys.exit(f"error: {program} is not there\n       cmake --build it, in a preset with FUSEWIRE_BENCHMARK_LAYERS: target projection_sinks")
    gemms = {}
    def own_gemm(*shape):
        if shape not in gemms:
            gemms[shape] = runner.projection(1, NOMINAL_MHZ, "gemm", *shape)
        return gemms[shape]
    def time(w, *arguments):
        found = re.search(r"^us: ([0-9.]+)$", runner.simulate(w, NOMINAL_MHZ, program, *arguments) or "", re.M)
        return float(found[1]) if found else None
    def make_of(op):
        def make(known, fresh, add):
            for k, w, m in [(k, w, m) for k in ks for w in worlds for m in rows]:
                key = lambda variant: f"{op}/{variant}/dtype:bf16/W:{w}/M:{m}/N:{n}/K:{k}"
                own = (m, n // w, k) if op == "gemm_all_scatter" else (m, n, k // w)
                if not fresh(key("own_gemm")):
                    add(key("own_gemm"), own_gemm(*own), "simulated", label="this library's GEMM, the denominator")
                if not fresh(key("fused")):
                    add(key("fused"), time(w, op, w, m, n, k), "simulated", label="bf16")
                over_a_link = 2 * (math.ceil(m / w) * n * (2 if op == "gemm_ar" else 1) if op != "gemm_all_scatter" else m * n // w)
                add(key("link"), over_a_link / LINK, "composed", label="bytes of a link over its rate")
                rccl = rate(RCCL_ALL_REDUCE[w], 2 * m * n) if op == "gemm_ar" else rccl_all_gather(w, 2 * m * n)
                if key("own_gemm") in known:
                    add(key("rccl"), rccl, "published", label="RCCL: a published all-reduce of as many bytes, interpolated" if op == "gemm_ar" else RCCL_LABEL)
                    add(key("bsp_graph"), known[key("own_gemm")]["real_time"] + GRAPH_GAP + rccl, "composed", label="own_gemm, rccl")
        return make
    for op in ("gemm_rs", "gemm_ar", "gemm_all_scatter"):
        runner.file(op, NOMINAL_MHZ, make_of(op), program=program)


PUT = 3 + 0.5 + 0.3  # us of a put without bytes: one_way_us and post_us of bench/projection_nodes.cpp, and a turn of the thread


def nodes(runner, rates):
    """Operators over two nodes of eight, with NICs of `rates` GB/s, beside one node of eight that does the same work."""
    program, w, n = runner.program.parent / "projection_nodes", 8, 8192
    sinks, all_reduce = runner.program.parent / "projection_sinks", runner.program.parent / "projection_all_reduce"
    for path in (program, sinks, all_reduce):
        if not path.exists():
            sys.exit(f"error: {path} is not there\n       cmake --build it, in a preset with FUSEWIRE_BENCHMARK_LAYERS: target {path.name}")
    def time(gpus, *command):
        found = re.findall(r" ([0-9.]+)$", runner.simulate(gpus, NOMINAL_MHZ, *command) or "", re.M)
        return float(found[-1]) if found else None
    def make(known, fresh, add):
        def row(name, one, two, own, between, inside):
            """one, two: commands for a node and for two of them; own: a GEMM; between: bytes that a rank puts; inside: us of RCCL in a node."""
            if not fresh(f"nodes/one/{name}"):
                add(f"nodes/one/{name}", time(w, *one), "simulated", label="bf16")
            if own and not fresh(f"nodes/own_gemm/{name}"):
                add(f"nodes/own_gemm/{name}", runner.projection(1, NOMINAL_MHZ, "gemm", *own), "simulated", label="this library's GEMM of a rank of two nodes")
            for gbs in rates:
                if not fresh(f"nodes/two_{gbs}/{name}"):
                    add(f"nodes/two_{gbs}/{name}", time(2 * w, program, two[0], gbs, 2, w, *two[1:]), "simulated", label="bf16")
                gemm = known.get(f"nodes/own_gemm/{name}")
                if gemm or not own:
                    steps = [gemm["real_time"]] if own else []
                    add(f"nodes/steps_{gbs}/{name}", sum(steps) + inside + PUT + between / (gbs * 1e3) + (1 + len(steps)) * GRAPH_GAP, "composed", label="own_gemm, RCCL in a node, puts")
        for nbytes in (8 * KIB, 64 * KIB, MIB, 8 * MIB):
            row(f"all_reduce/bytes:{nbytes}", (all_reduce, w, max(1, nbytes // 16384), min(nbytes // 2, 8192), "chosen"), ("all_reduce", nbytes), None, nbytes // w, rate(RCCL_ALL_REDUCE[w], nbytes))
        for m, k in ((16, 16384), (64, 16384), (256, 16384)):
            row(f"gemm_ar/M:{m}/N:{n}/K:{k}", (sinks, "gemm_ar", w, m, n, k), ("gemm_ar", m, n, k), (m, n, k // (2 * w)), 2 * m * n // w, rate(RCCL_ALL_REDUCE[w], 2 * m * n))
        for m, columns in ((256, 16384), (256, 57344), (1024, 16384)):
            row(f"ag_gemm/M:{m}/N:{columns}/K:8192", (runner.program, "ag_gemm", "chosen", "m", w, m, columns // w, 8192), ("ag_gemm", m, columns // (2 * w), 8192),
                (m, columns // (2 * w), 8192), 2 * m * 8192 // (2 * w), rccl_all_gather(w, 2 * m * 8192))
    runner.file("nodes", NOMINAL_MHZ, make, plans=False, program=program)


def primitives(runner):
    wanted = ["^load$", "^store$", "^atomic/fetch_add$", "^signal/", "^barrier/", "^copy/p[a-z]*/(block|plain)/blocks:(16|64)/bytes:1048576$", "^copy_all/.*/ranks:(4|8)/blocks:16/bytes:1048576$"]
    def make(known, fresh, add):
        for pattern in wanted:
            stored = runner.out / ".primitives.json"
            text = runner.simulate(8, NOMINAL_MHZ, runner.primitives, f"--benchmark_filter={pattern}", f"--benchmark_out={stored}", "--benchmark_out_format=json")
            if text is None:
                continue
            for b in json.loads(stored.read_text())["benchmarks"]:
                if not b.get("error_occurred"):
                    add(b["name"], b["real_time"], "simulated", **({"bytes_per_second": b["bytes_per_second"]} if "bytes_per_second" in b else {}))
            stored.unlink()
    runner.file("primitives", NOMINAL_MHZ, make, plans=False)


def main():
    numbers = lambda text: [int(x) for x in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="ag_gemm, sustained, flash_decode, taxes, plans, ag_gemm_plans, layers, gemm_sinks, nodes, primitives (default: all)")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("FUSEWIRE_BUILD_DIR", ROOT / "build" / "sim")))
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--filter", metavar="REGEX", default="", help="of the benchmarks' names: others are not simulated (primitives: not stored), and what is stored of them is kept")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which nothing more is begun")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for one shape")
    parser.add_argument("--timing", metavar="NAME=VALUE,...", default="", help="other constants than timing.hpp's; the file says which")
    parser.add_argument("--m", type=numbers, default=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], help="rows of ag_gemm; from 1024 on they belong to the set `sustained`")
    parser.add_argument("--large_m", type=numbers, default=[1024, 2048, 4096, 8192], help="rows of the set `sustained`: GEMMs at full power, at the clock that published ones imply")
    parser.add_argument("--tax_m", type=numbers, default=[64], help="rows of the set `taxes`, 33 or more")
    parser.add_argument("--n", type=numbers, default=[3584, 7168])
    parser.add_argument("--worlds", type=numbers, default=[1, 8])
    parser.add_argument("--gathers", type=lambda text: text.split(","), default=["k", "m"])
    parser.add_argument("--decode_worlds", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=numbers, default=[8192, 16384, 32768, 65536, 131072])
    parser.add_argument("--plan_m", type=numbers, default=[64, 128, 192, 256, 512, 1024], help="rows of the set `plans`: one GPU's GEMM with the plan that is chosen, and others")
    parser.add_argument("--plan_n", type=numbers, default=[3584, 7168, 8192])
    parser.add_argument("--ag_plan_m", type=numbers, default=[64, 128, 256, 512], help="rows of the set `ag_gemm_plans`: AG+GEMM with the plan that is chosen, and others")
    parser.add_argument("--ag_plan_n", type=numbers, default=[3584])
    parser.add_argument("--ag_plan_worlds", type=numbers, default=[2, 4, 8])
    parser.add_argument("--sink_m", type=numbers, default=[1, 4, 16, 64, 128, 256], help="rows of the set `gemm_sinks`")
    parser.add_argument("--sink_worlds", type=numbers, default=[2, 4, 8])
    parser.add_argument("--sink_k", type=numbers, default=[8192, 28672])
    parser.add_argument("--nic", type=numbers, default=[47, 24], help="GB/s of a NIC and direction, of the set `nodes`")
    parser.add_argument("--random", type=int, default=50, help="random shapes of the sets `plans` and `ag_gemm_plans`, beside those")
    parser.add_argument("--seed", type=int, default=1, help="of the random shapes")
    parser.add_argument("--factor", type=float, default=1.4, help="of the set `plans`: plans whose modelled time is up to this many times that of the best are simulated, and at least two others")
    parser.add_argument("--ag_factor", type=float, default=1.15, help="likewise of the set `ag_gemm_plans`")
    parser.add_argument("--jobs", type=int, default=1, help="of the sets of plans: simulations in parallel")
    a = parser.parse_args()
    runner = Runner(a.build, a.results, time.monotonic() + a.budget, a.limit, a.timing, a.filter, a.jobs)
    known = {"ag_gemm": lambda: ag_gemm(runner, "ag_gemm", NOMINAL_MHZ, a.m, a.n, a.worlds, a.gathers),
             "sustained": lambda: ag_gemm(runner, "ag_gemm_sustained", sustained_mhz(), a.large_m, a.n, a.worlds, a.gathers),
             "flash_decode": lambda: flash_decode(runner, a.decode_worlds, a.tokens), "taxes": lambda: taxes(runner, a.tax_m),
             "plans": lambda: plans(runner, a.plan_m, a.plan_n, a.random, a.seed, a.factor), 
             "ag_gemm_plans": lambda: ag_gemm_plans(runner, a.ag_plan_m, a.ag_plan_n, a.ag_plan_worlds, a.gathers, a.random, a.seed, a.ag_factor),
             "layers": lambda: layers(runner, [(b, t) for t in (8192, 32768) for b in (1, 16, 64)]),
             "gemm_sinks": lambda: gemm_sinks(runner, a.sink_worlds, a.sink_m, a.sink_k),
             "nodes": lambda: nodes(runner, a.nic),
             "primitives": lambda: primitives(runner)}
    for name in a.sets or known:
        if name not in known:
            parser.error(f"no set is called {name}: {', '.join(known)} are")
        known[name]()
    for words in runner.not_run:
        print(f"not run: {words}")
    return 1 if runner.not_run else 0


sys.exit(main())
