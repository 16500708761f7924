#!/usr/bin/python3
"""Draws docs/pictures from the files that the benchmarks and scripts/calibrate wrote, each for a light and for a dark page. With --check it draws nothing, and
fails where a picture shows other figures than the files hold; that needs no matplotlib (Debian: python3-matplotlib)."""
import argparse
import csv
import hashlib
import json
import math
import pathlib
import re
import sys

import taxes

root = pathlib.Path(__file__).resolve().parent.parent
MEMORY = 4.8e6  # bytes per us that an H200 reads
PREDICTED = root / "sim" / "calibration" / "predicted.csv"
BAND = 0.15  # of the target for points that no constant was fitted to
COLOURS = {"light": {"ink": "#1f2328", "paper": "#ffffff", "k": "#0072b2", "m": "#d55e00", "third": "#007a5a", "twin": "#7a828a", "faint": "#e1e6eb"},
           "dark": {"ink": "#e6edf3", "paper": "#0d1117", "k": "#56b4e9", "m": "#e69f00", "third": "#35c49a", "twin": "#8b949e", "faint": "#262d36"}}


def benchmarks(results, name):
    """(variant, its options, us) of a result file, and what ran it."""
    data = json.loads((results / f"{name}.json").read_text())
    found = []
    for b in data["benchmarks"]:
        if not b.get("error_occurred"):
            parts = b["name"].split("/")
            found.append((parts[1], dict(p.split(":") for p in parts[2:]), b["real_time"], b))
    return found, data["context"]


def over_gemm(results, name, w, n=3584):
    """Curves of time over the bare GEMM's by M: chosen and the better bulk-synchronous twin, of both gathers."""
    found, _ = benchmarks(results, name)
    us = {}
    for variant, of, time, _ in found:
        if (of["W"], of["N"], of["dtype"]) == (str(w), str(n), "bf16"):
            us.setdefault((of["gather"], int(of["M"])), {})[variant] = time
    curves = {}
    for (gather, m), by in sorted(us.items()):
        twins = [by[v] for v in ("bsp_eager", "bsp_graph") if v in by]
        if "gemm" in by and "chosen" in by and twins:
            curves.setdefault(gather, []).append((m, round(by["chosen"] / by["gemm"], 3)))
            curves.setdefault(f"twin of {gather}", []).append((m, round(min(twins) / by["gemm"], 3)))
    return curves


def of_ag_gemm(results):
    panels = []
    for title, name, w in (("2 H200, measured", "ag_gemm.h200x2", 2), ("4 H200, measured", "ag_gemm.h200x4", 4),
                           ("8 MI300X, a projection", "ag_gemm.mi300x_projected", 8)):
        curves = over_gemm(results, name, w)
        if curves:
            panels.append((title, curves))
    if "projection" in panels[-1][0]:
        error = json.loads((results / "ag_gemm.mi300x_projected.json").read_text())["context"]["projected"]["error"]
        panels[-1] = (f"{panels[-1][0]} with a median error of {100 * error['median']:.0f} %", panels[-1][1])
    return panels


def of_flash_decode(results):
    found, _ = benchmarks(results, "flash_decode.h200x4")
    curves = {}
    for variant, of, us, b in found:
        drawn = {"W": "4", "batch": "1", "heads": "96-12", "d": "128", "page": "16", "pages": "own"}
        if b.get("label") != "f16" or any(of.get(key) != value for key, value in drawn.items()):
            continue
        tokens = int(of["kv"])
        if variant == "fused":
            curves.setdefault("fused", {})[tokens] = round(us, 2)
            curves.setdefault("floor", {})[tokens] = round(b["bytes"] / MEMORY, 2)
        elif variant.startswith("bsp"):
            twin = curves.setdefault("twin", {})
            twin[tokens] = min(round(us, 2), twin.get(tokens, math.inf))
    return {name: sorted(points.items()) for name, points in curves.items()}


def predicted():
    with open(PREDICTED, newline="") as file:
        return list(csv.DictReader(file))


def of_published(_):
    """use -> (published us, projected us) of every point."""
    points = {"fit": [], "check": []}
    for r in predicted():
        points[r["use"]].append((float(r["published_us"]), float(r["predicted_us"])))
    return points


