#!/usr/bin/env python3
"""Draws the pictures of docs/pictures that show no figures: memory, channel, choice; each for a light and for a dark page. With --check it draws nothing, and fails where a
file is not what it would draw."""
import argparse
import html
import pathlib
import sys

from text_width import width_of

root = pathlib.Path(__file__).resolve().parent.parent.parent
COLOURS = {"light": {"ink": "#1f2328", "paper": "#ffffff", "faint": "#7a828a", "bulk": "#0072b2", "signal": "#d55e00", "third": "#007a5a"},
           "dark": {"ink": "#e6edf3", "paper": "#0d1117", "faint": "#8b949e", "bulk": "#56b4e9", "signal": "#e69f00", "third": "#35c49a"}}
MARGIN = 5  # pixels between a text and its box


class Picture:
    def __init__(self, title, width, height, colours):
        c = colours
        self.lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">', f"<title>{html.escape(title)}</title>", "<style>",
                      f"text {{ fill: {c['ink']}; font: 13px sans-serif; }}", f".title {{ font-weight: bold; }} .note {{ font-size: 11px; fill: {c['faint']}; }}",
                      f".in {{ fill: {c['paper']}; text-anchor: middle; font-size: 12px; }} .in.small {{ fill: {c['paper']}; font-size: 10px; }}",
                      *(f".{name} {{ fill: {c[name]}; }}" for name in ("bulk", "signal", "third", "faint")), f".frame {{ stroke: {c['faint']}; fill: none; }}",
                      f".line {{ stroke: {c['faint']}; stroke-dasharray: 3 3; fill: none; }} .arrow {{ stroke: {c['ink']}; fill: none; }} .tip {{ fill: {c['ink']}; }}", "</style>",
                      '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>',
                      f'<rect width="{width}" height="{height}" fill="{c["paper"]}"/>']

    def text(self, x, y, text, kind="note"):
        self.lines.append(f'<text class="{kind}" x="{x}" y="{y}">{html.escape(text)}</text>')

    def box(self, x, y, width, height, kind, *texts):
        """The first text is larger than those below it; all must fit."""
        self.lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>')
        top = y + height / 2 + 4 - 6.5 * (len(texts) - 1)
        for i, text in enumerate(texts):
            size = "in small" if i else "in"
            if width_of(text, size) > width - 2 * MARGIN:
                sys.exit(f"'{text}' is {width_of(text, size):.0f} pixels wide, its box {width}")
            self.lines.append(f'<text class="{size}" x="{x + width / 2:g}" y="{top + 13 * i:g}">{html.escape(text)}</text>')

    def frame(self, x, y, width, height):
        self.lines.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')

    def path(self, kind, *points):
        tip = ' marker-end="url(#tip)"' if kind == "arrow" else ""
        self.lines.append(f'<path class="{kind}" d="M' + "L".join(f"{x} {y}" for x, y in points) + f'"{tip}/>')

    def svg(self):
        return "\n".join([*self.lines, "</svg>", ""])


def memory(colours):
    """What a heap and a channel take on each rank, and who maps it."""
    p = Picture("The two segments of a heap on two of W ranks, what a channel has in them, and what is mapped by whom", 920, 424, colours)
    p.text(10, 24, "One heap on W ranks. Every rank has the same allocations at the same offsets.", "title")
    for x, rank in ((10, "rank r"), (480, "rank p")):
        p.frame(x, 40, 430, 292)
        p.text(x + 12, 62, rank, "title")
        p.text(x + 12, 84, "bulk segment: hipMalloc, cached")
        p.box(x + 12, 92, 128, 40, "bulk", "yours", "allocate<float>(n)")
        p.box(x + 144, 92, 90, 40, "bulk", "inbox slot 0", "max_bytes")
        p.box(x + 238, 92, 90, 40, "bulk", "inbox slot 1", "max_bytes")
        p.box(x + 332, 92, 86, 40, "faint", "epoch", "this rank only")
        p.text(x + 12, 158, "signal segment: uncached on gfx942, since kernels poll it")
        p.box(x + 12, 166, 200, 40, "signal", "headers of slots 0 and 1", "2 x a flag from each of W ranks")
        p.box(x + 216, 166, 202, 40, "signal", "acknowledgements", "2 x W flags, for pulls")
        p.box(x + 12, 210, 200, 40, "signal", "data flags of slot 0", "flags_per_source x W")
        p.box(x + 216, 210, 202, 40, "signal", "data flags of slot 1", "flags_per_source x W")
        p.box(x + 12, 254, 200, 40, "third", "LL buffer, slot 0", "words of 4 bytes and an epoch")
        p.box(x + 216, 254, 202, 40, "third", "LL buffer, slot 1", "the same words, the other parity")
        p.text(x + 12, 318, "Peers store here, and read here. Only the epoch is this rank's alone.")
    p.path("arrow", (440, 120), (480, 120))
    p.path("arrow", (480, 140), (440, 140))
    p.path("arrow", (440, 220), (480, 220))
    p.path("arrow", (480, 240), (440, 240))
    p.text(10, 358, "Arrows: every rank maps both segments of every peer. sym<T> is an offset, the same on all ranks; world.on(p, x) adds it to where p's segment is mapped here.")
    p.text(10, 378, "The type decides about the segment: flags and LL words go into the signal segment, everything else into the bulk segment.")
    p.text(10, 398, "Colours: blue, data; orange, flags of a channel, 128 bytes each; green, an ll_buffer. An operator takes its slots and flags from the channel that it is made with.")
    p.text(10, 416, "Slot and flags of launch e are those of e & 1, whatever was launched.")
    return p.svg()


