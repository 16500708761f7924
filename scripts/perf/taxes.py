"""What the experiments of `scripts/bench sim taxes` say of each tax, for performance.py and plots.py. docs/taxes.md says what the experiments are."""
import json

FILE = "ag_gemm_taxes.mi300x_projected.json"
CHAIN = ("bsp_eager", "bsp_graph", "bsp_in_place", "after_all", "chosen")


def read(results):
    """Rows M -> variant, or (variant, us late) -> what is stored of it; and the file's context. Only rows with all that parts_of() asks for."""
    path = results / FILE
    if not path.exists():
        return {}, {}
    data, by_m = json.loads(path.read_text()), {}
    for b in data["benchmarks"]:
        _, variant, *keys = b["name"].split("/")
        of = dict(key.split(":") for key in keys)
        by_m.setdefault(int(of["M"]), {})[(variant, int(of["late"])) if "late" in of else variant] = b
    needed = {*CHAIN, "gemm", "all_gather", "join_columns", "empty_1", "empty_3", "empty_1_eager", "empty_3_eager"}
    return {m: found for m, found in sorted(by_m.items()) if needed <= found.keys()}, data["context"]


def parts_of(found):
    """Microseconds: the twin in a graph, the fused kernel, each tax as its own experiment has it, and what they leave of the difference."""
    us = {variant: b["real_time"] for variant, b in found.items()}
    launch = (us["empty_3"] - us["empty_1"]) / 2
    taxes = {"launches": 2 * launch, "copy": us["join_columns"] - us["empty_1"], "whole": us["after_all"] - us["chosen"]}
    return {"eager": us["bsp_eager"], "twin": us["bsp_graph"], "fused": us["chosen"], "gemm": us["gemm"], "launch": launch,
            "eager_launch": (us["empty_3_eager"] - us["empty_1_eager"]) / 2, **taxes, "remainder": us["bsp_graph"] - us["chosen"] - sum(taxes.values())}
