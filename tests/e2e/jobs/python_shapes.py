# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Python stacks of all shapes, with no torch, for Pythons from 3.8 on: a hundred threads, tasks, generators, functions
that come and go.

Its truth: functions that a sampler has to see, and chains of them, the innermost first, without what C has between.
"""

import asyncio
import functools
import importlib.util
import os
import tempfile
import threading
import time

import common

SECONDS = 2.5
THREADS = 100


def spin(seconds=0.2):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@decorated
@functools.lru_cache(None)
def with_decorators():
    spin()


class Shapes:
    def __call__(self):
        self.__private()

    def __private(self):
        (lambda: spin())()

    @staticmethod
    def by_c():
        sorted([1], key=lambda _: spin())

    @property
    def by_attribute(self):
        return [spin() for _ in range(1)]


def outer_generator():
    yield from inner_generator()


def inner_generator():
    for _ in range(2):
        spin(0.1)
        yield


def drive():
    for _ in outer_generator():
        pass


async def outer_task():
    await inner_task()


async def inner_task():
    await asyncio.sleep(0.05)
    spin()


async def tasks():
    await asyncio.gather(*(outer_task() for _ in range(3)))


def recursive(depth):
    if depth:
        recursive(depth - 1)
    else:
        spin(0.4)


def deep():
    import sys

    sys.setrecursionlimit(2000)
    recursive(700)


def waits(until):
    def innermost():
        time.sleep(0.02)

    while time.perf_counter() < until:
        innermost()


def generated(until):
    """Functions whose code objects are freed, and made anew where those lay."""
    number = 0
    while time.perf_counter() < until:
        text = "%sdef g%d(spin):\n spin(0.001)\n return %d\n" % ("\n" * number, number, number)
        scope = {}
        exec(compile(text, "<generated %d>" % number, "exec"), scope)
        assert scope["g%d" % number](spin) == number
        number = (number + 1) % 400


WIDE = "def \u00e9tape(spin):\n    return \u6b65\u9aa4(spin)\n\n\ndef \u6b65\u9aa4(spin):\n    spin()\n"


def wide(folder):
    """A module whose name, path and functions are not ASCII."""
    path = os.path.join(folder, "mod\u00fcl \U0001f525.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(WIDE)
    spec = importlib.util.spec_from_file_location("wide", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, "\u00e9tape")(spin)


def main():
    args = common.parser(__doc__).parse_args()
    folder = os.path.join(os.path.dirname(args.out or tempfile.mkdtemp()), "w\u00efde \u6587")
    os.makedirs(folder, exist_ok=True)
    common.wait(args)
    until = time.perf_counter() + SECONDS
    threads = [threading.Thread(target=waits, args=(until,)) for _ in range(THREADS)]
    threading.stack_size(64 << 20)
    threads.append(threading.Thread(target=deep))
    for thread in threads:
        thread.start()
    for work in (with_decorators, Shapes(), Shapes.by_c, lambda: Shapes().by_attribute, drive, lambda: wide(folder)):
        work()
    asyncio.run(tasks())
    generated(time.perf_counter() + 1)
    for thread in threads:
        thread.join()
    functions = ["with_decorators", "wrapper", "__private", "<lambda>", "by_c", "by_attribute", "inner_generator"]
    functions += ["inner_task", "recursive", "innermost", "generated", "\u00e9tape", "\u6b65\u9aa4"]
    chains = [
        ["spin", "<lambda>", "__private", "__call__", "main"],
        ["spin", "<lambda>", "by_c", "main"],
        ["spin", "inner_generator", "outer_generator", "drive", "main"],
        ["spin", "inner_task", "outer_task"],
        ["spin", "with_decorators", "wrapper", "main"],
        ["innermost", "waits", "run", "_bootstrap_inner", "_bootstrap"],
        ["spin", "\u6b65\u9aa4", "\u00e9tape", "wide"],
    ]
    common.write(args, {"functions": functions, "chains": chains})


if __name__ == "__main__":
    main()
