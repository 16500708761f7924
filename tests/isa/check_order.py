#!/usr/bin/env python3
"""usage: check_order.py [--objdump TOOL] [--planted RULE=REGEX]... [--rules RULES] [--except REGEX] FILE...

What no test can be sure to see: that the gfx942 code, whatever the compiler made of right source, keeps its order. FILE is assembly, or a
program or object whose gfx942 code is taken apart. In every function of it, on every way through it:

  writeback   Between buffer_wbl2 and the next store, atomic, LDS write, barrier or end stands an s_waitcnt vmcnt(0): a writeback is
              over at the wait behind it, and not before, and what comes after it may tell somebody.
  invalidate  Between a polled flag and the next load of data stands a buffer_inv. A polled flag is a word that an innermost loop with
              an s_sleep in it loads past the caches (sc1). Not meant are loops that poll for words which carry their data: those compare
              the low half of what they load and no word as a whole. A way that passes a compare-exchange gives up: what it loads is for the report.
  lds         Between an LDS write and the next s_barrier stands an s_waitcnt for it: lgkmcnt(n) with at most n LDS instructions after the
              write, because LDS serves a wave in order. Behind the barrier other waves read what was written.
  barrier     No s_barrier where EXEC may lack some lanes of the wave, but for one behind which the wave only ends: where they go round a
              loop while the others wait to be joined again, s_barrier, which counts waves, lets them pass. In
              assembly no meeting of a wave either, which is no instruction.

How EXEC is followed. Each instruction that takes lanes out of EXEC opens a region; what puts them back closes it: `s_or exec, exec, X`,
or a move to EXEC, where X is the EXEC that was saved when the region was opened (s_and_saveexec and its kin), its complement in that (s_xor,
s_or_saveexec, s_andn2_saveexec), or, for a loop, the mask that gathers the lanes which have left it. X is followed through copies and through
lanes of a VGPR where it was spilled. A region is divided if its mask depends on the lane; all of a wave enter the others or none does. Lane-dependent is
what comes from the thread's number within a wave, from an atomic, from memory at an address that is lane-dependent, or was written in a
divided region. The wave's number is not, nor what is loaded by all lanes from one address, LDS as well.

Prints how many functions, writebacks, polled flags and barriers were seen; exits with 1 if a rule is broken.
  --planted RULE=REGEX   in functions whose mangled names match, RULE is broken, and no other
  --rules RULES          only these of the four, with commas between them
  --except REGEX         functions whose mangled names match are left out
  --known FOLDER         what was found in a function's code is kept there, and not looked for again: programs share most of their kernels"""
import argparse
import functools
import hashlib
import json
import os
import pathlib
import re
import sys

import gfx942

STORES = re.compile(r"(global|flat|buffer|scratch)_(store|atomic)|ds_(?!read|bpermute|permute|swizzle|nop|consume|append)|s_barrier|s_endpgm|s_sendmsg|s_setpc|s_swappc")
LDS_WRITES = re.compile(r"ds_(?!read|bpermute|permute|swizzle|nop|consume|append)")
LOADS = re.compile(r"(global|flat|buffer)_load_")
EMPTY = frozenset()


def flow(code, start, step):
    """Runs step(i, state) -> state from instruction 0 until nothing new is joined by `|`; states at each instruction."""
    at = {0: start}
    todo = [0]
    while todo:
        i = todo.pop()
        after = step(i, at[i])
        for n in code[i].next:
            joined = after if n not in at else at[n] | after
            if n not in at or joined != at[n]:
                at[n] = joined
                todo.append(n)
    return at


# ------------------------------------------------------------------------------------------------------------ writeback


def waits_for_memory(x):
    return x.op == "s_waitcnt" and "vmcnt(0)" in x.text or x.text == "s_waitcnt 0"


