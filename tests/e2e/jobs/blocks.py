# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
blocks.py DIRECTORY: threads that block for good in system calls, one of which writes to a file in DIRECTORY, once it says so on stdin, when
the directory's file system may be frozen. Prints {function: thread id} when the others block, and "writing" thereafter.
"""

import fcntl
import json
import os
import socket
import sys
import threading
import time

FULL = b"x" * (1 << 20)
out = os.open(os.path.join(sys.argv[1], "file"), os.O_RDWR | os.O_CREAT)
frozen = threading.Event()


def writes_file():
    frozen.wait()
    os.write(out, b"x")


def writes_pipe(ends=os.pipe()):
    os.write(ends[1], FULL)


def reads_pipe(ends=os.pipe()):
    os.read(ends[0], 1)


def sends_file(pair=socket.socketpair()):
    """Of a file that is in memory, to a socket that nobody reads."""
    with open(sys.argv[1] + "/large", "rb") as file:
        while True:
            os.sendfile(pair[0].fileno(), file.fileno(), 0, len(FULL))


def locks_file():
    with open(sys.argv[1] + "/large", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def main():
    with open(sys.argv[1] + "/large", "wb") as file:
        file.write(FULL)
    held = open(sys.argv[1] + "/large", "rb")
    fcntl.flock(held, fcntl.LOCK_EX)
    tids = {}

    def starts(function):
        tids[function.__name__] = threading.get_native_id()
        function()

    functions = [writes_file, writes_pipe, reads_pipe, sends_file, locks_file]
    for function in functions:
        threading.Thread(target=starts, args=(function,), daemon=True).start()
    while len(tids) < len(functions):
        time.sleep(0.01)
    print(json.dumps(tids), flush=True)
    sys.stdin.readline()
    frozen.set()
    print("writing", flush=True)
    time.sleep(3600)


main()
