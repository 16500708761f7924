"""usage: planted_bugs.py [--check] SIMULATOR PROGRAM

Runs tests/races/pull_bugs.cpp under fusewire-sim: each bug, with check() after each launch and behind all of them, with
several seeds. Writes the table of docs/testing_kernels.md, or fails if it is another one. It fails, too, where a bug that
every run must show is not shown by one, and where the kernel without a bug shows anything. What depends on the speed of
the host's threads is neither run nor counted: the table says so in words.
"""
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/testing_kernels.md"
# The bug, and in which runs it shows: always, never or by chance; as the columns of the table.
BUGS = {
    "begin": ("`begin` in place of `begin_readable`", ["always"] * 4),
    "no_wait_begun": ("`wait_begun` left out", ["always"] * 4),
    "no_acknowledge": ("no `acknowledge`, no `wait_acknowledged`", ["by chance", "by chance", "by chance", "always"]),
    "none": ("none, for contrast", ["never"] * 4),
}
COLUMNS = [(races, when) for races in (False, True) for when in ("each", "queued")]
SEEDS = {False: range(1, 9), True: range(1, 5)}  # without and with --races


def shows(simulator: list, program: str, bug: str, when: str, seed: int, races: bool) -> bool:
    """Whether a run shows the bug: by wrong sums, or by a report of a race."""
    command = [*simulator, *(["--races"] if races else []), "--gpus", "3", "--seed", str(seed), program, bug, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    if done.returncode in (0, 1) and not races:
        return done.returncode == 1
    if races and (done.returncode == 0 or done.returncode == 86 and "race: " in said):
        return done.returncode == 86
    sys.exit(f"{' '.join(command)}: status {done.returncode}\n{said}")


def cell(simulator: list, program: str, bug: str, races: bool, when: str, expected: str) -> str:
    if expected == "by chance":
        return expected
    seeds = SEEDS[races]
    found = sum(shows(simulator, program, bug, when, seed, races) for seed in seeds)
    if found != (len(seeds) if expected == "always" else 0):
        sys.exit(f"bug {bug}, {when}, races: {races}: shown in {found} of {len(seeds)} runs; expected {expected}")
    return f"{found} of {len(seeds)}"


def row(simulator: list, program: str, bug: str) -> str:
    name, expected = BUGS[bug]
    cells = [cell(simulator, program, bug, *column, how) for column, how in zip(COLUMNS, expected)]
    return f"| {name} | {' | '.join(cells)} |"


def page(simulator: list, program: str) -> str:
    table = "\n".join([
        "| bug | wrong sums, `check` after each launch | wrong sums, queued | `--races`, `check` after each launch | `--races`, queued |",
        "|---|---|---|---|---|", *(row(simulator, program, bug) for bug in BUGS)])
    text, times = re.subn(r"(<!-- scripts/perf/planted_bugs.py writes this -->\n).*?(\n<!-- to here -->)",
                          lambda m: m[1] + table + m[2], PAGE.read_text(), flags=re.DOTALL)
    if times != 1:
        sys.exit(f"{PAGE}: no place for the table")
    return text


arguments = sys.argv[1:]
checks = arguments[:1] == ["--check"]
if len(arguments) != 2 + checks:
    sys.exit(__doc__)
found = page([arguments[-2]], arguments[-1])
if checks and found != PAGE.read_text():
    sys.exit(f"docs/testing_kernels.md: another table than this run's:\n{found[found.index('| bug |'):found.index('<!-- to here')]}")
if not checks:
    PAGE.write_text(found)