def unwaited_writebacks(code):
    """(index, what comes too early) for each."""

    def step(i, pending):
        if code[i].op == "buffer_wbl2":
            return frozenset([i])
        return EMPTY if pending and waits_for_memory(code[i]) else pending

    if not any(x.op == "buffer_wbl2" for x in code):
        return []
    at = flow(code, EMPTY, step)
    return sorted({(w, i) for i, pending in at.items() if STORES.match(code[i].op) for w in pending})


# ------------------------------------------------------------------------------------------------------------------ LDS


def unwaited_lds_writes(code):
    """(index of the write, index of the barrier) for each. A state: the last write, and how many LDS instructions came after it."""

    def step(i, pending):
        x = code[i]
        if LDS_WRITES.match(x.op):
            return frozenset([(i, 0)])
        if x.op.startswith("ds_") and x.op != "ds_nop":
            return frozenset((w, min(after + 1, 15)) for w, after in pending)
        counter = re.search(r"lgkmcnt\((\d+)\)", x.text) if x.op == "s_waitcnt" else None
        left = int(counter[1]) if counter else 0 if x.text == "s_waitcnt 0" else 16
        return frozenset((w, after) for w, after in pending if after < left)

    if not any(x.op == "s_barrier" for x in code) or not any(LDS_WRITES.match(x.op) for x in code):
        return []
    at = flow(code, EMPTY, step)
    return sorted({(w, i) for i, pending in at.items() if code[i].op == "s_barrier" for w, _ in pending})


# ----------------------------------------------------------------------------------------------------------- invalidate


def blocks(code):
    """Basic blocks as (first, last), their successors, and the block of each first instruction."""
    heads = sorted({0} | {n for i, x in enumerate(code) if x.next != [i + 1] for n in x.next} | {i + 1 for i, x in enumerate(code) if x.next != [i + 1] and i + 1 < len(code)})
    spans = [(h, (heads[k + 1] if k + 1 < len(heads) else len(code)) - 1) for k, h in enumerate(heads)]
    number = {h: k for k, h in enumerate(heads)}
    return spans, [[number[n] for n in code[last].next] for _, last in spans]


def loops(successors):
    """The natural loops: header -> set of blocks."""
    order, seen, stack = [], {0}, [(0, iter(successors[0]))]
    while stack:
        b, left = stack[-1]
        n = next((n for n in left if n not in seen), None)
        if n is None:
            order.append(b)
            stack.pop()
        else:
            seen.add(n)
            stack.append((n, iter(successors[n])))
    order.reverse()
    rank = {b: k for k, b in enumerate(order)}
    before = {b: [] for b in order}
    for b in order:
        for n in successors[b]:
            before[n].append(b)
    dominator = {0: 0}
    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            new = None
            for p in before[b]:
                if p in dominator:
                    q = new
                    while q is not None and p != q:
                        while rank[p] > rank[q]:
                            p = dominator[p]
                        while rank[q] > rank[p]:
                            q = dominator[q]
                    new = p
            if dominator.get(b) != new:
                dominator[b] = new
                changed = True

    def dominates(a, b):
        while rank[b] > rank[a]:
            b = dominator[b]
        return a == b

    found = {}
    for b in order:
        for h in successors[b]:
            if dominates(h, b):
                body = found.setdefault(h, {h})
                todo = [b]
                while todo:
                    x = todo.pop()
                    if x not in body:
                        body.add(x)
                        todo += before[x]
    return found


def compared(code, look, inside):
    """Whether the word that is loaded is compared as a whole, with something else than 0, or only its low half, before its register is used again."""
    word = code[look].args[0]
    low = re.sub(r"v\[(\d+):.*", r"v\1", word)
    for i in range(look + 1, max(inside) + 1):
        x = code[i]
        if m := re.match(r"v_cmpx?_(?:eq|ne)_[ui](32|64)", x.op):
            if word in x.args[1:]:
                return "nothing" if "0" in x.args[1:] else "whole"
            if low in x.args[1:]:
                return "half"
        elif x.args and set(registers(x.args[0])) & set(registers(word)) and x.op[0] in "vgdfb" and "_store" not in x.op:
            break
    return "nothing"


