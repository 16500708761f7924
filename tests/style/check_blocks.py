"""usage: check_blocks.py ROOT BUILD PREFIX

Runs, or checks, every block of code in README.md, CONTRIBUTING.md and docs/*.md; BUILD is a build of the checkout ROOT,
PREFIX the folder of its HIP.

  cpp     or python: is an excerpt of a program that is built and run: <!-- FILE: REGION --> or <!-- FILE --> stands
          before it, and check_excerpts.py compares the two.
  sh      commands, each of which is checked as far as it can be without the hours that some take: a script of the
          checkout is there, can be executed, and its --help names every option; a preset is in CMakePresets.json; a
          program is a target of the build, and the simulator's --help names its options; a path in the checkout exists.
          An example under the simulator is run.
          HIP's clang is run with -###, which reads its command and does not compile.
  cmake   every call but project() and the variables before it is in template/ or in the package tests' program.
  none    a figure, without commands.

It tries itself first, on blocks of each kind that are wrong.
"""
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT, BUILD, PREFIX = (pathlib.Path(a).resolve() for a in sys.argv[1:4])

# What cannot be run or looked up here: the first word of a command, and why.
ELSEWHERE = {
    "nvcc": "CUDA's compiler, which needs its toolkit; the presets nvidia* compile with the same architecture",
    "hipcc": "ROCm's compiler; clang is checked with the same options",
    "torchrun": "PyTorch's launcher, which the project does not install",
    "pip": "installs from a registry, which tests do not ask",
}
BLOCK = re.compile(r"((?:^[^\n]*\n)?)^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXCERPT = re.compile(r"<!-- (\S+?)(?:: \w+)? -->\n?$")
COMMAND = re.compile(r"^\s*(?:\./)?(?:scripts/|build/|cmake |ctest |nvcc |hipcc |git |pip |apt)", re.MULTILINE)
IN_CHECKOUT = re.compile(r"(?:scripts|tests|examples|docs|bench|sim|cmake|include|template|\.ci)(?:/[\w./-]+)?")


@functools.cache
def help_of(command: str) -> str:
    done = subprocess.run([command, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def presets(kind: str) -> set[str]:
    return {p["name"] for p in json.loads((ROOT / "CMakePresets.json").read_text())[kind] if not p.get("hidden")}


@functools.cache
def is_target(name: str) -> bool:
    """Whether the build makes a program of that name; other presets make programs of the same names."""
    return re.search(rf"(?:^|[ /]){re.escape(name)}(?:[ :]|$)", (BUILD / "build.ninja").read_text(), re.MULTILINE) is not None


def options_of(words: list[str]) -> list[str]:
    return [w.split("=")[0] for w in words if re.match(r"--?[A-Za-z]", w)]


def unknown_options(text: str, words: list[str]) -> list[str]:
    return [o for o in options_of(words) if not re.search(rf"(?:^|[\s,\[|(]){re.escape(o)}(?![\w-])", text)]


def check_program(words: list[str], variables: dict[str, str]) -> list[str]:
    """What is wrong with one command, after the assignments before it."""
    program, *rest = words
    if program in ELSEWHERE:
        return []
    if program in ("nice", "env"):
        return check_program(rest, variables)
    if program.startswith("./own_kernel"):  # what the command before it has made
        return []
    missing = [w for w in rest if IN_CHECKOUT.fullmatch(w) and not (ROOT / w).exists()]
    wrong = [f"{w} is not in the checkout" for w in missing]
    if program.endswith("/clang++"):
        return wrong + check_clang(words)
    if program == "cmake":
        return wrong + check_cmake(rest)
    if program == "ctest":
        kinds = [rest[i + 1] for i, w in enumerate(rest[:-1]) if w == "--preset"]
        return wrong + [f"no test preset {k}" for k in kinds if k not in presets("testPresets")]
    built = re.fullmatch(r"build/([\w-]+)/(bin/(\w+)|sim/fusewire-sim)", program)
    if built:
        if built[1] not in presets("configurePresets"):
            wrong.append(f"no preset {built[1]}")
        if built[3]:
            return wrong if is_target(built[3]) else [*wrong, f"nothing builds {built[3]}"]
        text = (ROOT / "sim/launcher/main.cpp").read_text()
        own = []  # the simulator's options and their values, up to the program
        while rest and rest[0].startswith("-"):
            own.append(rest.pop(0))
            takes_value = re.search(rf"^ *{re.escape(own[-1])} [A-Za-z]", text, re.MULTILINE)
            if takes_value and "=" not in own[-1]:
                rest.pop(0)
        wrong += [f"fusewire-sim has no {o}" for o in unknown_options(text, own)]
        wrong += check_program(rest, variables) if rest else ["fusewire-sim, and no program"]
        return wrong or run_example(words)
    path = ROOT / program
    if not path.is_file():
        return [*wrong, f"{program} is neither in the checkout nor known to this test"]
    if not os.access(path, os.X_OK):
        return [*wrong, f"{program} cannot be executed"]
    if program == "scripts/run-ranks":  # -n RANKS program arguments
        return wrong + ([] if rest[:1] == ["-n"] else ["run-ranks without -n"]) + check_program(rest[2:], variables)
    text = help_of(str(path))
    if not text:
        return [*wrong, f"{program} --help fails"]
    if program == "scripts/litmus":
        text += litmus_sources()
    return wrong + [f"{program} has no {o}" for o in unknown_options(text, rest)]


def run_example(words: list[str]) -> list[str]:
    """Runs `build/PRESET/sim/fusewire-sim ... build/PRESET/bin/example_NAME ...` of the build that is tested."""
    if not any(re.fullmatch(r"build/[\w-]+/bin/example_\w+", w) for w in words):
        return []
    command = [re.sub(r"^build/[\w-]+/", f"{BUILD}/", w) for w in words]
    if not os.access(command[0], os.X_OK):  # a build for GPUs
        return []
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200
        )
    return [f"ends with {done.returncode}: {done.stdout[-300:]}"] if done.returncode else []


@functools.cache
def litmus_sources() -> str:
    return "\n".join(f.read_text() for f in (ROOT / "tests/litmus").glob("*.[ch]pp")).replace('"', " ")


def check_cmake(words: list[str]) -> list[str]:
    wrong = []
    kind = "buildPresets" if "--build" in words else "configurePresets"
    for i, w in enumerate(words[:-1]):
        value = words[i + 1]
        if w == "--preset" and value not in presets(kind):
            wrong.append(f"no preset {value}")
        if w == "--target" and not is_target(value):
            wrong.append(f"no target {value}")
        if w in ("--build", "--install") and value.startswith("build/") and value[6:] not in presets("configurePresets"):
            wrong.append(f"{value} is no preset's")
    return wrong


def check_clang(words: list[str]) -> list[str]:
    if not (PREFIX / "hip-flags").exists():
        print(f"{PREFIX} is no private prefix: not checked: {' '.join(words)[:80]}")
        return []
    with tempfile.TemporaryDirectory() as work:
        here = pathlib.Path(work)
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".prefix"):
                (here / entry.name).symlink_to(entry)
        (here / ".prefix").symlink_to(PREFIX)
        (here / "DIR/lib/fusewire").mkdir(parents=True)
        (here / "DIR/lib/fusewire/hip").symlink_to(PREFIX)
        (here / "DIR/include").symlink_to(ROOT / "include")
        (here / "main.cpp").touch()
        command = " ".join(words) + " -Werror -###"
        done = subprocess.run(["bash", "-c", command], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wrong = re.findall(r"^clang[^\n]*(?:error|warning):[^\n]*", done.stdout, re.MULTILINE)
        return wrong or ([f"clang fails: {done.stdout[-300:]}"] if done.returncode else [])


def check_shell(block: str) -> list[str]:
    wrong: list[str] = []
    variables: dict[str, str] = {}
    commands = 0
    for line in block.replace("\\\n", " ").splitlines():
        for part in line.split("&&"):
            text = re.sub(r"\$\{?(\w+)\}?", lambda v: variables.get(v[1], v[0]), part)
            try:
                words = shlex.split(re.sub(r"\$\(([^()]*)\)", lambda c: "'$(" + c[1] + ")'", text), comments=True)
            except ValueError as e:
                wrong.append(f"{part.strip()}: {e}")
                continue
            while words and (given := re.fullmatch(r"(\w+)=(.*)", words[0])):
                variables[given[1]] = given[2]
                words.pop(0)
            if words:
                commands += 1
                wrong += [f"{' '.join(words)[:70]}: {w}" for w in check_program(words, variables)]
            elif re.search(r"\w=", part):
                commands += 1
    return wrong if commands else ["no command"]


def check_calls(block: str) -> list[str]:
    """Of CMake."""
    flat = lambda text: re.sub(r"\s+", " ", re.sub(r"#[^\n]*", "", text))
    built = ("template/CMakeLists.txt", "tests/package/consumer/CMakeLists.txt")
    template = " ".join(flat((ROOT / path).read_text()) for path in built)
    calls = re.findall(r"(\w+) ?\(([^()]*)\)", flat(block))
    wrong = [f"{name}({words}) is not in {' or '.join(built)}" for name, words in calls
             if name not in ("set", "project") and f"{name}({words.replace('main.hip', 'main.cpp')})" not in template]
    return wrong if calls else ["no call"]


def check_block(page: str, before: str, kind: str, block: str) -> list[str]:
    if kind in ("cpp", "python"):
        excerpt = EXCERPT.search(before)
        if excerpt:
            return [] if (ROOT / excerpt[1]).is_file() else [f"no {excerpt[1]}"]
        return ["code that nothing runs: name its file, or the region of a program: "
                "<!-- FILE -->, <!-- FILE: REGION -->"]
    if kind == "sh":
        return check_shell(block)
    if kind == "cmake":
        return check_calls(block)
    if kind == "":
        return ["commands: say that they are ```sh"] if COMMAND.search(block) else []
    return [f"nobody checks {kind}"]


WRONG = [  # page, what stands before the block, its kind, its text
    ("docs/a.md", "", "cpp", "int main() {}\n"),
    ("docs/a.md", "<!-- examples/none.cpp: begin -->\n", "cpp", "int x;\n"),
    ("docs/a.md", "", "sh", "scripts/none\n"),
    ("docs/a.md", "", "sh", "scripts/demo && scripts/test && scripts/format --chekc\n"),
    ("docs/a.md", "", "sh", "cmake --preset none\n"),
    ("docs/a.md", "", "sh", "cmake --build --preset none\n"),
    ("docs/a.md", "", "sh", "cmake --build build/sim --target example_none\n"),
    ("docs/a.md", "", "sh", "build/sim/bin/example_none\n"),
    ("docs/a.md", "", "sh", "build/sim/sim/fusewire-sim --gpu 4 build/sim/bin/example_mlp\n"),
    ("docs/a.md", "", "sh", "build/sim/sim/fusewire-sim --gpus 4 build/sim/bin/example_none\n"),
    ("docs/a.md", "", "sh", "build/sim/sim/fusewire-sim --gpus 4 build/sim/bin/example_mlp 99\n"),
    ("docs/a.md", "", "sh", "nice tests/mutation/mutate --bogus\n"),
    ("docs/a.md", "", "sh", "scripts/run-ranks -n 4 build/nvidia/bin/none\n"),
    ("docs/a.md", "", "sh", "make install\n"),
    ("docs/a.md", "", "sh", "build/sim/bin/fuzz_heap tests/fuzz/corpus/none\n"),
    ("docs/a.md", "", "sh", "# nothing\n"),
    ("docs/a.md", "", "cmake", "target_link_libraries(mine PRIVATE fuse::wire)\n"),
    ("docs/a.md", "", "", "scripts/demo\n"),
    ("docs/a.md", "", "python", "print()\n"),
]
if (PREFIX / "hip-flags").exists():
    clang = "P=.prefix\n$P/llvm/bin/clang++ -x hip --rocm-path=$P $(cat $P/hip-flags) --offload-arch=gfx942 "
    WRONG += [("docs/a.md", "", "sh", clang + "-std=c++20 examples/none.cpp\n"), ("docs/a.md", "", "sh", clang + "--bogus examples/mlp.cpp\n")]


def main() -> int:
    wrong = [f"planted, and not found: {block!r}" for page, before, kind, block in WRONG if not check_block(page, before, kind, block)]
    seen = 0
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        fences = len(re.findall(r"^ *```", text, re.MULTILINE))
        blocks = list(BLOCK.finditer(text))
        if fences != 2 * len(blocks):
            wrong.append(f"{name}: {fences} fences, {len(blocks)} blocks: is one indented, or not closed?")
        for found in blocks:
            seen += 1
            line = text.count("\n", 0, found.start(2)) + 1
            wrong += [f"{name}:{line}: {w}" for w in check_block(name, found[1], found[2], found[3])]
    if seen < 20:
        wrong.append(f"{seen} blocks: these are not fusewire's pages")
    print("\n".join(wrong) if wrong else f"{seen} blocks")
    return 1 if wrong else 0


sys.exit(main())
