# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A file system of FUSE with some thousand small files, whose server takes its time for each look-up and each list of a folder: as one that is
far away. It is mounted in a namespace of mounts that the program gets for itself, and ends with it.
"""

import ctypes
import os
import struct
import time

LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR, READDIR, FORGET, BATCH_FORGET = 1, 3, 14, 15, 26, 27, 28, 2, 42
BUFFER, FILES = 1 << 17, 4000
CONTENTS = b"7" * 512
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, len(CONTENTS), 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def entries(offset, size):
    """Of the folder, from the offset-th on."""
    out = b""
    for i in range(offset, 40):
        name = b"%d" % i
        entry = struct.pack("<2Q2I", i + 2, i + 1, len(name), 8) + name
        entry += b"\0" * (-len(entry) % 8)
        if len(out) + len(entry) > size:
            break
        out += entry
    return out


def answer(code, node, body, seconds):
    if code == INIT:
        return 0, struct.pack("<4I2H2I2H8I", 7, 31, BUFFER, 0, 8, 6, BUFFER, 1, 1, 0, *[0] * 8)
    if code == LOOKUP:
        time.sleep(seconds)
        name = body.rstrip(b"\0")
        if not name.isdigit() or int(name) >= FILES:
            return -2, b""
        return 0, struct.pack("<4Q2I", int(name) + 2, 0, 0, 0, 0, 0) + attributes(int(name) + 2)
    if code == GETATTR:
        return 0, struct.pack("<Q2I", 3600, 0, 0) + attributes(node)
    if code in (OPEN, OPENDIR):
        return 0, struct.pack("<Q2I", 0, 0, 0)
    if code == READ:
        _, offset, size = struct.unpack_from("<2QI", body)
        return 0, CONTENTS[offset : offset + size]
    if code == READDIR:
        _, offset, size = struct.unpack_from("<2QI", body)
        time.sleep(seconds if offset == 0 else 0)
        return 0, entries(offset, size)
    return -38, b""


def serve(fuse, seconds):
    while True:
        request = os.read(fuse, 1 << 20)
        _, code, unique, node = struct.unpack_from("<2I2Q", request)
        if code in (FORGET, BATCH_FORGET):
            continue
        error, data = answer(code, node, request[40:], seconds)
        os.write(fuse, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


def check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(folder, seconds):
    """Before the program starts threads. seconds: of each look-up."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs(folder)
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    fuse = os.open("/dev/fuse", os.O_RDWR)
    check(libc.mount(b"far", folder.encode(), b"fuse", 6, b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse))
    if os.fork() == 0:
        libc.prctl(1, 9)  # PR_SET_PDEATHSIG
        try:
            serve(fuse, seconds)
        finally:
            os._exit(0)
    os.close(fuse)