def of_all_reduce(_):
    """Ranks -> (bytes, published us, projected us)."""
    curves, unit = {}, {"KB": 1024, "MB": 1024**2}
    for r in predicted():
        if found := re.fullmatch(r"push, W = (\d+)", r["class"]):
            curves.setdefault(found[1], []).append((int(r["what"][:-2]) * unit[r["what"][-2:]], float(r["published_us"]), float(r["predicted_us"])))
    return curves


TAX_ROWS = 64  # of the pictures of the taxes


def of_taxes(results):
    """Parts of the time between the twin and the fused kernel, in us; and the model's error."""
    by_m, context = taxes.read(results)
    if TAX_ROWS not in by_m:
        return None
    return {key: round(value, 2) for key, value in taxes.parts_of(by_m[TAX_ROWS]).items()} | {"error": context["projected"]["error"]["median"]}


def of_timeline(results):
    by_m, _ = taxes.read(results)
    found = by_m.get(TAX_ROWS, {})
    return [(title, found[variant]["timeline"]) for title, variant in (("bulk-synchronous", "bsp_graph"), ("fused", "marked")) if variant in found] or None


def axes_of(figure, axes, colours):
    figure.set_facecolor(colours["paper"])
    for a in axes:
        a.set_facecolor(colours["paper"])
        a.tick_params(colors=colours["ink"], labelsize=9)
        a.xaxis.set_major_formatter(lambda x, _: f"{x / 1024:.0f}K" if x >= 8192 else f"{x:.0f}")
        for side, spine in a.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(colours["ink"])
        a.xaxis.label.set_color(colours["ink"]), a.yaxis.label.set_color(colours["ink"])


def draw_ag_gemm(plt, panels, colours):
    figure, axes = plt.subplots(len(panels), 1, figsize=(5.2, 2.5 * len(panels)), layout="constrained")
    for a, (title, curves) in zip(axes, panels):
        for gather in ("k", "m"):
            for curve, style in ((f"twin of {gather}", {"linestyle": "--" if gather == "k" else ":", "color": colours["twin"]}),
                                 (gather, {"marker": "o", "markersize": 4, "color": colours[gather]})):
                if curve in curves:
                    label = f"gather::{curve}" if curve == gather else f"bulk-synchronous, gather::{gather}"
                    a.plot(*zip(*curves[curve]), label=label, **style)
        a.axhline(1, color=colours["ink"], linewidth=0.8)
        a.set_xscale("log", base=2), a.set_ylim(0.8, 2)
        a.set_title(title, fontsize=10, loc="left", color=colours["ink"]), a.set_ylabel("time / GEMM alone", fontsize=9)
    axes[-1].set_xlabel("rows M; N = 3584 per rank, K = 8192, bf16", fontsize=9)
    axes[0].set_ylim(0.8, 2.3)  # room for the legend
    axes[0].legend(fontsize=8, ncols=2, frameon=False, labelcolor=colours["ink"], loc="upper right")
    axes_of(figure, axes, colours)
    return figure


def draw_flash_decode(plt, curves, colours):
    figure, a = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    for curve, label, style in (("twin", "bulk-synchronous", {"linestyle": "--", "color": colours["twin"]}),
                                ("fused", "fused", {"marker": "o", "markersize": 4, "color": colours["k"]}),
                                ("floor", "its KV read once, at 4.8 TB/s", {"linestyle": ":", "color": colours["ink"]})):
        a.plot(*zip(*curves[curve]), label=label, **style)
    a.set_xscale("log", base=2), a.set_yscale("log")
    a.yaxis.set_major_formatter(lambda y, _: f"{y:.0f}")
    a.set_title("Flash Decode on 4 H200, measured", fontsize=10, loc="left", color=colours["ink"])
    a.set_xlabel("tokens in all; one sequence, 96-12 heads of 128, f16", fontsize=9), a.set_ylabel("us", fontsize=9)
    a.legend(fontsize=8, frameon=False, labelcolor=colours["ink"])
    axes_of(figure, [a], colours)
    return figure


def of_us(a, low, high):
    """Ticks of 1, 3, 10, 30, ... us on an axis with a logarithmic scale."""
    ticks = [t for power in range(4) for t in (10**power, 3 * 10**power) if low <= t <= high]
    a.set_ticks(ticks, [str(t) for t in ticks]), a.set_ticks([], minor=True)


