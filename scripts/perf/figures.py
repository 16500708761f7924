"""The figures of bench/results that pages and pictures show, read in one place, so that a shape has the same figure everywhere: for performance.py and plots.py."""
import json

import taxes

FEW = {"batch": "1", "page": "16", "pages": "own"}  # of Flash Decode: one sequence


def load(results, name):
    path = results / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def key_of(name):
    return dict(part.split(":") for part in name.split("/") if ":" in part)


def is_projected(data):
    return "projected" in data["context"]


def shapes_of(data):
    """Shape, which is a name without its variant, -> variant -> benchmark. A projected AG+GEMM gets `own_gemm`, which is simulated on one GPU once for all worlds."""
    shapes = {}
    for b in data["benchmarks"]:
        parts = b["name"].split("/")
        shapes.setdefault("/".join([parts[0], *parts[2:]]) if len(parts) > 3 else b["name"], {})[parts[1] if len(parts) > 3 else ""] = b
    if is_projected(data):
        gemms = {}
        for name, found in shapes.items():
            if "own_gemm" in found:
                gemms[extents(name)] = found["own_gemm"]
        for name, found in shapes.items():
            if name.startswith("ag_gemm/") and extents(name) in gemms:
                found["own_gemm"] = gemms[extents(name)]
    return shapes


def extents(name):
    keys = key_of(name)
    return tuple(keys.get(key) for key in ("dtype", "M", "N", "K"))


def times_of(data):
    """Shape -> variant -> us."""
    return {name: {v: b["real_time"] for v, b in found.items() if not b.get("error_occurred")} for name, found in shapes_of(data).items()}


def alone_in(data):
    """The variant that a fused kernel is divided by: of a machine the vendor's GEMM, measured in the same run; of a projection our own GEMM on the same clock. Flash Decode: its local kernel."""
    if data["benchmarks"][0]["name"].startswith("flash_decode"):
        return "local"
    return "own_gemm" if is_projected(data) else "gemm"


def fused_in(data):
    return "chosen" if data["benchmarks"][0]["name"].startswith("ag_gemm") else "fused"


def twin_of(us):
    """The better bulk-synchronous twin's time, or None."""
    return min((us[v] for v in ("bsp_eager", "bsp_graph") if v in us), default=None)


def fused_and_twin(data):
    """Of every shape with a fused kernel, one to divide by and a bulk-synchronous twin: its keys, fused over that kernel, twin over fused."""
    found, fused, alone = [], fused_in(data), alone_in(data)
    for name, us in times_of(data).items():
        if twin_of(us) and fused in us and alone in us:
            found.append((key_of(name), us[fused] / us[alone], twin_of(us) / us[fused]))
    return found


def one_sequence(data):
    """Flash Decode's data with the shapes that pages draw conclusions from; other data as it is."""
    if data and data["benchmarks"][0]["name"].startswith("flash_decode"):
        data["benchmarks"] = [b for b in data["benchmarks"] if b.get("label", "f16") == "f16" and FEW.items() <= key_of(b["name"]).items()]
    return data


def ag_gemm_projected(results):
    """The sweep of projected AG+GEMMs. The shape that docs/taxes.md takes apart was run there, too, in steps that differ in one thing: those figures are the shape's on every page."""
    data = load(results, "ag_gemm.mi300x_projected")
    if not data:
        return None
    sweep = {b["name"]: b for b in data["benchmarks"]}
    own = lambda name: name.replace("/chosen/", "/own_gemm/").replace("W:8/", "W:1/")
    for found in taxes.read(results)[0].values():
        fused = found["chosen"]["name"]
        if fused not in sweep or own(fused) not in sweep:
            continue
        change = found["gemm"]["real_time"] - sweep[own(fused)]["real_time"]
        for name, b in sweep.items():
            keys, of = key_of(name), key_of(fused)
            if b.get("from") == "composed" and all(keys[x] == of[x] for x in ("dtype", "W", "M", "N", "K")):
                b["real_time"] = round(b["real_time"] + change, 3)  # the twin has the same GEMM
        sweep[own(fused)]["real_time"] = found["gemm"]["real_time"]
        sweep[fused]["real_time"] = found["chosen"]["real_time"]
    return data
