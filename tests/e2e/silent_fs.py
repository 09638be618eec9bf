# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A FUSE file system with one file, "file", whose contents never come; the name "nowhere" is never found or missed.
Its process ends it. With FILE and UID, the file has the contents of FILE, for that user alone: root may not read it.
usage: silent_fs.py FOLDER [FILE UID]
"""

import ctypes
import os
import struct
import sys

LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR = 1, 3, 14, 15, 26, 27
WITHOUT_ANSWER = {2, 42, READ}  # FORGET, BATCH_FORGET
CONTENTS = open(sys.argv[2], "rb").read() if len(sys.argv) > 2 else None
BYTES = len(CONTENTS) if CONTENTS else 4096
BUFFER = 1 << 17


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100755
    return struct.pack("<6Q10I", node, BYTES, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, BYTES, 0)


def answer(code, node, body):
    """(error, bytes), or None: none"""
    if code == READ and CONTENTS:
        _, offset, size = struct.unpack_from("<2QI", body)
        return 0, CONTENTS[offset : offset + size]
    if code in WITHOUT_ANSWER or (code == LOOKUP and body == b"nowhere\0"):
        return None
    if code == INIT:
        return 0, struct.pack("<4I2H2I2H8I", 7, 31, BUFFER, 0, 8, 6, BUFFER, 1, 1, 0, *[0] * 8)
    if code == LOOKUP and body == b"file\0":
        return 0, struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2)
    if code == LOOKUP:
        return -2, b""
    if code == GETATTR:
        return 0, struct.pack("<Q2I", 3600, 0, 0) + attributes(node)
    if code in (OPEN, OPENDIR):
        return 0, struct.pack("<Q2I", 0, 0, 0)
    return -38, b""


def main():
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = b"fd=%d,rootmode=40000," % fuse + (b"user_id=%s,group_id=0" % sys.argv[3].encode() if CONTENTS else b"user_id=0,group_id=0,allow_other")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", sys.argv[1].encode(), b"fuse", 6, options):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("ready", flush=True)
    while True:
        request = os.read(fuse, 1 << 20)
        _, code, unique, node = struct.unpack_from("<2I2Q", request)
        found = answer(code, node, request[40:])
        if found:
            os.write(fuse, struct.pack("<IiQ", 16 + len(found[1]), *found[:1], unique) + found[1])


main()
