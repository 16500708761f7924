"""Lines of pages: paragraphs and list items of Markdown, broken at words. For the scripts that write pages, and for the
test that pages keep to it."""
import re

WIDTH = 120
FENCE = re.compile(r" *(```|~~~)")
ITEM = re.compile(r"( *)([-*+]|\d+[.)])( +)")
AS_IT_IS = re.compile(r" *\||#|\[[^\]]+\]: | *<!--|---$")
ATOM = re.compile(r"(?:`[^`]*`|!?\[[^\]`]*\](?=\()|\([^()\s]*\)|\S)+")
NOT_FIRST = re.compile(r"[-+*=>#|<~]+$|\d+[.)]$|[#>|<~]|[-+*=](?=\s)")  # what would begin something else


def broken(text: str, first: str, rest: str) -> list[str]:
    """The words of a paragraph in lines; code is kept whole, and no line begins as a list, a heading or a table does."""
    words: list[str] = []
    for word in ATOM.findall(text):
        if words and NOT_FIRST.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    lines, line = [], first + words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = rest + word
        else:
            line += " " + word
    return [*lines, line]


def wrapped(page: str) -> str:
    """The page with its paragraphs and list items in lines of WIDTH. Tables, code, headings and HTML stay as they are."""
    out: list[str] = []
    words: list[str] = []
    first = rest = ""
    fence = html = False

    def flush() -> None:
        if words:
            out.extend(broken(" ".join(words), first, rest))
            words.clear()

    for line in page.split("\n"):
        if fence or html or FENCE.match(line):
            flush()
            out.append(line)
            if FENCE.match(line):
                fence = not fence
            html = html and bool(line.strip())
        elif not line.strip() or AS_IT_IS.match(line):
            flush()
            out.append(line)
        elif line.startswith("<"):
            flush()
            out.append(line)
            html = True
        elif found := ITEM.match(line):
            flush()
            first, rest = found[0], " " * len(found[0])
            words.append(line[found.end():])
        elif not words:
            first = rest = re.match(" *", line)[0]
            words.append(line.strip())
        else:
            words.append(line.strip())
    flush()
    return "\n".join(out)


def wide(page: str) -> list[int]:
    """The numbers of lines that wrapped() would break."""
    good = set(wrapped(page).split("\n"))
    return [n for n, line in enumerate(page.split("\n"), 1) if len(line) > WIDTH and line not in good]
