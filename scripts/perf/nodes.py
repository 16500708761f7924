#!/usr/bin/env python3
"""usage: nodes.py [--check]

Writes the table of docs/several_machines.md about two nodes, projected, from
bench/results/nodes.mi300x_projected.json, or fails if it is another.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/several_machines.md"
MARKS = r"(<!-- scripts/perf/nodes.py writes this -->\n).*?(\n<!-- to here -->)"


def table() -> str:
    data = json.loads((ROOT / "bench/results/nodes.mi300x_projected.json").read_text())
    shapes: dict = {}
    for b in data["benchmarks"]:
        _, variant, shape = b["name"].split("/", 2)
        shapes.setdefault(shape, {})[variant] = b["real_time"]
    rates = sorted({int(v.split("_")[1]) for us in shapes.values() for v in us if v.startswith("two_")}, reverse=True)
    head = ["one node of 8", *(f"two, {r} GB/s" for r in rates), f"two, step by step, {rates[0]} GB/s", "GEMM alone",
            "one / two", "step by step / two"]
    lines = ["| | " + " | ".join(head) + " |", "|---" + "|--:" * len(head) + "|"]
    number = lambda x, digits=1: "-" if x is None else f"{x:.{digits}f}"
    over = lambda a, b: number(a / b if a and b else None, 2)
    for shape, us in shapes.items():
        fast, steps = us.get(f"two_{rates[0]}"), us.get(f"steps_{rates[0]}")
        name = shape.replace("/", ", ").replace(":", " = ").replace("_", "\\_")
        cells = [number(us.get("one")), *(number(us.get(f"two_{r}")) for r in rates), number(steps),
                 number(us.get("own_gemm")), over(us.get("one"), fast), over(steps, fast)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    error = data["context"]["projected"]["error"]
    return "\n".join([*lines, "", f"Projected at commit {data['context']['commit']}. The clock's median error on {error['points']} points "
                      f"of one node is {100 * error['median']:.0f} %;", "of the network's model nobody knows it."])


text = PAGE.read_text()
page, times = re.subn(MARKS, lambda m: m[1] + table() + m[2], text, flags=re.DOTALL)
if times != 1:
    sys.exit(f"{PAGE}: no place for the table")
if sys.argv[1:] == ["--check"]:
    sys.exit(0 if page == text else "docs/several_machines.md: another table than scripts/perf/nodes.py writes")
if sys.argv[1:]:
    sys.exit(__doc__)
PAGE.write_text(page)
