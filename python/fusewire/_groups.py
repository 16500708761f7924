"""Groups of ranks: a communicator for each, made over torch's store without a collective of any backend."""
import atexit
import ctypes
import dataclasses
import datetime
import hashlib
import os
import time
import typing

import torch
import torch.distributed as dist

from . import _interface, _library, _memory
from ._errors import BadArgument, PeerFailed, RankMismatch

_TYPES = {torch.bfloat16: 0, torch.float16: 1}
_groups = {}  # by name: the communicators of this process
_made = {}    # by name: how many there were
_routings = {}  # by name: routing_of()


@dataclasses.dataclass(frozen=True)
class DecodeShape:
    """What a flash_decode is made for. A call's batch is at most max_batch, its block table has max_pages columns."""
    max_batch: int
    q_heads: int
    kv_heads: int
    head_dim: int = 128        # 64, 96, 128, 192 or 256
    page_size: int = 16        # tokens, a power of two
    max_pages: int = 1024      # of one sequence on one rank
    scale: float = 0.0         # of the scores; 0: 1 / sqrt(head_dim)
    dtype: torch.dtype = torch.bfloat16
    by_heads: bool = False         # a rank gets the results of the heads that it owns, not of all
    masked: bool = False           # calls may have a sliding window and a soft cap
    batch_invariant: bool = False  # a sequence's bits depend on no other one


@dataclasses.dataclass(frozen=True)
class Experts:
    """A layer of experts, which the ranks of a group share; rank r has those from r * experts / ranks on."""
    max_tokens: int       # of a rank
    experts: int          # of all ranks
    top_k: int            # experts of a token, 1 to 16
    max_cols: int         # of a token's row
    max_rows: int = 0     # that a rank receives, one for each of a token's experts; 0: the most that can come
    alignment: int = 1    # of an expert's first row


class _Routing(typing.NamedTuple):
    """What a routing of a group is and has where, in bytes: routing_layout of C++, as numbers that dynamo follows."""
    bytes: int
    rows: int           # that a rank receives at most
    expert_rows: int
    expert_begins: int
    experts: int        # of this rank


class _Meeting:
    """All-gathers of bytes over torch's store. Keys of this rank are removed when all ranks have read them."""

    def __init__(self, group, name, limit):
        ranks = ",".join(map(str, dist.get_process_group_ranks(group)))
        self.rank, self.size, self.limit, self.count = dist.get_rank(group), dist.get_world_size(group), limit, 0
        members = hashlib.sha256(ranks.encode()).hexdigest()[:16]  # a name may be that of several groups
        self.store = dist.PrefixStore(f"fusewire/{name}/{members}/{_made[name]}",
                                      dist.distributed_c10d._get_default_store())

    def all_gather(self, mine):
        """Every rank's bytes. Fails: PeerFailed; RankMismatch when they differ in length."""
        self.count += 1
        self.store.set(f"{self.count}/{self.rank}", mine + b".")  # an empty value is none
        keys = [f"{self.count}/{r}" for r in range(self.size)]
        self._wait(keys)
        all_ranks = [self.store.get(k)[:-1] for k in keys]
        if self.count > 2:
            self.store.delete_key(f"{self.count - 2}/{self.rank}")
        for rank, theirs in enumerate(all_ranks):
            if len(theirs) != len(mine):
                raise RankMismatch(f"ranks are in different collectives: rank {self.rank} gathers {len(mine)} bytes of "
                                   f"each, rank {rank} {len(theirs)}")
        return all_ranks

    def _wait(self, keys):
        end = time.monotonic() + self.limit
        while True:
            begin = time.monotonic()
            try:
                return self.store.wait(keys, datetime.timedelta(seconds=1))
            except RuntimeError as problem:  # not all there yet, or no store any more
                lost = time.monotonic() - begin < 0.5
                if not lost and self.store.check(["failed"]):
                    raise PeerFailed(self.store.get("failed").decode(errors="replace")) from None
                if lost:
                    raise PeerFailed(f"torch's store does not answer: {problem}") from None
            if time.monotonic() > end:
                late = [r for r in range(self.size) if not self.store.check([keys[r]])]
                raise PeerFailed(f"ranks {late} did not come to a collective within {self.limit:.0f} s")

    def fail(self, why):
        """Tells the other ranks, if they can still be told."""
        try:
            self.store.set("failed", why)
        except RuntimeError:
            pass

    def functions(self):
        """all_gather and fail for C++, through which no exception may pass."""
        def all_gather(mine, size, out, why, why_size):
            try:
                parts = self.all_gather(ctypes.string_at(mine, size) if size else b"")
                if size:
                    ctypes.memmove(out, b"".join(parts), size * len(parts))
                return 0
            except BaseException as problem:
                text = f"{problem}".encode()[:why_size - 1] + b"\0"
                ctypes.memmove(why, text, len(text))
                return 2 if type(problem) is RankMismatch else 1

        return _interface.AllGather(all_gather), _interface.Fail(lambda why: self.fail(why))


