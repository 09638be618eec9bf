# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
hang.py FILE PYTHON [--busy]: threads that wait, each for something else, and never end. Needs nothing but Python.
When all of them wait, it writes to FILE.json which thread is which, to FILE.txt what faulthandler says of their stacks,
and prints "ready". With --busy two threads spin, too, and one calls functions all the time.
"""

import asyncio
import faulthandler
import json
import os
import queue
import select
import socket
import subprocess
import sys
import threading
import time

FOREVER = 3600


def sleeps():
    time.sleep(FOREVER)


lock = threading.Lock()


def locks():
    lock.acquire()


def gets(empty=queue.Queue()):
    empty.get()


def reads_pipe(pipe=os.pipe()):
    os.read(pipe[0], 1)


def receives(pair=socket.socketpair()):
    pair[0].recv(1)


def selects(pipe=os.pipe()):
    select.select(
        [pipe[0]],
        [],
        [],
    )


def waits_for_child():
    subprocess.run([sys.argv[2], "-c", "import time; time.sleep(%d)" % FOREVER])


def recurses(n=60):
    if n:
        return recurses(n - 1)
    return time.sleep(
        FOREVER,
    )


def generates():
    def numbers():
        yield 1
        time.sleep(FOREVER)

    for number in numbers():
        assert number == 1


class Made:
    def __init__(self, seconds):
        if seconds:
            time.sleep(seconds)


def makes():
    for i in range(1000):  # until the interpreter takes its short cut to __init__
        Made(0 if i < 999 else FOREVER)


class Managed:
    def __enter__(self):
        return self

    def __exit__(self, *what):
        time.sleep(FOREVER)


def exits():
    with Managed():
        str()


async def awaits_inner():
    await asyncio.sleep(FOREVER)


async def awaits_outer():
    await asyncio.gather(awaits_inner(), awaits_inner())


def runs_loop():
    asyncio.run(awaits_outer())


async def blocks_inner():
    time.sleep(FOREVER)


async def blocks_outer():
    await blocks_inner()


def runs_blocked_loop():
    asyncio.run(blocks_outer())


def native():
    """A thread that runs no Python; None where ctypes is missing."""
    try:
        import ctypes
    except ImportError:
        return None
    libc = ctypes.CDLL(None)
    before = set(os.listdir("/proc/self/task"))
    libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
    (tid,) = set(os.listdir("/proc/self/task")) - before
    return int(tid)


def forked():
    """A child whose thread has another id than its thread state may say."""
    pid = os.fork()
    if pid == 0:
        sleeps()
    return pid


def switches(tid):
    with open("/proc/self/task/%d/status" % tid) as status:
        return [line for line in status if "ctxt_switches" in line]


def until_all_wait(tids):
    last = None
    while True:
        now = [switches(tid) for tid in tids]
        if now == last:
            return
        last = now
        time.sleep(0.5)


def spins():
    while True:
        pass


def called(n):
    return called(n - 1) if n else n


def left(n):
    return within_left(n)


def within_left(n):
    return n + 1


def right(n):
    a, b, c, d = n, n, n, n
    return within_right(a + b + c + d)


def within_right(n):
    return n - 1


def calls():
    while True:
        called(3)
        left(1)
        right(2)


def main():
    out, busy = sys.argv[1], "--busy" in sys.argv
    told = {"child": forked(), "native": native(), "threads": {}}
    lock.acquire()
    waiting = [sleeps, locks, gets, reads_pipe, receives, selects, waits_for_child, recurses, generates, makes, exits, runs_loop]
    waiting.append(runs_blocked_loop)

    def starts(function):
        told["threads"][function.__name__] = {"tid": threading.get_native_id(), "ident": threading.get_ident()}
        function()

    def start(functions):
        for function in functions:
            threading.Thread(target=starts, args=(function,), daemon=True).start()
        while len(told["threads"]) < before + len(functions):
            time.sleep(0.01)

    before = 0
    start(waiting)
    until_all_wait([thread["tid"] for thread in told["threads"].values()])
    with open(out + ".txt", "w") as file:
        faulthandler.dump_traceback(file)
    if busy:
        before = len(waiting)
        spinning = [spins, calls]
        start(spinning)
    with open(out + ".json", "w") as file:
        json.dump(told, file)
    print("ready", flush=True)
    sleeps()


main()