def polls(code):
    """(instructions of the loop, indices of the loads of what it polls) for each innermost loop with a pause that polls flags."""
    if not any(x.op == "s_sleep" for x in code):
        return
    spans, successors = blocks(code)
    all_loops = sorted(loops(successors).items(), key=lambda loop: len(loop[1]))
    taken = set()
    for k, (first, last) in enumerate(spans):
        if not any(code[i].op == "s_sleep" for i in range(first, last + 1)):
            continue
        head, body = next((loop for loop in all_loops if k in loop[1]), (None, None))
        if head is None or head in taken:
            continue
        taken.add(head)
        inside = {i for b in body for i in range(spans[b][0], spans[b][1] + 1)}
        reached, todo = {spans[head][0]}, [spans[head][0]]
        while todo:
            i = todo.pop()
            for n in code[i].next if "atomic_cmpswap" not in code[i].op else ():
                if n in inside and n not in reached:
                    reached.add(n)
                    todo.append(n)
        looks = [i for i in sorted(reached) if LOADS.match(code[i].op) and "sc1" in code[i].bits()]
        kinds = {compared(code, i, inside) for i in looks}
        if looks and ("whole" in kinds or "half" not in kinds):
            yield inside, looks


def gives_up(code, i, within=16):
    """Whether a compare-exchange follows in the same block, or on every way within so many instructions."""
    at = i
    while code[at].next == [at + 1]:
        at += 1
        if "atomic_cmpswap" in code[at].op:
            return True
    ways = {i}
    for _ in range(within):
        if not all(code[w].next for w in ways):
            return False
        ways = {n for w in ways for n in code[w].next if "atomic_cmpswap" not in code[n].op}
    return not ways


def unacquired_flags(code):
    found, count = set(), 0
    for inside, looks in polls(code):
        count += 1
        starts = set(looks)

        def step(i, pending):
            x = code[i]
            if i in starts:
                return frozenset([i])
            if pending and (x.op == "buffer_inv" and "sc1" in x.bits() or "atomic_cmpswap" in x.op):
                return EMPTY
            return pending

        at = flow(code, EMPTY, step)
        found |= {(p, i) for i, pending in at.items() if i not in inside and LOADS.match(code[i].op) and "sc1" not in code[i].bits() and not gives_up(code, i) for p in pending}
    return count, sorted(found)


# -------------------------------------------------------------------------------------------------------------- barrier

BARRIERS = ("s_barrier", "wave_barrier")
UNIFORM, THREAD, LANE = 0, 1, 2  # of a VGPR: the same in all lanes; as the thread's number: the same but for its lowest six bits; any
# A uniform VGPR of which more is known is a tuple: a constant, or the register and the instruction that made the value; it stays uniform when some lanes copy the same.


def kind(value):
    return UNIFORM if isinstance(value, tuple) else value


@functools.cache
def registers(arg):
    """Names of the 32-bit registers of an operand."""
    if m := re.fullmatch(r"([vsa])(\d+)", arg):
        return (arg,)
    if m := re.fullmatch(r"([vsa])\[(\d+):(\d+)\]", arg):
        return tuple(f"{m[1]}{n}" for n in range(int(m[2]), int(m[3]) + 1))
    if arg in ("vcc", "exec"):
        return (f"{arg}_lo", f"{arg}_hi")
    if arg in ("vcc_lo", "vcc_hi", "exec_lo", "exec_hi"):
        return (arg,)
    if m := re.fullmatch(r"-?\|?(v\d+|v\[\d+:\d+\])\|?", arg):
        return registers(m[1])
    return ()


@functools.cache
def constant(arg):
    try:
        return int(arg, 0)
    except ValueError:
        return None


