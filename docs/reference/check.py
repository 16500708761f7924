"""usage: check.py WARNINGS REFERENCE INCLUDE

Prints what is wrong with the reference in the folder REFERENCE, and fails if anything is: what Doxygen has warned of (a
public name without a comment, a comment that it does not understand), a type or a concept of the headers in the folder
INCLUDE without one, because Doxygen passes some by without a word, a link that leads nowhere, and something that a
page would load from elsewhere.
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

NOT_SHOWN = {"hip_on_cuda.hpp", "nvidia"}  # as in Doxyfile
DETAIL = re.compile(r"^namespace (?:\w+::)*detail \{.*?^\}  // namespace (?:\w+::)*detail$", re.DOTALL | re.MULTILINE)


TYPE = re.compile(
    r"^(.*)\n(?:(?:template|  requires)[^\n]*\n)*(?:struct|class|concept) (?:alignas\(\w+\) )?(\w+)(?= final| :| =| \{)(.*)",
    re.MULTILINE,
)


def types_without_comment(include: pathlib.Path) -> tuple[list[str], int]:
    without, all_types = [], 0
    for header in include.rglob("*.hpp"):
        if NOT_SHOWN.isdisjoint(header.parts):
            for before, name, behind in TYPE.findall(DETAIL.sub("", header.read_text())):
                all_types += 1
                if not before.startswith("///") and "//" not in behind:
                    without.append(f"{header.name}: {name} has no comment")
    return without, all_types


class page(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[a] for a in ("id", "name") if given.get(a)}
        to = given.get("href") or given.get("src")
        if to:
            (self.links if tag in ("a", "area") else self.loads).append(to)


def main(warnings: pathlib.Path, reference: pathlib.Path, include: pathlib.Path) -> int:
    wrong = [line for line in warnings.read_text().splitlines() if line.strip()]
    wrong = list(dict.fromkeys(wrong))
    pages = {path.name: page(path.read_text()) for path in reference.rglob("*.html") if path.parent.name != "search"}
    followed = 0
    for name, of in pages.items():
        for link in of.links + of.loads:
            to = urllib.parse.urlsplit(link)
            if to.scheme in ("http", "https") or to.netloc:
                if link in of.loads:
                    wrong.append(f"{name}: loads {link}")
                continue
            if to.scheme:  # javascript:
                continue
            followed += 1
            file, anchor = urllib.parse.unquote(to.path) or name, urllib.parse.unquote(to.fragment)
            if not (reference / file).exists():
                wrong.append(f"{name}: {link} leads nowhere")
            elif anchor and file in pages and anchor not in pages[file].anchors:
                wrong.append(f"{name}: {link}: there is no such place in {file}")
    for path in reference.rglob("*.css"):
        for at in re.findall(r"(?:url\(|@import)\s*[\"']?(https?:[^\"')]*)", path.read_text()):
            wrong.append(f"{path.name}: loads {at}")
    without, types = types_without_comment(include)
    wrong += without
    if types < 100 or followed < 1000:
        wrong.append(f"{types} types and {followed} links: that is not fusewire")
    print("\n".join(wrong))
    return 1 if wrong else 0


sys.exit(main(*map(pathlib.Path, sys.argv[1:])))
