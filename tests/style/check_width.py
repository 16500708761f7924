"""usage: check_width.py ROOT

Prints the lines of C++ and CMake sources and of pages that are wider than 120 columns, and fails if there are any. Of a
page the lines count that can be broken at a word: not tables, code, headings, HTML or a long address.
"""
import pathlib
import sys

sys.dont_write_bytecode = True
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "scripts/perf"))
from wrap import WIDTH, wide, wrapped

FOLDERS = "bench cmake examples include python/csrc sim template tests".split()
KINDS = {".hpp", ".ipp", ".cpp", ".h", ".hip", ".cu", ".cmake"}
PAGES = "*.md", "docs/**/*.md", "sim/README.md", "template/README.md", "include/**/README.md"

files = [root / "CMakeLists.txt", *(f for folder in FOLDERS for f in (root / folder).rglob("*"))]
sources = [f for f in files if f.suffix in KINDS or f.name == "CMakeLists.txt"]
pages = sorted({f for pattern in PAGES for f in root.glob(pattern)})
if len(sources) < 100 or len(pages) < 20:
    sys.exit(f"{len(sources)} sources and {len(pages)} pages in {root}: that is not fusewire")

# It tries itself first: text is broken, a table and code are not, and no line begins as a list where none is.
text = "GEMM + all-reduce " * 9
code = f"```sh\n{text * 2}\n```"
broken = wrapped(f"- {text}").split("\n")
planted = [
    len(wide(f"{text}\n\n| {text}|\n\n{code}\n\n- {text}")) == 2,
    len(broken) == 2 and all(len(line) <= WIDTH and line[:3] in ("- G", "  G", "  a") for line in broken),
    wrapped(code) == code,
]

wrong = [f"planted, and not found: case {n}" for n, found in enumerate(planted) if not found]
for f in sorted(sources):
    wrong += [f"{f.relative_to(root)}:{number}: {len(line)} columns"
              for number, line in enumerate(f.read_text().split("\n"), 1) if len(line) > WIDTH]
for f in pages:
    lines = (page := f.read_text()).split("\n")
    wrong += [f"{f.relative_to(root)}:{number}: {len(lines[number - 1])} columns" for number in wide(page)]
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
