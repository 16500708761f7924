#!/usr/bin/env python3
"""Prints what an MI300X measured beside what fusewire-sim --time projects for the same benchmarks, part by part, and which constants of the clock
(sim/machine/timing.hpp) that corrects. docs/first_machine.md says in which order to go about it.

    scripts/perf/check_projection.py bench/results             # *.mi300xxN.json beside *.mi300x_projected.json
    scripts/perf/check_projection.py build/bench --all         # every benchmark, not only the worst of each part

Where one constant alone explains a part, its new value is printed; where several do, they are named. Nothing is changed. Ends with 1 where nothing can be compared."""
import argparse
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def constants():
    """Name -> (value, unit, kind) of the clock's constants."""
    text = (ROOT / "sim/machine/timing.hpp").read_text()
    return {name: (float(value), unit, kind) for name, value, unit, kind in re.findall(r'X\((\w+), ([0-9.]+), "([^"]*)", (\w+),', text)}


NOW = constants()
keys_of = lambda name: dict(part.split(":") for part in name.split("/") if ":" in part)
median_of = lambda values: statistics.median(values) if values else None

# How one constant follows from rows (name, measured us, projected us, the measured benchmark).


def one_way(rows):
    """A load or an atomic crosses the link twice."""
    return NOW["link_ns"][0] + 1e3 * median_of([(measured - projected) / 2 for name, measured, projected, _ in rows if name in ("load", "atomic/fetch_add")] or [0])


def share_of_link(rows):
    """Large copies by many blocks take what the link gives."""
    return NOW["link_efficiency"][0] * median_of([projected / measured for name, measured, projected, _ in rows if int(keys_of(name)["blocks"]) >= 16])


def share_beside(rows):
    """As share_of_link, with all links together; link_efficiency must be right before."""
    return NOW["link_beside"][0] * median_of([projected / measured for _, measured, projected, _ in rows])


def gap(constant):
    return lambda rows: NOW[constant][0] + median_of([measured - projected for _, measured, projected, _ in rows])


def share_of_memory(rows):
    """What is measured beyond the projection is time in which the same bytes come more slowly."""
    found, (gbs, now) = [], (NOW["hbm_gbs"][0], NOW["hbm_efficiency"][0])
    for name, measured, projected, b in rows:
        keys = keys_of(name)
        nbytes = 2 * int(keys["N"]) * int(keys["K"]) if "N" in keys else b.get("bytes")
        if nbytes and (streamed := nbytes / (gbs * 1e3 * now)) + measured - projected > 0:
            found.append(nbytes / (gbs * 1e3 * (streamed + measured - projected)))
    return median_of(found)


rows_up_to = lambda most, least=1: lambda keys: "M" in keys and least <= int(keys["M"]) <= most
world = lambda test: lambda keys: test(int(keys.get("W", 1)))
both = lambda *tests: lambda keys: all(test(keys) for test in tests)
anything = lambda keys: True

