"""usage: filter.py INCLUDE OUTPUT

Writes what Doxygen reads instead of the headers in INCLUDE, line by line the same code. The headers are written to be
read as they are; here

  - the comment at the head of a file documents the file;
  - a comment behind a declaration documents it, each of its names where it declares several;
  - what a file declares belongs to the group of its folder: its floor;
  - of a class whose comment begins with the name of a concept ("A tile source"), the members that the concept's comment
    or its requirements name have a sentence that leads there;
  - bodies of functions go, because Doxygen takes calls and lambdas for declarations; so does what is private, of which
    it says that it is there, and macros that their file undefines.
"""
import pathlib
import re
import sys

FLOORS = {"core", "platform", "device", "arch", "ranks", "memory", "launch", "gemm", "attention", "comm", "ops"}
# Comments, literals, directives and braces, in the order in which the text has them.
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    r"|^ *#(?:[^\n]*\\\n)*[^\n]*|^ *(?:public|protected|private):|[{};]",
    re.DOTALL | re.MULTILINE,
)
TEMPLATE = re.compile(r"\btemplate *<[^;{}]*?>(?= *(?:\n|requires|struct|class|inline|concept|using|\w))", re.DOTALL)
CONCEPT = re.compile(r"((?:^ *///[^\n]*\n)+)template <class \w+>\nconcept (\w+) =(.*?)\n\n", re.DOTALL | re.MULTILINE)
FIELD = re.compile(
    r"^( *)((?:static |inline |constexpr |mutable )*(?!using|struct|class|template|friend|return)[\w:]+(?:<[\w:, *]*>)?(?: const)?)"
    r" ([*\w][^{};]*)(; *)(///<.*)?$"
)


def opens_scope(statement: str) -> bool:
    """Whether the brace behind this text opens something that declares names, and not a body or a value."""
    statement = re.sub(r"\balignas\([^)]*\)", "", TEMPLATE.sub("", statement))
    return re.search(r"\b(?:namespace|struct|class|union|enum|extern)\b", statement) is not None and not re.search(
        r"[(=]", statement
    )


def is_function(statement: str) -> bool:
    """Whether the brace behind this text opens the body of a function."""
    return "(" in statement and not re.search(
        r"\bconcept\b|(?<![=!<>])=(?!=)(?![^(]*\))[^(]*$", statement
    )


def as_comment(line: str) -> str:
    """A line of a contract: tags of HTML are none, and what is required begins a line."""
    line = re.sub(r"<(?=[A-Za-z/])", "\\<", line) if "`" not in line else line
    return re.sub(r"(?:^| )(Called by|Order|Requires|Fails):", r" <br>**\1:**", line)


def without_bodies(text: str, floor: str) -> str:
    undefined = set(re.findall(r"^ *#undef (\w+)", text, re.MULTILINE))
    out: list[str] = []
    scopes: list[list] = []  # what opened them, and whether what comes is private
    statement, at, depth, body, grouped = "", 0, 0, False, False  # depth: of braces since a body or a value began
    for token in TOKEN.finditer(text):
        code, word, at = text[at : token.start()], token.group(), token.end()
        hidden = (depth > 0 and body) or any(private for _, private in scopes)
        out.append("\n" * code.count("\n") if hidden else code)
        if not depth:
            statement += code
        if word == "{":
            if depth:
                depth += 1
            elif opens_scope(statement):
                is_class = re.search(r"\bclass\b", TEMPLATE.sub("", statement)) and "enum" not in statement
                if "namespace fusewire" in statement and floor and not grouped:
                    word += f" /** \\addtogroup {floor} */ /** @{{ */"
                    grouped = True
                scopes.append([statement, bool(is_class)])
                statement = ""
            else:
                depth, body = 1, is_function(statement)
        elif word == "}":
            if depth:
                depth -= 1
                hidden = hidden and (depth > 0 or any(private for _, private in scopes))
                if not depth and body:
                    statement = ""
            elif scopes:
                if len(scopes) == 1 and grouped:
                    word, grouped = "/** @} */ }", False
                scopes.pop()
                hidden = any(private for _, private in scopes)
                statement = ""
        elif word == ";":
            statement = statement if depth else ""
        elif re.fullmatch(r" *\w+:", word) and not depth:
            scopes[-1][1] = "private" in word
            hidden, statement = any(private for _, private in scopes), ""
        elif word.startswith("///"):
            word = "///" + as_comment(word[3:])
        elif word.startswith("//"):
            line = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
            behind = not depth and scopes and line.strip() and not re.match(r" *}+;?$", line.rstrip())
            word = "///< " + as_comment(word[2:].strip()) if behind else ""
        elif word.lstrip().startswith("#"):
            macro = re.match(r" *#(?:define|undef) (\w+)", word)
            word = "\n" * word.count("\n") if macro and macro.group(1) in undefined else word
        elif not depth:
            statement += word
        out.append("\n" * word.count("\n") if hidden else word)
    # What the compiler writes needs no words
    return re.sub(r"^[^\n;{}]*= default;[^\n]*$", "", "".join(out) + text[at:], flags=re.MULTILINE)


