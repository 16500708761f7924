"""usage: rows.py [--check] [BUILD]

Writes the table of docs/writing_kernels.md that compares LL words with flags, from bench/projection_rows.cpp under
fusewire-sim --time. With --check it fails where a figure of the page is more than 5 % off. BUILD: build/sim by default.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/writing_kernels.md"
ROWS = [(256, 1024), (1024, 256), (1024, 1024), (2048, 256), (4096, 256), (4096, 1024), (8192, 1024), (16384, 1024), (32768, 1024),
        (65536, 1024)]
WAYS = "ll", "flag"
MARKS = r"(<!-- scripts/perf/rows.py writes this -->\n).*?(\n<!-- to here -->)"


def measured(build: pathlib.Path, size: int, threads: int) -> dict:
    command = [build / "sim/fusewire-sim", "--time", "--gpus", "8", build / "bin/projection_rows", str(size), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return {way: float(us) for way, us in re.findall(r"^(\w+) \d+ \d+ ([\d.]+)$", done.stdout, re.M)}


def table(build: pathlib.Path) -> str:
    of_row = {row: measured(build, *row) for row in ROWS}
    nothing = max(us["nothing"] for us in of_row.values())
    lines = [f"`begin` and `end` alone take {nothing:.1f} us.", "",
             "| row | threads | LL words | flag |", "|---|--:|--:|--:|"]
    for (size, threads), us in of_row.items():
        name = f"{size} bytes" if size < 1024 else f"{size // 1024} KB"
        lines.append(f"| {name} | {threads} | " + " | ".join(f"{us[way]:.1f}" for way in WAYS) + " |")
    return "\n".join(lines)


def figures(text: str) -> list:
    return [float(x) for x in re.findall(r"\d+\.\d", text)]


arguments = sys.argv[1:]
checks = arguments[:1] == ["--check"]
arguments = arguments[checks:]
page = PAGE.read_text()
place = re.search(MARKS, page, re.DOTALL)
if len(arguments) > 1 or not place:
    sys.exit(__doc__)
new = table(pathlib.Path(arguments[0]) if arguments else ROOT / "build/sim")
if not checks:
    PAGE.write_text(page[:place.end(1)] + new + page[place.start(2):])
else:
    before, now = figures(place[0]), figures(new)
    if len(before) != len(now) or any(abs(a - b) > 0.05 * b for a, b in zip(before, now)):
        sys.exit(f"docs/writing_kernels.md: another table than this run's:\n{new}")