def draw_published(plt, points, colours):
    figure, a = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    low, high = 4, 500
    a.set_xscale("log"), a.set_yscale("log"), a.set_xlim(low, high), a.set_ylim(low, high)
    a.fill_between((low, high), [low * (1 - BAND), high * (1 - BAND)], [low * (1 + BAND), high * (1 + BAND)], color=colours["faint"], linewidth=0, label=f"{100 * BAND:.0f} % more or less")
    a.plot((low, high), (low, high), color=colours["ink"], linewidth=0.8)
    within = lambda use: sum(abs(y / x - 1) <= BAND for x, y in points[use])
    for use, label, style in (("fit", "constants may be fitted to it", {"marker": "o", "facecolors": "none", "edgecolors": colours["twin"]}),
                              ("check", "no constant was fitted to it", {"marker": "D", "color": colours["m"]})):
        a.scatter(*zip(*points[use]), s=26, zorder=3, label=f"{label}: {within(use)} of {len(points[use])} within {100 * BAND:.0f} %", **style)
    axes_of(figure, [a], colours)
    for axis in (a.xaxis, a.yaxis):
        of_us(axis, low, high)
    a.set_title("MI300X: projected against published times", fontsize=10, loc="left", color=colours["ink"])
    a.set_xlabel("published by others, us", fontsize=9), a.set_ylabel("projected by fusewire-sim --time, us", fontsize=9)
    a.legend(fontsize=8, frameon=False, labelcolor=colours["ink"], loc="upper left")
    return figure


def draw_all_reduce(plt, curves, colours):
    figure, a = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for (ranks, points), colour, marker in zip(curves.items(), ("k", "m", "third"), "osD"):
        size, published, projected = zip(*points)
        a.plot(size, published, color=colours[colour], marker=marker, markersize=4, label=f"{ranks} GPUs, published")
        a.plot(size, projected, color=colours[colour], marker=marker, markersize=4, markerfacecolor="none", linestyle="--", label=f"{ranks} GPUs, projected")
    a.set_xscale("log", base=2), a.set_yscale("log"), a.set_ylim(5, 600)
    axes_of(figure, [a], colours)
    a.set_xticks(size, [f"{n >> 10} KB" if n < 1 << 20 else f"{n >> 20} MB" for n in size]), a.set_xticks([], minor=True)
    of_us(a.yaxis, 5, 600)
    a.set_title("All-reduce on MI300X, two-shot, fp16: published and projected", fontsize=10, loc="left", color=colours["ink"])
    a.set_xlabel("bytes of a rank's input", fontsize=9), a.set_ylabel("us", fontsize=9)
    a.legend(fontsize=8, frameon=False, labelcolor=colours["ink"], loc="upper left")
    return figure


def draw_taxes(plt, p, colours):
    figure, a = plt.subplots(figsize=(5.8, 3.1), layout="constrained")
    rows = [("bulk-synchronous,\nin a graph", 0, p["twin"], "twin")]
    left = p["twin"]
    for key, label, colour in (("launches", "launches", "m"), ("copy", "bytes through memory", "m"), ("whole", "waiting for the\nwhole transfer", "m"), ("remainder", "remainder", "faint")):
        rows.append((label, left - p[key], p[key], colour))
        left -= p[key]
    rows.append(("fused", 0, p["fused"], "k"))
    for i, (label, begin, width, colour) in enumerate(rows):
        a.barh(i, width, left=begin, color=colours[colour], edgecolor=colours["ink"] if colour == "faint" else "none", linewidth=0.6, height=0.62)
        a.text(max(begin, begin + width) + 0.4, i, f"{width:.1f}", va="center", fontsize=9, color=colours["ink"])
    a.axvline(p["gemm"], color=colours["ink"], linewidth=0.8, linestyle=":")
    a.text(p["gemm"] - 0.3, 1.5, "the GEMM alone", fontsize=8, color=colours["ink"], rotation=90, va="center", ha="right")
    axes_of(figure, [a], colours)
    a.set_yticks(range(len(rows)), [row[0] for row in rows]), a.invert_yaxis(), a.tick_params(axis="y", length=0)
    a.set_xlim(0, p["twin"] * 1.12)
    a.set_title(f"AG+GEMM, 8 MI300X: a projection, median error {100 * p['error']:.0f} %", fontsize=10, loc="left", color=colours["ink"])
    a.set_xlabel(f"us of an iteration; M = {TAX_ROWS}, N = 3584, K = 8192, gather::k, bf16", fontsize=9)
    return figure


