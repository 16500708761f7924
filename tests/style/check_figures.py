"""usage: check_figures.py ROOT

Fails if a picture in docs/pictures that is drawn by hand differs between its light and its dark file in more than
colours, if one of the two is missing, or if no page shows it. scripts/plots.py draws the others, and says so in them.
"""
import pathlib
import re
import sys

COLOUR = re.compile(r"#[0-9a-f]{6}")

root = pathlib.Path(sys.argv[1])
pages = "".join(page.read_text() for page in [root / "README.md", *(root / "docs").glob("*.md")])
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
    if COLOUR.sub("#", light) != COLOUR.sub("#", dark):
        wrong.append(f"{name}: light and dark differ in more than colours")
    if COLOUR.findall(light) == COLOUR.findall(dark):
        wrong.append(f"{name}: light and dark have the same colours")
if not by_hand:
    wrong.append(f"{root}: no picture by hand")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
