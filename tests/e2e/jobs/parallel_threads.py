# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads that run Python at the same time, each in functions of its own, for some CPU time. Waits for a line, prints what each took."""

import json
import sys
import threading
import time

CPU_SECONDS = float(sys.argv[1])


def spin(count):
    total = 0
    for i in range(count):
        total += i * i
    return total


def down(depth):
    return down(depth - 1) if depth else spin(2000)


def ones():
    while True:
        yield spin(2000)


def by_spin():
    return spin(2000)


def by_recursion():
    return down(30)


def by_generator():
    return next(ones())


def by_lambda():
    return sorted([1, 2], key=lambda _: spin(1000))


def work(function, go, took):
    tid = threading.get_native_id()
    took[function.__name__, tid] = 0.0, 0.0
    go.wait()
    begin = time.monotonic()
    while time.thread_time() < CPU_SECONDS:
        function()
    took[function.__name__, tid] = time.thread_time(), time.monotonic() - begin


def main():
    go, took = threading.Event(), {}
    threads = [threading.Thread(target=work, args=(function, go, took)) for function in (by_spin, by_recursion, by_generator, by_lambda)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    go.set()
    for thread in threads:
        thread.join()
    print(json.dumps([[name, tid, *seconds] for (name, tid), seconds in took.items()]), flush=True)


main()
