"""usage: check_layout.py ROOT

Fails if the headers in include/fusewire leave their layout:

  - no include leads back up: platform, core, device, arch, ranks, memory, launch, nodes, gemm | attention, comm, ops, and
    then the headers of the root; gemm/ and attention/ do not include each other;
  - no header has more than 300 lines;
  - a folder of more than 12 headers has a README.md that names each of them;
  - the headers in ops/ itself, which people read, have no device code;
  - instructions, inline assembly and the size of a wave stand in platform/, arch/ and folders of an architecture;
  - a file name is there once, but for twins: a selector and the files of the architectures that it selects.

x.ipp, which has the bodies of x.hpp, keeps the same rules, and is not counted among a folder's headers.

Exceptions are listed below, each with its reason. One that is none any more is an error, too: the lists only shrink.
"""
import pathlib
import re
import sys

LEVELS = {folder: level for level, folders in enumerate(
    ("platform", "core", "device", "arch", "ranks", "memory", "launch", "nodes", "gemm attention", "comm", "ops"))
    for folder in folders.split()}
ARCHITECTURES = {"gfx942", "sm90", "amd", "nvidia"}
MOST_LINES, MOST_FILES = 300, 12

# (file, what it includes): reason
UPWARD: dict[tuple[str, str], str] = {}
LONG: dict[str, str] = {}
NAMES_THE_MACHINE = {
    "attention/attention_instruction.hpp": "the concept relates the lanes of a wave to the fragments of K",
    "core/group.hpp": "wave::width is what all others use",
    "gemm/block_config.hpp": "threads of a configuration, which the host counts",
    "ops/detail/flash_decode_arguments.hpp": "threads of a launch, which the host counts",
}
MACHINE = re.compile(r"__builtin_amdgcn\w*|\basm\b|\bwarpSize\b|\bwave_size\b")
DEVICE = re.compile(r"\b__(?:device|global)__\b")
INCLUDE = re.compile(r"^\s*#\s*include\s*<fusewire/([^>]+)>", re.MULTILINE)


def code_of(text: str) -> str:
    """The text without comments and strings."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)


def top(path: str) -> str:
    return path.split("/")[0] if "/" in path else ""


def is_upward(file: str, included: str) -> bool:
    a, b = top(file), top(included)
    if not a or included == "version.hpp":
        return False
    return not b or LEVELS[b] > LEVELS[a] or (LEVELS[b] == LEVELS[a] and a != b)


def of_architecture(file: str) -> bool:
    return top(file) in ("platform", "arch") or bool(ARCHITECTURES & set(file.split("/")[:-1]))


def selector_of(file: str) -> str:
    """Where the selector of an architecture's file is, or the file itself."""
    return "/".join(part for part in file.split("/") if part not in ARCHITECTURES)


def wrong_with(headers: dict[str, str], readmes: dict[str, str], upward, long, machine) -> list[str]:
    wrong = [f"{f}: {top(f)}/ has no place in the order of folders" for f in headers if top(f) and top(f) not in LEVELS]
    if wrong:
        return wrong
    seen: set = set()

    def unless(known, key, sentence):
        if key in known:
            seen.add(key)
        else:
            wrong.append(sentence)

    for file, text in headers.items():
        for included in INCLUDE.findall(text):
            if included not in headers:
                wrong.append(f"{file} includes {included}, which is not there")
            elif is_upward(file, included):
                unless(upward, (file, included), f"{file} includes {included}, which stands above it")
        if (lines := text.count("\n")) > MOST_LINES:
            unless(long, file, f"{file} has {lines} lines; at most {MOST_LINES}")
        found = set(MACHINE.findall(code_of(text)))
        if found and not of_architecture(file):
            unless(machine, file, f"{file} names {', '.join(sorted(found))}, which is for an architecture's folder")
        if re.fullmatch(r"ops/[^/]+", file) and DEVICE.search(code_of(text)):
            wrong.append(f"{file} has device code, which is for ops/detail")
    places: dict[str, set[str]] = {}
    for file in headers:
        places.setdefault(file.split("/")[-1], set()).add(selector_of(file))
    wrong += [f"{' and '.join(sorted(p))} have the same name" for p in places.values() if len(p) > 1]
    folders: dict[str, list[str]] = {}
    for file in (f for f in headers if f.endswith(".hpp")):
        folders.setdefault(file.rpartition("/")[0], []).append(file.split("/")[-1])
    for folder, names in folders.items():
        if len(names) > MOST_FILES and folder not in readmes:
            wrong.append(f"{folder}/ has {len(names)} headers and no README.md")
        wrong += [f"{folder}/README.md does not name {n}" for n in names if folder in readmes and f"`{n}`" not in readmes[folder]]
    for what, known in (("an include that leads up", upward), ("a long header", long), ("one that names the machine", machine)):
        wrong += [f"{key} is listed as {what}, and is none" for key in known if key not in seen]
    return wrong