def declarators(names: str) -> list[str]:
    """`a = f(1, 2), *b` as its parts."""
    parts, depth = [""], 0
    for c in names:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def name_of(statement: str) -> str:
    """The name that a declaration in a class declares first, or nothing."""
    statement = TEMPLATE.sub("", statement)
    alias = re.match(r"\s*using (\w+) =|\s*(?:struct|class) (\w+)", statement)
    if alias:
        return alias.group(1) or alias.group(2)
    named = re.search(r"(operator *(?:\(\)|[^\s(]+)|\w+) *\(", statement) or re.search(
        r"(\w+)(?:\[[^\]]*\])*\s*(?:=|;|$|{|,)", statement
    )
    return named.group(1).replace(" ", "") if named else ""


def documented(text: str, concepts: dict[str, set[str]]) -> str:
    """A comment for every name of a declaration, and for what a concept names."""
    out: list[str] = []
    comment: list[str] = []
    models: list[tuple[int, str]] = []  # the depths at which members begin, and of which concept the class is
    statement, first, depth = "", 0, 0
    for line in text.split("\n"):
        bare = re.sub(r"///.*|/\*\*.*?\*/", "", line)
        if line.lstrip().startswith("///"):
            comment.append(line.strip()[3:].strip())
            out.append(line)
            continue
        if not statement.strip():
            statement, first = "", len(out)
        statement += bare + "\n"
        concept = models[-1][1] if models else ""
        from_concept = f"As the concept {concept} has it."
        field = FIELD.match(line) if statement.strip() == bare.strip() else None
        names = declarators(field.group(3)) if field else []
        if field and len(names) > 1 and all(re.match(r"\*?\w+(\[.*\])* *(=|$)", n) for n in names):
            said = field.group(5)[4:].strip() if field.group(5) else " ".join(comment)
            parts = []
            for i, n in enumerate(names):
                of_this = said or (from_concept if concept and re.match(r"\*?(\w+)", n).group(1) in concepts[concept] else "")
                behind = bool(field.group(5)) or not comment or i > 0
                parts.append((f"/** {of_this} */ " if of_this and behind else "") + f"{field.group(2)} {n};")
            line = field.group(1) + " ".join(parts)
        out.append(line)
        if re.search(r"[;{}]$|^ *(?:public|protected|private):$|^$", bare.rstrip()):
            named = concept and name_of(statement) in concepts[concept]
            if named and not field_documents(line) and not comment:
                out[first] = re.sub(r"^( *)", rf"\1/** {from_concept} */ ", out[first])
            declared = re.search(r"\b(?:struct|class) (\w+)[^;]*{", TEMPLATE.sub("", statement))
            if declared:
                begin = " ".join(comment).lower()
                of = next((c for c in concepts if re.match(rf"an? {c.replace('_', ' ')}\b", begin)), concept)
                if of:
                    models.append((depth + 1, of))
            comment, statement = [], ""
        depth += bare.count("{") - bare.count("}")
        while models and depth < models[-1][0]:
            models.pop()
    return "\n".join(out)


def field_documents(line: str) -> bool:
    return "///<" in line or "/**" in line


def for_doxygen(text: str, floor: str, concepts: dict[str, set[str]]) -> str:
    head = re.match(r"(?://[^\n]*\n)+", text)
    lines = head.group().splitlines() if head else []
    rest = documented(without_bodies(text[head.end() if head else 0 :], floor), concepts)
    if not lines:
        return rest
    # What is indented is a figure
    told = ["/// " + (f"    {line[2:]}" if line.startswith("//  ") else as_comment(line[2:].strip())) for line in lines]
    # In the place of #pragma once, so that lines keep their numbers
    return "\n".join(["/// \\file", *told]) + "\n" + rest.removeprefix("#pragma once\n")


def main(include: pathlib.Path, output: pathlib.Path) -> None:
    headers = {header: header.read_text() for header in sorted(include.rglob("*.hpp"))}
    concepts = {}
    for text in headers.values():
        for comment, name, body in CONCEPT.findall(text):
            concepts[name] = set(re.findall(r"(operator\(\)|\w+(?=[(:,<>])|\w+_\w+)", comment)) | set(
                re.findall(r"(?:\.|::)(?:template )?(\w+)", body)
            )
    for header, text in headers.items():
        to = output / header.relative_to(include)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(for_doxygen(text, next((p.name for p in header.relative_to(include).parents if p.name in FLOORS), ""), concepts))


main(*map(pathlib.Path, sys.argv[1:]))
