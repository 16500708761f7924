"""usage: check_excerpts.py ROOT

Fails if a block of code in docs/*.md that names a region of a file differs from it. In the page

    <!-- examples/tutorial/2_flag.cpp: signal -->
    ```cpp
    signal(b, ...);
    ```

and in the file, where the region may be indented,

      // [begin: signal]
      signal(b, ...);
      // [end: signal]

It fails, too, if a name stands before no block, if a file lacks the region, and if no page shows a region of tutorial/.
"""
import pathlib
import re
import sys
import textwrap

NAMED = re.compile(r"^<!-- (\S+): (\w+) -->\n(?:```cpp\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
REGION = re.compile(r"^ *// \[begin: (\w+)\]\n(.*?)^ *// \[end: \1\]$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^ *// \[(?:begin|end): \w+\]\n", re.MULTILINE)


def regions(source: pathlib.Path) -> dict[str, str]:
    text = source.read_text()
    found = {name: textwrap.dedent(MARKER.sub("", body)) for name, body in REGION.findall(text)}
    if len(MARKER.findall(text)) != 2 * len(found):
        sys.exit(f"{source}: a [begin: NAME] without its [end: NAME], or a name twice")
    return found


def main(root: pathlib.Path) -> int:
    wrong = []
    shown = set()
    for page in sorted((root / "docs").glob("*.md")):
        for path, name, block in NAMED.findall(page.read_text()):
            shown.add((path, name))
            there = regions(root / path).get(name) if (root / path).is_file() else None
            if there is None:
                wrong.append(f"{page.name}: {path} has no region {name}")
            elif there != block:
                wrong.append(f"{page.name}: the block {name} is not what {path} has there:\n{there}")
    tutorial = sorted((root / "examples/tutorial").glob("*.cpp"))
    for source in tutorial:
        path = str(source.relative_to(root))
        wrong += [f"{path}: no page shows {name}" for name in regions(source) if (path, name) not in shown]
        if not regions(source):
            wrong.append(f"{path}: no region for docs/tutorial.md")
    if not tutorial or not shown:
        wrong.append(f"{root}: no tutorial")
    print("\n".join(wrong))
    return 1 if wrong else 0


sys.exit(main(pathlib.Path(sys.argv[1])))
