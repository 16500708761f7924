"""usage: pytorch.py [--check]

Writes the table of docs/from_pytorch.md from bench/results/torch/operators.h200x2.json, which python/tests/test_gpu.py
writes on 2 GPUs, or fails if it is another one.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/from_pytorch.md"
RESULTS = ROOT / "bench/results/torch/operators.h200x2.json"
VARIANTS = {"fusewire": "fusewire", "NCCL + mm": "`mm` and NCCL", "torch fused": "`symm_mem`'s fused operator"}
ROWS = (16, 128, 512, 2048, 8192)


def table(measured: list[dict]) -> str:
    measured = [row for row in measured if "m" in row]  # the rest are collectives, by their bytes
    us = {(row["operator"], row["m"]): row for row in measured}
    lines = ["| us | " + " | ".join(f"M = {m}" for m in ROWS) + " |", "|---" * (len(ROWS) + 1) + "|"]
    for operator in dict.fromkeys(row["operator"] for row in measured):
        for variant, name in VARIANTS.items():
            cells = [us[operator, m].get(variant) for m in ROWS]
            if None not in cells:
                lines.append(f"| `{operator}`: {name} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
    return "\n".join(lines)


def page() -> str:
    written = table(json.loads(RESULTS.read_text())["main"]["device_us"])
    text, times = re.subn(r"(<!-- scripts/perf/pytorch.py writes this -->\n).*?(\n<!-- to here -->)",
                          lambda m: m[1] + written + m[2], PAGE.read_text(), flags=re.DOTALL)
    if times != 1:
        sys.exit(f"{PAGE}: no place for the table")
    return text


if sys.argv[1:] == ["--check"]:
    sys.exit(0 if page() == PAGE.read_text() else "docs/from_pytorch.md: another table than scripts/perf/pytorch.py writes")
if sys.argv[1:]:
    sys.exit(__doc__)
PAGE.write_text(page())
