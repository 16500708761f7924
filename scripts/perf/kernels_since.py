"""Whether today's kernels are those that a result file has measured: compares the headers of the commit that it names with those of the working tree, for performance.py. What
was found is stored in bench/results/kernels.csv, since a page has to say it without git, too."""
import io
import json
import pathlib
import re
import subprocess
import tarfile

STORE = "kernels.csv"
SOURCES = "include/fusewire"
FOLDERS = ("arch", "attention", "comm", "core", "device", "gemm", "kernels", "ops", "platform", "tile")  # what decides about a kernel's code; the host's headers do not
HEADERS = {name: f"ops/{name}.hpp" for name in ("ag_gemm", "gemm_rs", "gemm_ar", "gemm_all_scatter", "flash_decode", "all_reduce", "grouped_gemm")} | {"collectives": "ops/detail/slice_kernel.hpp", "moe": "ops/moe_dispatch.hpp", "primitives": "device/channel_view.hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:fusewire/)?([\w/]+\.hpp)[>"].*$', re.M)


def git(root, *words):
    """Its output as bytes, or None where git, the history or the commit is missing."""
    try:
        return subprocess.run(["git", "-C", root, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def operator_of(name):
    """The header that a file of results is about; a GEMM alone was measured as `ag_gemm` on one rank."""
    return HEADERS.get(name.split(".")[0].removesuffix("_taxes").removesuffix("_random"), HEADERS["ag_gemm"])


def code_of(texts, operator):
    """What the compiler reads of an operator's headers for NVIDIA, file by file: without comments, spaces and the names of files."""
    seen, left = set(), [operator, operator.replace("ops/", "kernels/")]  # where commits before 0.2.0 have it
    while left:
        path = left.pop()
        if path in seen or path not in texts or path.split("/")[0] not in FOLDERS or re.search("gfx942|platform/amd", path):
            continue
        seen.add(path)
        left += INCLUDE.findall(texts[path])
    plain = lambda text: re.sub(r"\s+", "", re.sub(r"//[^\n]*|/\*.*?\*/", "", INCLUDE.sub("", text), flags=re.S))
    return {plain(texts[path]) for path in seen} - {""}


def at_commit(root, commit):
    archive = git(root, "archive", "--format=tar", commit, SOURCES)
    if archive is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name.removeprefix(SOURCES + "/"): tar.extractfile(member).read().decode() for member in tar if member.isfile()}


def in_tree(root):
    folder = pathlib.Path(root) / SOURCES
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.hpp")}


def are_older(root, name, context):
    """Whether the kernels of a result file are not today's; None where that cannot be known. A commit that this history lacks was rebased: the last one before the file's date stands for it."""
    commit = context.get("commit", "").removesuffix("-dirty")
    texts = at_commit(root, commit) if re.fullmatch("[0-9a-f]{7,40}", commit) else None
    if texts is None and (before := git(root, "rev-list", "-1", f"--before={context.get('date', '')}", "HEAD")) and context.get("date"):
        texts = at_commit(root, before.decode().strip())
    return None if texts is None else code_of(texts, operator_of(name)) != code_of(in_tree(root), operator_of(name))


def stored(results):
    path = results / STORE
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]] if path.exists() else []
    return {name: {"commit": commit, "older": kernels == "older"} for name, commit, kernels in rows}


def found(root, results):
    """Name of a measured file -> its commit and whether its kernels are older: by git, else as stored for the same commit, else older."""
    before, now = stored(results), {}
    for path in sorted(results.glob("*.json")):
        if path.stem.endswith("_projected"):
            continue
        context = json.loads(path.read_text())["context"]
        commit, older = context.get("commit", "?"), are_older(root, path.stem, context)
        if older is None:
            older = before[path.stem]["older"] if before.get(path.stem, {}).get("commit") == commit else True
        now[path.stem] = {"commit": commit, "older": older}
    return now


def text_of(states):
    return "\n".join(["file,commit,kernels", *(f"{name},{state['commit']},{'older' if state['older'] else 'as here'}" for name, state in states.items())]) + "\n"
