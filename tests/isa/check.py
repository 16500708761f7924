#!/usr/bin/env python3
"""usage: check.py kernels.s

What no test can see: that the gfx942 code of the kernels is the code that was meant. For every kernel: no scratch, no VGPR spill, at
most 64 KB of LDS; for every innermost loop with matrix instructions: no flat access, no cache writeback or invalidation, no scratch,
no spilled SGPR, and exactly as many matrix instructions as the arithmetic of one step of k needs, where the tile is known. Flash
Decode's loop loads K and V of a step in as few pieces as a lane's fragments allow, and nothing else but table entries.
Prints a table; exits with 1 if a rule is broken."""
import re
import sys

import gfx942

MATRIX_INSTRUCTIONS = {"small_tile": 32 * 64 * 64 // 4 // 4096, "large_tile": 128 * 128 * 64 // 8 // 4096,  # per wave: 16 x 16 x 16 each
                       **{f"few_rows_gfx942I\\w+Li{m}ELi{n}E": steps * m * n * 64 // 4096 for m, n, steps in ((16, 16, 8), (64, 32, 2), (64, 64, 2))},
                       **{f"ping_pong_gfx942I\\w+Li{m}ELi{n}E": steps * m * n * 64 // 8 // 4096 for m, n, steps in ((128, 128, 4), (256, 192, 2), (256, 128, 2))}}  # of as many steps
# Between the groups of steps of these loops a wave waits for a flag.
WAITS_INSIDE = "ag_gemm_kernel.*(few_rows|ping_pong)_gfx942"
# Of a wave's step, 32 tokens for 16 heads by d: scores and output, 16 x 16 x 16 each; loads by width. V of d = 64: a lane has 4 neighbouring d.
DECODE = {"Li64E": (16, {"global_load_dwordx4": 4, "global_load_dwordx2": 8, "global_load_dword": 1}), "Li128E": (32, {"global_load_dwordx4": 16, "global_load_dword": 1})}
FORBIDDEN = r"flat_|buffer_wbl2|buffer_inv|scratch_|v_readlane|v_writelane|s_sleep"


def kernels(path):
    """(name, metadata, function)"""
    functions = {f.name: f for f in gfx942.functions(path)}
    for entry in re.split(r"\n  - (?=\.agpr_count|\.args)", open(path).read().split("amdhsa.kernels:")[-1])[1:]:
        name = re.findall(r"^    \.name:\s+(\S+)$", entry, re.M)[-1]
        yield name, {k: int(v) for k, v in re.findall(r"\.(\w+):\s+(\d+)$", entry, re.M)}, functions[name]


def components(after, nodes):
    """The sets of nodes from each of which all others of the set can be reached, by steps within `nodes`: loops, with what is inside them."""
    order, seen = [], set()
    for root in nodes:
        if root in seen:
            continue
        seen.add(root)
        way = [(root, iter(after[root]))]
        while way:
            n = next((n for n in way[-1][1] if n in nodes and n not in seen), None)
            if n is None:
                order.append(way.pop()[0])
            else:
                seen.add(n)
                way.append((n, iter(after[n])))
    before = {n: [] for n in nodes}
    for i in nodes:
        for n in after[i]:
            if n in nodes:
                before[n].append(i)
    left = set(nodes)
    for root in reversed(order):
        found, more = set(), [root]
        while more:
            i = more.pop()
            if i in left:
                left.remove(i)
                found.add(i)
                more += before[i]
        if len(found) > 1:
            yield found


def innermost_matrix_loops(code):
    """The instructions of each loop that has matrix instructions and no such loop inside."""
    after = [x.next for x in code]

    def inside(nodes):
        for loop in components(after, nodes):
            if not any("v_mfma" in code[i].op for i in loop):
                continue
            entered = {0} | {n for i in range(len(code)) if i not in loop for n in after[i]}
            inner = list(inside(loop - entered))
            yield from inner or [loop]

    for loop in inside(set(range(len(code)))):
        yield [code[i].op for i in sorted(loop) if code[i].op != "wave_barrier"]


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    broken, count = [], 0
    print(f"{'kernel':44} {'VGPR':>5} {'LDS':>6} {'scratch':>8} {'spills':>7}  innermost loops: matrix / memory")
    for name, m, function in kernels(sys.argv[1]):
        count += 1
        short = re.sub(r"^_ZN8fusewire\d+", "", name)[:44]
        inner = list(innermost_matrix_loops(function.code))
        counts = [(sum(o.startswith("v_mfma") for o in loop), sum(bool(re.match("ds_|global_|buffer_l", o)) for o in loop)) for loop in inner]
        print(f"{short:44} {m['vgpr_count']:5} {m['group_segment_fixed_size']:6} {m['private_segment_fixed_size']:8} {m['vgpr_spill_count']:7}  "
              + ", ".join(f"{a} / {b}" for a, b in counts))
        if m["private_segment_fixed_size"] or m["vgpr_spill_count"]:
            broken.append(f"{short}: scratch or VGPR spills")
        if m["group_segment_fixed_size"] > 65536:
            broken.append(f"{short}: more than 64 KB of LDS")
        if not inner:
            broken.append(f"{short}: no loop with matrix instructions")
        for loop, (matrix, memory) in zip(inner, counts):
            bad = sorted({o for o in loop if re.match(FORBIDDEN, o)})
            if bad and not re.search(WAITS_INSIDE, name):
                broken.append(f"{short}: {', '.join(bad)} in the innermost loop")
            for d, (products, loads) in DECODE.items():
                if "flash_decode" in name and d in name:
                    found = {o: loop.count(o) for o in loop if re.match("global_load|buffer_load", o)}
                    if matrix != products or found != loads:
                        broken.append(f"{short}: {matrix} matrix instructions and {found} in the innermost loop, {products} and {loads} wanted")
            for tile, wanted in MATRIX_INSTRUCTIONS.items():
                if re.search(tile, name) and matrix != wanted:
                    broken.append(f"{short}: {matrix} matrix instructions in the innermost loop, {wanted} wanted")
    if not count:
        broken.append("no kernels found")
    for b in broken:
        print("broken:", b)
    return 1 if broken else 0


sys.exit(main())
