# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads of which it is known where they spend their time, with no torch, for Pythons from 3.8 on.

One thread computes, in three functions in turn, shares of its CPU time that it measures itself; each other one waits
for one thing, and measures for how long, but what is left of the CPU's time in it (thread_time). Its truth: for the
thread that computes {function: CPU seconds} and all of it, and for each other {thread: wall seconds without the CPU's}.
"""

import os
import random
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

import common

SLICE = 0.02  # seconds of CPU time that a function takes on average, times its share: a rhythm would be met by the timer's
SHARES = {"most": 6, "some": 3, "few": 1}


def spin(seconds):
    end = time.thread_time() + seconds
    x = 0
    while time.thread_time() < end:
        for i in range(200):
            x = x * 3 + i & 0xFFFF
    return x


def most(seconds):
    return spin(seconds)


def some(seconds):
    return spin(seconds)


def few(seconds):
    return spin(seconds)


def compute(until):
    truth = dict.fromkeys(SHARES, 0.0)
    while time.perf_counter() < until:
        for name, share in SHARES.items():
            start = time.thread_time()
            globals()[name](SLICE * share / 10 * random.uniform(0.2, 1.8))
            truth[name] += time.thread_time() - start
    return truth


def waiting(wait, until, prepare=lambda: None):
    """Seconds that wait() took, again and again, without those on the CPU."""
    total = 0.0
    while time.perf_counter() < until:
        prepare()
        start, cpu = time.perf_counter(), time.thread_time()
        wait()
        total += time.perf_counter() - start - (time.thread_time() - cpu)
    return total


def feed(action, until):
    """Lets another thread go on, again and again, and a little longer than it wants."""
    while time.perf_counter() < until + 1:
        time.sleep(0.04)
        action()


def background(*args):
    threading.Thread(target=feed, args=args, daemon=True).start()


def sleeps(until):
    return waiting(lambda: time.sleep(0.05), until)


def waits_for_a_lock(until):
    lock = threading.Lock()
    lock.acquire()
    background(lambda: lock.locked() and lock.release(), until)
    return waiting(lock.acquire, until)


def reads_a_pipe(until):
    source, sink = os.pipe()
    background(lambda: os.write(sink, b"x"), until)
    return waiting(lambda: os.read(source, 1), until)


def receives(until):
    one, other = socket.socketpair()
    background(lambda: one and other.send(b"x"), until)
    return waiting(lambda: one.recv(1), until)


def polls(until):
    source, sink = os.pipe()
    background(lambda: os.write(sink, b"x"), until)
    return waiting(lambda: select.select([source], [], []), until, lambda: select.select([source], [], [], 0)[0] and os.read(source, 1))


def syncs(until):
    with tempfile.TemporaryFile(dir=".") as file:

        def write():
            time.sleep(0.02)
            file.seek(0)
            file.write(b"x" * 65536)
            file.flush()

        return waiting(lambda: os.fsync(file.fileno()), until, write)


def waits_for_a_child(until):
    child = []

    def start():
        child[:] = [subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(0.3)"])]

    return waiting(lambda: child[0].wait(), until, start)


WAITERS = [sleeps, waits_for_a_lock, reads_a_pipe, receives, syncs, waits_for_a_child, polls]


def main():
    p = common.parser(__doc__)
    p.add_argument("--seconds", type=float, default=6)
    args = p.parse_args()
    waited, tids = {}, {}
    sys.setswitchinterval(0.0005)  # who has waited goes on at once, and not when the one that computes lets it
    common.wait(args)
    until = time.perf_counter() + args.seconds

    def start(wait):
        tids[wait.__name__] = threading.get_native_id()
        waited[wait.__name__] = wait(until)

    threads = [threading.Thread(target=start, args=(wait,)) for wait in WAITERS]
    for thread in threads:
        thread.start()
    begin, cpu = time.perf_counter(), time.thread_time()
    computed = compute(until)
    wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
    for thread in threads:
        thread.join()
    common.write(args, {"computed": computed, "wall": wall, "cpu": cpu, "waited": waited, "tids": tids})


if __name__ == "__main__":
    main()
