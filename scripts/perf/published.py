#!/usr/bin/env python3
"""usage: published.py [--run BUILD] [--budget SECONDS] [--check]

Writes the tables of docs/published.md: what others measured on MI300X (bench/published/mi300x.csv) beside what the
simulator's clock projects for this library (bench/published/mi300x_projected.json).

  --run BUILD       project what is missing first, with the programs of BUILD, such as build/sim
  --budget SECONDS  after which nothing more is begun (default: no limit)
  --check           fail if the page has other tables
"""
import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/published.md"
RESULT = ROOT / "bench/published/mi300x_projected.json"
COLS = 8192  # the most of a row of the arrays
TITLES = {"all_reduce": ("`all_reduce`, bf16; others: fp16", "KB"),
          "dispatch": ("`moe_dispatch` by token, bf16, hidden 7168, 256 experts, top-8", "tokens of a rank"),
          "combine": ("`moe_combine` by token, bf16, likewise", "tokens of a rank")}


def published():
    with open(ROOT / "bench/published/mi300x.csv", encoding="utf-8") as f:
        return [{**row, "ranks": int(row["ranks"]), "size": int(row["size"]), "us": float(row["us"])}
                for row in csv.DictReader(f)]


def name_of(row):
    return f"{row['operator']}/W:{row['ranks']}/{row['size']}"


def run(build, program, *arguments):
    for needed in "sim/fusewire-sim", f"bin/{program}":
        if not pathlib.Path(build, needed).exists():
            sys.exit(f"error: {build} has no {needed}\n       expected the folder of a build of the preset sim")
    command = [f"{build}/sim/fusewire-sim", "--time", "--gpus", str(arguments[0]), f"{build}/bin/{program}",
               *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return [line.split() for line in done.stdout.splitlines()]


def project(build, known, budget):
    """Adds what is missing, smallest first, and files it after each run."""
    begin = time.monotonic()
    kb_of = {"all_reduce": 1, "dispatch": 64, "combine": 64}  # of a size, about: how long it is simulated
    for row in sorted(published(), key=lambda r: (r["size"] * kb_of[r["operator"]], r["ranks"])):
        if name_of(row) in known:
            continue
        if budget and time.monotonic() - begin > budget:
            return
        ranks, size = row["ranks"], row["size"]
        if row["operator"] == "all_reduce":
            elements = size * 512
            lines = run(build, "projection_all_reduce", ranks, max(1, elements // COLS), min(elements, COLS), "chosen")
            known[name_of(row)] = float(lines[0][-1])
        else:
            line = run(build, "projection_moe", ranks, size, 7168, 256, 8, "by_token")[0]
            known[f"dispatch/W:{ranks}/{size}"], known[f"combine/W:{ranks}/{size}"] = float(line[5]), float(line[7])
        print(f"{name_of(row)}: {known[name_of(row)]:.1f} us, published {row['us']:.1f} us", flush=True)
        RESULT.write_text(json.dumps({"context": {"projected": "fusewire-sim --time"},
                                      "us": dict(sorted(known.items()))}, indent=1) + "\n")


def tables(known):
    out = []
    for operator, (title, unit) in TITLES.items():
        out += [f"**{title}**", "", f"| ranks | {unit} | others, us | projected, us | others / projected | source |",
                "|--:|--:|--:|--:|--:|---|"]
        for row in published():
            if row["operator"] == operator and name_of(row) in known:
                us = known[name_of(row)]
                out.append(f"| {row['ranks']} | {row['size']} | {row['us']:.1f} | {us:.1f} | {row['us'] / us:.2f} | "
                           f"{row['source']} |")
        out.append("")
    return "\n".join(out)


parser = argparse.ArgumentParser(usage=__doc__.split("\n", maxsplit=1)[0][7:])
parser.add_argument("--run", metavar="BUILD")
parser.add_argument("--budget", type=float)
parser.add_argument("--check", action="store_true")
given = parser.parse_args()
projected = json.loads(RESULT.read_text())["us"] if RESULT.exists() else {}
if given.run:
    project(given.run, projected, given.budget)
old = PAGE.read_text()
new, times = re.subn(r"(<!-- scripts/perf/published.py writes this -->\n).*?(<!-- to here -->)",
                     lambda m: m[1] + tables(projected) + m[2], old, flags=re.DOTALL)
if times != 1:
    sys.exit(f"{PAGE}: no place for the tables")
if given.check:
    sys.exit(0 if new == old else "docs/published.md: other tables than scripts/perf/published.py writes")
PAGE.write_text(new)
