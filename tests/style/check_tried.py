"""usage: check_tried.py ROOT

Fails if docs/tried.csv has figures of a decision that docs/tried.md does not have, or the same figure twice, or no
number; or if docs/tried.md has two entries of one name, or an entry that is no question with an answer.
"""
import collections
import csv
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
wrong = []
page = re.sub(r"\n +", " ", (root / "docs/tried.md").read_text())
entries = [line for line in page.split("\n") if line.startswith("- ")]
names = []
for line in entries:
    entry = re.fullmatch(r"- \*\*[^*].*\?\*\* .+[.)] `([\w+-]+)`", line)
    if entry:
        names.append(entry[1])
    else:
        wrong.append(f"tried.md: no **question?** answer. `name`: {line[:100]}")
wrong += [f"tried.md: {name} stands there {n} times" for name, n in collections.Counter(names).items() if n > 1]

with open(root / "docs/tried.csv", newline="") as file:
    figures = list(csv.DictReader(file))
keys = collections.Counter((f["decision"], f["case"], f["variant"], f["unit"]) for f in figures)
wrong += [f"tried.csv: {', '.join(key)}: {n} values" for key, n in keys.items() if n > 1]
for f in figures:
    if f["decision"] not in names:
        wrong.append(f"tried.csv: tried.md has no {f['decision']}")
    if not re.fullmatch(r"-?\d+(\.\d+)?(e\+?\d+)?", f["value"] or ""):
        wrong.append(f"tried.csv: {f['decision']}, {f['case']}: {f['value']!r} is no number")
if len(entries) < 100 or len(figures) < 500:
    wrong.append(f"{len(entries)} entries, {len(figures)} figures: that is not all")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
