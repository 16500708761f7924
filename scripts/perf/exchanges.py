"""Tables of operators without a GEMM of all ranks: all_reduce, the collectives, experts, groups of rows."""
import json
import math

from figures import key_of, shapes_of

OPERATORS = {"all_reduce": ("`all_reduce`", "NCCL's all-reduce"),
             "rms_norm": ("`all_reduce` + residual + RMSNorm", "NCCL's all-reduce, then a kernel"),
             "all_gather": ("`all_gather`", "NCCL's all-gather"),
             "reduce_scatter": ("`reduce_scatter`", "NCCL's reduce-scatter"),
             "all_to_all": ("`all_to_all`", "NCCL's sends and receives"),
             "all_to_all_v": ("`all_to_all_v`, counts on the device", "NCCL's sends and receives, counts on the host"),
             "dispatch": ("`moe_dispatch`", "NCCL's all-gather, or its sends of sizes that the host knows"),
             "combine": ("`moe_combine`", "NCCL's reduce-scatter, or its sends and a kernel"),
             "moe_mlp": ("`dispatch_gemm`, `gemm_combine`: an MLP of experts", "our own four launches"),
             "grouped_gemm": ("`grouped_gemm`", "cuBLASLt's GEMM for each group")}
OURS = ("fused", "by_token")
TWINS = ("bsp_graph", "bsp_eager", "exchange", "single", "loop")
FILES = ("all_reduce", "collectives", "moe", "moe_mlp", "grouped_gemm")


def size_of(keys):
    """What a row says of its size, and a number to sort by."""
    if "G" in keys:
        skewed = ", one of 8 times the mean" if keys["skew"] == "8" else ""
        return f"{keys['M']} rows, {keys['G']} groups{skewed}", (int(keys["G"]), int(keys["M"]), keys["skew"])
    if "tokens" in keys:
        tokens = int(keys["tokens"])
        return f"{tokens} token{'s' * (tokens > 1)}", (tokens,)
    bytes_of = int(keys["kb"]) * 1024 if "kb" in keys else int(keys["rows"]) * int(keys["cols"]) * 2
    return f"{bytes_of // 1024} KB" if bytes_of < 1 << 20 else f"{bytes_of >> 20} MB", (bytes_of,)


def read(results):
    """(operator, how its input is spread, machine, file's stem) -> [(size, us of the twin, us of ours)], by size."""
    found = {}
    for name in FILES:
        for path in sorted(results.glob(name + ".*.json")):
            data = json.loads(path.read_text())
            for variants in shapes_of(data).values():
                times = {v: b["real_time"] for v, b in variants.items() if not b.get("error_occurred")}
                twins = [times[v] for v in TWINS if v in times]
                ours = next((v for v in OURS if v in times), None)
                if not twins or not ours:
                    continue
                name = variants[ours]["name"]
                size, order = size_of(key_of(name))
                spread = ", one expert with 8 times the mean" if name.endswith("/skewed") else ""
                key = name.split("/")[0], spread, data["context"]["machine"], path.stem
                found.setdefault(key, []).append((order, size, min(twins), times[ours]))
    return {key: [row[1:] for row in sorted(rows)] for key, rows in found.items()}


def gains(rows):
    return [twin / ours for _, twin, ours in rows]


def in_words(rows):
    """Times as fast, from the least to the most, and their geometric mean."""
    all_of = gains(rows)
    return f"{min(all_of):.2f} to {max(all_of):.2f}, mean {math.exp(sum(map(math.log, all_of)) / len(all_of)):.2f}"


def for_readers(results):
    """Rows of README.md's table."""
    extent = lambda rows: f"{rows[0][0].split(',')[0]} to {rows[-1][0].split(',')[0]}"
    return [f"| {OPERATORS[op][0]} | {OPERATORS[op][1]} | {machine}, {extent(rows)}: {in_words(rows)} | not simulated |"
            for (op, spread, machine, _), rows in read(results).items() if not spread]


def section(results, older):
    """A table of each operator for performance.md."""
    out = []
    for (op, spread, machine, stem), rows in read(results).items():
        title, twin = OPERATORS[op]
        state = ", older kernels" if older.get(stem, {}).get("older", True) else ""
        line = lambda name, cells: "| " + " | ".join([name, *cells]) + " |"
        out += [f"**{title}**{spread} beside {twin}, {machine}{state}: {in_words(rows)}.\n",
                line("", (size for size, *_ in rows)), "|---" + "|--:" * len(rows) + "|",
                line("twin, us", (f"{us:.1f}" for _, us, _ in rows)),
                line("fused, us", (f"{us:.1f}" for *_, us in rows)),
                line("twin / fused", (f"{gain:.2f}" for gain in gains(rows))), ""]
    return out
