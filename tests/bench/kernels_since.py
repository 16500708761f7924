"""usage: kernels_since.py ROOT

scripts/perf/kernels_since.py on a small repository: which changes make the kernels of a result file older ones.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "scripts/perf"))
import kernels_since

root = pathlib.Path(tempfile.mkdtemp())
results = root / "bench/results"
results.mkdir(parents=True)
wrong = []


def git(*words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, "-C", root, *words], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def header(name: str, text: str) -> None:
    path = root / "include/fusewire" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit() -> str:
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", "change")
    return git("rev-parse", "--short=7", "HEAD")


def older(commit_of_file: str, **context: str) -> bool | None:
    return kernels_since.are_older(root, "ag_gemm.h200x2", {"commit": commit_of_file, **context})


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        wrong.append(f"{what}: {got}, wanted {wanted}")


git("init", "-q")
header("ops/ag_gemm.hpp", "#include <fusewire/gemm/block_gemm.hpp>\n#include <fusewire/ranks/world.hpp>\n// fast\nint a;\n")
header("gemm/block_gemm.hpp", "#include <fusewire/tile/gemm_gfx942.hpp>\nint tile;\n")
header("tile/gemm_gfx942.hpp", "int amd;\n")
header("ranks/world.hpp", "int host;\n")
header("ops/flash_decode.hpp", "int decode;\n")
first = commit()
expect("the same commit", older(first), False)
header("ops/ag_gemm.hpp", "#include <fusewire/gemm/block_gemm.hpp>\n#include <fusewire/ranks/world.hpp>\n\n/* as fast */ int  a;\n")
header("tile/gemm_gfx942.hpp", "int other_amd;\n")
header("ranks/world.hpp", "int other_host;\n")
header("ops/flash_decode.hpp", "int other_decode;\n")
commit()
expect("comments, the host, another architecture, another operator", older(first), False)
header("ops/ag_gemm.hpp", "#include <fusewire/tile/product.hpp>\n#include <fusewire/ranks/world.hpp>\nint a;\n")
header("tile/product.hpp", "#include <fusewire/tile/gemm_gfx942.hpp>\nint tile;\n")
(root / "include/fusewire/gemm/block_gemm.hpp").unlink()
commit()
expect("a header with another name", older(first), False)
header("tile/product.hpp", "#include <fusewire/tile/gemm_gfx942.hpp>\nint another_tile;\n")
expect("an edit that is not committed", older(first), True)
second = commit()
expect("a changed header that the operator includes", older(first), True)
expect("a commit with a suffix", older(second + "-dirty"), False)
expect("a commit that is not in this history, and its date", older("0123456", date="2000-01-01T00:00:00+00:00"), None)
expect("the same with a date behind the last commit", older("0123456", date="2090-01-01T00:00:00+00:00"), False)
expect("no commit", older("?"), None)

file = lambda commit_of_file: (results / "ag_gemm.h200x2.json").write_text(json.dumps({"context": {"commit": commit_of_file}}))
state = lambda: kernels_since.found(root, results)["ag_gemm.h200x2"]["older"]
file("0123456")
expect("nothing is known", state(), True)
(results / kernels_since.STORE).write_text(kernels_since.text_of({"ag_gemm.h200x2": {"commit": "0123456", "older": False}}))
expect("what is stored of this commit", state(), False)
file("1234567")
expect("what is stored of another commit", state(), True)
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
