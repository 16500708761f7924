#!/usr/bin/env python3
"""usage: check_loads.py FILE.cubin ...

What a test shows now and then at best: TMA instructions (sm_90a) read uniform registers some time after they were
issued, and a warp has only one set of those. If the lane that issued one goes on to wait, the warp's other lanes may run, on a way on
which the compiler has not ordered anything behind that read, and overwrite a register. So no such instruction may be followed by a
jump, a convergence or a yield before something waits for its read. Exits with 1 where that is broken.

An instruction has 128 bits; the opcode is the lowest 12 of them. Of its scheduling bits, [113, 116) name the counter that it holds
until its operands are read, 7 for none, and [116, 122) are the counters that it waits for before it issues."""
import struct
import sys

STARTS = {0x5B4: "UTMALDG", 0x3BA: "UBLKCP", 0x9B9: "UTMACCTL"}
LEAVES = {0x941: "BSYNC", 0x942: "BREAK", 0x944: "CALL", 0x945: "BSSY", 0x946: "YIELD", 0x947: "BRA", 0x94D: "EXIT", 0x950: "RET", 0x95D: "NANOSLEEP", 0x348: "WARPSYNC",
          0x948: "WARPSYNC", 0xB1D: "BAR", 0x9C7: "UCGABAR_ARV", 0xDC7: "UCGABAR_WAIT"}


def code_of(path):
    """(name, instructions) of every function of an ELF file."""
    data = open(path, "rb").read()
    at, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    section = lambda i: struct.unpack_from("<IIQQQQ", data, at + i * size)  # name, type, flags, address, offset, size
    strings = section(names)[4]
    for i in range(count):
        name, _, _, _, offset, length = section(i)
        text = data[strings + name:data.index(b"\0", strings + name)].decode()
        if text.startswith(".text."):
            yield text[6:], [low | high << 64 for low, high in struct.iter_unpack("<QQ", data[offset:offset + length])]


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    starts, broken = 0, []
    for path in sys.argv[1:]:
        for name, code in code_of(path):
            for i, x in enumerate(code):
                if x & 0xFFF not in STARTS:
                    continue
                starts += 1
                counter = x >> 113 & 7
                for y in code[i + 1:]:
                    if counter < 6 and y >> (116 + counter) & 1:
                        break
                    if y & 0xFFF in LEAVES:
                        broken.append(f"{name}: {STARTS[x & 0xFFF]} at {i * 16:#x}, {LEAVES[y & 0xFFF]} before its operands are read")
                        break
    print(f"{starts} TMA instructions")
    if not starts:
        broken.append("none found")
    for b in broken:
        print("broken:", b)
    return 1 if broken else 0


sys.exit(main())