# Part, names, which of them, the constant that follows and how, what else to look at. The order is that in which constants are to be corrected: what stands below
# needs what stands above.
PARTS = [
    ("From one kernel to the next in a graph", r"^launch/graph$", anything, ("graph_gap_us", gap("graph_gap_us")), ["dispatch", "wave_start"]),
    ("From one kernel to the next in a stream", r"^launch/stream$", anything, ("kernel_gap_us", gap("kernel_gap_us")), ["host_launch_us", "launch_us"]),
    ("A peer's memory, one access after the other", r"^(load|store|atomic/fetch_add)$", anything, ("link_ns", one_way), ["atomic_latency", "writeback_walk"]),
    ("Flags and barriers between GPUs", r"^(signal|barrier)/", anything, None, ["link_ns", "writeback_walk", "invalidate"]),
    ("Copies over a link", r"^copy/", anything, ("link_efficiency", share_of_link), ["link_request", "l1_misses"]),
    ("Copies over all links together", r"^copy_all/", anything, ("link_beside", share_beside), ["link_efficiency"]),
    ("The weights alone: GEMMs with up to 32 rows, one GPU", r"^ag_gemm/chosen/", both(world(lambda w: w == 1), rows_up_to(32)), ("hbm_efficiency", share_of_memory), ["hbm_ns", "l1_misses"]),
    ("The KV alone: Flash Decode, one GPU", r"^flash_decode/fused/", world(lambda w: w == 1), ("hbm_efficiency", share_of_memory), ["hbm_ns", "mall_ns"]),
    ("Blocks that share tiles: GEMMs of 65 to 512 rows, one GPU", r"^ag_gemm/chosen/", both(world(lambda w: w == 1), rows_up_to(512, 65)), None, ["mall_ns", "fabric_efficiency", "l2_efficiency", "atomic_service"]),
    ("Matrix units: GEMMs from 513 rows on, one GPU", r"^ag_gemm/chosen/", both(world(lambda w: w == 1), rows_up_to(1 << 20, 513)), None, ["mhz (the clock under full power)", "lds_queue", "l1_queue", "l2_efficiency"]),
    ("All-gather + GEMM, several GPUs", r"^ag_gemm/(chosen|push|pull)/", world(lambda w: w > 1), None, ["link_beside", "link_efficiency", "link_ns", "writeback_walk"]),
    ("Flash Decode, several GPUs", r"^flash_decode/(fused|local)/", world(lambda w: w > 1), None, ["link_ns", "mall_ns", "atomic_service"]),
    ("The vendor's GEMM, beside published rates: no constant of the clock", r"^ag_gemm/gemm/", anything, None, []),
]


def read(folder, pattern):
    """Name -> benchmark of all files, and what is said of their machines."""
    found, of = {}, []
    for path in sorted(folder.glob(pattern)):
        if "_taxes." in path.name:  # other kernels under the same names: docs/taxes.md
            continue
        data = json.loads(path.read_text())
        times = {b["name"]: b for b in data["benchmarks"] if not b.get("error_occurred") and b.get("real_time", 0) > 0}
        if times:
            found |= times
            context = data["context"]
            of.append(f"{path.name}: {context.get('machine', '?')}, commit {context.get('commit', '?')}")
    return found, of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, help="the folder with what was measured, *.mi300xxN.json")
    parser.add_argument("--projected", type=pathlib.Path, help="the folder with *.mi300x_projected.json (default: the same)")
    parser.add_argument("--all", action="store_true", help="every benchmark; else the three that are furthest off")
    a = parser.parse_args()
    measured, of_measured = read(a.results, "*.mi300xx[0-9]*.json")
    projected, of_projected = read(a.projected or a.results, "*.mi300x_projected.json")
    print("\n".join(["measured:", *(f"  {x}" for x in of_measured or ["nothing"]), "projected by fusewire-sim --time:", *(f"  {x}" for x in of_projected or ["nothing"])]))
    common = [name for name in projected if name in measured]
    if not common:
        print("nothing to compare: no benchmark was both measured on an MI300X and projected", file=sys.stderr)
        return 1
    corrections = []
    for title, names, wanted, constant, others in PARTS:
        rows = [(name, measured[name]["real_time"], projected[name]["real_time"], measured[name]) for name in common if re.search(names, name) and wanted(keys_of(name))]
        if not rows:
            continue
        ratios = [us / model for _, us, model, _ in rows]
        print(f"\n{title}\n  {len(rows)} benchmarks, measured / projected: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
        for name, us, model, _ in rows if a.all else sorted(rows, key=lambda row: -abs(row[1] / row[2] - 1))[:3]:
            print(f"  {us:10.2f} us measured {model:10.2f} us projected {us / model:6.2f}  {name}")
        if constant and (value := constant[1](rows)) is not None:
            name, (now, unit, kind) = constant[0], NOW[constant[0]]
            print(f"  {name}: {now:g} {unit} ({kind}) -> {value:.3g}" + (f"; next, {', '.join(others)}" if others else ""))
            corrections.append((name, value))
        elif others:
            print(f"  look at: {', '.join(others)}")
    first = {}
    for name, value in corrections:
        if abs(value / NOW[name][0] - 1) > 0.02:
            first.setdefault(name, value)
    if first:
        print(f"\nTo try them without a rebuild, then calibrate again:\n  scripts/bench sim --timing {','.join(f'{name}={value:.3g}' for name, value in first.items())}\n  scripts/perf/calibrate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
