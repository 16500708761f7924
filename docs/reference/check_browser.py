"""usage: check_browser.py REFERENCE [WIDTH]

Opens every page of the reference in the folder REFERENCE in a headless Chromium, WIDTH pixels wide (default: 360, a
phone), and fails if a page is wider than that, a script of it fails, or a link leads to a page or a place that the
browser does not have. 77 without Chromium. It tries itself first, on pages with each of these mistakes.
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Opens the pages one after the other in a frame, and leaves what it finds as text.
LOOK = """<!doctype html><body><iframe id=f style="width:WIDTHpx;height:800px;border:0"></iframe><pre id=found></pre>
<script>
const frame = document.getElementById('f'), found = {};
const look = page => new Promise(done => {
  frame.onload = () => setTimeout(() => {
    const d = frame.contentDocument, width = d.documentElement.scrollWidth;
    const all = (what, of) => [...d.querySelectorAll(what)].flatMap(of);
    found[page] = {
      width, text: d.body.innerText.length,
      ids: all('[id],a[name]', e => [e.id, e.name].filter(x => x)),
      links: [...new Set(all('a[href]', a => a.href))].filter(h => h.startsWith('file:')),
      wide: width <= WIDTH ? [] : all('body *', e => e.getBoundingClientRect().right > WIDTH ? [e.tagName] : [])
    };
    done();
  }, 0);
  frame.src = page;
});
(async () => {
  for (const page of PAGES) await look(page);
  document.getElementById('found').textContent = JSON.stringify(found);
})();
</script></body>"""


def look(browser: str, folder: pathlib.Path, width: int) -> tuple[list[str], int, int]:
    """What is wrong with the pages; how many pages and links there are."""
    pages = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.html"))
    with tempfile.TemporaryDirectory() as profile:
        page = folder / "look-at-all-pages.html"
        page.write_text(LOOK.replace("WIDTH", str(width)).replace("PAGES", json.dumps(pages)))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom",
                   "--enable-logging=stderr", "--virtual-time-budget=600000", f"--user-data-dir={profile}"]
        try:
            done = subprocess.run([browser, *options, page.as_uri()], capture_output=True, text=True, timeout=300)
        finally:
            page.unlink()
    text = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    if not text:
        sys.exit(f"{browser} has not come to the last of {len(pages)} pages: {done.stderr[-300:]}")
    found, links = json.loads(html.unescape(text[1])), 0
    wrong = sorted(set(re.findall(r"Uncaught [^\n]*", done.stderr)))
    for page, seen in found.items():
        if seen["width"] > width:
            wrong.append(f"{page} is {seen['width']} pixels wide, of {width}: {', '.join(seen['wide'][:3])}")
        if seen["text"] == 0:
            wrong.append(f"{page} shows nothing")
        for link in seen["links"]:
            links += 1
            target, _, place = link.removeprefix(folder.as_uri() + "/").partition("#")
            if target in found and place and place not in found[target]["ids"]:
                wrong.append(f"{page}: {target} has no place {place}")
            elif target not in found and not (folder / target).exists():
                wrong.append(f"{page}: {target} is not there")
    return wrong, len(found), links


PLANTED = {  # page, and what has to be found
    "wide.html": ("<p style='width:2000px'>x</p>", "wide.html is "),
    "empty.html": ("", "empty.html shows nothing"),
    "script.html": ("x<script>nothing_of_this_name();</script>", "nothing_of_this_name"),
    "page.html": ("<a href='none.html'>x</a>", "none.html is not there"),
    "place.html": ("<a href='page.html#none'>x</a>", "page.html has no place none"),
}


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, width = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 360
    if not (folder / "index.html").exists():
        sys.exit(f"{folder} has no index.html; scripts/reference makes it")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        print("skipped: Chromium is not found: apt-get install chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as planted:
        for name, (body, _) in PLANTED.items():
            (pathlib.Path(planted) / name).write_text(f"<!doctype html><body>{body}</body>")
        said = look(browser, pathlib.Path(planted).resolve(), width)[0]
    wrong = [f"planted, and not found: {what}" for _, what in PLANTED.values() if not any(what in s for s in said)]
    if len(said) != len(PLANTED):
        wrong.append(f"of {len(PLANTED)} planted mistakes it says: {said}")
    more, pages, links = look(browser, folder, width)
    wrong += more
    version = subprocess.run([browser, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    print("\n".join([*wrong, f"{pages} pages at {width} pixels, {version}, {links} links: {len(wrong)} things wrong"]))
    sys.exit(bool(wrong))


main()
