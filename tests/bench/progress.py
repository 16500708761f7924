"""usage: progress.py FUSEWIRE_SIM BENCH_PRIMITIVES

A benchmark program says how far it is and what time is left, counts what a filter chooses, and begins nothing when its
budget is spent: what it left out is neither printed nor filed. 77 where the program is not built.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

simulator, program = sys.argv[1:3]
work = pathlib.Path(tempfile.mkdtemp())
wrong = []


def run(*options: str) -> tuple[str, str, list[str]]:
    filed = work / "out.json"
    done = subprocess.run([simulator, "--gpus", "2", "--cus", "64", program, *options, f"--benchmark_out={filed}",
                           "--benchmark_out_format=json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        wrong.append(f"{options}: status {done.returncode}\n{done.stderr}")
    return done.stdout, done.stderr, [b["name"] for b in json.loads(filed.read_text())["benchmarks"]]


if not pathlib.Path(program).exists():
    print(f"{program} is not built")
    sys.exit(77)
printed, said, filed = run("--benchmark_filter=^(load|store|signal/one_way)$")
if not re.search(r"^\[3 of 3, [^\n]*about 0 s left\]$", said, re.MULTILINE) or filed != ["load", "store", "signal/one_way"]:
    wrong.append(f"filter: {filed}\n{said}")
# The first takes seconds here, and the budget is one
copies = "^copy/push/(wave|block|plain)/blocks:16/bytes:67108864"
printed, said, filed = run(f"--benchmark_filter={copies}", "--budget=1")
if not re.search(r"not run, because --budget=1 was spent: 2$", said, re.MULTILINE) or len(filed) != 1 or "budget" in printed:
    wrong.append(f"budget: {filed}\n{printed}\n{said}")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