def draw_timeline(plt, sides, colours):
    figure, axes = plt.subplots(2 * len(sides), 1, figsize=(5.8, 6.4), layout="constrained", sharex=True, height_ratios=[2, 1] * len(sides))
    longest = max(t["us"] for _, t in sides)
    most = max(m + w for _, t in sides for m, w in zip(t["moving"], t["multiplying"]))
    fastest = max(v for _, t in sides for v in t["links_gb_s"])
    for (title, t), blocks, links in zip(sides, axes[::2], axes[1::2]):
        at = [t["step_us"] * i for i in range(len(t["moving"]))]
        busy = lambda key: [max(0, v - w) for v, w in zip(t[key], t[key + "_waits"])]
        layers = [(busy("moving"), "m", "moves A", {}), (t["moving_waits"], "faint", "waits for a flag", {"hatch": "////"}),
                  (busy("multiplying"), "k", "multiplies", {}), (t["multiplying_waits"], "faint", None, {"hatch": "////"})]
        below = [0.0] * len(at)
        for values, colour, label, style in layers:
            above = [b + v for b, v in zip(below, values)]
            blocks.fill_between(at, below, above, step="post", facecolor=colours[colour], edgecolor=colours["twin"] if style else "none", linewidth=0, label=label, **style)
            below = above
        for name, begin, end in t["kernels"]:
            blocks.plot((begin, end), (most * 1.1,) * 2, color=colours["ink"], linewidth=4, solid_capstyle="butt")
            blocks.text((begin + end) / 2, most * 1.16, {"changed_ag_gemm": "ag_gemm", "gemm_kernel": "gemm", "pull_shards": "all_gather"}.get(name, name), ha="center", va="bottom", fontsize=8, color=colours["ink"])
        blocks.set_ylim(0, most * 1.4), blocks.set_ylabel("workgroups", fontsize=9)
        blocks.set_title(f"{title}: {t['us']:.1f} us", fontsize=10, loc="left", color=colours["ink"])
        links.fill_between(at, t["links_gb_s"], step="post", color=colours["third"], linewidth=0)
        links.set_ylim(0, fastest * 1.1), links.set_ylabel("GB/s in", fontsize=9)
    axes[0].set_xlim(0, longest * 1.02)
    axes[-2].legend(fontsize=8, frameon=False, labelcolor=colours["ink"], loc="upper right")
    axes[-1].set_xlabel(f"us; GPU 0 of 8 simulated MI300X, AG+GEMM, M = {TAX_ROWS}; a projection", fontsize=9)
    axes_of(figure, axes, colours)
    return figure


PICTURES = {"ag_gemm": (of_ag_gemm, draw_ag_gemm), "flash_decode": (of_flash_decode, draw_flash_decode), "published": (of_published, draw_published),
            "all_reduce": (of_all_reduce, draw_all_reduce), "taxes": (of_taxes, draw_taxes), "timeline": (of_timeline, draw_timeline)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=pathlib.Path, default=root / "bench" / "results", help="default: bench/results")
    parser.add_argument("--out", type=pathlib.Path, default=root / "docs" / "pictures", help="default: docs/pictures")
    parser.add_argument("--check", action="store_true", help="draws nothing")
    arguments = parser.parse_args()
    stale = []
    for name, (figures_of, draw) in PICTURES.items():
        figures = figures_of(arguments.results)
        if figures is None:  # not projected yet
            continue
        told = f"<!-- figures: {hashlib.sha256(json.dumps(figures).encode()).hexdigest()} -->"
        for shade, colours in COLOURS.items():
            file = arguments.out / f"{name}.{shade}.svg"
            if arguments.check:
                if not file.exists() or told not in file.read_text():
                    stale.append(file)
                continue
            import matplotlib
            matplotlib.use("svg")
            import matplotlib.pyplot as plt
            plt.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.family": "sans-serif"})
            figure = draw(plt, figures, colours)
            arguments.out.mkdir(parents=True, exist_ok=True)
            figure.savefig(file, metadata={"Date": None, "Creator": None})
            plt.close(figure)
            text = re.sub(r"<!DOCTYPE.*?>\s*", "", file.read_text(), flags=re.DOTALL)
            text = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), text)  # a hundredth of a point is enough
            file.write_text("\n".join(line.rstrip() for line in text.splitlines()) + f"\n{told}\n")
    for file in stale:
        print(f"{file}: its figures are not those of {arguments.results} and {PREDICTED.relative_to(root)}; run scripts/plots.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
