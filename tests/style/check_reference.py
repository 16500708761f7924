"""usage: check_reference.py ROOT WORK

Fails if scripts/reference --check finds something wrong with the reference of the headers in ROOT, and if it finds
nothing wrong where something is: a function, a member and a type that nobody has documented, a comment with a
reference to nothing. 77 without Doxygen.
"""
import os
import pathlib
import shutil
import subprocess
import sys

PLANTED = """
inline int planted_function(int x) { return x; }
/// See \\\\ref planted_nowhere.
struct planted_class {
  int planted_member;
};
struct planted_type {};
struct planted_options {
  int n = 0;
};
"""
FOUND = ["planted_function", "planted_nowhere", "planted_member", "planted_type", "planted_options"]


def reference(root: pathlib.Path, build: pathlib.Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [root / "scripts/reference", "--check", *options],
        env=os.environ | {"FUSEWIRE_BUILD": str(build)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def main(root: pathlib.Path, work: pathlib.Path) -> int:
    shutil.rmtree(work, ignore_errors=True)
    status, said = reference(root, work / "build")
    print(said)
    if status != 0:
        return status
    shutil.copytree(root / "include", work / "include")
    header = work / "include/fusewire/core/types.hpp"
    text, end = header.read_text(), "}  // namespace fusewire"
    header.write_text(text.replace(end, PLANTED.replace("\\\\", "\\") + end))
    status, said = reference(root, work / "planted", "--include", str(work / "include"))
    missed = [name for name in FOUND if name not in said]
    if status == 0 or missed:
        print(f"planted, and not found: {missed}\n{said}")
        return 1
    return 0


sys.exit(main(*map(pathlib.Path, sys.argv[1:])))
