# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Python functions called in all the ways that there are, the same every time, with no torch, for Pythons from 3.8 on.

With --profile its truth is what cProfile says of its functions: {"LINE NAME": [calls, primitive calls, tottime,
cumtime]}; and how long one of them took by its own clock.
"""

import asyncio
import contextlib
import cProfile
import functools
import pstats
import sys
import threading
import time

import common

DEEP = 600
THREADS = 4
truth = {}


def leaf(x):
    return x


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def deep(n):
    return deep(n - 1) if n else leaf(0)


def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return time.perf_counter() - end + seconds


def around():
    truth["busy"] = busy(0.01) + busy(0.02)


def gen(n):
    for i in range(n):
        yield leaf(i)


def delegates(n):
    result = yield from gen(n)
    return result


def tree(n):
    if n:
        yield from tree(n - 1)
        yield n
        yield from tree(n - 1)


def echo():
    got = None
    while True:
        got = yield leaf(got)


def stops():
    try:
        yield 1
        yield 2
    finally:
        leaf("closed")


class Plain:
    def __init__(self, x):
        self.x = x

    @property
    def value(self):
        return self.x

    def __getitem__(self, i):
        if i >= 10:
            raise IndexError(i)
        return i

    def __call__(self, x):
        return leaf(x)

    def __eq__(self, other):
        return self.x == other.x

    def __lt__(self, other):
        return self.x < other.x

    def __del__(self):
        leaf(self.x)


class Derived(Plain):
    def __init__(self, x):
        super().__init__(x)
        self.inner = Plain(x)


class Fails:
    def __init__(self, x):
        raises(2)


class Dynamic:
    def __getattr__(self, name):
        return leaf(name)

    def __getattribute__(self, name):
        return super().__getattribute__(name)


def raises(n):
    if not n:
        raise ValueError(n)
    raises(n - 1)


def catches(n):
    try:
        raises(n)
    except ValueError:
        return leaf(n)


def generator_raises():
    yield 1
    raises(3)


@contextlib.contextmanager
def context():
    leaf("in")
    try:
        yield
    finally:
        leaf("out")


@functools.lru_cache(maxsize=None)
def cached(n):
    return n if n < 2 else cached(n - 1) + cached(n - 2)


async def waits(n):
    await asyncio.sleep(0)
    return leaf(n)


async def counts(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def main_task():
    await asyncio.gather(*(waits(i) for i in range(5)))
    return [i async for i in counts(5)]


def threaded(n):
    for i in range(200):
        fib(n % 3 + 3)
        catches(2)
        sum(gen(5))


def run_generators():
    for _ in range(30):
        for _ in gen(10):
            pass
        sum(gen(10))
        list(delegates(7))
        list(tree(4))
        loop = echo()
        next(loop)
        for i in range(5):
            loop.send(i)
        loop.close()
        early = stops()
        next(early)
        early.close()
        with contextlib.suppress(ValueError):
            list(generator_raises())
        [x for x in map(leaf, gen(3))]
        {x: leaf(x) for x in range(3)}


def run_objects():
    for i in range(300):
        one = Plain(i)
        one.value, one[3], one(i), one == one
        Derived(i).value
        Dynamic().name
        with contextlib.suppress(ValueError):
            Fails(i)
        with context():
            leaf(i)
    sorted(Plain(i % 7) for i in range(50))
    list(Plain(1))


def run_calls():
    for i in range(1000):
        leaf(i)
    fib(15)
    even(40)
    deep(truth["deep"])
    deep(truth["deep"])
    cached(30)
    around()
    for i in range(100):
        catches(i % 10)
    sorted(range(100), key=leaf)
    functools.reduce(lambda a, b: leaf(a), range(100))
    list(map(lambda x: leaf(x), range(100)))
    exec(compile("def local(x):\n    return leaf(x)\nfor i in range(20): local(i)", __file__, "exec"), dict(globals()))
    with contextlib.suppress(TypeError):
        leaf()  # not a call: its arguments do not fit


def work():
    run_calls()
    run_generators()
    run_objects()
    asyncio.run(main_task())


def run_threads(start):
    """Each in a thread of its own, which `start` may wrap."""
    threads = []
    for i in range(THREADS):
        threads.append(threading.Thread(target=start, args=(threaded, i)))
    for thread in threads:
        thread.start()
        if start is not call:
            thread.join()  # cProfile, from 3.12 on, profiles one thread at a time
    for thread in threads:
        thread.join()


def call(function, *args):
    function(*args)


def profiled(rows, function, *args):
    profile = cProfile.Profile()
    profile.runcall(function, *args)
    for (file, line, name), (primitive, calls, total, cumulative, _) in pstats.Stats(profile).stats.items():
        if file == __file__:
            row = rows.setdefault("%d %s" % (line, name), [0, 0, 0.0, 0.0])
            row[:] = [row[0] + calls, row[1] + primitive, row[2] + total, row[3] + cumulative]


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--profile", action="store_true", help="run under cProfile")
    parser.add_argument("--deep", type=int, default=DEEP, help="depth of a recursion")
    args = parser.parse_args()
    sys.setrecursionlimit(3000)
    truth["deep"] = args.deep
    common.wait(args)
    rows = truth["rows"] = {}
    truth["threads"] = THREADS
    start = functools.partial(profiled, rows) if args.profile else call
    start(work)
    run_threads(start)
    common.write(args, truth)


if __name__ == "__main__":
    main()
