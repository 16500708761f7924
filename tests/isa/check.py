#!/usr/bin/env python3
"""usage: check.py kernels.s [PAGE [--write]]

What no test can see: that the gfx942 code of the kernels is the code that was meant. For every kernel: no access to scratch, no VGPR spill, at
most 64 KB of LDS; for every innermost loop with matrix instructions: no flat access, no cache writeback or invalidation, no scratch,
no spilled SGPR, and exactly as many matrix instructions as the arithmetic of one step of k needs, where the tile is known. Flash
Decode's loop loads K and V of a step in as few pieces as a lane's fragments allow, and nothing else but table entries.
Prints a table; exits with 1 if a rule is broken. With PAGE, docs/gfx942.md, also if a figure is worse than in the page's table, or
the page has other kernels; --write makes the page again. Figures of another version of clang are not compared."""
import re
import sys

import gfx942

MATRIX_INSTRUCTIONS = {"small_tile": 32 * 64 * 64 // 4 // 4096, "large_tile": 128 * 128 * 64 // 8 // 4096,  # per wave: 16 x 16 x 16 each
                       **{f"small_m_gfx942I\\w+Li{m}ELi{n}E": steps * m * n * 64 // 4096 for m, n, steps in ((16, 16, 8), (64, 32, 2), (64, 64, 2))},
                       **{f"ping_pong_gfx942I\\w+Li{m}ELi{n}E": steps * m * n * 64 // 8 // 4096 for m, n, steps in ((128, 96, 4), (128, 112, 4), (128, 128, 4), (256, 192, 2), (256, 128, 2))}}  # of as many steps
# Between the groups of steps of these loops a wave waits for a flag.
WAITS_INSIDE = "(ag_gemm|dispatch_gemm)_kernel.*(small_m|ping_pong)_gfx942"
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


COLUMNS = ("VGPRs", "SGPR spills", "instructions", "loop: matrix", "LDS", "memory", "vector", "scalar")
HEAD = """# The gfx942 code of the kernels, counted

Made by `python3 tests/isa/check.py build/sim-ci/tests/isa_kernels.s docs/gfx942.md --write` from the kernels in
`tests/isa/kernels.cpp`, compiled by {version}. The test `isa.rules` fails where a figure has become worse;
where that is meant, the page is made again in the same commit. No kernel accesses scratch or spills a VGPR; SGPRs are
spilled to lanes of VGPRs.

VGPRs are those of a wave's lane, accumulation registers with them. Instructions are those of the whole kernel. The loop
is the innermost one with matrix instructions, of the last such loop where a kernel has several: its matrix
instructions, accesses to LDS and to memory, other vector and scalar instructions. Loops of `ag_gemm_kernel` hold the
code that waits for flags, most of which a round does not run.
"""


def figures(m, code, loop):
    def of(pattern):
        return sum(bool(re.match(pattern, o)) for o in loop)

    matrix, lds, memory, vector = of("v_mfma"), of("ds_"), of("global_|buffer_l|buffer_s|flat_"), of("v_(?!mfma)")
    return m["vgpr_count"], m["sgpr_spill_count"], len(code), matrix, lds, memory, vector, of("s_")


def spelled(name):
    """As it is written in C++, but for the arguments."""
    kernel = re.match(r"_ZN8fusewire\d+([a-z_]+?)I", name)[1]
    element = "bf16" if "4bf16" in name else "f16"
    if head := re.search(r"flash_decode_kernelI\w+?Li(\d+)E", name):
        return f"{kernel}<{element}, {head[1]}>"
    if rows := re.search(r"(flag_rows|ll_rows)ELi(\d)E\w+?(equal_slices|counted_slices)", name):
        return f"{kernel}<{rows[1]}, {rows[2]}, {rows[3]}>"
    if kernel.startswith("moe_"):
        return f"{kernel}<{element}>" if "moe_combine" in kernel else kernel
    if rows := re.search(r"(flag_rows|ll_rows)ELi(\d)E\w+?(store_rows|rms_norm)", name):
        return f"{kernel}<{element}, {rows[1]}, {rows[2]}, {rows[3]}>"
    epilogue = ", swiglu" if "6swiglu" in name else ""
    if tile := re.search(r"(small_tile|large_tile)", name):
        return f"{kernel}<{element}, block_mainloop<{tile[1]}>{epilogue}>"
    loop, m, n, order = re.search(r"(small_m_gfx942|ping_pong_gfx942)I\w+?Li(\d+)ELi(\d+)ELNS_6layoutE(\d)", name).groups()
    return f"{kernel}<{element}, {loop}<{m}, {n}, {('row', 'column')[int(order)]}_major>{epilogue}>"


def page_of(version, rows):
    lines = [HEAD.format(version=version), "| kernel | " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * len(COLUMNS)]
    return "\n".join(lines + [f"| `{name}` | " + " | ".join(map(str, f)) + " |" for name, f in rows]) + "\n"


def compared(page, version, rows):
    """What is worse than in the page."""
    if version not in page:
        print(f"docs/gfx942.md is of another compiler than {version}: not compared")
        return []
    old = {name: tuple(map(int, cells.split("|"))) for name, cells in re.findall(r"^\| `(.*?)` \| ([\d |]*?) \|$", page, re.M)}
    wrong = [f"{name} is not in docs/gfx942.md" for name, _ in rows if name not in old]
    wrong += [f"docs/gfx942.md has {name}, which is no kernel here" for name in old if name not in dict(rows)]
    for name, f in rows:
        wrong += [f"{name}: {c} {b} is worse than {a} in docs/gfx942.md" for c, a, b in zip(COLUMNS, old.get(name, f), f) if b > a and c != "loop: matrix"]
    return wrong


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    version = re.search(r'\.ident\s+".*?(clang version [\d.]+)', open(sys.argv[1]).read())[1]
    broken, count, rows = [], 0, []
    print(f"{'kernel':44} {'VGPR':>5} {'LDS':>6} {'scratch':>8} {'spills':>7}  innermost loops: matrix / memory")
    for name, m, function in kernels(sys.argv[1]):
        count += 1
        short = re.sub(r"^_ZN8fusewire\d+", "", name)[:44]
        inner = list(innermost_matrix_loops(function.code))
        counts = [(sum(o.startswith("v_mfma") for o in loop), sum(bool(re.match("ds_|global_|buffer_l", o)) for o in loop)) for loop in inner]
        print(f"{short:44} {m['vgpr_count']:5} {m['group_segment_fixed_size']:6} {m['private_segment_fixed_size']:8} {m['vgpr_spill_count']:7}  "
              + ", ".join(f"{a} / {b}" for a, b in counts))
        rows.append((spelled(name), figures(m, function.code, inner[-1] if inner else [])))
        # clang may leave the slot of a spilled SGPR tuple, at most 64 bytes, in the frame of a kernel that does not access it
        if re.search(r"\bscratch_|src_private_base", function.text_of_code) or m["private_segment_fixed_size"] > 64:
            broken.append(f"{short}: scratch")
        if m["vgpr_spill_count"]:
            broken.append(f"{short}: VGPR spills")
        if m["group_segment_fixed_size"] > 65536:
            broken.append(f"{short}: more than 64 KB of LDS")
        if not inner and not re.search("all_reduce|reduce_scatter|exchange_slices|moe_", name):
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
    if len(sys.argv) > 3:
        open(sys.argv[2], "w").write(page_of(version, rows))
    elif len(sys.argv) > 2:
        broken += compared(open(sys.argv[2]).read(), version, rows)
    for b in broken:
        print("broken:", b)
    return 1 if broken else 0


sys.exit(main())
