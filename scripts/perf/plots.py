#!/usr/bin/python3
"""Draws docs/pictures from the files that the benchmarks and scripts/perf/calibrate wrote, each for a light and for a dark page. With --check it draws nothing, and
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
from figures import ag_gemm_projected, alone_in, key_of, load, shapes_of, times_of, twin_of

root = pathlib.Path(__file__).resolve().parent.parent.parent
MEMORY = 4.8e6  # bytes per us that an H200 reads
PREDICTED = root / "sim" / "calibration" / "predicted.csv"
BAND = 0.15  # of the target for points that no constant was fitted to
COLOURS = {"light": {"ink": "#1f2328", "paper": "#ffffff", "k": "#0072b2", "m": "#d55e00", "third": "#007a5a", "fourth": "#9a4f96", "twin": "#7a828a", "faint": "#e1e6eb"},
           "dark": {"ink": "#e6edf3", "paper": "#0d1117", "k": "#56b4e9", "m": "#e69f00", "third": "#35c49a", "fourth": "#d58fd0", "twin": "#8b949e", "faint": "#262d36"}}


def over_gemm(data, w, n=3584):
    """Curves of time over the GEMM alone by M: chosen and the better bulk-synchronous twin, of both gathers."""
    us, alone, curves = {}, alone_in(data), {}
    for name, times in times_of(data).items():
        of = key_of(name)
        if (of["W"], of["N"], of["dtype"]) == (str(w), str(n), "bf16") and {alone, "chosen"} <= times.keys() and twin_of(times):
            us[of["gather"], int(of["M"])] = times
    for (gather, m), times in sorted(us.items()):
        curves.setdefault(gather, []).append((m, round(times["chosen"] / times[alone], 3)))
        curves.setdefault(f"twin of {gather}", []).append((m, round(twin_of(times) / times[alone], 3)))
    return curves


def of_ag_gemm(results):
    panels = [(f"{w} H200, measured", over_gemm(data, w)) for w in (2, 4) if (data := load(results, f"ag_gemm.h200x{w}"))]
    return [panel for panel in panels if panel[1]] or None


def of_ag_gemm_projected(results):
    data = ag_gemm_projected(results)
    curves = over_gemm(data, 8) if data else {}
    return [(f"8 MI300X, a projection with a median error of {100 * data['context']['projected']['error']['median']:.0f} %", curves)] if curves else None


def of_flash_decode(results):
    """Title -> name -> (tokens, us) of one sequence."""
    panels = []
    for w in (2, 4):
        data, curves = load(results, f"flash_decode.h200x{w}"), {}
        for name, found in (shapes_of(data).items() if data else ()):
            of = key_of(name)
            wanted = {"W": str(w), "batch": "1", "heads": "96-12", "d": "128", "page": "16", "pages": "own"}
            by = {v: b for v, b in found.items() if b.get("label") == "f16" and not b.get("error_occurred")}
            twin = twin_of({v: b["real_time"] for v, b in by.items()})
            if wanted.items() <= of.items() and "fused" in by and twin:
                for curve, us in (("twin", twin), ("fused", by["fused"]["real_time"]), ("floor", by["fused"]["bytes"] / MEMORY)):
                    curves.setdefault(curve, []).append((int(of["kv"]), round(us, 2)))
        if curves:
            panels.append((f"{w} H200, measured", {name: sorted(points) for name, points in curves.items()}))
    return panels or None


def predicted():
    with open(PREDICTED, newline="") as file:
        return list(csv.DictReader(file))


CLASSES = {"all-reduce": ("pull", "small all-reduce", "push"), "experts": ("experts",), "GEMM": ("GEMM", "batched GEMM"), "matrix-vector": ("matrix-vector",)}


def class_of(name):
    return next(title for title, names in CLASSES.items() if name.split(",")[0] in names)


def of_published(_):
    """use -> class -> (published us, projected us) of every point."""
    points = {"fit": {}, "check": {}}
    for r in predicted():
        points[r["use"]].setdefault(class_of(r["class"]), []).append((float(r["published_us"]), float(r["predicted_us"])))
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


MOVES = ("pull_shards", "join_columns")  # kernels that multiply nothing


def by_kernel(t):
    """A timeline in which all that such a kernel's blocks do counts as moving A."""
    t = {**t, **{key: list(t[key]) for key in ("moving", "multiplying", "moving_waits", "multiplying_waits")}}
    t["kernels"] = [(name.split("::")[-1], begin, end) for name, begin, end in t["kernels"]]
    for _, begin, end in (k for k in t["kernels"] if k[0] in MOVES):
        for i in range(int(begin / t["step_us"]), math.ceil(end / t["step_us"])):
            for what in ("", "_waits"):
                t["moving" + what][i] += t["multiplying" + what][i]
                t["multiplying" + what][i] = 0
    return t


