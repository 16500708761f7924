"""usage: compile_times.py [--only TEXT]

Compiles small programs for gfx942 (by the clang of .prefix, or of $FUSEWIRE_PREFIX) and for sm_90a (by nvcc, where it is
found), optimised, with host functions in each source and with those of a library. Writes CPU seconds into
docs/building.md; with --only it prints the rows whose name contains TEXT and writes nothing. It takes half an hour.
"""
import argparse
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PREFIX = pathlib.Path(os.environ.get("FUSEWIRE_PREFIX") or ROOT / ".prefix")
PAGE = ROOT / "docs/building.md"

# The call of an operator with one type and no epilogue: all that its constructor loads is compiled.
CALL = """#include <fusewire/ops/{name}.hpp>
using namespace fusewire;
void call({name}<bf16>& f, hipStream_t stream, {call} const& c) {{ f(stream, c); }}
{make}
"""
MAKE = """{name}<bf16>* make({first}, {name}_options const& o) {{
  return new {name}<bf16>({value}, o);
}}"""


def operator(name: str, call: str, first: str = "channel& c") -> str:
    return CALL.format(name=name, call=call, make=MAKE.format(name=name, first=first, value=first.split()[-1]))


PROGRAMS = {
    "`examples/own_kernel.cpp`: a kernel on the channel": None,
    "`gemm`": operator("gemm", "gemm_call<bf16>", "world& w"),
    "`ag_gemm`": operator("ag_gemm", "ag_gemm_call<bf16>"),
    "`gemm_rs`": operator("gemm_rs", "gemm_rs_call<bf16>"),
    "`gemm_ar`": operator("gemm_ar", "gemm_ar_call<bf16>"),
    "`gemm_all_scatter`": operator("gemm_all_scatter", "gemm_all_scatter_call<bf16>"),
    "`flash_decode`": operator("flash_decode", "flash_decode_call<bf16>"),
    "the library of host functions": "#include <fusewire/host.ipp>\n",
}


def commands() -> dict[str, list]:
    found = {}
    clang = PREFIX / "llvm/bin/clang++"
    if clang.exists():
        flags = (PREFIX / "hip-flags").read_text().split() if (PREFIX / "hip-flags").exists() else []
        found["gfx942"] = [clang, "-x", "hip", f"--rocm-path={PREFIX}", *flags, "--offload-arch=gfx942", "-O3"]
    if nvcc := shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc"):
        found["sm_90a"] = [nvcc, "-x", "cu", "-gencode", "arch=compute_90a,code=sm_90a", "-O3"]
    return found


def seconds(command: list, source: pathlib.Path, library: bool, folder: pathlib.Path) -> float:
    define = ["-DFUSEWIRE_HOST_LIBRARY"] if library else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "-std=c++20", *define, f"-I{ROOT}/include", f"-I{ROOT}/examples", "-c", source, "-o", folder / "o"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source.name}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[0][7:], description=__doc__.split("\n", 1)[1])
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    compilers = commands()
    rows = ["| CPU seconds | " + " | ".join(f"{c} | {c}, with the library" for c in compilers) + " |",
            "|---|" + "---|---|" * len(compilers)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for what, text in PROGRAMS.items():
            if only not in what:
                continue
            source = ROOT / "examples/own_kernel.cpp" if text is None else folder / "program.cpp"
            if text is not None:
                source.write_text(text)
            alone = "host.ipp" not in (text or "")
            cells = [f"{seconds(c, source, library, folder):.0f}" if library or alone else ""
                     for c in compilers.values() for library in (False, True)]
            rows.append(f"| {what} | {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    if only:
        return
    page, times = re.subn(r"(<!-- scripts/perf/compile_times.py writes this -->\n).*?\n?(<!-- to here -->)",
                          lambda m: m[1] + "\n".join(rows) + "\n" + m[2], PAGE.read_text(), flags=re.DOTALL)
    if times != 1:
        sys.exit(f"{PAGE}: no place for the table")
    PAGE.write_text(page)


main()
