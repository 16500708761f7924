"""usage: fusewire-sim --processes N python3 c_interface_test.py LIBRARY

The C functions behind the package for torch, called by ctypes, without torch and on simulated GPUs: every process is a
rank. LIBRARY is compiled from python/csrc without torch_library.cpp. Custom epilogues and kernels are compiled by
FUSEWIRE_COMPILER; without it they are left out.
"""
from __future__ import annotations

import array
import ctypes
import functools
import math
import multiprocessing.connection
import operator
import os
import pathlib
import random
import struct
import sys
import tempfile
import time

sys.modules["torch"] = None  # the package without torch, also where torch is installed
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import fusewire  # noqa: E402
from fusewire import _compiler, _interface  # noqa: E402

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MAX_M, MAX_K, MAX_N = 8 * RANKS, 128, 32 * RANKS
REDUCE_ROWS, REDUCE_COLS, MAX_BYTES = 4, 64, 512
TOKENS = 6  # of a rank, at most
BF16, F16, F32 = range(3)


# ---------------------------------------------------------------- ranks that meet

class Star:
    """All-gathers over connections between rank 0 and every other rank."""

    def __init__(self):
        address, key = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), b"c_interface_test"
        if RANK == 0:
            with multiprocessing.connection.Listener(address, backlog=RANKS, authkey=key) as listener:
                came = [listener.accept() for _ in range(RANKS - 1)]
            self.peers = dict((c.recv(), c) for c in came)
        else:
            self.zero = self.connect(address, key)
            self.zero.send(RANK)

    @staticmethod
    def connect(address, key):
        for _ in range(200):
            try:
                return multiprocessing.connection.Client(address, authkey=key)
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise TimeoutError("rank 0 does not listen")

    def all_gather(self, mine: bytes) -> list[bytes]:
        if RANK != 0:
            self.zero.send(mine)
            return self.zero.recv()
        parts = [mine] + [self.peers[r].recv() for r in range(1, RANKS)]
        for peer in self.peers.values():
            peer.send(parts)
        return parts

    def functions(self):
        def all_gather(mine, size, out, why, why_size):
            parts = self.all_gather(ctypes.string_at(mine, size) if size else b"")
            if any(len(part) != size for part in parts):
                ctypes.memmove(why, b"ranks gather different things\0", 30)
                return 2
            ctypes.memmove(out, b"".join(parts), size * RANKS)
            return 0
        return _interface.AllGather(all_gather), _interface.Fail(lambda why: None)


# ---------------------------------------------------------------- memory of the GPU

library = _interface.declare(ctypes.CDLL(sys.argv[1]))
hip = ctypes.CDLL("libamdhip64.so.7")
call = functools.partial(_interface.call, library)


def check_hip(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"HIP: error {status}")


class Buffer:
    """16-bit words on the GPU."""

    def __init__(self, words: int, fill: int = 0xffff):
        self.words, self.at = words, ctypes.c_void_p()
        check_hip(hip.hipMalloc(ctypes.byref(self.at), ctypes.c_size_t(2 * max(1, words))))
        self.write(array.array("H", [fill]) * words)

    def write(self, words: array.array) -> None:
        check_hip(hip.hipMemcpy(self.at, ctypes.c_char_p(words.tobytes()), ctypes.c_size_t(2 * len(words)), 1))

    def read(self) -> array.array:
        found = ctypes.create_string_buffer(2 * self.words)
        check_hip(hip.hipMemcpy(found, self.at, ctypes.c_size_t(2 * self.words), 2))
        return array.array("H", found.raw)

    def __del__(self):
        hip.hipFree(self.at)


class Handle(ctypes.Structure):
    """hipIpcMemHandle_t."""
    _fields_ = [("reserved", ctypes.c_char * 64)]


class Mapped:
    """Memory of every rank, mapped into this process, as torch's symmetric memory is."""

    def __init__(self, star: Star, size: int):
        own, handle = ctypes.c_void_p(), Handle()
        check_hip(hip.hipMalloc(ctypes.byref(own), ctypes.c_size_t(size)))
        if RANKS > 1:
            check_hip(hip.hipIpcGetMemHandle(ctypes.byref(handle), own))
        self.of = (ctypes.c_void_p * RANKS)()
        for rank, theirs in enumerate(star.all_gather(bytes(handle))):
            at = own
            if rank != RANK:
                at = ctypes.c_void_p()
                check_hip(hip.hipIpcOpenMemHandle(ctypes.byref(at), Handle.from_buffer_copy(theirs), 1))
            self.of[rank] = at

    def close(self, star: Star) -> None:
        for rank in range(RANKS):
            if rank != RANK:
                check_hip(hip.hipIpcCloseMemHandle(ctypes.c_void_p(self.of[rank])))
        star.all_gather(b"")
        check_hip(hip.hipFree(ctypes.c_void_p(self.of[RANK])))


def to_bf16(x: float) -> int:
    """Of numbers that bfloat16 has."""
    return struct.unpack("<HH", struct.pack("<f", x))[1]


