"""usage: check_browser.py REFERENCE [WIDTH]

Opens every page of the reference in the folder REFERENCE in a headless Chromium, WIDTH pixels wide (default: 360, a
phone), and fails if a page is wider than that, a script of it fails, or a link leads to a page or a place that the
browser does not have. 77 without Chromium.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Opens the pages one after the other in a frame, and leaves what it finds as text.
LOOK = """<!doctype html><body><iframe id=f style="width:{width}px;height:800px;border:0"></iframe><pre id=found></pre><script>
const pages = {pages}, frame = document.getElementById('f'), found = {{}};
const one = page => new Promise(done => {{
  const errors = [];
  frame.onload = () => setTimeout(() => {{
    const d = frame.contentDocument, root = d.documentElement;
    found[page] = {{width: root.scrollWidth, errors, text: d.body.innerText.length,
      ids: [...d.querySelectorAll('[id],a[name]')].flatMap(e => [e.id, e.name].filter(x => x)),
      links: [...new Set([...d.querySelectorAll('a[href]')].map(a => a.href).filter(h => h.startsWith('file:')))],
      wide: root.scrollWidth > {width} ? [...d.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > {width})
        .slice(0, 3).map(e => e.tagName + '.' + e.className) : []}};
    done();
  }}, 0);
  frame.src = page;
  frame.contentWindow.onerror = m => errors.push(m);
}});
(async () => {{ for (const p of pages) await one(p); document.getElementById('found').textContent = JSON.stringify(found); }})();
</script></body>"""


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, width = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 360
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        print("skipped: Chromium is not found: apt-get install chromium")
        sys.exit(77)
    pages = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.html"))
    if not pages:
        sys.exit(f"{folder} has no pages; run scripts/reference")
    with tempfile.TemporaryDirectory() as work:
        look = folder / "look-at-all-pages.html"
        look.write_text(LOOK.format(width=width, pages=json.dumps(pages)))
        try:
            dom = subprocess.run(
                [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", f"--user-data-dir={work}",
                 "--window-size=1000,900", "--virtual-time-budget=600000", "--dump-dom", look.as_uri()],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300).stdout
        finally:
            look.unlink()
    text = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    if not text or not text[1]:
        sys.exit("the browser has not come to the last page")
    found = json.loads(text[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    wrong, links = [], 0
    for page, seen in found.items():
        if seen["width"] > width:
            wrong.append(f"{page} is {seen['width']} pixels wide, of {width}: {', '.join(seen['wide'])}")
        if seen["text"] == 0:
            wrong.append(f"{page} shows nothing")
        wrong += [f"{page}: {e}" for e in seen["errors"]]
        for link in seen["links"]:
            links += 1
            target, _, place = link.removeprefix(folder.as_uri() + "/").partition("#")
            if target in found and place and place not in found[target]["ids"]:
                wrong.append(f"{page}: {target} has no place {place}")
            elif target not in found and not (folder / target).exists():
                wrong.append(f"{page}: {target} is not there")
    print("\n".join(wrong))
    version = subprocess.run([browser, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    print(f"{len(found)} pages at {width} pixels in {version}, {links} links: {len(wrong)} things are wrong")
    sys.exit(bool(wrong))


main()
