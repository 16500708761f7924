"""usage: beyond.py [--check]

Writes the tables of docs/beyond.md from bench/results/examples.*.json, or fails if they are other ones.
"""
import json
import pathlib
import re
import sys

from wrap import wrapped

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/beyond.md"


def rows_of(result: dict, which: str) -> dict:
    """Microseconds by shape and variant, late ranks as VARIANT/late:US."""
    rows: dict = {}
    for b in result["benchmarks"]:
        found = re.fullmatch(rf"{which}/(\w+)/W:\d+/([^/]+(?:/(?!late)[^/]+)*)(/late:\d+)?", b["name"])
        if found and "error_message" not in b:
            rows.setdefault(found[2], {})[found[1] + (found[3] or "")] = b["real_time"]
    return rows


def table(result: dict, which: str, key: str, heading: str) -> str:
    lines = [f"| {heading} | kernels alone | eager | graph | fused | graph / fused | a rank 10 us late, graph | fused | 40 us late, graph | fused |",
             "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for shape, t in rows_of(result, which).items():
        late = [f"+{t[f'{v}/late:{us}'] - t[f'{v}/late:0']:.0f}" for us in (10, 40) for v in ("bsp_graph", "fused")]
        value = dict(part.split(":") for part in shape.split("/"))[key]
        lines.append(f"| {value} | {t['local']:.1f} | {t['bsp_eager']:.1f} | {t['bsp_graph']:.1f} | {t['fused']:.1f} | "
                     f"{min(t['bsp_graph'], t['bsp_eager']) / t['fused']:.2f} | " + " | ".join(late) + " |")
    return "\n".join(lines)


def page() -> str:
    text = PAGE.read_text()
    for path in sorted((ROOT / "bench/results").glob("examples.*.json")):
        result = json.loads(path.read_text())
        context = result["context"]
        where = wrapped(f"{context['machine']}, driver {context['driver']}, CUDA {int(context['runtime']) // 1000}.{int(context['runtime']) % 1000 // 10}, commit {context['commit']}. Microseconds.")
        for which, key, heading in (("stencil", "rows", "rows of a rank"), ("embedding", "bags", "bags of a rank")):
            text = re.sub(rf"(<!-- scripts/perf/beyond.py writes this: {which} -->\n).*?(<!-- to here -->)",
                          lambda m: f"{m[1]}{where}\n\n{table(result, which, key, heading)}\n{m[2]}", text, flags=re.DOTALL)
    return text


if sys.argv[1:] == ["--check"]:
    sys.exit(0 if page() == PAGE.read_text() else "docs/beyond.md: other tables than scripts/perf/beyond.py writes")
PAGE.write_text(page())
