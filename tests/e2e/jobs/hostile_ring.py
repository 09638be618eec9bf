# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Has the memory of the injection library (include/gpu_ring.h) and no CUDA: once a window begins it sends --batches names of a kernel, each
another text, all with one id. Its truth: how many it sent.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import time

import common

CONTROL, RING = 4096, 8 << 20
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
MAGIC, VERSION = 0x31677072666C7473, 4
WANTED, TAIL, STATE, SEEN, HEAD, BEGUN = 24, 40, 48, 56, 64, 104
ACTIVE, NAME_TEXT, TEXT = 2, 1, 40


def main():
    args = common.parser(__doc__, batches=150000).parse_args()
    memory = os.memfd_create("stepflame-gpu", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, CONTROL + RING)
    shared = mmap.mmap(memory, CONTROL + RING)
    struct.pack_into("=QIII", shared, 0, MAGIC, VERSION, os.getpid(), RING)
    fcntl.fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK)

    def word(offset, code="Q"):
        return struct.unpack_from("=" + code, shared, offset)[0]

    told = ctypes.c_uint64.from_buffer(shared, HEAD)  # in one store, as the library does: struct writes byte by byte
    common.wait(args)
    while not word(WANTED, "I") & 1:
        time.sleep(0.01)
    struct.pack_into("=Q", shared, BEGUN, time.monotonic_ns())
    struct.pack_into("=I", shared, STATE, ACTIVE)
    struct.pack_into("=I", shared, SEEN, word(WANTED, "I"))
    size, sent, head = 16 + TEXT, 0, 0
    while sent < args.batches:
        count = min((RING - (head - word(TAIL))) // size, args.batches - sent)
        data = b"".join(struct.pack("=HHIII", NAME_TEXT, 0, size, 7, TEXT) + b"%0*d" % (TEXT, sent + i) for i in range(count))
        at = head % RING
        first = min(len(data), RING - at)
        shared[CONTROL + at : CONTROL + at + first] = data[:first]
        shared[CONTROL : CONTROL + len(data) - first] = data[first:]
        head += len(data)
        sent += count
        told.value = head
        time.sleep(0.01)
    while word(TAIL) < head:
        time.sleep(0.01)
    common.write(args, {"sent": sent})


if __name__ == "__main__":
    main()