def from_bf16(word: int) -> float:
    return struct.unpack("<f", struct.pack("<HH", 0, word))[0]


class Matrix:
    """Rows of numbers, and their copy on the GPU, `gap` words apart."""

    def __init__(self, rows: list[list[float]], gap: int = 0, columns: int = 0):
        self.rows, self.columns = rows, len(rows[0]) if rows else columns
        self.ld = self.columns + gap
        words = array.array("H")
        for row in rows:
            words.extend(map(to_bf16, row))
            words.extend([0x7fc0] * gap)  # NaN, which nobody may read
        self.buffer = Buffer(len(words))
        self.buffer.write(words)

    def view(self) -> _interface.Matrix:
        return _interface.Matrix(self.buffer.at, len(self.rows), self.columns, self.ld)


def empty(rows: int, columns: int) -> Matrix:
    return Matrix([[math.nan] * columns for _ in range(rows)], columns=columns)


def found(m: Matrix) -> list[list[float]]:
    words = m.buffer.read()
    return [[from_bf16(w) for w in words[r * m.ld:r * m.ld + m.columns]] for r in range(len(m.rows))]


def numbers(rows: int, columns: int, seed: int) -> list[list[float]]:
    """-2 to 2: their sums of products are exact."""
    some = random.Random(seed)
    return [some.choices((-2.0, -1.0, 0.0, 1.0, 2.0), k=columns) for _ in range(rows)]


def product(x: list[list[float]], w: list[list[float]]) -> list[list[float]]:
    return [[sum(map(operator.mul, a, b)) for b in w] for a in x]


def expect(what: str, found_value, wanted) -> None:
    if found_value != wanted:
        raise AssertionError(f"rank {RANK}: {what}: {str(found_value)[:400]}\nexpected {str(wanted)[:400]}")


def expect_error(kind: type, part: str, name: str, *arguments) -> None:
    try:
        call(name, *arguments)
    except fusewire.Error as problem:
        expect(f"{name}: kind of '{problem}'", type(problem), kind)
        if part not in str(problem):
            raise AssertionError(f"'{part}' is not in '{problem}'") from None
        return
    raise AssertionError(f"rank {RANK}: {name} was accepted; expected {kind.__name__}, {part}")


# ---------------------------------------------------------------- the tests

def options(star: Star, **changed) -> _interface.Options:
    shapes = (_interface.DecodeOptions * 2)((BF16, 2, 4, 2, 64, 8, 3, 0.0), (BF16, 2, 4, 2, 64, 8, 3, 0.0, True, True, True))
    fields = {"max_m": MAX_M, "max_k": MAX_K, "max_n": MAX_N, "reduce_rows": REDUCE_ROWS, "reduce_cols": REDUCE_COLS,
              "max_bytes": MAX_BYTES, **changed}
    experts = _interface.ExpertShape(TOKENS, 2 * RANKS, 2, 64, 0, 4) if fields["max_bytes"] else _interface.ExpertShape()
    o = _interface.Options(RANK, RANKS, RANK, *fields.values(), 20.0, *star.functions(), shapes, 2, experts, False)
    o.kept = shapes
    return o


def shapes_of(kind: str, rows: int, n: int) -> tuple[int, int, int]:
    """Rows of x; rows and columns of y."""
    return {"ag_gemm": (rows, rows * RANKS, n), "gemm_rs": (rows * RANKS, rows, n), "gemm_ar": (rows, rows, n),
            "gemm_all_scatter": (rows, rows, n * RANKS)}[kind]


def wanted_of(kind: str, xs: list, ws: list) -> list[list[float]]:
    if kind == "ag_gemm":
        return product(sum(xs, []), ws[RANK])
    each = [product(x, w) for x, w in zip(xs, ws)]
    if kind == "gemm_all_scatter":
        return [sum(rows, []) for rows in zip(*each)]
    total = [[sum(c) for c in zip(*rows)] for rows in zip(*each)]
    part = len(total) // RANKS
    return total[RANK * part:(RANK + 1) * part] if kind == "gemm_rs" else total


