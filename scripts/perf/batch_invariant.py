"""usage: batch_invariant.py [BUILD]

Writes the table of docs/operators.md that says what gemm_tile::batch_invariant costs, from bench/projection.cpp under
fusewire-sim --time. BUILD: build/sim by default. It takes some minutes.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/operators.md"
SHAPES, ROWS = [(8192, 8192)], [1, 16, 64, 256, 1024]
MARKS = r"(<!-- scripts/perf/batch_invariant.py writes this -->\n).*?(\n<!-- to here -->)"


def us(build: pathlib.Path, *arguments) -> float:
    command = [build / "sim/fusewire-sim", "--time", build / "bin/projection", "gemm", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    found = re.search(r"^us: ([0-9.]+)$", done.stdout, re.MULTILINE)
    if not found:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    print(*arguments, found[1], file=sys.stderr, flush=True)
    return float(found[1])


def table(build: pathlib.Path) -> str:
    head = "".join(f" {any_or} | " for any_or in [f"N = {n}, K = {k}: any order | fixed" for n, k in SHAPES])
    lines = [f"| M |{head}".rstrip(), "|--:|" + "--:|--:|" * len(SHAPES)]
    for m in ROWS:
        cells = [f"{us(build, m, n, k, *how):.0f}" for n, k in SHAPES for how in ([], ["invariant"])]
        lines.append(f"| {m} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if len(sys.argv) > 2 or sys.argv[1:] in (["--help"], ["-h"]):
    sys.exit(__doc__)
page, times = re.subn(MARKS, lambda m: m[1] + table(pathlib.Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build/sim") + m[2],
                      PAGE.read_text(), flags=re.DOTALL)
if times != 1:
    sys.exit(f"{PAGE}: no place for the table")
PAGE.write_text(page)
