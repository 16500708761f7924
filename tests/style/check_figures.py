"""usage: check_figures.py ROOT

Fails if a picture in docs/pictures that is drawn by hand differs between its light and its dark file in more than
colours, if one of the two is missing, if no page shows it, or if a text is wider than its box, or than the picture, in
DejaVu Sans. scripts/plots.py draws the others, and says so in them.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "scripts"))
from text_width import width_of

COLOUR = re.compile(r"#[0-9a-f]{6}")
SVG = "{http://www.w3.org/2000/svg}"

root = pathlib.Path(sys.argv[1])
pages = "".join(page.read_text() for page in [root / "README.md", *(root / "docs").glob("*.md")])


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


names = {file.name.rsplit(".", 2)[0] for file in (root / "docs/pictures").glob("*.svg")}
wrong = [f"{name}: no page shows it in {shade}" for name in sorted(names) for shade in ("light", "dark")
         if f"pictures/{name}.{shade}.svg" not in pages]
by_hand = 0
for name in sorted(names):
    files = [root / "docs/pictures" / f"{name}.{shade}.svg" for shade in ("light", "dark")]
    if missing := [file for file in files if not file.is_file()]:
        wrong.append(f"{missing[0]}: missing")
        continue
    light, dark = (file.read_text() for file in files)
    if "<!-- figures: " in light:
        continue
    by_hand += 1
    wrong += [f"{name}: a text is too wide: {text}" for text in too_wide(light)]
    if COLOUR.sub("#", light) != COLOUR.sub("#", dark):
        wrong.append(f"{name}: light and dark differ in more than colours")
    if COLOUR.findall(light) == COLOUR.findall(dark):
        wrong.append(f"{name}: light and dark have the same colours")
if not by_hand:
    wrong.append(f"{root}: no picture by hand")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
