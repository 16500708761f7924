"""usage: check_links.py ROOT

Fails if a page leads to a file, a folder or a heading that is not there, or if README.md does not lead to every page in
docs. Links into the web are not followed.
"""
import pathlib
import re
import sys

LINK = re.compile(r"""(?:\]\(|(?:src|srcset|href)=")([^)"\s]+)""")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`(?!\]\()", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: pathlib.Path) -> set[str]:
    """As forges make them: lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in HEADING.findall(text)}


root = pathlib.Path(sys.argv[1]).resolve()
pages = [p for p in [*root.glob("*.md"), *(root / "docs").glob("*.md"),
         *(root / "docs/decisions").glob("*.md"), *root.glob("*/README.md"), *(root / "tests").rglob("*.md")]
         if "build" not in p.relative_to(root).parts[0]]
wrong = []
links = 0
led_to = set()
for page in sorted(pages):
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        links += 1
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if page == root / "README.md":
            led_to.add(target)
        if not target.exists():
            wrong.append(f"{page.relative_to(root)}: {link} is not there")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{page.relative_to(root)}: {link} is no heading there")
wrong += [f"README.md does not lead to {page.relative_to(root)}" for page in sorted((root / "docs").glob("*.md")) if page not in led_to]
if links < 60:
    wrong.append(f"{links} links in {len(pages)} pages: that is not fusewire")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
