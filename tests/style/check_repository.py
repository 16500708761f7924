"""usage: check_repository.py ROOT

Fails if scripts/Dockerfile starts another command than the one that it has tried (.ci/fresh runs what else it says), or
copies what git ignores; if CITATION.cff or CHANGELOG.md names another version than version.hpp; if the workflow does
not start .ci/run; or if an issue template lacks what a forge reads of it.
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


docker = (root / "scripts/Dockerfile").read_text().replace("\\\n", "")
command, = find(r"^RUN env -i .* (\S+)$", docker, "scripts/Dockerfile") or ("?",)
find(rf'^CMD \["{re.escape(command)}"\]$', docker, "scripts/Dockerfile")

ignored = {line.strip("/") for line in (root / ".gitignore").read_text().split() if line.startswith("/")}
left_out = {line.strip("/") for line in (root / "scripts/Dockerfile.dockerignore").read_text().split()}
wrong += [f"scripts/Dockerfile.dockerignore: {name} is copied" for name in sorted((ignored | {".git"}) - left_out)]

number, = find(r"FUSEWIRE_VERSION (\d+)", (root / "include/fusewire/version.hpp").read_text(), "version.hpp") or ("0",)
version = f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"
find(rf"^version: {re.escape(version)}$", (root / "CITATION.cff").read_text(), "CITATION.cff")
find(rf"\A# Changes\n(?:(?!^## ).*\n)*^## {re.escape(version)}$", (root / "CHANGELOG.md").read_text(), "CHANGELOG.md")
find(r"^      - run: \.ci/run$", (root / ".github/workflows/ci.yml").read_text(), ".github/workflows/ci.yml")

templates = sorted((root / ".github/ISSUE_TEMPLATE").glob("*.md"))
if [t.stem for t in templates] != ["bug", "performance", "question"]:
    wrong.append(f"issue templates: {[t.stem for t in templates]}")
for template in templates:
    find(rf"\A---\nname: .+\nabout: .+\ntitle: .*\nlabels: {template.stem}\n---\n", template.read_text(), str(template))

print("\n".join(wrong))
sys.exit(1 if wrong else 0)