def of_timeline(results):
    by_m, _ = taxes.read(results)
    found = by_m.get(TAX_ROWS, {})
    sides = (("bulk-synchronous", "bsp_graph"), ("fused, with spans", "marked"))
    return [(title, {**by_kernel(found[variant]["timeline"]), "next_us": round(found[variant]["real_time"], 2)}) for title, variant in sides if variant in found] or None


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


SHARDED = {"k": "A sharded over K", "m": "A sharded over M"}


def draw_ag_gemm(plt, panels, colours, alone="GEMM alone"):
    """Panels have the same axes, which hold every point."""
    figure, axes = plt.subplots(len(panels), 1, figsize=(5.8, 0.7 + 2.5 * len(panels)), layout="constrained", sharex=True, sharey=True, squeeze=False)
    axes = axes[:, 0]
    for a, (title, curves) in zip(axes, panels):
        for gather in ("k", "m"):
            for curve, style in ((f"twin of {gather}", {"linestyle": "--" if gather == "k" else ":", "color": colours["twin"]}),
                                 (gather, {"marker": "o", "markersize": 4, "color": colours[gather]})):
                if curve in curves:
                    label = f"fused, {SHARDED[gather]}" if curve == gather else f"bulk-synchronous, {SHARDED[gather]}"
                    a.plot(*zip(*curves[curve]), label=label, **style)
        a.axhline(1, color=colours["ink"], linewidth=0.8)
        a.set_xscale("log", base=2)
        a.set_title(title, fontsize=10, loc="left", color=colours["ink"]), a.set_ylabel(f"time / {alone}", fontsize=9)
    ratios = [ratio for _, curves in panels for points in curves.values() for _, ratio in points]
    axes[0].set_ylim(min([*ratios, 1]) - 0.1, max(ratios) + 0.1)
    axes[-1].set_xlabel("rows M; N = 3584 per rank, K = 8192, bf16", fontsize=9)
    axes[0].legend(fontsize=8, ncols=2, frameon=False, labelcolor=colours["ink"], loc="lower left", bbox_to_anchor=(-0.1, 1.1), columnspacing=1, borderpad=0)
    axes_of(figure, axes, colours)
    return figure


def draw_ag_gemm_projected(plt, panels, colours):
    return draw_ag_gemm(plt, panels, colours, "own GEMM alone, same clock")


