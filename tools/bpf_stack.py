#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bpf_stack.py OBJECT: says which BPF programs need more stack than Linux 6.1 gives them. Status 1: there are such.

The kernel adds up the frames of a chain of calls, each rounded up to 32 bytes, and refuses more than 512 bytes, or more than 8 frames
(check_max_stack_depth in kernel/bpf/verifier.c). A later kernel rounds to 16 bytes and takes more, so only the oldest one would tell.
With -v, prints the deepest chain of each program."""

import struct
import sys

MAX_STACK, MAX_FRAMES, ROUND = 512, 8, 32
FRAME_POINTER, PSEUDO_CALL = 10, 1
LDX, ST, STX, ALU64, JMP = 1, 2, 3, 7, 5  # classes of instructions
LDDW, CALL, MOV_REG, ADD_IMM = 0x18, 0x85, 0xBF, 0x07
SYMTAB, REL, FUNC = 2, 9, 2


class Elf:
    """The sections of a little-endian 64-bit ELF file, its functions by (section, offset), and where its relocations point."""

    def __init__(self, file):
        with open(file, "rb") as f:
            self.bytes = f.read()
        start, size, count = struct.unpack_from("<Q10xHH", self.bytes, 0x28)[0], *struct.unpack_from("<HH", self.bytes, 0x3A)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.bytes, start + i * size) for i in range(count)]
        symtab = next(s for s in self.sections if s[1] == SYMTAB)
        names = self.content(self.sections[symtab[6]])
        self.symbols = list(struct.iter_unpack("<IBBHQQ", self.content(symtab)))
        self.functions = {}
        for name, info, _, section, value, length in self.symbols:
            if info & 15 == FUNC:
                self.functions[section, value] = (names[name : names.index(b"\0", name)].decode(), length)
        self.targets = {}  # (section, offset of an instruction): (section, value) of the symbol
        for section in self.sections:
            if section[1] == REL:
                for offset, info in struct.iter_unpack("<QQ", self.content(section)):
                    _, _, _, of, value, _ = self.symbols[info >> 32]
                    self.targets[section[7], offset] = (of, value)

    def content(self, section):
        return self.bytes[section[4] : section[4] + section[5]]


class Function:
    """The bytes of its frame, and the functions that it calls or hands to a helper that calls them."""

    def __init__(self, elf, key):
        section, start = key
        self.name, length = elf.functions[key]
        self.frame, self.calls = 0, set()
        code = elf.content(elf.sections[section])
        copies = set()  # registers that hold the frame pointer
        handed = set()  # functions handed to the next call
        for at in range(start, start + length, 8):
            op, registers, offset, imm = struct.unpack_from("<BBhi", code, at)
            dst, src = registers & 15, registers >> 4
            kind = op & 7
            if (kind in (ST, STX) and dst == FRAME_POINTER) or (kind == LDX and src == FRAME_POINTER):
                self.frame = max(self.frame, -offset)
            if op == ADD_IMM and dst in copies:
                self.frame = max(self.frame, -imm)
            copies.discard(dst)
            if op == MOV_REG and src == FRAME_POINTER:
                copies.add(dst)
            to, value = elf.targets.get((section, at), (section, at))
            if op == CALL:
                if src == PSEUDO_CALL and not to:  # the kernel's own function, which calls them on another stack
                    handed.clear()
                elif src == PSEUDO_CALL:
                    base = value if (section, at) in elf.targets else at
                    self.calls.add((to, base + (imm + 1) * 8))
                self.calls |= handed
                handed.clear()
            if op == LDDW and (to, value + imm) in elf.functions and (section, at) in elf.targets:
                handed.add((to, value + imm))
        self.room = max(ROUND, -(-self.frame // ROUND) * ROUND)


def chains(functions, key):
    """All chains of calls that begin there: a BPF program has no recursion."""
    yield [key]
    for call in functions[key].calls:
        for chain in chains(functions, call):
            yield [key, *chain]


def main(*args):
    elf = Elf(args[-1])
    functions = {key: Function(elf, key) for key in elf.functions}
    called = set().union(*(function.calls for function in functions.values()))
    status = 0
    for key in sorted(functions.keys() - called):
        sized = [(sum(functions[k].room for k in chain), chain) for chain in chains(functions, key)]
        deepest, longest = max(sized), max(sized, key=lambda of: len(of[1]))
        bad = deepest[0] > MAX_STACK or len(longest[1]) > MAX_FRAMES
        status |= bad
        for size, chain in [deepest, longest][: 2 if bad else "-v" in args]:
            print("%d bytes in %d frames: %s" % (size, len(chain), ", ".join("%s %d" % (functions[k].name, functions[k].frame) for k in chain)))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
