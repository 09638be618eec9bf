# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Unpacks steps, as user/recording/step_blocks.h describes them; written anew, so that the program's own writer and reader are held against it."""

from collections import defaultdict

PHASES = 12
EVEN, LEAN_MAX, SEEN_MAX = 2048, 2016, 30
QUANTUM_BITS, SIZE_BITS, ROW_MAX, COARSER = 6, 6, 12, 8


class Bits:
    """A range decoder; odds are [lean, seen] by whatever key."""

    def __init__(self, data):
        self.data, self.at, self.range, self.code = data, 5, 0xFFFFFFFF, int.from_bytes(data[1:5], "big")
        assert data[0] == 0
        self.odds = defaultdict(lambda: [0, 0])

    def widen(self):
        while self.range < 1 << 24:
            self.code = (self.code << 8 | self.data[self.at]) & 0xFFFFFFFF
            self.range, self.at = self.range << 8 & 0xFFFFFFFF, self.at + 1

    def bit(self, key):
        odds = self.odds[key]
        one, rate = EVEN + odds[0], 2560 // (10 * odds[1] + 16)
        bound = (self.range >> 12) * one
        bit = int(self.code < bound)
        if bit:
            self.range = bound
            one += (2 * EVEN - one) * rate >> 8
        else:
            self.range, self.code = self.range - bound, self.code - bound
            one -= one * rate >> 8
        odds[:] = max(-LEAN_MAX, min(LEAN_MAX, one - EVEN)), min(odds[1] + 1, SEEN_MAX)
        self.widen()
        return bit

    def even(self, count):
        value = 0
        for _ in range(count):
            self.range >>= 1
            bit = int(self.code >= self.range)
            self.code -= bit * self.range
            value = value << 1 | bit
            self.widen()
        return value

    def tree(self, key, count):
        node = 1
        for _ in range(count):
            node = node << 1 | self.bit((key, node))
        return node - (1 << count)


class Part:
    """What is expected of one part of a step."""

    def __init__(self, number):
        self.number, self.expected, self.seen = number, 0, 0

    def difference(self, bits, exact, row):
        """(value, its bits)"""
        size = bits.tree((self.number, exact, min(row, ROW_MAX)), SIZE_BITS)
        if not size:
            return 0, 0
        minus = bits.bit((self.number, "sign", size))
        value, left = 1, size - 1
        if left:
            value, left = 2 | bits.bit((self.number, "next", size, minus)), left - 1
        value = value << left | bits.even(left)
        return -value if minus else value, size

    def follow(self, ns, unit):
        self.seen += 1
        if self.seen == 1:
            self.expected = ns
            return
        limit = max(self.expected >> min(self.seen - 1, 7), unit // 2, 256)
        move = abs(ns - self.expected) // 4
        self.expected += max(-limit, min(limit, move if ns >= self.expected else -move))

    def read(self, bits, unit, row):
        difference, size = self.difference(bits, unit == 1, row)
        ns = (self.expected // unit + difference) * unit
        assert ns >= 0
        self.follow(ns, unit)
        return ns, size


def unpack(block):
    """The fields of each step, of those of a STEPS record."""
    bits, quantum, time_ns = Bits(block.tail[: block.bytes]), 0, block.base_ns
    order = [i for i in range(1 + PHASES) if block.parts >> i & 1 and i != block.rest] + [block.rest]
    parts = {i: Part(i) for i in order}
    for i in range(block.step_cnt):
        now = bits.even(QUANTUM_BITS) if bits.bit("same") else quantum
        quantum, row, ns = now or quantum, 0, [0] * (1 + PHASES)
        unit = (4 + now % 4 << now // 4) >> 2 if now else 1
        for number in order:
            ns[number], row = parts[number].read(bits, unit * (COARSER if now and number != block.rest else 1), row)
        time_ns += sum(ns)
        which = {"pid": block.pid, "tid": block.tid, "rule": block.rule}
        which.update(index=block.index + i, serial=block.serial + i & 0xFFFFFFFF)
        yield dict(which, time_ns=time_ns, forward_ns=ns[0], phase_ns=[ns[0] + ns[1], *ns[2:]])