def one_product(kind: str, rows: int, n: int, k: int, transposed: bool = False, gathered: bool = False,
                gap: int = 0, group: bytes = b"all", x_at: int | None = None) -> None:
    what = f"{kind}, {rows} rows, n = {n}, k = {k}, transposed {transposed}, gathered {gathered}, gap {gap}, x at {x_at}"
    x_rows, y_rows, y_columns = shapes_of(kind, rows, n)
    xs, ws = ([numbers(r, k, seed + 31 * rank) for rank in range(RANKS)] for r, seed in ((x_rows, 1), (n, 2)))
    x, y = Matrix(xs[RANK], gap, k), empty(y_rows, y_columns)
    w = Matrix([list(column) for column in zip(*ws[RANK])] if transposed else ws[RANK], gap)
    whole = empty(rows * RANKS, k)
    c = _interface.ProductCall(None, BF16, x.view(), w.view(), y.view(),
                               whole.view() if gathered else _interface.Matrix(), w_is_transposed=transposed)
    if x_at is not None:
        check_hip(hip.hipMemcpy(ctypes.c_void_p(x_at), x.buffer.at, ctypes.c_size_t(2 * x.buffer.words), 3))
        c.x.data = x_at
    size = ctypes.c_size_t()
    call("scratch_bytes", group, _interface.KINDS[kind], ctypes.byref(c), ctypes.byref(size))
    through_scratch = kind in ("ag_gemm", "gemm_rs") and rows > MAX_M // RANKS
    expect(what + ": scratch memory", size.value > 0, through_scratch)
    if through_scratch:
        expect_error(fusewire.BadArgument, "no scratch memory", "product", group, _interface.KINDS[kind],
                     ctypes.byref(c))
    scratch = Buffer(size.value // 2)
    c.scratch = scratch.at
    call("product", group, _interface.KINDS[kind], ctypes.byref(c))
    call("check", group, None)
    expect(what, found(y), wanted_of(kind, xs, ws))
    if gathered:
        expect(what + ": x", found(whole), sum(xs, []))


def products() -> None:
    for kind in _interface.KINDS:
        for rows, n in ((8, 24), (2, 8), (1, 32), (19, 16), (MAX_M + 5, 8)):
            one_product(kind, rows, n, 64)
        one_product(kind, 4, 16, 64, transposed=True, gap=8)
        one_product(kind, 11, 16, 128, gap=8)  # another k; x with gaps, in several launches
    for rows, n in ((8, 16), (3, 3), (1, 1), (19, 8)):  # 3 and 1 columns: how all_gather asks for little
        one_product("ag_gemm", rows, n, 64, gathered=True)
        one_product("ag_gemm", rows, n, 64, gathered=True, gap=8)
    one_product("ag_gemm", 0, 8, 64)


def custom_epilogues(star: Star) -> None:
    """Of each operator; what does not compile is said, and the call after it works."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FUSEWIRE_CACHE"] = star.all_gather(folder.encode())[0].decode()  # one for all
        kernels = _compiler.Kernels(fusewire.include(), hip=True)
        library.fusewire_set_find_kernel(kernels.function)
        fields = (("bias", _compiler.POINTER), ("scale", _compiler.NUMBER))
        right = kernels.add(_compiler.Source("return x > 0 ? x * scale + float(bias[column]) : row;", fields))
        wrong = kernels.add(_compiler.Source("return x + no_such_thing;", ()))
        n, k, rows = 8, 64, 8
        bias = Matrix(numbers(1, n, 8))
        for kind, number in _interface.KINDS.items():
            x_rows, y_rows, y_columns = shapes_of(kind, rows, n)
            xs, ws = ([numbers(r, k, seed + 31 * rank) for rank in range(RANKS)] for r, seed in ((x_rows, 1), (n, 2)))
            x, y, w = Matrix(xs[RANK]), empty(y_rows, y_columns), Matrix(ws[RANK])
            c = _interface.ProductCall(None, BF16, x.view(), w.view(), y.view())
            c.custom.number = wrong
            if kind == "ag_gemm":
                expect_error(fusewire.BadArgument, "no_such_thing", "product", b"all", number, ctypes.byref(c))
            c.custom.number = right
            ctypes.memmove(c.custom.values, struct.pack("<Qf", bias.buffer.at.value, 2.0), 12)
            for _ in range(2):
                call("product", b"all", number, ctypes.byref(c))
            call("check", b"all", None)
            wanted = [[e * 2 + bias.rows[0][i % n] if e > 0 else float(r) for i, e in enumerate(row)]
                      for r, row in enumerate(wanted_of(kind, xs, ws))]
            expect(f"{kind} with an epilogue", found(y), wanted)
        many = Matrix(numbers(MAX_M + 8, k, 1))
        c = _interface.ProductCall(None, BF16, many.view(), w.view(), empty(MAX_M + 8, n).view())
        c.custom.number = right
        expect_error(fusewire.BadArgument, "rows of one launch", "product", b"all", _interface.KINDS["gemm_ar"],
                     ctypes.byref(c))
        star.all_gather(b"")  # rank 0 removes the folder


# Every rank gets all ranks' x, row s that of rank s, times `factor`; each block exchanges a part of the columns
EXCHANGE = """
template <class T>
__device__ void exchange(channel_view const& ch, T const* x, matrix<T> y, int n, T factor) {
  block const b;
  channel_epoch const e = ch.begin(b);
  int const ranks = ch.world.size(), part = (n + b.count() - 1) / b.count(), first = min(n, part * b.index()),
            count = min(n - first, part);
  for (int i = 0; i < ranks; ++i) {
    int const peer = ch.world.next(i);
    copy(b, x + first, e.inbox<T>(peer) + ch.world.rank() * n + first, count);
    e.signal(b, peer, b.index());
  }
  for (int source = 0; source < ranks; ++source) {
    e.wait(b, source, b.index());
    for (int c = b.rank(); c < count; c += b.size())
      y(source, first + c) = e.inbox<T>()[source * n + first + c] * factor;
  }
  e.end(b);
}
__global__ void of_integers(channel_view ch, int const* x, matrix<int> y, int n, int factor) {
  exchange(ch, x, y, n, factor);
}
__global__ void of_floats(channel_view ch, float const* x, matrix<float> y, long long n, float factor, bool twice) {
  exchange(ch, x, y, int(n), twice ? 2 * factor : factor);
}"""


class OwnKernel:
    """As Kernel of fusewire/_kernels.py, for plain memory."""

    def __init__(self, name: str, max_bytes: int, flags: int, **changed):
        self.code = _compiler.CompiledKernel(_compiler.KernelSource(name, EXCHANGE), fusewire.include(), hip=True)
        fields = {"kernel": self.code.address, "parameters": self.code.parameters_address, "name": name.encode(),
                  "source": self.code.hash, "max_bytes": max_bytes, "flags_per_source": flags, **changed}
        self.number = ctypes.c_int()
        call("make_kernel", b"all", ctypes.byref(_interface.KernelOptions(*fields.values())), ctypes.byref(self.number))

    def call_of(self, x: Buffer, y: Buffer, n: int, integers: list[int], floats: list[float], blocks: int = 3,
                gap: int = 0) -> _interface.KernelCall:
        arrays = ((_interface.Matrix * 1)((x.at, 1, n, n)), (_interface.Matrix * 1)((y.at, RANKS, n, n + gap)),
                  (ctypes.c_int64 * len(integers))(*integers), (ctypes.c_double * len(floats))(*floats))
        c = _interface.KernelCall(None, self.number, blocks, 128, 0, *arrays, 1, 1, len(integers), len(floats),
                                  (n, 0, 0, 0))
        c.kept = arrays
        return c


def own_kernels(star: Star) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FUSEWIRE_CACHE"] = star.all_gather(folder.encode())[0].decode()  # one for all
        expect("parameters", [str(p) for p in _compiler.CompiledKernel(
            _compiler.KernelSource("of_floats", EXCHANGE), fusewire.include(), hip=True).parameters],
            ["float32 const*", "matrix<float32>", "int64", "float32", "bool"])
        for why, body in (("no_such_thing", "__global__ void k(channel_view ch, int* y) { no_such_thing(); }"),
                          ("first parameter", "__global__ void k(int* y, channel_view ch) {}"),
                          ("then numbers", "struct s {};\n__global__ void k(channel_view ch, s y) {}")):
            try:
                _compiler.CompiledKernel(_compiler.KernelSource("k", body), fusewire.include(), hip=True)
                expect(f"'{why}' was compiled", True, False)
            except fusewire.BadArgument as problem:
                expect(f"'{why}' in '{problem}'", why in str(problem), True)
        n, gap = 37, 3
        two = OwnKernel("of_integers", RANKS * n * 4, 3), OwnKernel("of_floats", RANKS * n * 4, 3)
        star.all_gather(b"")
        x, y = Buffer(2 * n), Buffer(2 * RANKS * (n + gap))
        for launch in range(5):
            for kernel, pack in zip(two, "if"):
                rows = [[(r * 50 + i + launch) % 97 - 40 for i in range(n)] for r in range(RANKS)]
                x.write(array.array("H", struct.pack(f"<{n}{pack}", *rows[RANK])))
                y.write(array.array("H", struct.pack("<i", -1)) * (RANKS * (n + gap)))
                numbers_of = ([n, -3], []) if pack == "i" else ([n, 1], [0.5])
                c = kernel.call_of(x, y, n, *numbers_of, blocks=1 + launch % 3, gap=gap)
                call("launch_kernel", b"all", ctypes.byref(c))
                call("check", b"all", None)
                found_now = struct.unpack(f"<{RANKS * (n + gap)}{pack}", y.read().tobytes())
                for r, row in enumerate(rows):
                    wanted = [e * (-3 if pack == "i" else 1) for e in row]
                    expect(f"launch {launch} of {pack}, row {r}", list(found_now[r * (n + gap):][:n]), wanted)
                    words = struct.pack(f"<{gap}{pack}", *found_now[r * (n + gap) + n:][:gap])
                    expect("what is between rows", words, b"\xff" * 4 * gap)
        right = functools.partial(two[0].call_of, x, y, n)
        for c, part in ((right([n, 1 << 31], []), "2147483648 for parameter 4; expected a number that int32 has"),
                        (right([n], []), "2 integers"), (right([n, 1], [1.0]), "0 other numbers"),
                        (right([n, 1], [], blocks=1 << 20), "fit concurrently"),
                        (right([n, 1], [], blocks=0), "at least 1 block")):
            expect_error(fusewire.BadArgument, part, "launch_kernel", b"all", ctypes.byref(c))
        code = two[1].code
        if RANKS > 1:
            mine = {"kernel": code.address if RANK else None}
            for fields, part in ((mine, "have compiled it: rank 0 has 0, rank 1 has 1"),
                                 ({"source": 5 + RANK}, "a hash of its source"), ({"max_bytes": 9 + RANK}, "max_bytes"),
                                 ({"programmatic": RANK == 0}, "programmatic")):
                try:
                    OwnKernel("of_floats", **{"max_bytes": 64, "flags": 1, **fields})
                    expect(f"{part} was accepted", True, False)
                except fusewire.RankMismatch as problem:
                    expect(f"'{part}' in '{problem}'", part in str(problem), True)
            # Ranks that pass different extents; then all begin again
            c = right([n, 1], [])
            c.extents[0] += RANK
            call("launch_kernel", b"all", ctypes.byref(c))
            try:
                call("check", b"all", None)
                expect("different extents were accepted", True, False)
            except fusewire.Error as problem:
                part = f"launched the kernel of_integers (extents {n}, 0, 0, 0)"
                expect(f"'{part}' in '{problem}'", part in str(problem), True)
            star.all_gather(b"")
            call("reset", b"all")
        for fields in ({"kernel": None}, {"max_bytes": 0}, {"flags": 0}, {"max_bytes": -1}):
            try:
                OwnKernel("of_floats", **{"max_bytes": 64, "flags": 1, **fields})
                expect(f"{fields} were accepted", True, False)
            except fusewire.BadArgument as problem:
                expect(f"'expected' in '{problem}'", "expected" in str(problem), True)
        x.write(array.array("H", struct.pack(f"<{n}i", *range(n))))
        c = right([n, 2], [])
        call("launch_kernel", b"all", ctypes.byref(c))
        call("check", b"all", None)
        expect("calls go on", struct.unpack(f"<{n}i", y.read().tobytes()[:4 * n]), tuple(range(0, 2 * n, 2)))
        call("end_kernel", b"all", two[0].number)
        expect_error(fusewire.BadArgument, "was destroyed", "launch_kernel", b"all", ctypes.byref(c))
        star.all_gather(b"")  # rank 0 removes the folder


def kernel_alone(star: Star) -> None:
    """The other ranks do not come, within the second that init() was given."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FUSEWIRE_CACHE"] = star.all_gather(folder.encode())[0].decode()
        kernel, x, y = OwnKernel("of_integers", RANKS * 4, 1), Buffer(2), Buffer(2 * RANKS)
        if RANK == 0:
            c = kernel.call_of(x, y, 1, [1, 1], [], blocks=1)
            call("launch_kernel", b"all", ctypes.byref(c))
            expect_error(fusewire.WaitTimeout, "the kernel of_integers (extents 1, 0, 0, 0)", "check", b"all", None)
        star.all_gather(b"")


