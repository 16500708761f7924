#!/usr/bin/env python3
"""Projects benchmarks onto MI300X: runs build/.../bin/projection under fusewire-sim --time, and writes bench/results/NAME.mi300x_projected.json with the benchmarks'
own names, and the error of the clock on points that it was not fitted to (sim/calibration/predicted.csv). A shape whose projection is there from the same simulator
and program is not run again, so a run that ends early is continued by the next.

Where a figure comes from stands beside it: `simulated`; `published`, the vendor's GEMM at rates that others measured; `composed`, a sum of such figures."""
import argparse
import csv
import hashlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOMINAL_MHZ = 2100
GRAPH_GAP = 1.5  # us between kernels of a graph, as graph_gap_us in sim/machine/timing.hpp
MEMORY = 5.3e6 * 0.92  # bytes per us, likewise

# The vendor's GEMM. hipBLASLt, one row: bytes per us of the weights, by their size (ROCm/rocm-libraries pull request 12329); squares of 1024 to 8192: flops per us, by
# flops (HipKittens, MI325X). In between: interpolated over the logarithm of the size; outside: the nearest.
BYTES_RATE = [(90.2e6, 2.75e6), (132.9e6, 3.07e6), (201.3e6, 3.27e6), (473.7e6, 3.98e6), (1012e6, 3.96e6), (2024e6, 4.07e6)]
FLOPS_RATE = [(2 * 1024**3, 79.1e6), (2 * 2048**3, 325e6), (2 * 4096**3, 752.5e6), (2 * 8192**3, 785.3e6)]


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


def sustained_mhz():
    return int(re.search(r"^NOMINAL_MHZ, SUSTAINED_MHZ = \d+, (\d+)", (ROOT / "scripts" / "calibrate").read_text(), re.M)[1])


def model_error():
    path = ROOT / "sim" / "calibration" / "predicted.csv"
    if not path.exists():
        sys.exit(f"error: {path} is not there\n       scripts/calibrate makes it: no projection without its error")
    with open(path) as file:
        rows = [(r["class"], abs(float(r["predicted_us"]) / float(r["published_us"]) - 1)) for r in csv.DictReader(file) if r["use"] == "check"]
    classes = {name: round(statistics.median(e for n, e in rows if n == name), 3) for name in dict.fromkeys(n for n, _ in rows)}
    return {"median": round(statistics.median(e for _, e in rows), 3), "points": len(rows), "classes": classes}


class Runner:
    def __init__(self, build, out, deadline, limit, timing):
        self.launcher, self.program = build / "sim" / "fusewire-sim", build / "bin" / "projection"
        self.primitives = build / "bin" / "bench_primitives"
        self.out, self.deadline, self.limit, self.timing, self.not_run = out, deadline, limit, timing, []
        for path in (self.launcher, self.program):
            if not path.exists():
                sys.exit(f"error: {path} is not there\n       cmake --preset sim && cmake --build build/sim --target projection, or say with FUSEWIRE_BUILD_DIR where the build is")
        digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self.made_by = digest((self.launcher.parent / "lib" / "libamdhip64.so.7").resolve()) + " " + digest(self.program) + " " + timing
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

    def file(self, name, mhz, make):
        """make(known, add): add(name, us, origin) as figures come; each is stored at once."""
        path = self.out / f"{name}.mi300x_projected.json"
        old = json.loads(path.read_text()) if path.exists() else {"benchmarks": []}
        known = {b["name"]: b for b in old["benchmarks"]}
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], text=True, stdout=subprocess.PIPE).stdout.strip()
        context = {"machine": "MI300X", "commit": commit, "projected": {"model": "fusewire-sim --time", "mhz": mhz, "error": model_error(), **({"other_constants": self.timing} if self.timing else {})}}
        fresh = lambda key: key in known and known[key]["made_by"] == self.made_by
        def add(key, us, origin, **more):
            if us is None:
                return
            known[key] = {"name": key, "real_time": round(us, 3), "time_unit": "us", "sm_mhz": mhz, "from": origin, "made_by": self.made_by, **more}
            path.write_text(json.dumps({"context": context, "benchmarks": list(known.values())}, indent=1) + "\n")
            print(f"{key:90s} {us:9.1f} us, {origin}", flush=True)
        make(known, fresh, add)