class Mask:
    """What is known of an SGPR: whether its bits depend on the lane, and what becomes of EXEC when it is put back: the regions that are open then (saved),
    or the loop whose leavers it gathers (leavers)."""

    __slots__ = ("divided", "saved", "leavers")

    def __init__(self, divided=False, saved=None, leavers=None):
        self.divided, self.saved, self.leavers = divided, saved, leavers

    def key(self):
        return (self.divided, self.saved, self.leavers)

    def __eq__(self, other):
        return self.key() == other.key()

    def join(self, other):
        if self == other:
            return self
        saved = None if self.saved is None or other.saved is None else self.saved | other.saved
        return Mask(self.divided or other.divided, saved, self.leavers if self.leavers == other.leavers else None)


PLAIN = Mask()


def join_lanes(mine, theirs):
    """Joins what is known of VGPRs in; whether that changed anything."""
    changed = False
    if mine == theirs:
        return changed
    for r in mine.keys() | theirs.keys():
        a, b = mine.get(r, UNIFORM), theirs.get(r, UNIFORM)
        if a != b and a != LANE:
            new = LANE if kind(a) != kind(b) else kind(a)
            if new != a:
                mine[r] = new
                changed = True
    return changed


class State:
    """Of a wave: the open regions, each (where it was opened or the loop, whether it is divided); masks, and those that are spilled; where scalar values come
    from; VGPRs of the lanes in EXEC. For each divided region: VGPRs of the lanes outside, and which were written inside."""

    __slots__ = ("open", "masks", "spilled", "values", "vgprs", "outside", "written", "copied")

    def __init__(self, copied):
        self.copied = copied  # scalar values of which there are copies, or were; one set for all states of a function
        self.open, self.masks, self.spilled, self.values, self.vgprs, self.outside, self.written = EMPTY, {}, {}, {}, {"v0": THREAD}, {}, {}

    def copy(self):
        s = State(self.copied)
        s.open, s.masks, s.spilled, s.values, s.vgprs = self.open, dict(self.masks), dict(self.spilled), dict(self.values), dict(self.vgprs)
        s.outside, s.written = {k: dict(v) for k, v in self.outside.items()}, dict(self.written)
        return s

    def merge(self, other):
        """Joins `other` in; whether that changed anything."""
        changed = not other.open <= self.open
        self.open |= other.open
        for mine, theirs in ((self.masks, other.masks), (self.spilled, other.spilled)):
            for r in mine.keys() | theirs.keys() if mine != theirs else ():
                old = mine.get(r, PLAIN)
                new = old.join(theirs.get(r, PLAIN))
                if new is not old and new != old:
                    mine[r] = new
                    changed = True
        changed |= join_lanes(self.vgprs, other.vgprs)
        for key, lanes in other.outside.items():
            if key not in self.outside:
                self.outside[key], self.written[key] = dict(lanes), other.written[key]
                changed = True
            else:
                changed |= join_lanes(self.outside[key], lanes) or not other.written[key] <= self.written[key]
                self.written[key] |= other.written[key]
        for r in self.values.keys() | other.values.keys() if self.values != other.values else ():
            if self.value(r) not in (None, other.value(r)):
                self.values[r] = None
                changed = True
        return changed

    @property
    def divided(self):
        return any(d for _, d in self.open)

    def mask(self, arg):
        """Of a pair, or one half."""
        if arg in ("exec", "exec_lo", "exec_hi"):
            return Mask(self.divided, self.open)
        m = None
        for r in registers(arg):
            x = self.masks.get(r, PLAIN)
            m = x if m is None else m.join(x)
        return m or PLAIN

    def set_mask(self, i, arg, m, source=(), loaded=()):
        """What instruction i makes of a register or two. `source`: it copies these; `loaded`: the address, of memory that is constant."""
        for k, r in enumerate(registers(arg)):
            value = self.value(source[k]) if k < len(source) else (r, i)
            if k < len(source):
                self.copied.add(value)
            if loaded and None not in loaded[:-1]:
                value = ("loaded", *loaded, k)
                self.copied.update(loaded)
            elif value == (r, i):
                self.forget(value)
            self.values[r] = value
            if m == PLAIN:
                self.masks.pop(r, None)
            else:
                self.masks[r] = m

    def forget(self, value):
        """It is about to be made again, in a loop: copies of what it was in the turn before are uniform, and no more."""
        if value in self.copied:
            for held in (self.values, self.vgprs, *self.outside.values()):
                for other in [o for o, v in held.items() if v == value or isinstance(v, tuple) and value in v]:
                    held[other] = None if held is self.values else UNIFORM

    def value(self, register):
        """Which instruction's, and in which register, a scalar value was first, or where it was loaded from, or which constant it is; None: one of several."""
        return self.values.get(register, (register, -1))

    def constant(self, arg):
        value = self.values.get(arg)
        return constant(value[1] if value and value[0] == "constant" else arg)

    def lanes(self, args):
        """The most that is known of VGPRs among operands."""
        return max((kind(self.vgprs.get(r, UNIFORM)) for a in args for r in registers(a)), default=UNIFORM)

    def copy_of(self, arg):
        """What a move makes of its registers, lowest first."""
        if constant(arg) is not None:
            return [("constant", arg)] * 2
        values = [self.vgprs.get(r, UNIFORM) if r[0] in "va" and r[1].isdigit() else self.value(r) or UNIFORM for r in registers(arg)]
        self.copied.update(v for v in values if isinstance(v, tuple))
        return values

    def set_lanes(self, i, arg, value):
        """What instruction i makes of the registers of an operand: one value for all, or a list of one for each."""
        names = registers(arg)
        for k, r in enumerate(names):
            new = value[k] if isinstance(value, list) else value
            if new == UNIFORM:
                new = r, i
                self.forget(new)
            self.vgprs[r] = new
        for key in self.written:
            self.written[key] |= frozenset(names)

    def narrow(self, i, m):
        key = m.leavers if m.leavers is not None else i
        if m.divided:
            if key in self.outside:
                join_lanes(self.outside[key], self.vgprs)
            else:
                self.outside[key], self.written[key] = dict(self.vgprs), EMPTY
        self.open |= {(key, m.divided)}

    def widen(self, m):
        if m.saved is not None:
            self.open = m.saved
        elif m.leavers is not None:
            self.open = frozenset(r for r in self.open if r[0] != m.leavers)
        still = {key for key, _ in self.open}
        for key in [k for k in self.outside if k not in still]:
            others = self.outside.pop(key)
            for r in self.written.pop(key):
                inside = self.vgprs.get(r, UNIFORM)
                self.vgprs[r] = inside if isinstance(inside, tuple) and others.get(r) == inside else LANE


