"""usage: check_tried.py ROOT

Fails if docs/decisions/tried.csv has figures of a decision that no page in docs/decisions has, or the same figure
twice, or no number; if two entries have one name; if an entry is no statement with a verdict and a reason; or if
another table stands above the entries than scripts/perf/decisions.py writes.
"""
import collections
import pathlib
import re
import sys

sys.dont_write_bytecode = True
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "scripts/perf"))
import decisions

WRONG = [  # what no entry may be
    "- **Is B read twice?** Rejected. It is slower. `twice`",
    "- **Read B twice: maybe.** It is slower. `twice`",
    "- **Read B twice: rejected.** It is slower.",
    "- **Read B twice: rejected.** `twice`",
]
wrong = [f"planted, and not found: {line}" for line in WRONG if decisions.ENTRY.fullmatch(line)]
names: list[str] = []
for page in sorted((root / "docs/decisions").glob("*.md")):
    if page.stem == "README":
        continue
    text = page.read_text()
    where = page.relative_to(root)
    for line in (lines := decisions.entries_of(text)):
        entry = decisions.ENTRY.fullmatch(line)
        if entry and not entry[1].endswith("?"):
            names.append(entry[3])
        else:
            wrong.append(f"{where}: no **statement: verdict.** reason. `name`: {line[:100]}")
    if (rows := len(re.findall(r"^\| .* \| `[\w+-]+` \|$", text, re.MULTILINE))) != len(lines):
        wrong.append(f"{where}: {rows} rows, {len(lines)} entries: is there an entry below no table?")
    if decisions.page_of(page) != text:
        wrong.append(f"{where}: another table than scripts/perf/decisions.py writes")
wrong += [f"{name} stands there {n} times" for name, n in collections.Counter(names).items() if n > 1]

found = decisions.figures()
keys = collections.Counter((name, f["case"], f["variant"], f["unit"]) for name, rows in found.items() for f in rows)
wrong += [f"tried.csv: {', '.join(key)}: {n} values" for key, n in keys.items() if n > 1]
wrong += [f"tried.csv: no page in docs/decisions has {name}" for name in found if name not in names]
for name, rows in found.items():
    for f in rows:
        if not re.fullmatch(r"-?\d+(\.\d+)?(e\+?\d+)?", f["value"] or ""):
            wrong.append(f"tried.csv: {name}, {f['case']}: {f['value']!r} is no number")
if len(names) < 250 or sum(map(len, found.values())) < 2000:
    wrong.append(f"{len(names)} entries, {sum(map(len, found.values()))} figures: that is not all")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