def draw_flash_decode(plt, panels, colours):
    """For each machine the times, and below them how many times as long the twin takes, which a logarithmic axis hides."""
    figure, axes = plt.subplots(2, len(panels), figsize=(7.4, 4.6), layout="constrained", sharex=True, sharey="row", squeeze=False, height_ratios=[3, 2])
    for (times, ratio), (title, curves) in zip(axes.T, panels):
        for curve, label, style in (("twin", "bulk-synchronous", {"linestyle": "--", "color": colours["twin"]}),
                                    ("fused", "fused", {"marker": "o", "markersize": 4, "color": colours["k"]}),
                                    ("floor", "its KV read once, at 4.8 TB/s", {"linestyle": ":", "color": colours["ink"]})):
            times.plot(*zip(*curves[curve]), label=label, **style)
        times.set_xscale("log", base=2), times.set_yscale("log")
        times.set_title(title, fontsize=10, loc="left", color=colours["ink"])
        over = [(tokens, twin / fused) for (tokens, twin), (_, fused) in zip(curves["twin"], curves["fused"])]
        ratio.plot(*zip(*over), marker="o", markersize=4, color=colours["third"])
        for tokens, speedup in (over[0], over[-1]):
            ratio.annotate(f"{speedup:.2f}", (tokens, speedup), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=8, color=colours["ink"])
        ratio.axhline(1, color=colours["ink"], linewidth=0.8)
        ratio.set_xlabel("tokens in all", fontsize=9)
    everything = [twin / fused for _, curves in panels for (_, twin), (_, fused) in zip(curves["twin"], curves["fused"])]
    axes[1][0].set_ylim(min([*everything, 1]) - 0.1, max(everything) + 0.2)
    axes[0][0].set_ylabel("us", fontsize=9), axes[1][0].set_ylabel("bulk-sync. / fused", fontsize=9)
    axes[0][0].legend(fontsize=8, frameon=False, labelcolor=colours["ink"])
    of_us(axes[0][0].yaxis, *axes[0][0].get_ylim())
    figure.suptitle("Flash Decode of one sequence, 96-12 heads of 128, f16", fontsize=10, color=colours["ink"])
    axes_of(figure, axes.ravel(), colours)
    return figure


def of_us(a, low, high):
    """Ticks of 1, 3, 10, 30, ... us on an axis with a logarithmic scale."""
    ticks = [t for power in range(4) for t in (10**power, 3 * 10**power) if low <= t <= high]
    a.set_ticks(ticks, [str(t) for t in ticks]), a.set_ticks([], minor=True)


MARKERS = {"all-reduce": ("o", "k"), "experts": ("^", "m"), "GEMM": ("s", "third"), "matrix-vector": ("D", "fourth")}


def draw_published(plt, points, colours):
    """Colour and form: the operator; filled: no constant was fitted to it."""
    figure, a = plt.subplots(figsize=(5.2, 5.0), layout="constrained")
    everything = [us for by_class in points.values() for of_class in by_class.values() for point in of_class for us in point]
    low, high = min(everything) / 1.25, max(everything) * 1.25
    a.set_xscale("log"), a.set_yscale("log"), a.set_xlim(low, high), a.set_ylim(low, high)
    at = (low, low / (1 - BAND), high / (1 + BAND), high)
    a.fill_between(at, [max(low, us * (1 - BAND)) for us in at], [min(high, us * (1 + BAND)) for us in at], color=colours["faint"], linewidth=0, label=f"{100 * BAND:.0f} % more or less")
    a.plot((low, high), (low, high), color=colours["ink"], linewidth=0.8)
    for name, (marker, colour) in MARKERS.items():
        a.plot([], [], linestyle="none", marker=marker, markersize=5, color=colours[colour], label=name)
    for use, label in (("fit", "constants may be fitted to it"), ("check", "no constant was fitted to it")):
        both = [point for of_class in points[use].values() for point in of_class]
        for name, of_class in points[use].items():
            marker, colour = MARKERS[name]
            a.scatter(*zip(*of_class), marker=marker, s=26, zorder=3, edgecolors=colours[colour], facecolors="none" if use == "fit" else colours[colour])
        a.plot([], [], linestyle="none", marker="o", markersize=5, color=colours["ink"], markerfacecolor="none" if use == "fit" else colours["ink"],
               label=f"{label}: {sum(abs(y / x - 1) <= BAND for x, y in both)} of {len(both)} within {100 * BAND:.0f} %")
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
    low, high = min(us for points in curves.values() for _, *both in points for us in both) / 1.5, max(us for points in curves.values() for _, *both in points for us in both) * 1.5
    a.set_xscale("log", base=2), a.set_yscale("log"), a.set_ylim(low, high)
    axes_of(figure, [a], colours)
    a.set_xticks(size, [f"{n >> 10} KB" if n < 1 << 20 else f"{n >> 20} MB" for n in size]), a.set_xticks([], minor=True)
    of_us(a.yaxis, low, high)
    a.set_title("A published two-shot all-reduce on MI300X, and its likeness on the clock", fontsize=10, loc="left", color=colours["ink"])
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
    a.text(p["gemm"] - 0.3, 2.5, f"the GEMM alone: {p['gemm']:.1f}", fontsize=8, color=colours["ink"], rotation=90, va="center", ha="right")
    axes_of(figure, [a], colours)
    a.set_yticks(range(len(rows)), [row[0] for row in rows]), a.invert_yaxis(), a.tick_params(axis="y", length=0)
    a.set_xlim(0, p["twin"] * 1.12)
    a.set_title(f"AG+GEMM, 8 MI300X: a projection, median error {100 * p['error']:.0f} %", fontsize=10, loc="left", color=colours["ink"])
    a.set_xlabel(f"us of an iteration; M = {TAX_ROWS}, N = 3584, K = 8192, gather::k, bf16", fontsize=9)
    return figure