def channel(colours):
    """Slots, flags, headers and the credit over three launches of two ranks."""
    p = Picture("A channel over three launches on two ranks: slots by parity, headers as credit, the epoch", 920, 440, colours)
    p.text(10, 24, "Three launches on one channel, rank r ahead of rank p. Time runs to the right.", "title")
    for y, slot in ((40, 0), (86, 1)):
        p.text(10, y + 16, f"p's slot {slot}", "lane")
        p.text(10, y + 30, "and its flags")
        p.path("line", (100, y + 36), (910, y + 36))
    p.text(10, 198, "rank r", "title")
    p.text(10, 302, "rank p", "title")
    late = 40
    for i, x in enumerate((100, 368, 636)):
        e = "e" if i == 0 else f"e + {i}"
        p.box(x + 58, 40 if i % 2 == 0 else 86, 206, 34, "third", f"data of {e}; flags: {e}")
        p.path("arrow", (x + 100, 166), (x + 100, 76 if i % 2 == 0 else 122))  # r's push
        for y, shift, does in ((168, 0, ("push", "own chunks")), (272, late, ("multiply", "from the slot"))):
            p.box(x + shift, y, 54, 46, "faint", "header", e)
            p.box(x + shift + 58, y, 82, 46, "bulk", *does)
            p.box(x + shift + 144, y, 86, 46, "signal", "end", "all headers?")
        p.path("arrow", (x + 27, 214), (x + late + 170, 270))  # r's header, for which p's end waits
        p.path("arrow", (x + late + 27, 272), (x + 190, 216))  # p's header, for which r's end waits
    p.text(376, 62, "free; r may write e + 2 here: it has p's header of e + 1")
    p.path("line", (10, 336), (910, 336))
    p.text(10, 358, "Credit: every launch sends its header to every rank, and ends only when the headers of all ranks are there. So no rank is more than one launch ahead.")
    p.text(10, 378, "Slot 0 is free again in e + 2: r has then ended e + 1, so it has seen p's header of e + 1, and p sent that after its launch e was over.")
    p.text(10, 398, "A flag of slot e & 1 is raised to exactly e, and a wait asks for exactly e. Nothing is reset: an old epoch is just not this one.")
    p.text(10, 418, "The last block to leave sets this rank's epoch, in device memory. So a replayed graph counts on by itself.")
    return p.svg()


def choice(colours):
    """Push or pull, flag or LL words."""
    p = Picture("Which way to send: push or pull, flags or LL words", 920, 350, colours)
    p.text(10, 24, "Which way do the bytes go, and what tells that they are there?", "title")
    p.box(300, 44, 320, 44, "faint", "Who knows which bytes are needed?", "when the kernel begins")
    p.box(90, 136, 340, 44, "faint", "How much goes to one peer at a time?", "a record, a tile, a chunk")
    p.path("arrow", (400, 88), (270, 134))
    p.text(190, 112, "the sender, or both")
    p.path("arrow", (540, 88), (770, 226))
    p.text(690, 160, "only the reader: indices, a table")
    p.path("arrow", (200, 180), (150, 226))
    p.text(40, 208, "up to about 16 KB")
    p.path("arrow", (340, 180), (440, 226))
    p.text(410, 208, "more")
    p.box(10, 228, 280, 62, "third", "push LL words", "slot.send, ll_reader: no flag, no release", "twice the bytes; one word a thread, many threads")
    p.box(316, 228, 280, 62, "bulk", "push, and a flag for each chunk", "copy into e.inbox(peer), e.signal, e.wait", "a chunk of tens of KB, signalled by who stored it")
    p.box(622, 228, 288, 62, "signal", "pull", "begin_readable, wait_begun, copy, acknowledge", "the owner: wait_acknowledged before it ends")
    p.text(10, 314, "Push where both would do: a store crosses the link once, a load twice, and nobody acknowledges. ag_gemm pulls on H200 for long multiplications, as measured.")
    p.text(10, 334, "The bound of 16 KB is a projection for MI300X with 8 ranks and a block of 1024 threads, no measurement. With 256 threads it is 2 KB.")
    return p.svg()


PICTURES = {"memory": memory, "channel": channel, "choice": choice}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=root / "docs" / "pictures", help="default: docs/pictures")
    parser.add_argument("--check", action="store_true", help="draws nothing")
    arguments = parser.parse_args()
    stale = []
    for name, draw in PICTURES.items():
        for shade, colours in COLOURS.items():
            file, text = arguments.out / f"{name}.{shade}.svg", draw(colours)
            if not arguments.check:
                file.write_text(text)
            elif not file.exists() or file.read_text() != text:
                stale.append(f"{file}: not what scripts/perf/diagrams.py draws; run it")
    sys.exit("\n".join(stale) or 0)


main()
