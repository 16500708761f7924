#!/usr/bin/env python3
"""usage: compile_operators.py [--out FILE] [--objects FOLDER] [--jobs N]

Compiles fusewire's operators for torch into one shared object: for sm_90a by nvcc, for gfx942 by hipcc where torch is
ROCm's (that has never been run). An object that is newer than what it is made from is not compiled again.

NVCC or HIPCC names the compiler; FUSEWIRE_TYPES = bf16,f16 the element types. bf16 alone compiles in half of the time.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
OPERATORS = ("ag_gemm", "gemm_rs", "gemm_ar", "gemm_all_scatter", "flash_decode", "reductions", "experts")
OLDEST_TORCH = (2, 10)


def version():
    """fusewire's, as a text."""
    n = int(re.search(r"FUSEWIRE_VERSION (\d+)", (INCLUDE / "fusewire/version.hpp").read_text()).group(1))
    return f"{n // 10000}.{n // 100 % 100}.{n % 100}"


def _find_torch():
    """Folder, version, CUDA's and ROCm's version of the torch that this Python imports. pip builds in an environment of
    its own, which -I leaves."""
    code = "import torch; print(torch.__path__[0], torch.__version__, torch.version.cuda, torch.version.hip, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    if done.returncode != 0:
        return None
    folder, name, cuda, hip = done.stdout.strip().split("\n")
    return pathlib.Path(folder), name, None if cuda == "None" else cuda, None if hip == "None" else hip


def _compiler(hip):
    """The command as a list, or None."""
    name = "hipcc" if hip else "nvcc"
    command = shlex.split(os.environ.get(name.upper(), ""))
    found = shutil.which(command[0] if command else name)
    if not found:
        usual = os.environ.get("ROCM_PATH", "/opt/rocm") if hip else os.environ.get("CUDA_HOME", "/usr/local/cuda")
        found = shutil.which(name, path=usual + "/bin")
    return [found, *command[1:]] if found else None


def missing():
    """What keeps the operators from being compiled, as a sentence; None if nothing does."""
    torch = _find_torch()
    if torch is None:
        return "torch is not installed; install torch 2.10 or newer first, then fusewire again"
    _, name, cuda, hip = torch
    if tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", name).groups()) < OLDEST_TORCH:
        return f"torch is {name}, and its stable ABI has what fusewire needs from 2.10 on"
    if cuda is None and hip is None:
        return f"torch {name} is built for CPUs alone; install one for CUDA or ROCm, then fusewire again"
    if _compiler(hip) is None:
        return (f"no {'hipcc' if hip else 'nvcc'} was found when fusewire was installed; put it into PATH and install "
                "fusewire again")
    if not hip:
        text = subprocess.run([*_compiler(hip), "--version"], capture_output=True, text=True).stdout
        release = re.search(r"release (\d+)\.(\d+)", text)
        if release and release.group(1) != cuda.split(".")[0]:
            return f"nvcc is of CUDA {release.group(1)} and torch {name} of CUDA {cuda}; expected one major version"
    return None


def _newest(*folders):
    return max(f.stat().st_mtime for folder in folders for f in folder.rglob("*.[hi]pp"))


def build(out, objects, jobs=None):
    """Compiles `out`. Requires: missing() is None. Fails: subprocess.CalledProcessError."""
    torch, _, _, hip = _find_torch()
    out, objects = pathlib.Path(out), pathlib.Path(objects)
    types = os.environ.get("FUSEWIRE_TYPES", "bf16,f16").split(",")
    sources = HERE / "csrc"
    objects.mkdir(parents=True, exist_ok=True)
    defines = ["-DNDEBUG", "-DFUSEWIRE_HOST_LIBRARY", *([] if "f16" in types else ["-DFUSEWIRE_WITHOUT_F16"])]
    common = ["-std=c++20", "-O3", *defines, f"-I{INCLUDE}", f"-I{sources}"]
    if hip:
        kernels = [*_compiler(hip), "-x", "hip", "--offload-arch=gfx942", "-fPIC", "-fvisibility=hidden", *common]
    else:
        kernels = [*_compiler(hip), "-x", "cu", "-gencode", "arch=compute_90a,code=sm_90a", "-diag-suppress=177",
                   "-Xcompiler=-fPIC,-fvisibility=hidden", *common]
    host = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden",
            "-DTORCH_TARGET_VERSION=0x020a000000000000", *(["-DFUSEWIRE_FOR_ROCM"] if hip else []),
            f"-isystem{torch / 'include'}", f"-I{sources}"]

    work = [*((sources / f"{name}.cpp", objects / f"{name}.o", host) for name in ("torch_library", "c_interface")),
            (sources / "collectives.cu", objects / "collectives.o", kernels),
            (sources / "communicator.cu", objects / f"communicator.{'_'.join(types)}.o", kernels)]
    work += [(sources / f"{op}.cu", objects / f"{op}.{t}.o", [*kernels, f"-DFUSEWIRE_ELEMENT={t}"])
             for t in types for op in OPERATORS]

    def compile_one(source, made, command):
        headers = [sources] if source.suffix == ".cpp" else [sources, INCLUDE]
        since = max(source.stat().st_mtime, _newest(*headers))
        if made.exists() and made.stat().st_mtime > since:
            return
        begin = time.time()
        subprocess.run([*command, "-c", source, "-o", made.with_suffix(".new")], check=True)
        made.with_suffix(".new").replace(made)
        print(f"{made.name}: {time.time() - begin:.0f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        list(pool.map(lambda w: compile_one(*w), work))

    link = [host[0], "-shared", "-o", out, *(made for _, made, _ in work), f"-L{torch / 'lib'}", "-Wl,--no-as-needed",
            "-ltorch_cpu", "-ltorch_hip" if hip else "-ltorch_cuda", "-Wl,--as-needed",
            "-Wl,--no-undefined", "-Wl,--allow-shlib-undefined", "-s", "-lpthread", "-ldl",
            f"-Wl,--version-script={sources / 'exports.map'}"]
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*link, *_runtime(torch, hip)], check=True)
    return out


def _runtime(torch, hip):
    """The GPU's runtime, which torch has loaded before. No path of the compiler's machine stays in the object."""
    if hip:
        return [f"-L{os.environ.get('ROCM_PATH', '/opt/rocm')}/lib", "-lamdhip64"]
    nvcc = pathlib.Path(shutil.which(_compiler(hip)[-1]) or "/usr/local/cuda/bin/nvcc").resolve()
    places = [torch.parent / "nvidia" / "cu13" / "lib", torch.parent / "nvidia" / "cuda_runtime" / "lib", torch / "lib",
              nvcc.parent.parent / "lib64"]
    for place in places:
        for library in sorted(place.glob("libcudart.so.1[0-9]")):
            return [str(library), f"-Wl,-rpath-link,{place}"]
    return ["-lcudart"]


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n")[0][7:])
    arguments.add_argument("--out", default=HERE / "fusewire" / "_C.so")
    arguments.add_argument("--objects", default=HERE / "build" / "objects")
    arguments.add_argument("--jobs", type=int)
    given = arguments.parse_args()
    if missing():
        sys.exit("error: " + missing())
    print(build(given.out, given.objects, given.jobs))
