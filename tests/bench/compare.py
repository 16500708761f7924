"""usage: compare.py ROOT

scripts/perf/compare.py on files that are written here: ratios and their mean, units, names of one file alone, failures, a
filter, the order of rows, exit statuses, and files that are none.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
work = pathlib.Path(tempfile.mkdtemp())


def file(name: str, times: dict[str, float], machine: str = "4x H200", unit: str = "us", failed: tuple = ()) -> str:
    rows = [{"name": n, "real_time": t, "time_unit": unit} for n, t in times.items()]
    rows += [{"name": n, "error_occurred": True, "error_message": "why"} for n in failed]
    path = work / name
    path.write_text(json.dumps({"context": {"machine": machine, "commit": name}, "benchmarks": rows}))
    return str(path)


def compare(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, root / "scripts/perf/compare.py", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


wrong = []


def expect(what: str, result: tuple[int, str], status: int, *patterns: str, absent: str = "") -> None:
    if result[0] != status:
        wrong.append(f"{what}: status {result[0]}, not {status}\n{result[1]}")
    wrong.extend(f"{what}: no {p}\n{result[1]}" for p in patterns if not re.search(p, result[1], re.MULTILINE))
    if absent and re.search(absent, result[1]):
        wrong.append(f"{what}: {absent}\n{result[1]}")


before = file("before", {"g/x/M:1": 10, "g/x/M:2": 20, "g/x/M:4": 40, "g/old": 1, "g/x/M:8": 5})
after = file("after", {"g/x/M:4": 10, "g/x/M:2": 80, "g/x/M:1": 10, "g/new": 1}, failed=("g/x/M:8",))
expect("table", compare(before, after), 0, r"^all: +g/x$", r"^M:1 +10.00 +10.00 +1.000$", r"^M:2 +20.00 +80.00 +4.000$",
       r"^M:4 +40.00 +10.00 +0.250$", r"^geometric mean of 3 +1.000$", r"^before alone: 1$", r"^after alone: 1$",
       r"^failed after: 1$", absent="g/old|g/new|M:8")
expect("all", compare(before, after, "--all"), 0, r"^  g/old$", r"^  g/new$", r"^  g/x/M:8$")
expect("filter", compare(before, after, "--filter", "M:[14]$"), 0, r"^geometric mean of 2 +0.500$", absent="M:2|alone")
expect("sort", compare(before, after, "--sort", "ratio"), 0, r"(?s)M:4.*M:1.*M:2")
expect("worse", compare(before, after, "--fail-above", "1.05"), 1, r"above 1.05: 1")
expect("not worse", compare(before, after, "--fail-above", "4"), 0)
in_ms = file("ms", {"g/x/M:1": 0.02}, unit="ms")
expect("units", compare(before, in_ms), 0, r"^g/x/M:1 +10.00 +20.00 +2.000$")
expect("machines", compare(before, file("other", {"g/x/M:1": 1}, machine="2x H200")), 0, "not of the same machine")
expect("nothing", compare(before, file("none", {"other": 1})), 1, "nothing to compare")
(work / "text").write_text("text")
(work / "list").write_text("[1]")
for bad in ("text", "list", "missing"):
    expect(bad, compare(before, str(work / bad)), 2, "is no result file", absent="Traceback")
for real in sorted((root / "bench/results").glob("*.json")):
    expect(real.name, compare(str(real), str(real)), 0, r"^geometric mean of \d+ +1.000$")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