CARRIES = re.compile(r"v_(add|sub|subrev|addc|subb|subbrev)_co_|v_mad_[ui]64_[ui]32|v_div_scale")
LOGIC = re.compile(r"s_(and|or|xor|andn2|orn2|nand|nor|xnor)_b64")
BITWISE = re.compile(r"v_(and|or|xor|xnor|or3|and_or)_b32")
SAVES = re.compile(r"s_(and|or|xor|andn2|orn2|nand|nor|xnor)_saveexec_b64")


def splits_a_wave(op, operands, state):
    """Whether a comparison can differ within a wave."""
    lanes = state.lanes(operands)
    if lanes != THREAD:
        return lanes == LANE
    m = re.match(r"v_cmpx?_(lt|le|gt|ge)_[ui]32", op)
    if not m or len(operands) < 2:
        return True
    bound, first = state.constant(operands[0]), True
    if bound is None:
        bound, first = state.constant(operands[1]), False
    if bound is None:
        return True
    strict_below = {"gt", "le"} if first else {"lt", "ge"}  # c > x, c <= x; x < c, x >= c: the wave divides at c, else at c + 1
    return (bound if m[1] in strict_below else bound + 1) % 64 != 0


def vector(i, x, s):
    """An instruction of the vector unit that computes."""
    op, args = x.op, x.args
    if op.startswith("v_cmp"):
        operands = [a for a in args[1:]]
        m = Mask(s.divided or splits_a_wave(op, operands, s))
        if op.startswith("v_cmpx"):
            s.narrow(i, m)
        s.set_mask(i, args[0], m)
        return
    if op.startswith(("v_readfirstlane", "v_readlane")):
        slot = args[1], args[-1]
        lies_there = op.startswith("v_readlane") and slot in s.spilled
        s.set_mask(i, args[0], s.spilled[slot] if lies_there else PLAIN, (slot,) if lies_there else ())
        return
    if op.startswith("v_writelane"):
        slot = args[0], args[2]
        s.spilled[slot] = s.mask(args[1])
        s.values[slot] = s.value(registers(args[1])[0]) if registers(args[1]) else None
        s.copied.add(s.values[slot])
        return
    sources = args[1:]
    if re.match(r"v_mov_b(32|64)(_e32|_e64)?$|v_accvgpr_(read|write)_b32$", op):
        values = s.copy_of(args[1])
        for (register, lane), m in list(s.spilled.items()):  # SGPRs that lie there move along
            if register == args[1]:
                s.spilled[args[0], lane] = m
                s.values[args[0], lane] = s.value((register, lane))
        if len(values) >= len(registers(args[0])):
            s.set_lanes(i, args[0], values)
            return
    if CARRIES.match(op):
        s.set_mask(i, args[1], Mask(s.divided or s.lanes(args[2:]) != UNIFORM or s.mask(args[1]).divided))
    lanes = s.lanes(sources)
    if any(registers(a) and a[0] in "sv" and s.mask(a).divided for a in sources if a.startswith(("s[", "vcc"))):
        lanes = LANE
    if op.startswith("v_cndmask") and "_e64" not in op and s.mask("vcc").divided:
        lanes = LANE
    if op.startswith("v_mbcnt"):
        lanes = LANE
    if lanes == THREAD:
        base = re.sub(r"_e(32|64)$", "", op)
        constants = [c for a in sources if (c := constant(a)) is not None]
        if base == "v_lshrrev_b32" and constants and constant(sources[0]) is not None and constant(sources[0]) >= 6:
            lanes = UNIFORM
        elif base == "v_bfe_u32" and constants and constant(sources[1]) is not None and constant(sources[1]) >= 6:
            lanes = UNIFORM
        elif base == "v_and_b32" and any(c % 64 == 0 for c in constants):
            lanes = UNIFORM
        elif not (base in ("v_mov_b32", "v_accvgpr_write_b32", "v_accvgpr_read_b32") or BITWISE.match(base) and base != "v_and_or_b32"):
            lanes = LANE
    s.set_lanes(i, args[0], lanes)


