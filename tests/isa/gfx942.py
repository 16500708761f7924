"""gfx942 code as the checks here read it: functions, their instructions, and how control goes between them. From assembly (clang -S), and from
executables and objects, whose code objects llvm-objdump takes apart."""
import re
import shutil
import struct
import subprocess
import tempfile

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


class Instruction:
    __slots__ = ("text", "op", "args", "line", "next")

    def __init__(self, text, line=""):
        self.text, self.line, self.next = text, line, []
        self.op, _, rest = text.partition(" ")
        self.args = [a.strip() for a in re.split(r",(?![^\[]*\])", rest)] if rest else []
        if self.args:  # "v[0:1] offset:8 sc0": what follows the last register
            self.args[-1:] = self.args[-1].split()

    def bits(self):
        """sc0 and sc1, where they are set."""
        return {a for a in self.args if a in ("sc0", "sc1")}


class Function:
    """Instructions in order; each knows the indices of those that may come next. `kernel`: the host can start it."""

    def __init__(self, name, instructions, labels, kernel):
        self.name, self.code, self.kernel = name, instructions, kernel
        for i, x in enumerate(instructions):
            branch = re.match(r"s_c?branch", x.op)
            if branch:
                x.next = [labels[x.args[0]]]
            if not (x.op == "s_branch" or x.op.startswith(("s_endpgm", "s_setpc"))) and i + 1 < len(instructions):
                x.next.append(i + 1)

    @property
    def text_of_code(self):
        return "\n".join(x.text for x in self.code)


def readable(name):
    """The name as it is written in C++, where there is a tool that knows."""
    tool = shutil.which("llvm-cxxfilt") or shutil.which("c++filt")
    return subprocess.run([tool, name], capture_output=True, text=True).stdout.strip() if tool else name


def from_assembly(text):
    """With an instruction `wave_barrier` for each meeting of a wave, which assembly notes and a program does not have."""
    kernels = set(re.findall(r"^\s+\.amdhsa_kernel (\S+)", text, re.M))
    for name, body in re.findall(r"^([\w.$]+):[^\n]*; @\1\n(.*?)^\.Lfunc_end", text, re.S | re.M):
        instructions, labels, line = [], {}, ""
        for row in body.split("\n"):
            if m := re.match(r"(\.L\w+):", row):
                labels[m[1]] = len(instructions)
            elif m := re.match(r"\s+\.loc\s.*; (\S+)", row):
                line = m[1]
            elif re.match(r"\s+; wave barrier", row):
                instructions.append(Instruction("wave_barrier", line))
            elif m := re.match(r"\s+([a-z]\w+.*?)\s*(;.*)?$", row):
                instructions.append(Instruction(re.sub(r"\s+", " ", m[1]), line))
        yield Function(name, instructions, labels, name in kernels)


def from_disassembly(text):
    for name, body in re.findall(r"^[0-9a-f]+ <([^>]+)>:\n(.*?)(?=^[0-9a-f]+ <|\Z)", text, re.S | re.M):
        if name.endswith(".kd"):
            continue
        instructions, labels = [], {}
        start = None
        for m in re.finditer(r"^\s+([a-z]\w+[^\n]*?)\s*// ([0-9A-F]+):[^\n<]*(?:<[^>+]+(?:\+0x([0-9a-f]+))?>)?", body, re.M):
            address = int(m[2], 16)
            start = address if start is None else start
            labels[f"@{address - start:x}"] = len(instructions)
            code = re.sub(r"\s+", " ", m[1])
            if re.match(r"s_c?branch", code):
                code = f"{code.split()[0]} @{m[3] or '0'}"
            instructions.append(Instruction(code))
        while instructions and instructions[-1].op in ("s_nop", "s_code_end"):
            instructions.pop()  # what fills the space up to the next function
        yield Function(name, instructions, labels, True)


def code_objects(data):
    """The gfx942 code objects in a file's bytes."""
    at = -1
    while (at := data.find(BUNDLE, at + 1)) >= 0:
        count, = struct.unpack_from("<Q", data, at + len(BUNDLE))
        entry = at + len(BUNDLE) + 8
        for _ in range(count if count < 64 else 0):
            offset, size, length = struct.unpack_from("<QQQ", data, entry)
            if b"gfx942" in data[entry + 24:entry + 24 + length]:
                yield data[at + offset:at + offset + size]
            entry += 24 + length


def functions(path, objdump="llvm-objdump"):
    """All functions in a file of assembly, an executable, an object or a code object."""
    data = open(path, "rb").read()
    if not data.startswith(b"\x7fELF"):
        yield from from_assembly(data.decode())
        return
    for code in list(code_objects(data)) or [data]:
        with tempfile.NamedTemporaryFile(suffix=".co") as f:
            f.write(code)
            f.flush()
            text = subprocess.run([objdump, "-d", "--mcpu=gfx942", f.name], check=True, capture_output=True, text=True).stdout
        yield from from_disassembly(text)
