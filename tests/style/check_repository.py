"""usage: check_repository.py ROOT

Fails if scripts/Dockerfile does something else than .ci/fresh, as far as both say it in words of their own: the release,
its suites, the locale, the folder, the environment and the command; if CITATION.cff names another version than
version.hpp; or if an issue template lacks what a forge reads of it.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
wrong = []


def find(pattern: str, text: str, where: str) -> tuple[str, ...]:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        wrong.append(f"{where}: nothing matches {pattern}")
    return found.groups() if found else ()


fresh = (root / ".ci/fresh").read_text()
docker = (root / "scripts/Dockerfile").read_text().replace("\\\n", "")
release, locale = find(r"^release=(\S+) locale=(\S+) ", fresh, ".ci/fresh") or ("?", "?.?")
language, _, encoding = locale.partition(".")
folder, = find(r'cd (\S+) && exec', fresh, ".ci/fresh") or ("?",)
variables, = find(r"env -i (.+?) LANG=", fresh, ".ci/fresh") or ("?",)
command, = find(r"^\[ \$# -gt 0 \] \|\| set -- (\S+)$", fresh, ".ci/fresh") or ("?",)
suites, = find(r'^echo "deb \$site \$release (.+?)" >', fresh, ".ci/fresh") or ("?",)
find(r'localedef -i "\$\{locale%\.\*\}" -f "\$\{locale#\*\.\}" "\$locale"', fresh, ".ci/fresh")
for line in (rf"^FROM debian:{release}(-slim)?$",
             rf'echo "deb \$site {release} {re.escape(suites)}" >/etc/apt/sources\.list ',
             rf"localedef -i {language} -f {encoding} {re.escape(locale)}$",
             rf"^COPY \. {folder}$",
             rf"^WORKDIR {folder}$",
             rf"^RUN env -i {re.escape(variables)} LANG={re.escape(locale)} {re.escape(command)}$",
             rf'^CMD \["{re.escape(command)}"\]$'):
    find(line, docker, "scripts/Dockerfile")

ignored = {line.strip("/") for line in (root / ".gitignore").read_text().split() if line.startswith("/")}
left_out = {line.strip("/") for line in (root / "scripts/Dockerfile.dockerignore").read_text().split()}
wrong += [f"scripts/Dockerfile.dockerignore: {name} is copied" for name in sorted((ignored | {".git"}) - left_out)]

number, = find(r"FUSEWIRE_VERSION (\d+)", (root / "include/fusewire/version.hpp").read_text(), "version.hpp") or ("0",)
version = f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"
find(rf"^version: {re.escape(version)}$", (root / "CITATION.cff").read_text(), "CITATION.cff")

templates = sorted((root / ".github/ISSUE_TEMPLATE").glob("*.md"))
if [t.stem for t in templates] != ["bug", "performance", "question"]:
    wrong.append(f"issue templates: {[t.stem for t in templates]}")
for template in templates:
    find(rf"\A---\nname: .+\nabout: .+\ntitle: .*\nlabels: {template.stem}\n---\n", template.read_text(), str(template))

print("\n".join(wrong))
sys.exit(1 if wrong else 0)