def decode(by_heads: bool) -> None:
    """Keys of 0: every token has the same weight, so results are means of values. By heads: with all features, and a
    window that leaves the first tokens out."""
    batch, q_heads, kv_heads, head, page, pages = 2, 4, 2, 64, 8, 3
    lengths = [[(5 + 3 * s + 7 * r) % (page * pages) for s in range(batch)] for r in range(RANKS)]
    values = [numbers(batch * pages * page, kv_heads * head, 5 + r) for r in range(RANKS)]
    q, k = Matrix(numbers(batch, q_heads * head, 4)), Matrix([[0.0] * (kv_heads * head)] * (batch * pages * page))
    begin = sum(q_heads // RANKS + (r < q_heads % RANKS) for r in range(RANK)) if by_heads else 0
    heads = q_heads // RANKS + (RANK < q_heads % RANKS) if by_heads else q_heads
    v, out, lse = Matrix(values[RANK]), empty(batch, heads * head), Buffer(2 * batch * heads)
    table, own, begins = Buffer(2 * batch * pages), Buffer(2 * batch), Buffer(2 * batch)
    before = [[min(2 * s + r, lengths[r][s]) if by_heads else 0 for s in range(batch)] for r in range(RANKS)]
    begins.write(array.array("H", struct.pack(f"<{batch}i", *before[RANK])))
    table.write(array.array("H", struct.pack(f"<{batch * pages}i", *range(batch * pages))))
    own.write(array.array("H", struct.pack(f"<{batch}i", *lengths[RANK])))
    shape = _interface.DecodeOptions(BF16, 0, q_heads, kv_heads, head, page, pages, 0.0, by_heads, by_heads, by_heads)
    c = _interface.DecodeCall(None, q.buffer.at, k.buffer.at, v.buffer.at, table.at, own.at, out.buffer.at, lse.at,
                              batch, batch * pages, False, begins.at if by_heads else None, 30.0 if by_heads else 0)
    call("decode", b"all", ctypes.byref(shape), ctypes.byref(c))
    call("check", b"all", None)
    logs = struct.unpack(f"<{batch * heads}f", lse.read().tobytes())
    for s, row in enumerate(found(out)):
        tokens = [values[r][s * pages * page + t] for r in range(RANKS)
                  for t in range(before[r][s], lengths[r][s])]
        for h in range(heads):
            of_kv = (begin + h) // 2
            of_head = [t[of_kv * head:(of_kv + 1) * head] for t in tokens]
            means = [sum(c) / len(tokens) for c in zip(*of_head)]
            worst = max(abs(a - b) for a, b in zip(row[h * head:(h + 1) * head], means))
            expect(f"decode, sequence {s}, head {h}, off by {worst}", worst < 0.02, True)
            expect("its log-sum-exp", abs(logs[s * heads + h] - math.log(len(tokens))) < 1e-3, True)
    shape.page_size = 16
    expect_error(fusewire.BadArgument, "expected one of those that init() was given", "decode", b"all",
                 ctypes.byref(shape), ctypes.byref(c))


def one_collective(kind: str, count: int) -> None:
    """Of `count` numbers in a slice; more than a launch takes, too."""
    of_slices = 1 if kind in ("all_gather", "all_reduce") else RANKS
    xs = [numbers(1, count * of_slices, 40 + rank)[0] for rank in range(RANKS)]
    total = [sum(c) for c in zip(*xs)]
    mine = slice(RANK * count, (RANK + 1) * count)
    wanted = {"all_gather": sum(xs, []), "reduce_scatter": total[mine], "all_reduce": total,
              "all_to_all": sum((x[mine] for x in xs), [])}[kind]
    x, y = Matrix([xs[RANK]]), empty(1, len(wanted))
    copies = kind in ("all_gather", "all_to_all")
    c = _interface.CollectiveCall(None, BF16, x.buffer.at, y.buffer.at, count * 2 if copies else count)
    call("collective", b"all", _interface.COLLECTIVES[kind], ctypes.byref(c))
    call("check", b"all", None)
    expect(f"{kind} of {count}", found(y)[0], [float(n) for n in wanted])


def sums_of_float32() -> None:
    count = 300
    x, y = Buffer(2 * count), Buffer(2 * count)
    x.write(array.array("H", struct.pack(f"<{count}f", *(i + RANK / 4 for i in range(count)))))
    c = _interface.CollectiveCall(None, F32, x.at, y.at, count)
    call("collective", b"all", _interface.COLLECTIVES["all_reduce"], ctypes.byref(c))
    call("check", b"all", None)
    expect("sums of float32", list(struct.unpack(f"<{count}f", y.read().tobytes())),
           [i * RANKS + sum(range(RANKS)) / 4 for i in range(count)])


def rows_by_count(pack: str) -> None:
    """Rank s sends s + p + 1 rows of three numbers to rank p."""
    n = [[s + p + 1 for p in range(RANKS)] for s in range(RANKS)]
    rows = [[numbers(n[s][p], 3, 100 * s + p) for p in range(RANKS)] for s in range(RANKS)]
    x, room = Matrix(sum(rows[RANK], [])), sum(of[RANK] for of in n) + 1
    y, size = empty(room, 3), struct.calcsize(pack)
    counts, came, first = (Buffer(RANKS * size // 2) for _ in range(3))
    counts.write(array.array("H", struct.pack(f"<{RANKS}{pack}", *n[RANK])))
    c = _interface.RowsCall(None, x.buffer.at, y.buffer.at, len(x.rows), room, 6, counts.at, None, came.at, first.at,
                            pack == "q")
    call("exchange_rows", b"all", ctypes.byref(c))
    call("check", b"all", None)
    of_ranks = [struct.unpack(f"<{RANKS}{pack}", b.read().tobytes()) for b in (came, first)]
    expect("rows from each rank", of_ranks[0], tuple(of[RANK] for of in n))
    expect("where they begin", of_ranks[1], tuple(sum(n[q][RANK] for q in range(s)) for s in range(RANKS)))
    expect("rows", found(y)[:-1], sum((rows[s][RANK] for s in range(RANKS)), []))


def norm(rows: int, quantised: int, scaled: bool) -> None:
    """quantised: 0 no, 1 int8, 2 fp8."""
    xs = [numbers(rows, 64, 7 + rank) for rank in range(RANKS)]
    residual, gamma = numbers(rows, 64, 3), numbers(1, 64, 4)
    x, r, g = Matrix(xs[RANK], 8), Matrix(residual), Matrix(gamma)
    h, y, q = empty(rows, 64), empty(rows, 64), Buffer(rows * 32, 0)
    scales, scale = Buffer(2 * rows), Buffer(2)
    scale.write(array.array("H", struct.pack("<f", 0.25)))
    c = _interface.NormCall(None, BF16, quantised, x.view(), r.view(), h.view(), y.view(),
                            _interface.Matrix(q.at if quantised else None, rows, 64, 64), g.buffer.at,
                            scale.at if scaled else None, scales.at if quantised and not scaled else None, 0.5)
    call("norm", b"all", ctypes.byref(c))
    call("check", b"all", None)
    sums = [[sum(c) for c in zip(*of_row)] for of_row in zip(residual, *xs)]
    expect("the new residual", found(h), sums)
    eighths, of_rows = q.read().tobytes(), struct.unpack(f"<{rows}f", scales.read().tobytes())
    for i, (row, norms) in enumerate(zip(sums, found(y))):
        by = math.sqrt(sum(e * e for e in row) / 64 + 0.5)
        wanted = [e / by * w for e, w in zip(row, gamma[0])]
        expect(f"norm of row {i}", all(abs(a - b) <= abs(b) / 128 for a, b in zip(norms, wanted)), True)
        if quantised == 1:
            unit = 0.25 if scaled else of_rows[i]
            signed = struct.unpack("<64b", eighths[64 * i:64 * i + 64])
            expect(f"int8 of row {i}", all(abs(a * unit - b) <= unit * 0.51 for a, b in zip(signed, wanted)), True)
        if quantised == 2:
            expect(f"fp8 of row {i} has values", any(eighths[64 * i:64 * i + 64]), any(wanted))


def collectives() -> None:
    for kind in _interface.COLLECTIVES:
        for count in (40, 1, 0, 300, 1000):
            one_collective(kind, count)
    sums_of_float32()
    for pack in ("q", "i"):
        rows_by_count(pack)
    for rows, quantised, scaled in ((3, 0, False), (11, 1, False), (5, 1, True), (4, 2, False)):
        norm(rows, quantised, scaled)


def experts(pack: str) -> None:
    """Two experts on each rank. Token t of rank r is for experts t + r and t + r + 1 + t % 2; one is for none."""
    all_experts, columns = 2 * RANKS, 64
    tables = [[[(t + r) % all_experts, (t + r + 1 + t % 2) % all_experts] for t in range(TOKENS - r % 2)]
              for r in range(RANKS)]
    tables[0][2][1] = -1
    xs = [numbers(len(table), columns, 60 + r) for r, table in enumerate(tables)]
    weights = [0.5, 0.25]
    x, mine = Matrix(xs[RANK], 8), tables[RANK]
    where = _interface.RoutingLayout()
    call("layout_of_routing", b"all", ctypes.byref(where))
    out, routing = empty(where.rows, columns), Buffer(where.bytes // 2, 0)
    table, of_table = (Buffer(len(mine) * 2 * struct.calcsize(kind) // 2) for kind in (pack, "f"))
    table.write(array.array("H", struct.pack(f"<{2 * len(mine)}{pack}", *sum(mine, []))))
    of_table.write(array.array("H", struct.pack(f"<{2 * len(mine)}f", *weights * len(mine))))
    c = _interface.DispatchCall(None, BF16, x.view(), out.view(), table.at, pack == "q", of_table.at, routing.at, False)
    call("moe_dispatch", b"all", ctypes.byref(c))
    call("check", b"all", None)
    integers = struct.unpack(f"<{where.bytes // 4}i", routing.read().tobytes())
    counts, begins = (integers[at // 4:at // 4 + 2] for at in (where.expert_rows, where.expert_begins))
    came, ws = found(out), [numbers(16, columns, 80 + e) for e in range(all_experts)]
    for e in range(2):
        rows = [xs[r][t] for r in range(RANKS) for t, of in enumerate(tables[r]) if 2 * RANK + e in of]
        expect(f"rows of expert {e}", came[begins[e]:begins[e] + counts[e]], rows)
        expect(f"where expert {e} begins", begins[e] % 4, 0)
    # Each expert multiplies by its own w, then gives its rows back
    w, y, ends = Matrix(sum(ws[2 * RANK:2 * RANK + 2], [])), empty(where.rows, 16), Buffer(4)
    ends.write(array.array("H", struct.pack("<2i", *(b + n for b, n in zip(begins, counts)))))
    of_one = w.view()
    of_one.rows = 16
    g = _interface.GroupedCall(None, BF16, out.view(), of_one, y.view(), 16 * columns, 2, 4,
                               routing.at.value + where.expert_begins, ends.at, False)
    call("grouped_gemm", b"all", ctypes.byref(g))
    call("check", b"all", None)
    for e in range(2):
        here = slice(begins[e], begins[e] + counts[e])
        expect(f"product of expert {e}", found(y)[here], product(came[here], ws[2 * RANK + e]))
    half = empty(where.rows, 8)
    g.y, g.gated = half.view(), True
    call("grouped_gemm", b"all", ctypes.byref(g))
    call("check", b"all", None)
    for e in range(2):
        for row, wanted in zip(found(half)[begins[e]:begins[e] + counts[e]], found(y)[begins[e]:begins[e] + counts[e]]):
            gated = [a / (1 + math.exp(-a)) * b for a, b in zip(wanted[::2], wanted[1::2])]
            expect("gated", all(abs(a - b) <= abs(b) / 64 for a, b in zip(row, gated)), True)
    sums = empty(len(mine), 16)
    back = _interface.CombineCall(None, BF16, y.view(), sums.view(), routing.at, True)
    call("moe_combine", b"all", ctypes.byref(back))
    call("check", b"all", None)
    for t, row in enumerate(found(sums)):
        parts = [[weight * a for a in product([xs[RANK][t]], ws[e])[0]] for weight, e in zip(weights, mine[t]) if e >= 0]
        wanted = [sum(column) for column in zip(*parts)]
        expect(f"token {t}", all(abs(a - b) <= 0.5 + abs(b) / 64 for a, b in zip(row, wanted)), True)


def memory(star: Star) -> None:
    """A heap in memory that this program has mapped, and arrays on it."""
    o, size, data = options(star, reduce_rows=0, max_bytes=0), ctypes.c_size_t(), ctypes.c_void_p()
    o.spare_bytes = 3000
    call("bytes_of_data", ctypes.byref(o), ctypes.byref(size))
    mapped = Mapped(star, size.value)
    o.data_at = mapped.of
    call("init", b"mapped", ctypes.byref(o))
    places = set()
    for _ in range(5):
        call("allocate", b"mapped", 3000, ctypes.byref(data))
        expect("an array lies in what was mapped", 0 <= data.value - mapped.of[RANK] <= size.value - 3000, True)
        expect("at one place of all ranks", len(set(star.all_gather(bytes([len(places)]) + (
            data.value - mapped.of[RANK]).to_bytes(8, "little")))), 1)
        places.add(data.value)
        call("free", b"mapped", data)
    expect("what was freed is used again", len(places) < 5, True)
    call("allocate", b"mapped", 3000, ctypes.byref(data))
    expect_error(fusewire.OutOfSpace, "heap::allocate", "allocate", b"mapped", 1 << 40, ctypes.byref(data))
    expect_error(fusewire.BadArgument, "nothing is allocated", "free", b"mapped", ctypes.c_void_p(data.value + 256))
    for kind in _interface.KINDS:
        one_product(kind, 8, 24, 64, group=b"mapped")
    for rows in (8, 3):
        one_product("ag_gemm", rows, 24, 64, group=b"mapped", x_at=data.value)
    call("destroy", b"mapped")
    mapped.close(star)


def refusals(star: Star) -> None:
    for name in ("check", "poll_errors", "reset", "destroy"):
        expect_error(fusewire.BadArgument, "no communicator for the group 'nobody'", name, b"nobody",
                     *([None] if name == "check" else []))
    expect_error(fusewire.BadArgument, "already", "init", b"all", ctypes.byref(options(star)))
    x, y = Matrix(numbers(8, 1 << 16, 1)), empty(8 * RANKS, 8)
    c = _interface.ProductCall(None, BF16, x.view(), x.view(), y.view())
    expect_error(fusewire.OutOfSpace, "max_bytes", "product", b"all", 0, ctypes.byref(c))
    c.type = 1
    expect_error(fusewire.BadArgument, "built for bfloat16 alone", "product", b"all", 0, ctypes.byref(c))
    # More rows than a launch takes, and a result that does not fit to them
    x = Matrix(numbers(MAX_M + 8, 64, 1))
    c = _interface.ProductCall(None, BF16, x.view(), Matrix(numbers(8, 64, 1)).view(),
                               empty(MAX_M + 16, 8).view())
    for number in (0, 2, 3):
        expect_error(fusewire.BadArgument, f"{MAX_M + 8} rows in", "product", b"all", number, ctypes.byref(c))


def main() -> None:
    star = Star()
    check_hip(hip.hipSetDevice(RANK))
    whole = options(star)
    call("init", b"all", ctypes.byref(whole))
    call("prepare", b"all", 0, BF16, 64)
    products()
    if os.environ.get("FUSEWIRE_COMPILER"):
        custom_epilogues(star)
        own_kernels(star)
    decode(by_heads=False)
    decode(by_heads=True)
    collectives()
    for pack in ("q", "i"):
        experts(pack)
    refusals(star)
    memory(star)
    call("destroy", b"all")
    # Once more, of another size; ranks that ask for different ones
    again = options(star, max_m=2 * MAX_M, reduce_rows=0, max_bytes=0)
    again.wait_seconds = 1
    call("init", b"all", ctypes.byref(again))
    c = _interface.CollectiveCall(None, BF16, None, None, 8)
    expect_error(fusewire.BadArgument, "init() with max_bytes", "collective", b"all", 0, ctypes.byref(c))
    expect_error(fusewire.BadArgument, "init() with all_reduce", "collective", b"all", 3, ctypes.byref(c))
    expect_error(fusewire.BadArgument, "init() with max_bytes", "exchange_rows", b"all",
                 ctypes.byref(_interface.RowsCall()))
    expect_error(fusewire.BadArgument, "init() with experts", "moe_dispatch", b"all",
                 ctypes.byref(_interface.DispatchCall()))
    expect_error(fusewire.BadArgument, "init() with all_reduce", "norm", b"all", ctypes.byref(_interface.NormCall()))
    if os.environ.get("FUSEWIRE_COMPILER") and RANKS > 1:
        kernel_alone(star)
    call("destroy", b"all")
    wrong = options(star, max_m=MAX_M + RANK)
    if RANKS > 1:
        expect_error(fusewire.RankMismatch, "disagree", "init", b"all", ctypes.byref(wrong))
    if RANK == 0:
        print("passed")


main()
