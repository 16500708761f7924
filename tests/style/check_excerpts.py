"""usage: check_excerpts.py ROOT

Fails if a block of code in README.md or docs/*.md that names where it comes from differs from what stands there. A page
names a region,

    <!-- examples/tutorial/2_flag.cpp: signal -->
    ```cpp
    signal(b, ...);
    ```

which the file marks, and which may be indented there,

      // [begin: signal]
      signal(b, ...);
      // [end: signal]

or it names a file,

    <!-- include/fusewire/device/flag.hpp -->
    ```cpp
    platform::drain_stores();
    // ...
    g.sync();
    ```

and then the lines between two lines "// ..." stand in it one after the other, indented or not, the parts in this order.

It fails, too, if a name stands before no block, if a file lacks the region, and if no page shows a region of tutorial/.
"""
import pathlib
import re
import sys
import textwrap

NAMED = re.compile(r"^<!-- (\S+): (\w+) -->\n(?:```(?:cpp|python)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"^<!-- ([\w.]+(?:/[\w.]+)+) -->\n(?:```(?:cpp|python)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
REGION = re.compile(r"^ *// \[begin: (\w+)\]\n(.*?)^ *// \[end: \1\]$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^ *// \[(?:begin|end): \w+\]\n", re.MULTILINE)
LEFT_OUT = re.compile(r"^ *// \.\.\.\n", re.MULTILINE)


def regions(source: pathlib.Path) -> dict[str, str]:
    text = source.read_text()
    found = {name: textwrap.dedent(MARKER.sub("", body)) for name, body in REGION.findall(text)}
    if len(MARKER.findall(text)) != 2 * len(found):
        sys.exit(f"{source}: a [begin: NAME] without its [end: NAME], or a name twice")
    return found


def first_missing(block: str, source: pathlib.Path) -> str | None:
    """The first part of a quoted block that the source does not have behind the parts before it."""
    lines = source.read_text().split("\n")
    at = 0
    for part in LEFT_OUT.split(block):
        wanted = textwrap.dedent(part).rstrip("\n").split("\n")
        spans = (i for i in range(at, len(lines) - len(wanted) + 1)
                 if textwrap.dedent("\n".join(lines[i:i + len(wanted)])).split("\n") == wanted)
        found = next(spans, None)
        if found is None or not part.strip():
            return part
        at = found + len(wanted)
    return None


def main(root: pathlib.Path) -> int:
    wrong = []
    shown = set()
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for path, name, block in NAMED.findall(page.read_text()):
            shown.add((path, name))
            there = regions(root / path).get(name) if (root / path).is_file() else None
            if there is None:
                wrong.append(f"{page.name}: {path} has no region {name}")
            elif there != block:
                wrong.append(f"{page.name}: the block {name} is not what {path} has there:\n{there}")
        for path, block in QUOTED.findall(page.read_text()):
            if not (root / path).is_file():
                wrong.append(f"{page.name}: there is no {path}")
            elif (part := first_missing(block, root / path)) is not None:
                wrong.append(f"{page.name}: {path} does not have these lines, or has them earlier:\n{part}")
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
