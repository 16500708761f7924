#!/usr/bin/python3
"""Draws docs/pictures from the JSON files that the benchmarks wrote, each for a light and for a dark page. With --check it draws nothing, and fails
where a picture shows other figures than the files hold; that needs no matplotlib (Debian: python3-matplotlib)."""
import argparse
import hashlib
import json
import math
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
MEMORY = 4.8e6  # bytes per us that an H200 reads
COLOURS = {"light": {"ink": "#1f2328", "paper": "#ffffff", "k": "#0072b2", "m": "#d55e00", "twin": "#7a828a"},
           "dark": {"ink": "#e6edf3", "paper": "#0d1117", "k": "#56b4e9", "m": "#e69f00", "twin": "#8b949e"}}


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


PICTURES = {"ag_gemm": (of_ag_gemm, draw_ag_gemm), "flash_decode": (of_flash_decode, draw_flash_decode)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=pathlib.Path, default=root / "bench" / "results", help="default: bench/results")
    parser.add_argument("--out", type=pathlib.Path, default=root / "docs" / "pictures", help="default: docs/pictures")
    parser.add_argument("--check", action="store_true", help="draws nothing")
    arguments = parser.parse_args()
    stale = []
    for name, (figures_of, draw) in PICTURES.items():
        figures = figures_of(arguments.results)
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
            file.write_text("\n".join(line.rstrip() for line in text.splitlines()) + f"\n{told}\n")
    for file in stale:
        print(f"{file}: its figures are not those of {arguments.results}; run scripts/plots.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
