"""Compiles one kernel while the program runs, from the device headers alone: an operator's, with the mainloop that a
call's plan names and a custom epilogue; or the caller's own. What was compiled once lies in a folder. Needs no
torch."""
from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from ._errors import BadArgument, NotBuilt

POINTER, NUMBER = "T const*", "float"  # what a field of an epilogue may be
_TYPES = ("bf16", "f16")               # by their number as an element
_HEADERS = {"gemm_kernel": "gemm_kernel", "ag_gemm_kernel": "ag_gemm_kernel", "gemm_rs_kernel": "gemm_rs_kernel",
            "gemm_ar_one_shot": "gemm_ar_kernel", "gemm_ar_two_shot": "gemm_ar_kernel",
            "gemm_all_scatter_kernel": "gemm_all_scatter_kernel"}
_MOST_BYTES = 128  # of an epilogue's fields: epilogue_bytes


@dataclasses.dataclass(frozen=True)
class Source:
    """The body of an epilogue, and its fields by name: pointers first, as they lie in memory."""
    body: str
    fields: tuple[tuple[str, str], ...]

    def __post_init__(self):
        for name, _ in self.fields:
            if not name.isidentifier() or name in ("x", "row", "column", "T"):
                raise BadArgument(f"compile: a field '{name}'; expected a name of C++ other than x, row, column and T")
        size = sum(8 if kind == POINTER else 4 for _, kind in self.fields)
        if size > _MOST_BYTES:
            raise BadArgument(f"compile: fields of {size} bytes; expected up to {_MOST_BYTES}")

    def text(self, element: str, kernel: str, mainloop: str) -> str:
        """The source of one kernel."""
        fields = "".join(f"  {kind} {name};\n" for name, kind in self.fields)
        return (f"#include <fusewire/gemm/tuned_mainloops.hpp>\n#include <fusewire/gemm/mainloop.hpp>\n"
                f"#include <fusewire/ops/detail/{_HEADERS[kernel]}.hpp>\n"
                f"using namespace fusewire;\nusing T = fusewire::{element};\nstruct custom_epilogue {{\n{fields}"
                f"  __device__ float operator()(float x, int row, int column) const {{\n#line 1 \"epilogue\"\n"
                f"{self.body}\n  }}\n}};\nextern \"C\" __attribute__((visibility(\"default\"))) void const* "
                f"fusewire_kernel() {{\n  auto const kernel = &fusewire::{kernel}<T, {mainloop}, custom_epilogue>;\n"
                f"  return reinterpret_cast<void const*>(kernel);\n}}\n")


@dataclasses.dataclass(frozen=True)
class KernelSource:
    """A kernel's name, and C++ that has it."""
    name: str
    body: str

    def text(self) -> str:
        """The source that is compiled."""
        export = "extern \"C\" __attribute__((visibility(\"default\"))) void const*"
        return (f"#include <fusewire/launch/kernel_parameters.hpp>\nusing namespace fusewire;\n#line 1 \"kernel\"\n"
                f"{self.body}\n#line 1 \"{self.name}\"\n{export} fusewire_kernel() {{\n"
                f"  auto const kernel = &{self.name};\n"
                f"  return reinterpret_cast<void const*>(kernel);\n}}\n{export} fusewire_parameters() {{\n"
                f"  return fusewire::kernel_parameters<decltype(&{self.name})>;\n}}\n")


def compiler(hip: bool) -> list[str]:
    """The command that makes a shared object. FUSEWIRE_COMPILER is another. Fails: NotBuilt."""
    if os.environ.get("FUSEWIRE_COMPILER"):
        return shlex.split(os.environ["FUSEWIRE_COMPILER"])
    name, home = ("hipcc", "ROCM_PATH") if hip else ("nvcc", "CUDA_HOME")
    usual = os.environ.get(home, "/opt/rocm" if hip else "/usr/local/cuda") + "/bin"
    found = shutil.which(name) or shutil.which(name, path=usual)
    if not found:
        raise NotBuilt(f"custom epilogues and kernels need {name}, which is neither in PATH nor in {usual}; "
                       "FUSEWIRE_COMPILER names another command")
    if hip:
        return [found, "--offload-arch=gfx942", "-O3"]
    return [found, "-gencode", "arch=compute_90a,code=sm_90a", "-O3", "-cudart", "shared"]


