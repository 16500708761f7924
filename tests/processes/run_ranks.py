"""usage: run_ranks.py RUN_RANKS

scripts/run-ranks: its statuses, that it ends when several ranks end together by a signal, and that ranks get the signals that it gets."""
import os
import signal
import subprocess
import sys
import tempfile
import time

run_ranks = sys.argv[1]


def run(*arguments, **environment):
    return subprocess.run([run_ranks, *arguments], env=os.environ | environment, timeout=60, capture_output=True, text=True)


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, expected {wanted}")


def status_of(script, *options):
    return run(*options, "bash", "-c", script).returncode


def passes_on(number, folder):
    """Each rank says that it is ready, then which signal it got."""
    script = "trap 'echo got > got.$RANK; exit 0' HUP INT TERM; echo > ready.$RANK; while :; do sleep 0.1; done"
    ranks = subprocess.Popen([run_ranks, "-n", "3", "bash", "-c", script], cwd=folder)
    while sum(name.startswith("ready.") for name in os.listdir(folder)) < 3:
        time.sleep(0.01)
    ranks.send_signal(number)
    expect(f"status after {number.name}", ranks.wait(30), 128 + number)
    expect(f"ranks that got {number.name}", sum(name.startswith("got.") for name in os.listdir(folder)), 3)


for _ in range(20):
    expect("status when all abort", status_of("kill -ABRT $$", "-n", "4", "-g", "30"), 128 + signal.SIGABRT)
expect("status when all fail", status_of("exit 1", "-n", "4"), 1)
expect("status when none fails", status_of(":", "-n", "4"), 0)
began = time.monotonic()
expect("status when one fails and the others hang", status_of("[ $RANK = 1 ] && exit 3; exec sleep 50", "-n", "3", "-g", "1"), 3)
expect("killed after a second", time.monotonic() - began < 20, True)
expect("environment", run("-n", "1", "bash", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT", MASTER_PORT="5").stdout, "0 1 0 127.0.0.1 5\n")
for number in signal.SIGHUP, signal.SIGINT, signal.SIGTERM:
    signal.signal(number, signal.SIG_DFL)  # who started this may have ignored it, and so would run-ranks
    with tempfile.TemporaryDirectory() as folder:
        passes_on(number, folder)
for wrong in [], ["-n", "0", "true"], ["-n", "2"], ["-n", "x", "true"], ["-x", "true"]:
    expect(f"status of {wrong}", run(*wrong).returncode, 2)
expect("says what is not there", "no_such_program" in run("-n", "2", "no_such_program").stderr, True)
expect("knows the simulator", "--processes 2" in run("-n", "2", "build/fusewire-sim", "program").stderr, True)
