#!/usr/bin/env python3
"""usage: check_spans.py spans.s | spans.cubin

What no test can see: that spans which are off cost nothing. The compiled spans.cpp, gfx942 assembly or an sm_90a cubin, has one kernel with its
spans on, with them off, and without any: the last two must be the same instructions. On gfx942 the first must mark the beginning and the end of
three spans, two s_ttracedata each; on sm_90a, where nobody records them, it too must be the same. Exits with 1 if that is broken, with 77 if there is
no cuobjdump to read a cubin."""
import re
import shutil
import subprocess
import sys

import gfx942

MARKS = 3 * 2 * 2


def read(path):
    if not path.endswith(".cubin"):
        return {re.search(r"spans_(\w+?)Pf", f.name)[1]: [x.text for x in f.code] for f in gfx942.functions(path)}
    tool = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    if not tool:
        print("cuobjdump is not installed: the SASS is not checked")
        sys.exit(77)
    text = subprocess.run([tool, "-sass", path], check=True, capture_output=True, text=True).stdout
    return {name: re.findall(r"/\*[0-9a-f]{4,}\*/\s+([@A-Z][^;]*);", body)
            for name, body in re.findall(r"Function : \w*spans_(\w+?)Pf\w*\n(.*?)\n\s*\.\.\.\.\.\.", text, re.S)}


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    code = read(sys.argv[1])
    marks = sum("s_ttracedata" in text for text in code["on"])
    print({name: len(texts) for name, texts in code.items()}, "instructions;", marks, "marks")
    broken = []
    if not code["none"] or code["off"] != code["none"]:
        broken.append("spans that are off leave instructions")
    if sys.argv[1].endswith(".cubin"):
        if code["on"] != code["none"]:
            broken.append("spans that are on leave instructions on sm_90a")
    elif marks != MARKS:
        broken.append(f"{marks} marks, not {MARKS}")
    for b in broken:
        print("broken:", b)
    return 1 if broken else 0


sys.exit(main())