@dataclasses.dataclass
class _Group:
    size: int
    device: int
    max_k: int
    max_n: int
    kept: tuple  # what C++ has addresses of
    experts: Experts | None = None
    given_up: list = dataclasses.field(default_factory=list)  # places of empty(), to be freed


def name_of(group):
    """A group's name, which operators take. None: all ranks."""
    if isinstance(group, str):
        return group
    return (group if group is not None else dist.group.WORLD).group_name


def size_of(name):
    """Ranks of a group, also before init(): the shape of a result needs no more."""
    if name in _groups:
        return _groups[name].size
    return dist.distributed_c10d._resolve_process_group(name).size()


def rank_of(name):
    """This process's number in a group, also before init()."""
    return dist.get_rank(dist.distributed_c10d._resolve_process_group(name))


def routing_of(name):
    """The group's _Routing. Fails: BadArgument."""
    if name not in _groups or _groups[name].experts is None:
        raise BadArgument("experts: no room for them; expected init() with experts")
    if name not in _routings:
        found = _interface.RoutingLayout()
        _library.call("layout_of_routing", name.encode(), ctypes.byref(found))
        _routings[name] = _Routing(found.bytes, found.rows, found.expert_rows, found.expert_begins,
                                   _groups[name].experts.experts // _groups[name].size)
    return _routings[name]


def _type_number(dtype):
    if dtype not in _TYPES:
        raise BadArgument(f"{dtype}; expected torch.bfloat16 or torch.float16")
    return _TYPES[dtype]


def init(group=None, *, max_m=0, max_k=0, max_n=0, max_bytes=None, all_reduce=(0, 0), decode=(), experts=None,
         batch_invariant=False, empty_bytes=0, memory="own", wait_seconds=60.0):
    """Collective, on the host. Makes the communicator of a group of torch.distributed (None: all ranks) on the current
    device, and returns the group's name.

    max_m: rows that one launch takes, of the gathered x (ag_gemm) or of x (the others); calls of more rows are cut into
    launches. max_k: columns of x of ag_gemm. max_n: columns of the result of gemm_rs, gemm_ar and gemm_all_scatter.
    max_bytes: what a rank sends to another one in a launch of all_gather, reduce_scatter, all_to_all or all_to_all_v;
    calls of more are cut into launches, but for the last one's. None: as much as an ag_gemm gathers. all_reduce: (rows,
    columns) that one launch takes; calls of more are cut.
    decode: a DecodeShape for each flash_decode. experts: an Experts. batch_invariant: of products, a row's bits depend on
    no other row, at some cost (docs/operators.md). empty_bytes: for tensors of empty(). memory: "own", or "symm_mem": data
    lies in torch's symmetric memory. wait_seconds: how long a kernel waits for another rank before it gives up; longer
    than a rank may be late.
    Fails: NotBuilt; BadArgument; OutOfSpace; RankMismatch where ranks ask for different things; PeerFailed.
    """
    _library.load()
    if memory not in ("own", "symm_mem"):
        raise BadArgument(f"init: memory = {memory!r}; expected 'own' or 'symm_mem'")
    group = group if group is not None else dist.group.WORLD
    name = group.group_name
    _made[name] = _made.get(name, 0) + 1
    meeting = _Meeting(group, name, float(os.environ.get("FUSEWIRE_COLLECTIVE_SECONDS", "600")))
    all_gather, fail = meeting.functions()
    shapes = (_interface.DecodeOptions * len(decode))(
        *((_type_number(s.dtype), s.max_batch, s.q_heads, s.kv_heads, s.head_dim, s.page_size, s.max_pages, s.scale,
           s.by_heads, s.masked, s.batch_invariant)
          for s in decode))
    torch.cuda.init()
    device = torch.cuda.current_device()
    if max_bytes is None:
        max_bytes = 2 * max_m * max_k // meeting.size
    options = _interface.Options(meeting.rank, meeting.size, device, max_m, max_k, max_n, *all_reduce, max_bytes,
                                 wait_seconds, all_gather, fail, shapes, len(decode),
                                 _interface.ExpertShape(*dataclasses.astuple(experts or Experts(0, 0, 0, 0))),
                                 batch_invariant, empty_bytes, None)
    kept = ()
    try:
        if memory == "symm_mem":
            size = ctypes.c_size_t()
            _library.call("bytes_of_data", ctypes.byref(options), ctypes.byref(size))
            kept, options.data_at = _memory.of_symm_mem(group, size.value, device)
        _library.call("init", name.encode(), ctypes.byref(options))
    except BaseException as problem:
        meeting.fail(f"rank {meeting.rank}: {problem}")  # the others may wait for this rank
        raise
    _groups[name] = _Group(meeting.size, device, max_k, max_n, (all_gather, fail, *kept), experts)
    _routings.pop(name, None)
    return name


def prepare(group=None, *, dtype=torch.bfloat16, **k_of):
    """Loads what calls need, which the first call does otherwise: prepare(group, ag_gemm=[8192], gemm_rs=[3584]), each
    with the columns of its x. Local."""
    for op, ks in k_of.items():
        if op not in _interface.KINDS:
            raise BadArgument(f"prepare: {op}; expected one of {', '.join(_interface.KINDS)}")
        for k in ks:
            _library.call("prepare", name_of(group).encode(), _interface.KINDS[op], _type_number(dtype), k)


def describe(op, m, n, k, group=None, dtype=torch.bfloat16):
    """How a call would multiply, in words: m rows in all, n rows of w on each rank, k columns of x."""
    name = name_of(group)
    own = m // size_of(name)
    x_rows, y_rows = {"ag_gemm": (own, m), "gemm_rs": (m, own), "gemm_ar": (m, m), "gemm_all_scatter": (m, m)}[op]
    text = ctypes.create_string_buffer(1024)
    _library.call("describe", name.encode(), _interface.KINDS[op], _type_number(dtype), x_rows, n, k, y_rows, text,
                  len(text))
    return text.value.decode()


def check(group=None):
    """Waits for the current stream; raises if a launch of this rank has failed since the last reset()."""
    name = name_of(group)
    stream = torch.cuda.current_stream(_groups[name].device).cuda_stream if name in _groups else None
    _library.call("check", name.encode(), stream)


def poll_errors(group=None):
    """Raises what check() would, if a kernel has noted it already; waits for nothing. For after a graph's replay."""
    _library.call("poll_errors", name_of(group).encode())


def reset(group=None):
    """Collective; waits for the device. Brings the ranks together again after a launch was given up."""
    _library.call("reset", name_of(group).encode())


def destroy(group=None):
    """Collective; waits for the device. Frees the communicator's memory, before dist.destroy_process_group(). Graphs
    that have captured its operators must not be replayed any more. If it fails, the communicator is abandoned."""
    name = name_of(group)
    if name not in _groups:
        return
    torch.cuda.synchronize(_groups[name].device)
    try:
        _library.call("destroy", name.encode())
    except BaseException:
        abandon(name)
        raise
    del _groups[name]


def abandon(group=None):
    """Gives the communicator up without the other ranks, which are told. Nothing is waited for; its memory stays until
    the process ends."""
    name = name_of(group)
    if name in _groups:
        _library.call("abandon", name.encode())
        _left_behind.append(_groups.pop(name))


_left_behind = []  # C++ may still have addresses of their functions


@atexit.register
def _abandon_all():
    for name in list(_groups):
        abandon(name)