def scalar(i, x, s):
    op, args = x.op, x.args
    if SAVES.match(op):
        before, source = s.mask("exec"), s.mask(args[1])
        kind = SAVES.match(op)[1]
        if kind == "and":
            s.narrow(i, source)
            s.set_mask(i, args[0], before)
        elif kind == "or":
            s.widen(source)
            s.set_mask(i, args[0], before)
        elif kind == "andn2":  # exec = source & ~exec
            s.widen(source)
            whole = s.open
            s.narrow(i, Mask(before.divided or source.divided))
            s.set_mask(i, args[0], Mask(before.divided, whole))
        else:
            s.narrow(i, Mask(True))
            s.set_mask(i, args[0], before)
    elif args and args[0] == "exec":
        if op == "s_mov_b64":
            m = s.mask(args[1])
            if args[1] == "-1":
                s.widen(Mask(saved=EMPTY))
            elif m.saved is not None:
                s.widen(m)
            else:
                s.narrow(i, m)
        elif op == "s_or_b64":
            s.widen(s.mask(args[2] if args[1] == "exec" else args[1]))
        elif op in ("s_andn2_b64", "s_and_b64"):
            s.narrow(i, s.mask(args[2] if args[1] == "exec" else args[1]))
        elif op == "s_xor_b64":  # the lanes of X that EXEC had not; X goes on as what gives back all of them
            name = args[2] if args[1] == "exec" else args[1]
            m, whole = s.mask(name), s.open
            s.set_mask(i, name, Mask(m.divided, whole))
            s.narrow(i, m)
        else:
            s.narrow(i, Mask(True))
    elif op == "s_mov_b64" and args[1] == "0":
        s.set_mask(i, args[0], Mask(leavers=("loop", i)))
    elif op in ("s_mov_b32", "s_movk_i32") and constant(args[1]) is not None:
        s.set_mask(i, args[0], PLAIN)
        for r in registers(args[0]):
            s.values[r] = ("constant", args[1])
    elif op in ("s_mov_b64", "s_mov_b32"):
        s.set_mask(i, args[0], s.mask(args[1]), registers(args[1]) if "exec" not in args[1] else ())
    elif op == "s_not_b64":
        s.set_mask(i, args[0], Mask(s.mask(args[1]).divided))
    elif LOGIC.match(op):
        kind = LOGIC.match(op)[1]
        a, b = s.mask(args[1]), s.mask(args[2])
        m = Mask(a.divided or b.divided)
        if "exec" in args[1:]:  # EXEC itself says nothing about the result; its other operand does
            a, b = (b, PLAIN) if args[1] == "exec" else (a, PLAIN)
        own = s.mask(args[0]) if args[0] in args[1:] else PLAIN
        for kept in (own, a, b):
            if m.saved is None and m.leavers is None and kind != "orn2":
                m.saved = kept.saved
                m.leavers = kept.leavers if kind == "or" else None
        if kind == "andn2":
            m.saved = None
        s.set_mask(i, args[0], m)
    elif op == "s_cselect_b64":
        s.set_mask(i, args[0], s.mask(args[1]).join(s.mask(args[2])))
    elif op.startswith("s_load_"):
        s.set_mask(i, args[0], PLAIN, loaded=(*(s.value(r) for r in registers(args[1])), args[2]))
    elif args and registers(args[0]) and not op.startswith(("s_cmp", "s_bitcmp", "s_cbranch", "s_waitcnt", "s_store")):
        s.set_mask(i, args[0], PLAIN)


