# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls of Python functions in all the ways that there are, with no torch, for Pythons from 3.8 on.

Its truth is, for each function, the calls that it counts itself and the seconds between its first statement and its
last.
"""

import collections
import functools
import os
import sys
import threading
import time

import common

CALLS = 300
truth = collections.defaultdict(lambda: [0, 0.0])


def spend(microseconds):
    end = time.perf_counter() + microseconds * 1e-6
    while time.perf_counter() < end:
        pass


def plain(x):
    start = time.perf_counter()
    spend(50)
    row = truth["plain"]
    row[0] += 1
    row[1] += time.perf_counter() - start
    return x


def outer(x):
    start = time.perf_counter()
    for _ in range(3):
        plain(x)
    row = truth["outer"]
    row[0] += 1
    row[1] += time.perf_counter() - start


def recursive(depth):
    truth["recursive"][0] += 1
    return recursive(depth - 1) if depth else 0


def deep(depth):
    truth["deep"][0] += 1
    return deep(depth - 1) if depth else 0


def raises(x):
    truth["raises"][0] += 1
    raise ValueError(x)


def generator(n):
    # its end is a resumption, too
    truth["generator"][0] += n + 1
    for i in range(n):
        spend(20)
        yield i


def early(x):
    """Has a namesake in another file, and is like it in length."""
    truth["early"][0] += 1


def a_name_that_is_longer_than_sixty_four_characters_so_that_its_length_wraps_around():
    truth["a_name_that_is_longer_than_sixty_four_characters_so_that_its_length_wraps_around"][0] += 1


class Rows:
    def __getitem__(self, i):
        truth["Rows.__getitem__"][0] += 1
        if i >= CALLS:
            raise IndexError(i)
        return i

    def __call__(self, x):
        truth["Rows.__call__"][0] += 1
        return x


def in_thread():
    truth_of_thread = [0]

    def threaded(x):
        truth_of_thread[0] += 1
        time.sleep(0.0001)

    for i in range(CALLS):
        threaded(i)
    with lock:
        truth["in_thread.<locals>.threaded"][0] += truth_of_thread[0]


lock = threading.Lock()


def forks(x):
    """A fork inside of the call: it returns in the child, too."""
    truth["forks"][0] += 1
    return os.fork()


def fork_inside():
    child = forks(1)
    if not child:
        plain(1)
        os._exit(7)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7


def other_file():
    """A function of the same name in a file of another: it is none of those wanted."""
    scope = {}
    exec(compile("def early(x): pass", "/elsewhere/other_py_calls.py", "exec"), scope)
    for i in range(CALLS):
        scope["early"](i)


def work():
    for i in range(CALLS):
        plain(i)
        outer(i)
        early(i)
        a_name_that_is_longer_than_sixty_four_characters_so_that_its_length_wraps_around()
        try:
            raises(i)
        except ValueError:
            pass
    list(map(plain, range(CALLS)))
    sorted(range(CALLS), key=functools.partial(plain))
    recursive(30)
    deep(200)
    for _ in range(10):
        list(generator(20))
        for _ in generator(20):
            pass
    list(Rows())
    list(map(Rows(), range(CALLS)))
    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other_file()
    fork_inside()


def main():
    args = common.parser(__doc__).parse_args()
    sys.setrecursionlimit(1000)
    common.wait(args)
    work()
    common.write(args, {"calls": truth})


if __name__ == "__main__":
    main()
