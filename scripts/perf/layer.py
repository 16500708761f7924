"""usage: layer.py [--check]

Writes the table of docs/operators.md about a decoder layer from bench/results/decoder_layer.mi300x_projected.json, or
fails if it is another one.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/operators.md"
RESULT = ROOT / "bench/results/decoder_layer.mi300x_projected.json"
COLUMNS = "bsp_graph", "fused", "fused_8", "fused_9"
MARKS = r"(<!-- scripts/perf/layer.py writes this -->\n).*?(\n<!-- to here -->)"


def table() -> str:
    rows: dict = {}
    for b in json.loads(RESULT.read_text())["benchmarks"]:
        _, variant, _, batch, tokens = b["name"].split("/")
        rows.setdefault(tuple(int(part.split(":")[1]) for part in (batch, tokens)), {})[variant] = b["real_time"]
    lines = ["| batch, tokens of a sequence | twin, 14 launches | 7 | 8 | 9 | twin / 9 |", "|---|---|---|---|---|---|"]
    for (batch, tokens), us in rows.items():
        if us.keys() >= set(COLUMNS):
            lines.append(f"| {batch}, {tokens} | " + " | ".join(f"{us[v]:.1f}" for v in COLUMNS) +
                         f" | {us['bsp_graph'] / us['fused_9']:.2f} |")
    return "\n".join(lines)


def page() -> str:
    text, times = re.subn(MARKS, lambda m: m[1] + table() + m[2], PAGE.read_text(), flags=re.DOTALL)
    if times != 1:
        sys.exit(f"{PAGE}: no place for the table")
    return text


if sys.argv[1:] == ["--check"]:
    sys.exit(0 if page() == PAGE.read_text() else "docs/operators.md: another table than scripts/perf/layer.py writes")
if sys.argv[1:]:
    sys.exit(__doc__)
PAGE.write_text(page())