def memory(i, x, s):
    op, args = x.op, x.args
    loads = LOADS.match(op) or op.startswith(("ds_read", "scratch_load"))
    returns = "atomic" in op and "sc0" in x.bits() or re.match(r"ds_\w+_rtn|ds_(b?permute|swizzle)", op)
    if not (loads or returns) or "lds" in args:
        return
    lanes = LANE if returns or op.startswith("scratch") or s.lanes(args[1:]) != UNIFORM else UNIFORM
    s.set_lanes(i, args[0], lanes)


def step_barriers(code, first, last, s):
    for i in range(first, last + 1):
        x = code[i]
        c = x.op[0]
        if c == "v":
            if x.args:
                vector(i, x, s)
        elif c == "s":
            if x.op.startswith("scratch"):
                memory(i, x, s)
            elif x.args:
                scalar(i, x, s)
        elif x.args:
            memory(i, x, s)


def is_last(code, barrier):
    """Whether nothing comes after a barrier that puts lanes back into EXEC, and no other barrier."""
    seen, todo = set(), list(code[barrier].next)
    while todo:
        i = todo.pop()
        x = code[i]
        if x.op in BARRIERS or x.args and x.args[0] == "exec" and re.match(r"s_(or|mov|xor)", x.op) or re.match(r"s_(or|andn2)_saveexec", x.op):
            return False
        seen.add(i)
        todo += [n for n in x.next if n not in seen]
    return True


def divided_barriers(code):
    count = sum(x.op in BARRIERS for x in code)
    if not count:
        return 0, []
    spans, successors = blocks(code)
    at = {0: State(set())}
    todo = [0]
    while todo:
        b = min(todo)
        todo.remove(b)
        s = at[b].copy()
        step_barriers(code, *spans[b], s)
        for n in successors[b]:
            if n not in at:
                at[n] = s.copy()
            elif not at[n].merge(s):
                continue
            if n not in todo:
                todo.append(n)
    found = []
    for b, s in at.items():
        first, last = spans[b]
        for i in range(first, last + 1):
            if code[i].op in BARRIERS:
                step_barriers(code, first, i - 1, s)
                first = i
                found += [(r, i) for r, divided in s.open if divided and not is_last(code, i)]
    return count, found


