"""usage: layer.py [--check]

Writes the tables of docs/operators.md about a decoder layer, projected and measured, from
bench/results/decoder_layer.*.json, or fails if they are others.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/operators.md"
FUSED = "fused", "fused_8", "fused_9"
HEAD = ["| batch, tokens of a sequence | twin, 14 launches | 7 | 8 | 9 | twin / best |", "|---|--:|--:|--:|--:|--:|"]


def table(machine: str) -> str:
    rows: dict = {}
    for b in json.loads((ROOT / f"bench/results/decoder_layer.{machine}.json").read_text())["benchmarks"]:
        if b.get("error_occurred"):
            continue
        _, variant, _, batch, tokens = b["name"].split("/")
        rows.setdefault(tuple(int(part.split(":")[1]) for part in (batch, tokens)), {})[variant] = b["real_time"]
    lines = list(HEAD)
    for (batch, tokens), us in sorted(rows.items()):
        if not us.keys() >= {"bsp_graph", *FUSED}:
            continue
        twin = min(us[v] for v in ("bsp_eager", "bsp_graph") if v in us)
        lines.append(f"| {batch}, {tokens} | {twin:.1f} | " + " | ".join(f"{us[v]:.1f}" for v in FUSED) +
                     f" | {twin / min(us[v] for v in FUSED):.2f} |")
    return "\n".join(lines)


def page() -> str:
    text = PAGE.read_text()
    for machine in "mi300x_projected", "h200x2":
        marks = rf"(<!-- scripts/perf/layer.py writes this: {machine} -->\n).*?(\n<!-- to here -->)"
        text, times = re.subn(marks, lambda m: m[1] + table(machine) + m[2], text, flags=re.DOTALL)
        if times != 1:
            sys.exit(f"{PAGE}: no place for the table of {machine}")
    return text


if sys.argv[1:] == ["--check"]:
    sys.exit(0 if page() == PAGE.read_text() else "docs/operators.md: other tables than scripts/perf/layer.py writes")
if sys.argv[1:]:
    sys.exit(__doc__)
PAGE.write_text(page())
