"""usage: scripts.py ROOT

What scripts/bench and scripts/perf/project.py do with a filter and a budget, and what they say of the time left; with
programs that are written here in place of the benchmarks and of the simulator.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
work = pathlib.Path(tempfile.mkdtemp())
wrong = []


def run(command: list, **environment: str) -> tuple[int, str]:
    done = subprocess.run(list(map(str, command)), env=os.environ | environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def expect(what: str, ok: bool, said: str) -> None:
    if not ok:
        wrong.append(f"{what}\n{said}")


def script(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


# scripts/bench: a benchmark that takes a second and files what it was called with
bench = root / "scripts/bench"
script(work / "bin/bench_primitives", """#!/bin/bash
echo "$@" >>"$(dirname "$0")/calls"
sleep 1
for a in "$@"; do case $a in --benchmark_out=*) out=${a#*=} ;; esac; done
echo '{"context": {"machine": "4x H200", "commit": "x"}, "benchmarks": []}' | sed 's/, "bench/,\\n"bench/' >"$out"
""")
pages = [root / "docs/performance.md", root / "README.md"]
texts = [p.read_text() for p in pages]
at = {"FUSEWIRE_BIN": str(work / "bin"), "FUSEWIRE_BUILD": str(work / "build")}
status, said = run([bench, "--filter", "^load$", "--budget", "3", "primitives", "primitives", "primitives", "primitives"], **at)
calls = (work / "bin/calls").read_text().splitlines()
expect("bench: status", status == 0, said)
expect("bench: filter", all("--benchmark_filter=^load$" in c for c in calls), str(calls))
budgets = [int(found[1]) for c in calls if (found := re.search(r"--budget=(\d+)", c))]
expect("bench: what is left of the budget", len(budgets) == len(calls) and budgets == sorted(budgets, reverse=True) and max(budgets) <= 3, str(calls))
expect("bench: the budget ends it", len(calls) < 4 and "the budget is spent" in said, said)
expect("bench: where results go", (work / "build/bench/primitives.h200x4.json").is_file(), said)
expect("bench: pages stay", texts == [p.read_text() for p in pages], said)
for bad in (["--budget", "soon"], ["--budget"], ["--bogus"], ["none"]):
    status, said = run([bench, *bad], **at)
    expect(f"bench {bad}", status == 1 and said.startswith("error: "), said)

# scripts/perf/check_projection.py, and the pages: results as a first MI300X would write them, whose links are 100 ns longer and whose memory is slower
results = work / "first_machine"
results.mkdir()
for file in (root / "bench/results").glob("*.mi300x_projected.json"):
    (results / file.name).write_text(file.read_text())


def file_results(name, gpus, rows):
    context = {"machine": f"{gpus}x MI300X", "driver": "6.10.5", "runtime": "70253211", "commit": "x", "b_layout": "column-major"}
    (results / f"{name}.mi300xx{gpus}.json").write_text(json.dumps({"context": context, "benchmarks": rows}))


row = lambda name, us, **more: {"name": name, "real_time": us, "time_unit": "us", "sm_mhz": 2100, **more}
projected = [row("load", 1.0), row("launch/graph", 1.5), row("copy/push/block/blocks:64/bytes:1048576", 20.0)]
(results / "primitives.mi300x_projected.json").write_text(json.dumps({"context": json.loads((results / "ag_gemm.mi300x_projected.json").read_text())["context"], "benchmarks": projected}))
file_results("primitives", 8, [row("load", 1.2), row("launch/graph", 2.25), row("copy/push/block/blocks:64/bytes:1048576", 25.0)])
decode = [b for b in json.loads((results / "flash_decode.mi300x_projected.json").read_text())["benchmarks"] if "/W:1/" in b["name"]]
file_results("flash_decode", 1, [{**b, "real_time": b["real_time"] + b["bytes"] / 5.3e6 / 0.92} for b in decode])  # at half the rate
status, said = run([sys.executable, root / "scripts/perf/check_projection.py", results])
constant = lambda name: (found := re.search(rf"^  {name}: ([0-9.]+) .* -> ([0-9.]+)", said, re.M)) and (float(found[1]), float(found[2]))
expect("check_projection: status", status == 0, said)
expect("check_projection: the gap", constant("graph_gap_us") == (1.5, 2.25), said)
expect("check_projection: a link's latency", constant("link_ns") == (250, 350), said)
expect("check_projection: a link's share", constant("link_efficiency") == (0.75, 0.6), said)
expect("check_projection: memory at half the rate", constant("hbm_efficiency") == (0.92, 0.46), said)
expect("check_projection: all of them to try", re.search(r"--timing graph_gap_us=2.25,link_ns=350,link_efficiency=0.6,hbm_efficiency=0.46$", said, re.M), said)
expect("check_projection: nothing measured", run([sys.executable, root / "scripts/perf/check_projection.py", root / "bench/results"])[0] == 1, said)
status, said = run([sys.executable, root / "scripts/perf/performance.py", results, results / "performance.md"])
made = (results / "performance_tables.md").read_text() if status == 0 else said
expect("performance: tables of a first machine", "## Flash Decode: 1x MI300X, driver 6.10.5, HIP 7.2" in made and "## Primitives: 8x MI300X" in made and "Nothing was measured on an MI300X" not in made, made[:2000])

# scripts/perf/project.py: a simulator that takes a moment for each figure
build = work / "sim-build"
script(build / "sim/fusewire-sim", '#!/bin/bash\necho "$@" >>"$(dirname "$0")/calls"\nsleep 0.3\necho "us: 5"\n')
(build / "sim/lib").mkdir()
(build / "sim/lib/libamdhip64.so.7").write_text("")
(build / "bin").mkdir()
(build / "bin/projection").write_text("")
project = [sys.executable, root / "scripts/perf/project.py", "--build", build, "--results", work / "projected", "--decode_worlds", "1"]
(work / "projected").mkdir()
tokens = ["flash_decode", "--tokens", "8192,16384,32768,65536"]
status, said = run([*project, *tokens, "--filter", "kv:(8192|32768)/"])
stored = work / "projected/flash_decode.mi300x_projected.json"
names = [b["name"] for b in json.loads(stored.read_text())["benchmarks"]]
expect("project: filter", status == 0 and [re.search(r"kv:(\d+)", n)[1] for n in names] == ["8192", "32768"], said)
expect("project: progress", re.search(r"^\[1 of 2 of flash_decode, .* left\]$", said, re.M) and re.search(r"^\[2 of 2 .*about 0.0 min left\]$", said, re.M), said)
status, said = run([*project, *tokens])
names = [b["name"] for b in json.loads(stored.read_text())["benchmarks"]]
expect("project: what is there is kept", status == 0 and len(names) == 4 and "[2 of 2 " in said and "of 4 " not in said, said)
expect("project: no more runs than figures", len((build / "sim/calls").read_text().splitlines()) == 4, said)
status, said = run([*project, "flash_decode", "--tokens", "131072", "--budget", "1"])
expect("project: budget", status == 1 and "not run: " in said, said)

# The set `ag_gemm`: what a fused kernel is divided by is our own GEMM on the same clock, once for all worlds; it and RCCL's published rate make the twin
calls = len((build / "sim/calls").read_text().splitlines())
status, said = run([*project, "ag_gemm", "--m", "8", "--n", "3584", "--worlds", "1,8"])
found = {b["name"]: b for b in json.loads((work / "projected/ag_gemm.mi300x_projected.json").read_text())["benchmarks"]}
of = lambda variant, by="k", w=8: found.get(f"ag_gemm/{variant}/gather:{by}/dtype:bf16/W:{w}/M:8/N:3584/K:8192", {"real_time": None, "from": None})
simulated = (build / "sim/calls").read_text().splitlines()[calls:]
expect("project: our own GEMM", status == 0 and (of("own_gemm", w=1)["real_time"], of("own_gemm", w=1)["from"]) == (5, "simulated") and sum(" gemm 8 3584 8192" in c for c in simulated) == 1, said)
expect("project: RCCL at half of what is published for 128 KB", (of("rccl")["real_time"], of("rccl")["from"]) == (11.28, "published"), str(of("rccl")))
expect("project: the twin, without a copy", abs((of("bsp_graph", "m")["real_time"] or 0) - (11.28 + 1.5 + 5)) < 0.01, str(of("bsp_graph", "m")))
expect("project: the twin, with one", abs((of("bsp_graph")["real_time"] or 0) - (11.28 + 3 + 5 + 2 * 131072 / (5.3e6 * 0.92))) < 0.01, str(of("bsp_graph")))
status, said = run([sys.executable, root / "scripts/perf/performance.py", work / "projected", work / "projected/performance.md"])
made = (work / "projected/performance.md").read_text() if status == 0 else said
expect("performance: a projection over our own GEMM", re.search(r"^\| all-gather \+ GEMM \| 8 MI300X \| \*\*projected\*\*.* M = 8 to 8: 2 \| 1.00 \| 3.56 to 3.87, ", made, re.M), made[:1500])
found.pop("ag_gemm/own_gemm/gather:k/dtype:bf16/W:1/M:8/N:3584/K:8192", None)
stored = work / "projected/ag_gemm.mi300x_projected.json"
stored.write_text(json.dumps(json.loads(stored.read_text()) | {"benchmarks": list(found.values())}))
run([sys.executable, root / "scripts/perf/performance.py", work / "projected", work / "projected/performance.md"])
expect("performance: no row without one", "GEMM | 8 MI300X" not in (work / "projected/performance.md").read_text(), made[:1500])

# The set `taxes`: a simulator that also writes statistics and a trace of two iterations
iteration = lambda at: [{"ph": "X", "name": "void fusewire::gemm_kernel<int>(int)", "pid": 0, "tid": tid, "ts": at, "dur": 2} for tid in (0, 5)]
trace = {"traceEvents": [*iteration(0), *iteration(3), {"ph": "X", "name": "waits: flags", "pid": 0, "tid": 5, "ts": 3.5, "dur": 0.5},
                         *({"ph": "C", "name": "link to GPU 0, GB/s", "pid": 1, "ts": at, "args": {"GB/s": rate}} for at, rate in ((4, 48), (5, 0)))]}
kernel = {"gpu": 0, "launches": 3, "hbm_bytes": 300, "mall_bytes": 600, "l2_bytes": 900, "link_bytes_out": 0}
stats = {"kernels": [{"kernel": "begin_together"} | kernel, {"kernel": "gemm_kernel"} | kernel]}
(work / "trace").write_text(json.dumps(trace))
(work / "stats").write_text(json.dumps(stats))
script(build / "sim/fusewire-sim", f"""#!/bin/bash
case ${{@: -1}} in 0,10,40) printf 'late %s: 7 6\\n' 0 10 40 ;; *) echo "us: 5" ;; esac
while [ $# -gt 0 ]; do case $1 in --stats-json) cp "{work}/stats" "$2" ;; --trace) cp "{work}/trace" "$2" ;; esac; shift; done
""")
(build / "bin/projection_taxes").write_text("")
status, said = run([*project, "taxes"])
found = {b["name"]: b for b in json.loads((work / "projected/ag_gemm_taxes.mi300x_projected.json").read_text())["benchmarks"]}
of = lambda variant, late="": found.get(f"ag_gemm/{variant}/gather:k/dtype:bf16/W:8/M:64/N:3584/K:8192{late}", {})
expect("taxes: status", status == 0 and len(found) == 19, said)
expect("taxes: an iteration's kernels and bytes", (of("chosen").get("kernels"), of("chosen").get("hbm_bytes")) == (1, 100), str(of("chosen")))
expect("taxes: late ranks", of("chosen", "/late:40").get("others_us") == 6, said)
seen = of("marked").get("timeline", {})
total = lambda key: sum(seen.get(key, [])) * seen.get("step_us", 0)
expect("taxes: the last iteration in time", (seen.get("us"), total("multiplying"), total("multiplying_waits"), total("links_gb_s")) == (2, 2, 0.5, 48), str(seen))

# The set `ag_gemm_plans`: a simulator whose `plans` lists what stands in a file
script(build / "sim/fusewire-sim", f"""#!/bin/bash
case " $* " in *" plans "*) cat "{work}/listed" ;; *) echo "us: $((100 - ${{@: -1}} % 100))" ;; esac
""")
def plans_of(listed):
    (work / "listed").write_text(listed)
    status, said = run([*project, "ag_gemm_plans", "--ag_plan_m", "128", "--ag_plan_worlds", "8", "--gathers", "k", "--random", "0", "--jobs", "2"])
    stored = json.loads((work / "projected/ag_gemm_plans.mi300x_projected.json").read_text())["benchmarks"] if status == 0 else []
    return status, said, {re.search("plan:(.*)/gather", b["name"])[1]: b for b in stored}
status, said, found = plans_of("128 112 4 7 256 21.5\n128 96 5 7 256 23.0\n")
expect("plans: chosen and variants", status == 0 and sorted(found) == ["128x112x4", "128x112x4/columns:128", "128x112x4/columns:512", "128x112x4/movers:14", "128x112x4/movers:3", "128x96x5"], said)
expect("plans: what is chosen", [name for name, b in found.items() if b["chosen"]] == ["128x112x4"], str(found))
status, said, found = plans_of("128 96 5 7 512 20.0\n128 112 4 7 256 21.5\n")
expect("plans: another is chosen", status == 0 and [name for name, b in found.items() if b["chosen"]] == ["128x96x5"] and "128x112x4/movers:14" not in found, said)
expect("plans: what is there is kept", re.findall("plan:([^ ]*)/gather", said) == ["128x96x5/movers:3", "128x96x5/movers:14", "128x96x5/columns:256", "128x96x5/columns:1024"], said)
status, said = run([sys.executable, root / "scripts/perf/performance.py", work / "projected", work / "projected/performance.md"])
made = (work / "projected/performance_tables.md").read_text() if status == 0 else said
expect("performance: chosen and fastest", "| sweep | 8 | k | 3584 | 8192 | 128 | 128x96x5 |" in made and "1 shapes of the sweep" in made, said + made[-2000:])
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