# ----------------------------------------------------------------------------------------------------------------- main


def rules(f):
    """What is broken in a function: (rule, sentence); and what was seen."""
    code, broken = f.code, []
    where = lambda i: f"instruction {i}, {code[i].text}" + (f" ({code[i].line})" if code[i].line else "")
    for w, i in unwaited_writebacks(code):
        broken.append(("writeback", f"{where(w)} is not waited for before {where(i)}"))
    for w, i in unwaited_lds_writes(code):
        broken.append(("lds", f"{where(w)} is not waited for before {where(i)}"))
    flags, late = unacquired_flags(code)
    for p, i in late:
        broken.append(("invalidate", f"{where(p)} is polled, and nothing is invalidated before {where(i)}"))
    barriers, divided = divided_barriers(code)
    for r, i in sorted(divided, key=lambda d: d[1]):
        opened = r[1] if isinstance(r, tuple) else r
        broken.append(("barrier", f"{where(i)} is reached without some lanes of the wave, since {where(opened)}"))
    return broken, (sum(x.op == "buffer_wbl2" for x in code), flags, barriers)


def remembered(f, folder):
    """rules(f), from the folder if it is there: by the code, and by these scripts."""
    if not folder:
        return rules(f)
    scripts = b"".join(path.read_bytes() for path in (pathlib.Path(__file__), pathlib.Path(gfx942.__file__)))
    place = folder / hashlib.sha256(scripts + f.text_of_code.encode()).hexdigest()
    try:
        return json.loads(place.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        found = rules(f)
    folder.mkdir(parents=True, exist_ok=True)
    mine = place.with_suffix(f".{os.getpid()}")
    mine.write_text(json.dumps(found))
    mine.replace(place)  # other checks run at the same time
    return found


def planted(text):
    rule, _, names = text.partition("=")
    return rule, re.compile(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objdump", default="llvm-objdump", metavar="TOOL")
    parser.add_argument("--planted", type=planted, action="append", default=[], metavar="RULE=REGEX")
    parser.add_argument("--rules", default="writeback,invalidate,lds,barrier", metavar="RULES")
    parser.add_argument("--except", type=re.compile, dest="left_out", metavar="REGEX")
    parser.add_argument("--known", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("files", nargs="+", metavar="FILE")
    o = parser.parse_args()
    wrong, total, seen, found = [], [0, 0, 0], set(), set()
    for path in o.files:
        for f in gfx942.functions(path, o.objdump):
            if f.text_of_code in seen or o.left_out and o.left_out.search(f.name):
                continue
            seen.add(f.text_of_code)
            broken, counts = remembered(f, o.known)
            broken = [(rule, sentence) for rule, sentence in broken if rule in o.rules.split(",")]
            total = [a + b for a, b in zip(total, counts)]
            meant = {rule for rule, names in o.planted if names.search(f.name)}
            found |= meant
            if meant and {rule for rule, _ in broken} == meant:
                continue
            if meant:
                wrong.append(f"{gfx942.readable(f.name)}: {', '.join(sorted(meant))} is planted, and not found alone")
            for rule, sentence in broken[:3]:
                wrong.append(f"{path}: {gfx942.readable(f.name)}: {rule}: {sentence}")
            if len(broken) > 3:
                wrong.append(f"{path}: {gfx942.readable(f.name)}: and {len(broken) - 3} more")
    print(f"{len(seen)} functions, {total[0]} writebacks, {total[1]} polled flags, {total[2]} barriers")
    wrong += [f"nothing has the planted {rule}" for rule, _ in o.planted if rule not in found]
    if not seen:
        wrong.append("no gfx942 code found")
    for w in wrong:
        print("broken:", w)
    return 1 if wrong else 0


sys.exit(main())
