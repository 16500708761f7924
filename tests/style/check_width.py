"""usage: check_width.py ROOT

Prints the lines of C++ and CMake sources that are wider than 120 columns, and fails if there are any.
"""
import pathlib
import sys

FOLDERS = "bench cmake examples include sim template tests".split()
KINDS = {".hpp", ".cpp", ".h", ".hip", ".cu", ".cmake"}
WIDTH = 120

root = pathlib.Path(sys.argv[1])
files = [root / "CMakeLists.txt", *(f for folder in FOLDERS for f in (root / folder).rglob("*"))]
sources = [f for f in files if f.suffix in KINDS or f.name == "CMakeLists.txt"]
if len(sources) < 100:
    sys.exit(f"{len(sources)} sources in {root}: that is not fusewire")
wide = [
    f"{f.relative_to(root)}:{number}: {len(line)} columns"
    for f in sorted(sources)
    for number, line in enumerate(f.read_text().split("\n"), 1)
    if len(line) > WIDTH
]
print("\n".join(wide))
sys.exit(1 if wide else 0)