def draw_timeline(plt, sides, colours):
    figure, axes = plt.subplots(2 * len(sides), 1, figsize=(5.8, 6.4), layout="constrained", sharex=True, height_ratios=[2, 1] * len(sides))
    longest = max(t["next_us"] for _, t in sides)
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
            blocks.text((begin + end) / 2, most * 1.16, {"changed_ag_gemm": "ag_gemm", "gemm_kernel": "gemm", "pull_shards": "all_gather", "join_columns": "join"}.get(name, name), ha="center", va="bottom", fontsize=8, color=colours["ink"])
        blocks.set_ylim(0, most * 1.4), blocks.set_ylabel("workgroups", fontsize=9)
        for a in (blocks, links):
            a.axvspan(t["us"], t["next_us"], facecolor="none", edgecolor=colours["faint"], hatch="xxxx", linewidth=0)
        blocks.set_title(f"{title}: {t['us']:.1f} us, and {t['next_us'] - t['us']:.1f} to the next iteration: {t['next_us']:.1f}", fontsize=10, loc="left", color=colours["ink"])
        links.fill_between(at, t["links_gb_s"], step="post", color=colours["third"], linewidth=0)
        links.set_ylim(0, fastest * 1.1), links.set_ylabel("GB/s in", fontsize=9)
    axes[0].set_xlim(0, longest * 1.02)
    axes[-2].legend(fontsize=8, frameon=False, labelcolor=colours["ink"], loc="upper right")
    axes[-1].set_xlabel(f"us; GPU 0 of 8 simulated MI300X, AG+GEMM, M = {TAX_ROWS}; a projection", fontsize=9)
    axes_of(figure, axes, colours)
    return figure


def points_outside(figure):
    """The points of lines, and of clouds of points, that the axes cut off."""
    outside = []
    for a in figure.axes:
        (left, right), (low, high) = sorted(a.get_xlim()), sorted(a.get_ylim())
        drawn = [line.get_xydata() for line in a.lines if line.get_transform() == a.transData] + [cloud.get_offsets() for cloud in a.collections if cloud.get_offset_transform() == a.transData]
        outside += [(float(x), float(y)) for points in drawn for x, y in points if not (left <= x <= right and low <= y <= high)]
    return outside


PICTURES = {"ag_gemm": (of_ag_gemm, draw_ag_gemm), "ag_gemm_projected": (of_ag_gemm_projected, draw_ag_gemm_projected), "flash_decode": (of_flash_decode, draw_flash_decode), "published": (of_published, draw_published),
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
            if outside := points_outside(figure):
                sys.exit(f"{name}: these points lie outside of their axes: {outside}")
            arguments.out.mkdir(parents=True, exist_ok=True)
            figure.savefig(file, metadata={"Date": None, "Creator": None})
            plt.close(figure)
            text = re.sub(r"<!DOCTYPE.*?>\s*", "", file.read_text(), flags=re.DOTALL)
            text = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), text)  # a hundredth of a point is enough
            file.write_text("\n".join(line.rstrip() for line in text.splitlines()) + f"\n{told}\n")
    for file in stale:
        print(f"{file}: its figures are not those of {arguments.results} and {PREDICTED.relative_to(root)}; run scripts/perf/plots.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
