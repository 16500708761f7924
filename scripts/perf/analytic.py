#!/usr/bin/env python3
"""What a model without instructions is worth: floors of bytes, flops, links and launches, with an H200's rates and the efficiencies that the simulator's clock
takes for MI300X, against what was measured on H200 (bench/results). Writes its table into docs/simulator.md. Nothing of it was fitted to those measurements."""
import argparse
import json
import math
import pathlib
import re
import statistics
import sys

from wrap import wrapped

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARK = "scripts/perf/analytic.py"

# NVIDIA's data sheet: 132 SMs, 989 TF/s dense bf16 at 1830 MHz (4096 flop per SM and cycle), 4.8 TB/s, NVLink 450 GB/s one way.
SMS, FLOP_PER_CYCLE, MEMORY, LINKS = 132, 4096, 4.8e6, 450e3  # the last two in bytes per us
MEMORY_EFFICIENCY, LINK_EFFICIENCY, MATRIX_EFFICIENCY = 0.92, 0.75, 0.9  # the first two as in sim/machine/timing.hpp; a loop whose matrix units wait a tenth of the time
NODE, FLAG = 2.0, 1.5  # us: from node to node of a graph with the first bytes' way; one signal over a link with its wait
TILES = [(64, 64), (128, 64), (128, 128), (128, 256)]


def gemm(m, n, k, mhz):
    """The best tile's time: tiles of the busiest SM, or all bytes once; k is split where tiles are few, in pieces of 512 at least."""
    best = math.inf
    for tile_m, tile_n in TILES:
        tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n)
        split = max(1, min(SMS // tiles, k // 512)) if tiles < SMS else 1
        busiest = math.ceil(tiles * split / SMS) * tile_m * tile_n * 2 * k / split / (FLOP_PER_CYCLE * mhz * MATRIX_EFFICIENCY)
        reading = 2 * (m * k + n * k + m * n) / (MEMORY * MEMORY_EFFICIENCY)
        best = min(best, max(busiest, reading))
    return best


def gather(w, nbytes):
    return nbytes * (w - 1) / w / (LINKS * LINK_EFFICIENCY)


def ag_gemm(variant, keys, mhz):
    w, m, n, k = (int(keys[x]) for x in "WMNK")
    nbytes = 2 * m * k
    if variant == "gemm" or (variant == "chosen" and w == 1):
        return NODE + gemm(m, n, k, mhz)
    if variant == "all_gather":
        return NODE + gather(w, nbytes) + 2 * FLAG
    if variant == "bsp_graph":
        copy = NODE + 2 * nbytes / (MEMORY * MEMORY_EFFICIENCY) if keys["gather"] == "k" and m > 1 else 0
        return 2 * NODE + gather(w, nbytes) + 2 * FLAG + copy + gemm(m, n, k, mhz)
    if variant == "chosen":
        return NODE + max(gemm(m, n, k, mhz), gather(w, nbytes)) + FLAG
    return None


def flash_decode(variant, keys, nbytes):
    reading = nbytes / (MEMORY * MEMORY_EFFICIENCY)
    meeting = 2 * FLAG if int(keys["W"]) > 1 else 0
    return {"read": NODE + reading, "local": 2 * NODE + reading, "fused": 2 * NODE + reading + meeting, "bsp_graph": 4 * NODE + reading + 2 * FLAG}.get(variant)


def copies(name):
    nbytes = int(re.search(r"bytes:(\d+)", name)[1])
    return nbytes / (LINKS * LINK_EFFICIENCY) + FLAG if "/plain/" in name and int(re.search(r"blocks:(\d+)", name)[1]) == 64 else None


def compared(results):
    """(class, model over measured less one), at the data sheet's clock and at the clock that was logged beside the measurement."""
    for path in sorted(results.glob("*.h200x*.json")):
        data = json.loads(path.read_text())
        kind = path.name.split(".")[0]
        if "taxes" in kind or "random" in kind or "row_major" in kind:
            continue
        kv_bytes = {b["name"].partition("/W:")[2] + b.get("label", ""): b["bytes"] for b in data["benchmarks"] if kind == "flash_decode" and "bytes" in b}
        for b in data["benchmarks"]:
            if b.get("error_occurred"):
                continue
            _, variant, *parts = (b["name"] + "/").split("/")
            keys = dict(p.split(":") for p in parts if ":" in p)
            if kind in ("ag_gemm", "gemm"):
                models = [ag_gemm(variant, keys, mhz) for mhz in (1830, min(1830, b["sm_mhz"]))]
                m = int(keys["M"])
                name = f"{'bare GEMM' if variant == 'gemm' else 'fusewire, W = 1' if keys['W'] == '1' else {'chosen': 'fused AG+GEMM', 'all_gather': 'all-gather', 'bsp_graph': 'all-gather, then GEMM'}.get(variant)}, M {'up to 128' if m <= 128 else 'above 128'}"
            elif kind == "flash_decode":
                nbytes = kv_bytes.get(b["name"].partition("/W:")[2] + b.get("label", ""))
                models = [flash_decode(variant, keys, nbytes) if nbytes and keys["pages"] == "own" else None] * 2
                name = {"read": "reading KV", "local": "Flash Decode, one rank's part", "fused": "Flash Decode, fused", "bsp_graph": "Flash Decode, bulk-synchronous"}.get(variant)
            elif kind == "primitives" and b["name"].startswith("copy/"):
                models, name = [copies(b["name"])] * 2, "copy over one link"
            else:
                continue
            if models[0]:
                yield name, *(model / b["real_time"] - 1 for model in models)


def table(rows):
    middle = lambda values: f"{statistics.median(map(abs, values)) * 100:.0f} %"
    names = list(dict.fromkeys(name for name, *_ in rows))
    out = [f"Made by `{MARK}`: {len(rows)} measurements on H200 against floors with an H200's rates and MI300X's efficiencies; nothing was fitted to them. Model over measured less one.\n",
           "| class | points | median size, clock of the data sheet (1830 MHz) | median size, logged clock | median, logged clock | worst |", "|---|---|---|---|---|---|"]
    for name in sorted(names):
        nominal, logged = zip(*((a, b) for n, a, b in rows if n == name))
        out.append(f"| {name} | {len(logged)} | {middle(nominal)} | {middle(logged)} | {statistics.median(logged) * 100:+.0f} % | {max(logged, key=abs) * 100:+.0f} % |")
    out.append(f"\nOver all points: {middle([a for _, a, _ in rows])} at the data sheet's clock, {middle([b for *_, b in rows])} at the logged one.")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "simulator.md")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the page would change")
    arguments = parser.parse_args()
    text = table(list(compared(arguments.results)))
    before, begin, rest = arguments.page.read_text().partition(f"<!-- {MARK} writes this -->\n")
    _, end, after = rest.partition("<!-- to here -->")
    if not end:
        sys.exit(f"error: {arguments.page} lacks the marks between which the table goes")
    made = before + begin + wrapped(text) + "\n" + end + after
    if arguments.check:
        sys.exit(0 if made == arguments.page.read_text() else f"{arguments.page}: its table is not that of {MARK}; run it")
    print(text)
    arguments.page.write_text(made)


main()