def ag_gemm(runner, name, mhz, rows, columns, worlds, gathers):
    def make(known, fresh, add):
        for w in worlds:
            for m in rows:
                for n in columns:
                    for by in gathers if w > 1 else ["k"]:
                        if by == "m" and m % w:
                            continue
                        key = lambda variant: f"ag_gemm/{variant}/gather:{by}/dtype:bf16/W:{w}/M:{m}/N:{n}/K:8192"
                        if not fresh(key("chosen")):
                            add(key("chosen"), runner.projection(w, mhz, "ag_gemm", "chosen", by, w, m, n, 8192), "simulated", label="bf16")
                        if w > 1 and not fresh(key("all_gather")):
                            add(key("all_gather"), runner.projection(w, mhz, "all_gather", w, 2 * m * 8192), "simulated", label="a kernel of fusewire's primitives in place of RCCL")
                        gemm = vendor_gemm(m, n, 8192)
                        add(key("gemm"), gemm, "published", label="hipBLASLt at published rates, interpolated")
                        if w > 1 and key("all_gather") in known:
                            copy = GRAPH_GAP + 2 * 2 * m * 8192 / MEMORY if by == "k" and m > 1 else 0
                            add(key("bsp_graph"), known[key("all_gather")]["real_time"] + copy + GRAPH_GAP + gemm, "composed", label="all_gather, a transposing copy where gather:k needs it, gemm")
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
                    add(gather, runner.projection(w, NOMINAL_MHZ, "all_gather", w, payload), "simulated", label="a kernel of fusewire's primitives in place of RCCL")
                if w > 1 and key("local") in known and gather in known:
                    combine = 2 * GRAPH_GAP + 2 * payload / MEMORY
                    add(key("bsp_graph"), known[key("local")]["real_time"] + known[gather]["real_time"] + GRAPH_GAP + combine, "composed", label="f16", bytes=nbytes)
    runner.file("flash_decode", NOMINAL_MHZ, make)


def primitives(runner):
    wanted = ["^load$", "^store$", "^atomic/fetch_add$", "^signal/", "^barrier/", "^copy/p[a-z]*/(block|plain)/blocks:(16|64)/bytes:1048576$"]
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
    runner.file("primitives", NOMINAL_MHZ, make)


def main():
    numbers = lambda text: [int(x) for x in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="ag_gemm, sustained, flash_decode, primitives (default: all)")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("FUSEWIRE_BUILD_DIR", ROOT / "build" / "sim")))
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which nothing more is begun")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for one shape")
    parser.add_argument("--timing", metavar="NAME=VALUE,...", default="", help="other constants than timing.hpp's; the file says which")
    parser.add_argument("--m", type=numbers, default=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], help="rows of ag_gemm; from 1024 on they belong to the set `sustained`")
    parser.add_argument("--large_m", type=numbers, default=[1024, 2048, 4096, 8192], help="rows of the set `sustained`: GEMMs at full power, at the clock that published ones imply")
    parser.add_argument("--n", type=numbers, default=[3584, 7168])
    parser.add_argument("--worlds", type=numbers, default=[1, 8])
    parser.add_argument("--gathers", type=lambda text: text.split(","), default=["k", "m"])
    parser.add_argument("--decode_worlds", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=numbers, default=[8192, 16384, 32768, 65536, 131072])
    a = parser.parse_args()
    runner = Runner(a.build, a.results, time.monotonic() + a.budget, a.limit, a.timing)
    known = {"ag_gemm": lambda: ag_gemm(runner, "ag_gemm", NOMINAL_MHZ, a.m, a.n, a.worlds, a.gathers),
             "sustained": lambda: ag_gemm(runner, "ag_gemm_sustained", sustained_mhz(), a.large_m, a.n, a.worlds, a.gathers),
             "flash_decode": lambda: flash_decode(runner, a.decode_worlds, a.tokens), "primitives": lambda: primitives(runner)}
    for name in a.sets or known:
        if name not in known:
            parser.error(f"no set is called {name}: {', '.join(known)} are")
        known[name]()
    for words in runner.not_run:
        print(f"not run: {words}")
    return 1 if runner.not_run else 0


sys.exit(main())
