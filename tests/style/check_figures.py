"""usage: check_figures.py ROOT

Fails if a picture in docs/pictures that is drawn by hand differs between its light and its dark file in more than
colours, if one of the two is missing, or if no page shows it. scripts/perf/plots.py draws the others, and says so in them:
of those it fails where a point lies outside of its axes, and where the same shape has other figures on two pages.
Of the others it fails where a text is wider than its box, or than the picture, in DejaVu Sans.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "scripts/perf"))
from text_width import width_of

COLOUR = re.compile(r"#[0-9a-f]{6}")
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = r"([0-9]+\.[0-9]+)"
SLACK = 0.51  # points, since coordinates are rounded, and a line along an axis is as wide as that

root = pathlib.Path(sys.argv[1])
texts = {str(page.relative_to(root)): page.read_text() for page in [root / "README.md", *(root / "docs").glob("*.md")]}
pages = "".join(texts.values())


def outside_of_axes(svg: str) -> int:
    """How many points of what is clipped to a rectangle lie outside of it."""
    tree = xml.etree.ElementTree.fromstring(svg)
    boxes = {clip.get("id"): [float(clip[0].get(x)) for x in ("x", "y", "width", "height")]
             for clip in tree.iter(SVG + "clipPath")}
    shapes = {path.get("id"): path.get("d") for path in tree.iter(SVG + "path") if path.get("id")}
    vertices = lambda d: [(float(x), float(y)) for x, y in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", d)]
    count = 0

    def visit(node, box) -> None:
        nonlocal count
        if found := re.match(r"url\(#(.*)\)", node.get("clip-path", "")):
            box = boxes[found[1]]
        points = []
        if box and node.tag == SVG + "use":
            x, y = float(node.get("x")), float(node.get("y"))
            shape = shapes[node.get("{http://www.w3.org/1999/xlink}href")[1:]]
            points = [(x, y)] if x else [(x0, y0 + y) for x0, y0 in vertices(shape)]  # a marker, or an area
        elif box and node.tag == SVG + "path":
            points = vertices(node.get("d"))
        if points:
            x0, y0, width, height = box
            count += sum(not (x0 - SLACK <= x <= x0 + width + SLACK and y0 - SLACK <= y <= y0 + height + SLACK)
                         for x, y in points)
        for child in node:
            if child.tag != SVG + "defs":
                visit(child, box)

    visit(tree, None)
    return count


def too_wide(svg: str) -> list[str]:
    """The texts that do not fit: of class `in`, in the smallest box around their middle; others, left of the edge."""
    tree = xml.etree.ElementTree.fromstring(svg)
    boxes = [[float(box.get(x, 0)) for x in ("x", "y", "width", "height")] for box in tree.iter(SVG + "rect")]
    wide, room = [], float(tree.get("viewBox").split()[2])
    for node in tree.iter(SVG + "text"):
        kind, x, y = node.get("class"), float(node.get("x")), float(node.get("y"))
        width = width_of(node.text, kind)
        if kind.startswith("in"):
            x0, _, length, _ = min((b for b in boxes if b[0] <= x <= b[0] + b[2] and b[1] <= y <= b[1] + b[3]),
                                   key=lambda b: b[2])
            fits = x0 < x - width / 2 and x + width / 2 < x0 + length
        else:
            fits = x + width < room
        wide += [] if fits else [node.text]
    return wide


def figures_of_taxed_shape() -> list[str]:
    """What is wrong with the figures of the shape that docs/taxes.md takes apart, wherever they stand."""
    told, wrong = re.sub(r"\s+", " ", texts["docs/taxes.md"]), []
    shape = re.search(r"M = (\d+), N = (\d+) per rank, K = \d+, gather::(\w), bf16, W = (\d+)", told)
    chain = re.search(rf"twin in a graph \({NUMBER}\) and the fused kernel \({NUMBER}\).*?GEMM alone takes {NUMBER}",
                      told)
    if not shape or not chain:
        return ["docs/taxes.md: no shape and no times"]
    m, n, gather, w = shape.groups()
    twin, fused, gemm = chain.groups()
    table = texts["docs/performance_tables.md"].partition("## Projection: All-gather + GEMM, MI300X")[2]
    head = next((line for line in table.split("\n") if line.startswith("| W |")), "")
    row = next((line for line in table.split("\n") if line.startswith(f"| {w} | {gather} | {n} | {m} |")), "")
    cells = dict(zip((cell.strip() for cell in head.split("|")), (cell.strip() for cell in row.split("|"))))
    for what, here in (("fused", fused), ("own gemm", gemm)):
        if cells.get(what) != here:
            wrong.append(f"{what}: {here} us in docs/taxes.md, {cells.get(what)} in docs/performance_tables.md")
    section = lambda text, title: text.partition(title)[2].partition("## ")[0]
    gemms = dict(re.findall(rf"^\| (\d+ \| \d+) \| {NUMBER} \|", section(table, "The GEMMs on one GPU:"), re.M))
    plans = section(texts["docs/performance_tables.md"], "## Projection: The GEMM alone, by plan, MI300X")
    row = rf"^\| sweep \| (\d+) \| 8192 \| (\d+) \| [^|]* \| {NUMBER} \|"
    chosen = {f"{n} | {m}": us for n, m, us in re.findall(row, plans, re.M)}
    if not gemms or not chosen:
        wrong.append("docs/performance_tables.md: no GEMMs, or no plans of GEMMs")
    if any(chosen[of] != us for of, us in gemms.items() if of in chosen) and "another run" not in plans:
        wrong.append("docs/performance_tables.md: a GEMM has two times, which nothing explains")
    drawn = (root / "docs/pictures/taxes.light.svg").read_text()
    wrong += [f"{us} us in docs/taxes.md is not in its picture" for us in (twin, fused, gemm)
              if not re.search(rf"[> ]{us}<", drawn)]
    sides = re.findall(rf">([^<>]*): {NUMBER} us, and {NUMBER} to the next iteration: {NUMBER}<",
                       (root / "docs/pictures/timeline.light.svg").read_text())
    if len(sides) != 2 or sides[0][3] != twin:
        wrong.append(f"timeline: {sides}, and the twin takes {twin} us in docs/taxes.md")
    wrong += [f"docs/taxes.md: shows the timeline and does not explain {us} us"
              for us in (twin, fused, *(x for side in sides for x in (side[1], side[3]))) if not re.search(rf"\b{us}\b", told)]
    return wrong


def figures_of_readme() -> list[str]:
    """Ranges and means of README's table that docs/performance.md does not have, and rows that lack one: a row has a
    figure of each machine that it does not say is missing."""
    table = texts["README.md"].partition("writes this -->")[2].partition("<!-- to here -->")[0]
    rows = [line for line in table.split("\n") if line.startswith("| `")]
    there = " ".join(texts["docs/performance.md"].split())
    figures = [(line, found) for line in rows for found in re.findall(r"\d\.\d+ to \d\.\d+, mean [\d.]+", line)]
    wrong = [f"README.md: {found} is not in docs/performance.md: {line}" for line, found in figures if found not in there]
    expected = sum(2 - len(re.findall("not measured|not simulated", line)) for line in rows)
    return wrong + ([] if len(rows) >= 5 and len(figures) == expected
                    else [f"README.md: {len(rows)} operators, {len(figures)} figures, expected {expected}"])


names = {file.name.rsplit(".", 2)[0] for file in (root / "docs/pictures").glob("*.svg")}
wrong = [f"{name}: no page shows it in {shade}" for name in sorted(names) for shade in ("light", "dark")
         if f"pictures/{name}.{shade}.svg" not in pages]
by_hand = drawn = 0
for name in sorted(names):
    files = [root / "docs/pictures" / f"{name}.{shade}.svg" for shade in ("light", "dark")]
    if missing := [file for file in files if not file.is_file()]:
        wrong.append(f"{missing[0]}: missing")
        continue
    light, dark = (file.read_text() for file in files)
    if "<!-- figures: " in light:
        drawn += 1
        counts = map(outside_of_axes, (light, dark))
        wrong += [f"{name}: {count} points outside of the axes" for count in counts if count]
        continue
    by_hand += 1
    wrong += [f"{name}: a text is too wide: {text}" for text in too_wide(light)]
    if COLOUR.sub("#", light) != COLOUR.sub("#", dark):
        wrong.append(f"{name}: light and dark differ in more than colours")
    if COLOUR.findall(light) == COLOUR.findall(dark):
        wrong.append(f"{name}: light and dark have the same colours")
if not by_hand or not drawn:
    wrong.append(f"{root}: no picture by hand, or none that is drawn")
wrong += figures_of_taxed_shape() + figures_of_readme()
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
