#!/usr/bin/env python3
"""usage: check_wait.py wait.s | wait.cubin [kernels.s ...]

What no test can see: that the limit of a wait costs nothing where the flag is up. The compiled wait.cpp, gfx942 assembly or an sm_90a
cubin, has kernels NAME_limited and NAME_unlimited. The way through each without a pause in its poll loop, past the flag's load, must
be the same instructions. The compiler may add, where the ways meet, an s_waitcnt that has nothing to wait for, and the scalar additions that make an epoch of
the number before it (gfx942), or BSSY and BSYNC, which say where a warp meets again, and loads of constants (sm_90a).
In every kernel of all files, no way leads to a clock read but past a look at a flag. Exits with 1 if that is broken, with 77 if there is
no cuobjdump to read a cubin."""
import re
import shutil
import subprocess
import sys

import gfx942

PAUSE = r"s_sleep|NANOSLEEP"
CLOCK = r"s_memrealtime|CS2R.*SR_GLOBALTIMER|S2U?R.*SR_GLOBALTIMER"
FLAG_LOAD = r"(global|flat)_load_dword\w* .*(sc0 )?sc1|LDG?\.E(\.64)?\.STRONG\.(SYS|GPU)"
MAY_BE_ADDED = {"gfx942": r"s_waitcnt$|s_add_[iu]32$", "sm_90a": r"BSSY|BSYNC|U?LDC(\.64)?$"}


class Kernel:
    """Instructions as text, and for each the ones that may come next."""

    def __init__(self, text, next_):
        self.text, self.next = text, next_

    def reachable(self, without=()):
        seen, todo = {0}, [0]
        while todo:
            for n in self.next[todo.pop()]:
                if n not in seen and n not in without:
                    seen.add(n)
                    todo.append(n)
        return seen

    def fast_way(self):
        """The instructions of the shortest way to the end that passes a load of the flag and no pause."""
        ways = {(0, False): [0]}
        todo = [(0, False)]
        for i, looked in todo:  # breadth first
            looked_now = looked or bool(re.search(FLAG_LOAD, self.text[i]))
            if not self.next[i] and looked_now:
                return [self.text[k] for k in ways[i, looked]]
            for n in self.next[i]:
                if (n, looked_now) not in ways and not re.search(PAUSE, self.text[n]):
                    ways[n, looked_now] = ways[i, looked] + [n]
                    todo.append((n, looked_now))
        return None


def conditional(t):
    return t.startswith("@")


def sm_90a(text):
    for name, body in re.findall(r"Function : (\w+)\n(.*?)\n\s*\.\.\.\.\.\.", text, re.S):
        instructions = [(int(a, 16), t.strip()) for a, t in re.findall(r"/\*([0-9a-f]{4,})\*/\s+([@A-Z][^;]*);", body)]
        at, next_ = {address: i for i, (address, _) in enumerate(instructions)}, []
        for i, (_, t) in enumerate(instructions):
            after = [i + 1] if i + 1 < len(instructions) else []
            if m := re.match(r"(?:@!?U?P\w+ )?BRA\S*(?: !?U?P\w+,)? (0x[0-9a-f]+)", t):
                always = not conditional(t) and not re.match(r"BRA\S* !?U?P", t)
                after = [at[int(m[1], 16)]] + ([] if always else after)
            elif re.search(r"\bEXIT\b|\bRET\b", t):
                after = after if conditional(t) else []
            next_.append(after)
        yield name, Kernel([t for _, t in instructions], next_)


def read(path):
    if path.endswith(".cubin"):
        tool = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
        if not tool:
            print("cuobjdump is not installed: the SASS is not checked")
            sys.exit(77)
        return "sm_90a", dict(sm_90a(subprocess.run([tool, "-sass", path], check=True, capture_output=True, text=True).stdout))
    return "gfx942", {f.name: Kernel([x.text for x in f.code], [x.next for x in f.code]) for f in gfx942.functions(path)}


def mnemonics(way):
    return sorted(re.sub(r"^@\S+ ", "", t).split()[0] for t in way)


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    broken, pairs, clocks = [], 0, 0
    for path in sys.argv[1:]:
        isa, kernels = read(path)
        for name, kernel in kernels.items():
            if "try_flags" in name:  # its limit is for the whole trial, and it runs once for each heap
                continue
            looks = {i for i, t in enumerate(kernel.text) if re.search(FLAG_LOAD, t)}
            for i, t in enumerate(kernel.text):
                if not re.search(CLOCK, t):
                    continue
                clocks += 1
                if i in kernel.reachable(without=looks):
                    broken.append(f"{name}: {t} without a look at a flag before")
            if not (m := re.search(r"(\w+?)_limited", name)):
                continue
            twin = next((k for n, k in kernels.items() if re.sub(r"^_Z\d+|_.*", "", n) == re.sub(r"^_Z\d+", "", m[1]) and "_unlimited" in n), None)
            if twin is None:
                broken.append(f"{name}: no twin")
                continue
            pairs += 1
            with_limit, without = kernel.fast_way(), twin.fast_way()
            if not with_limit or not without:
                broken.append(f"{name}: no way through")
                continue
            added, missing = mnemonics(with_limit), []
            for x in mnemonics(without):
                added.remove(x) if x in added else missing.append(x)
            print(f"{isa} {re.sub('^_Z[0-9]+', '', m[1])}: {len(with_limit)} instructions where the flag is up, {len(without)} in a wait without a limit; added: {added or 'none'}")
            bad = [x for x in added if not re.match(MAY_BE_ADDED[isa], x)]
            if bad:
                broken.append(f"{name}: added {', '.join(bad)}")
            if any(re.search(CLOCK, t) for t in with_limit):
                broken.append(f"{name}: reads a clock where the flag is up")
    print(f"{clocks} clock reads")
    if not pairs or not clocks:
        broken.append("no waits found")
    for b in broken:
        print("broken:", b)
    return 1 if broken else 0


sys.exit(main())