@functools.lru_cache(maxsize=None)
def _hash_of_headers(include: str) -> str:
    digest = hashlib.sha256()
    for header in sorted(pathlib.Path(include).rglob("*.[hi]pp")):
        digest.update(str(header.relative_to(include)).encode() + b"\0" + header.read_bytes())
    return digest.hexdigest()


def cache() -> pathlib.Path:
    """The folder of what was compiled; FUSEWIRE_CACHE names another."""
    return pathlib.Path(os.environ.get("FUSEWIRE_CACHE") or pathlib.Path.home() / ".cache" / "fusewire")


def build(text: str, include: str, hip: bool, what: str) -> pathlib.Path:
    """The shared object of a source: compiled, or found. Several processes that want one wait for the first.
    Fails: BadArgument with the compiler's words, which say that `what` does not compile; NotBuilt."""
    command = [*compiler(hip), "-std=c++20", "-shared", "-DNDEBUG", f"-I{include}",
               *(["-fPIC", "-Wl,--exclude-libs,ALL"] if hip else
                 ["-Xcompiler=-fPIC", "-Xlinker=--exclude-libs=ALL", "-diag-suppress=177"])]
    words = [w for w in command if w != f"-I{include}"] + [text, _hash_of_headers(include)]
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / (hashlib.sha256("\0".join(words).encode()).hexdigest()[:32] + ".so")
    if made.exists():
        return made
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source = pathlib.Path(work) / ("kernel.hip" if hip else "kernel.cu")
            source.write_text(text)
            done = subprocess.run([*command, str(source), "-o", f"{work}/kernel.so"], capture_output=True, text=True)
            if done.returncode != 0:
                raise BadArgument(f"{what} does not compile: {' '.join(command)}\n{done.stderr[-3000:]}")
            os.replace(f"{work}/kernel.so", made)
    return made


FindKernel = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p,
                              ctypes.c_void_p, ctypes.c_size_t)


class Kernels:
    """Epilogues by their number, and the kernels that calls with them have asked for."""

    def __init__(self, include: str, hip: bool):
        self.include, self.hip, self.sources, self.objects, self.at = include, hip, [], [], {}
        self.function = FindKernel(self._find)  # for C++, through which no exception may pass

    def add(self, source: Source) -> int:
        """Its number, from 1 on."""
        if source not in self.sources:
            self.sources.append(source)
        return self.sources.index(source) + 1

    def find(self, number: int, element: int, kernel: str, mainloop: str) -> int:
        """A kernel's address. Fails: as build()."""
        key = number, element, kernel, mainloop
        if key not in self.at:
            text = self.sources[number - 1].text(_TYPES[element], kernel, mainloop)
            made = build(text, self.include, self.hip, "an epilogue")
            self.objects.append(ctypes.CDLL(str(made)))
            self.objects[-1].fusewire_kernel.restype = ctypes.c_void_p
            self.at[key] = self.objects[-1].fusewire_kernel()
        return self.at[key]

    def _find(self, number, element, kernel, mainloop, why, size):
        try:
            return self.find(number, element, kernel.decode(), mainloop.decode())
        except BaseException as problem:
            text = f"{problem}".encode(errors="replace")[:size - 1] + b"\0"
            ctypes.memmove(why, text, len(text))
            return None


NUMBER_FORM, POINTER_FORM, MATRIX_FORM, END = range(4)  # parameter_form


class Parameter(ctypes.Structure):
    """kernel_parameter."""
    _fields_ = [("form", ctypes.c_int), ("is_const", ctypes.c_int), ("element", ctypes.c_char_p)]

    def __str__(self):
        name = self.element.decode() or "void"
        if self.form == NUMBER_FORM:
            return name
        name += " const" if self.is_const else ""
        return f"matrix<{name}>" if self.form == MATRIX_FORM else name + "*"


class CompiledKernel:
    """A kernel of the caller's. Fails: as build()."""

    def __init__(self, source: KernelSource, include: str, hip: bool):
        text = source.text()
        self.hash = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        self.object = ctypes.CDLL(str(build(text, include, hip, f"the kernel {source.name}")))
        for function in (self.object.fusewire_kernel, self.object.fusewire_parameters):
            function.restype = ctypes.c_void_p
        self.address, self.parameters_address = self.object.fusewire_kernel(), self.object.fusewire_parameters()
        all_of_them = ctypes.cast(self.parameters_address, ctypes.POINTER(Parameter))
        self.parameters = list(itertools.takewhile(lambda p: p.form != END, map(all_of_them.__getitem__,
                                                                                itertools.count())))
