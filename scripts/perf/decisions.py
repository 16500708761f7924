#!/usr/bin/env python3
"""usage: decisions.py [--check]

Writes the tables of docs/decisions/*.md from the entries below each of them and from the figures in tried.csv beside
them; with --check fails if they are other ones. An entry is

    - **What was tried: rejected.** Why. `name`

Its verdict is one of kept, kept in part, rejected, replaced (kept once), removed (kept
once; its gain is below the error of what measured it), not tried, finding (nothing to keep).
"""
import collections
import csv
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs/decisions"
VERDICTS = {"kept": "yes", "kept in part": "in part", "rejected": "no", "replaced": "until replaced",
            "removed": "until removed", "not tried": "not tried", "finding": "-"}
SHOWN = 4  # figures in a row of a table
MARKED = re.compile(r"(<!-- scripts/perf/decisions\.py writes this: (\w+) -->\n).*?(<!-- to here -->\n)(.*?)(?=^#|\Z)",
                    re.DOTALL | re.MULTILINE)
ENTRY = re.compile(rf"- \*\*(.+): ({'|'.join(VERDICTS)})\.\*\* .+[.)] `([\w+-]+)`")


def entries_of(text: str) -> list[str]:
    """Each entry in one line."""
    return [line for line in re.sub(r"\n +", " ", text).split("\n") if line.startswith("- ")]


def figures() -> dict[str, list[dict[str, str]]]:
    found = collections.defaultdict(list)
    with open(FOLDER / "tried.csv", newline="") as file:
        for row in csv.DictReader(file):
            found[row["decision"]].append(row)
    return found


def plain(value: str) -> str:
    return f"{float(value):,.0f}" if float(value) >= 1e5 else value


def result(rows: list[dict[str, str]]) -> str:
    """The figures of a decision in short: a range of ratios of its pairs, or its first figures."""
    for before, after in (("without", "with"), ("before", "after")):
        pairs = collections.defaultdict(dict)
        for r in rows:
            if r["unit"] in ("us", "ms"):
                pairs[r["case"]][r["variant"]] = float(r["value"])
        ratios = [p[after] / p[before] for p in pairs.values() if p.keys() == {before, after}]
        if ratios and 2 * len(ratios) >= len(pairs):
            low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
            span = low if low == high else f"{low} to {high}"
            return f"time {after} / {before}: {span} ({len(ratios)} case{'s' * (len(ratios) > 1)})"
    cases: dict[str, list[str]] = {}
    for r in rows[:SHOWN]:
        cases.setdefault(r["case"], []).append(f"{r['variant']} {plain(r['value'])} {r['unit']}")
    text = "; ".join(f"{case}: {', '.join(values)}" for case, values in cases.items())
    more = len(rows) - SHOWN
    return (text + (f"; {more} more figures" if more > 0 else "")).replace("|", "/") or "no figure"


def table(kind: str, text: str, found: dict[str, list[dict[str, str]]]) -> str:
    out = [f"| tried | result, {kind} | kept? | entry |", "|---|---|---|---|"]
    for line in entries_of(text):
        if entry := ENTRY.fullmatch(line):
            what, verdict, name = entry.groups()
            out.append(f"| {what} | {result(found.get(name, []))} | {VERDICTS[verdict]} | `{name}` |")
    return "\n".join(out) + "\n"


def page_of(path: pathlib.Path) -> str:
    found = figures()
    return MARKED.sub(lambda m: m[1] + table(m[2], m[4], found) + m[3] + m[4], path.read_text())


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(0 if print(__doc__) is None and sys.argv[1:] in (["-h"], ["--help"]) else 2)
    made = {path: page_of(path) for path in sorted(FOLDER.glob("*.md"))}
    if "--check" in sys.argv:
        stale = [path.relative_to(ROOT) for path, text in made.items() if path.read_text() != text]
        sys.exit("\n".join(f"{path}: another table than scripts/perf/decisions.py writes" for path in stale) or 0)
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
