#!/usr/bin/env python3
"""Compares two result files of benchmarks, as scripts/bench and scripts/perf/project.py write them: time before, time after, and after / before, under 1 where it has
become faster. Benchmarks are compared by name; those that one file alone has, or that failed, are counted, and listed with --all.

    scripts/perf/compare.py bench/results/ag_gemm.h200x4.json build/bench/ag_gemm.h200x4.json
    scripts/perf/compare.py --filter 'chosen.*M:(1|16)/' --fail-above 1.05 before.json after.json

Ends with 0; with 1 where --fail-above is given and a ratio is above it, or nothing can be compared; with 2 where a file cannot be read."""
import argparse
import json
import math
import re
import sys

IN_US = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}


def read(path):
    try:
        with open(path) as file:
            data = json.load(file)
        times, failed = {}, set()
        for b in data["benchmarks"]:
            if b.get("error_occurred") or not b.get("real_time", 0) > 0:
                failed.add(b["name"])
            else:
                times[b["name"]] = b["real_time"] * IN_US[b["time_unit"]]
        return data.get("context", {}), times, failed
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        print(f"error: {path} is no result file: {type(e).__name__}: {e}", file=sys.stderr)
        sys.exit(2)


def common_parts(names):
    """The parts that all names share, which the table says once: NAME/x:1/y:2."""
    parts = [name.split("/") for name in names]
    return [p for p in parts[0] if all(p in other for other in parts)] if len(parts) > 1 else []


def machine(context):
    projected = context.get("projected")
    return f"{context.get('machine', 'unknown machine')}{', projected' if projected else ''}, commit {context.get('commit', 'unknown')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--filter", metavar="REGEX", type=re.compile, default="", help="names to compare")
    parser.add_argument("--sort", choices=["file", "ratio"], default="file", help="order of the rows (default: as in the first file)")
    parser.add_argument("--all", action="store_true", help="list what cannot be compared")
    parser.add_argument("--fail-above", metavar="RATIO", type=float, help="fail if a ratio is larger")
    a = parser.parse_args()
    (before_context, before, before_failed), (after_context, after, after_failed) = read(a.before), read(a.after)
    wanted = lambda name: re.search(a.filter, name)
    rows = [(name, before[name], after[name]) for name in before if name in after and wanted(name)]
    if a.sort == "ratio":
        rows.sort(key=lambda r: r[2] / r[1])
    print(f"before: {machine(before_context)}\nafter:  {machine(after_context)}")
    if before_context.get("machine") != after_context.get("machine") or bool(before_context.get("projected")) != bool(after_context.get("projected")):
        print("these are not of the same machine")
    if rows:
        common = common_parts([r[0] for r in rows])
        if common:
            print(f"all:    {'/'.join(common)}")
        short = ["/".join(p for p in name.split("/") if p not in common) or name for name, _, _ in rows]
        width = max(4, *map(len, short))
        print(f"\n{'name':{width}s} {'before us':>12s} {'after us':>12s} {'ratio':>7s}")
        for name, (_, x, y) in zip(short, rows):
            print(f"{name:{width}s} {x:12.2f} {y:12.2f} {y / x:7.3f}")
        mean = math.exp(sum(math.log(y / x) for _, x, y in rows) / len(rows))
        print(f"{f'geometric mean of {len(rows)}':{width}s} {'':12s} {'':12s} {mean:7.3f}")
    others = {"before alone": [n for n in before if n not in after and n not in after_failed], "after alone": [n for n in after if n not in before and n not in before_failed],
              "failed before": sorted(before_failed), "failed after": sorted(after_failed)}
    for what, names in others.items():
        names = [n for n in names if wanted(n)]
        if names:
            print(f"{what}: {len(names)}" + ("".join(f"\n  {n}" for n in names) if a.all else ""))
    if not rows:
        print("nothing to compare: no name is in both files", file=sys.stderr)
        return 1
    worse = [name for name, x, y in rows if a.fail_above is not None and y / x > a.fail_above]
    if worse:
        print(f"above {a.fail_above}: {len(worse)}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