def planted() -> list[str]:
    """Each rule notices what is planted for it, and nothing is wrong with a small tree."""
    good = {
        "platform/amd/order.hpp": "asm(\"\");\n", "core/types.hpp": "#include <fusewire/platform/amd/order.hpp>\n// asm\n",
        "gemm/plan.hpp": "#include <fusewire/core/types.hpp>\n", "gemm/gfx942/plan.hpp": "__builtin_amdgcn_perm();\n",
        "gemm/sm90/plan.hpp": "", "attention/softmax.hpp": "", "ops/gemm.hpp": "", "version.hpp": "",
        "ranks/hash.hpp": "#include <fusewire/version.hpp>\n", "all.hpp": "#include <fusewire/ops/gemm.hpp>\n",
    }
    many = {f"comm/file_{n}.hpp": "" for n in range(13)}
    none = {}, {}, {}
    cases = [
        (good, {}, *none, None),
        (good | {"core/types.hpp": "#include <fusewire/gemm/plan.hpp>\n"}, {}, *none, "stands above"),
        (good | {"gemm/plan.hpp": "#include <fusewire/attention/softmax.hpp>\n"}, {}, *none, "stands above"),
        (good | {"gemm/plan.hpp": "#include <fusewire/all.hpp>\n"}, {}, *none, "stands above"),
        (good | {"gemm/plan.hpp": "#include <fusewire/core/gone.hpp>\n"}, {}, *none, "not there"),
        (good | {"core/types.hpp": "\n" * 301}, {}, *none, "301 lines"),
        (good | {"core/types.hpp": "\n" * 301}, {}, {}, {"core/types.hpp": ""}, {}, None),
        (good | many, {}, *none, "13 headers"),
        (good | {f.replace("file_0.hpp", "file_0.ipp"): t for f, t in many.items()}, {}, *none, None),
        (good | many, {"comm": "`file_0.hpp`"}, *none, "does not name file_12.hpp"),
        (good | {"ops/gemm.hpp": "__device__ int f();\n"}, {}, *none, "device code"),
        (good | {"gemm/plan.hpp": "int n = platform::wave_size;\n"}, {}, *none, "names wave_size"),
        (good | {"gemm/plan.hpp": "asm volatile(\"\");\n"}, {}, *none, "names asm"),
        (good | {"comm/types.hpp": ""}, {}, *none, "the same name"),
        (good | {"kernels/gemm.hpp": ""}, {}, *none, "no place"),
        (good, {}, {("core/types.hpp", "gemm/plan.hpp"): ""}, {}, {}, "leads up, and is none"),
        (good, {}, {}, {"core/types.hpp": ""}, {}, "long header, and is none"),
        (good, {}, {}, {}, {"core/types.hpp": ""}, "machine, and is none"),
    ]
    missed = []
    for n, (headers, readmes, upward, long, machine, wanted) in enumerate(cases):
        found = wrong_with(headers, readmes, upward, long, machine)
        if (found != []) if wanted is None else not any(wanted in line for line in found):
            missed.append(f"planted, case {n}: {found or 'nothing'} is found, and not {wanted or 'nothing'}")
    return missed


include = pathlib.Path(sys.argv[1]) / "include/fusewire"
headers = {str(f.relative_to(include)): f.read_text() for f in sorted(include.rglob("*.[hi]pp"))}
readmes = {str(f.parent.relative_to(include)): f.read_text() for f in include.rglob("README.md")}
if len(headers) < 100:
    sys.exit(f"{len(headers)} headers in {include}: that is not fusewire")
wrong = planted() + wrong_with(headers, readmes, UPWARD, LONG, NAMES_THE_MACHINE)
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
