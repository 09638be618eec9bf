# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torch.cuda.nvtx's ranges, which need no GPU: nested, in threads, over exceptions, held by a generator, pushed and not popped.

Its truth is counted by itself: how many pushes each name had, and of those how many were popped.
"""

import collections
import threading
import time

import common
import torch
from torch.cuda import nvtx

pushed, popped = collections.Counter(), collections.Counter()
lock = threading.Lock()


class Ranges:
    """The ranges of one thread, as NVTX keeps them."""

    def __init__(self):
        self.stack = []
        self.pops_of_none = 0

    def push(self, name):
        nvtx.range_push(name)
        self.stack.append(name)
        with lock:
            pushed[name] += 1

    def pop(self):
        nvtx.range_pop()
        if not self.stack:
            self.pops_of_none += 1
            return
        with lock:
            popped[self.stack.pop()] += 1


def phases(r):
    """A generator that ends one range and begins the next, each time that it is asked."""
    for name in ("load", "compute", "store"):
        r.push(name)
        yield
        r.pop()


def fails(r):
    r.push("fails")
    try:
        raise ValueError
    finally:
        r.pop()


def deep(r, levels):
    if levels:
        r.push("deep")
        deep(r, levels - 1)
        r.pop()


def run(r, batches, label):
    for i in range(batches):
        r.push("step")
        with torch.profiler.record_function("labelled"):
            r.push("in the label")
            time.sleep(0.0005)
            r.pop()
        for _ in phases(r):
            time.sleep(0.0003)
        try:
            fails(r)
        except ValueError:
            pass
        deep(r, 5)
        r.push(label)
        r.pop()
        r.push("%s \u00e9\u4e2d\U0001f525" % label)
        r.pop()
        r.push("number %d" % (i % 50))
        r.pop()
        r.push("")
        r.pop()
        r.push("x" * 100000)
        r.pop()
        r.pop()


def main():
    p = common.parser(__doc__, batches=60)
    p.add_argument("--leak", type=int, default=0, help="ranges that are pushed and never popped")
    p.add_argument("--first-later", action="store_true", help="the first push, too, comes behind the wait")
    args = p.parse_args()
    common.prepare(args)
    if args.first_later:
        common.wait(args)
    nvtx.range_push("first")  # looks for a tool
    nvtx.range_pop()
    if not args.first_later:
        common.wait(args)

    mine, other = Ranges(), Ranges()
    mine.pop()
    thread = threading.Thread(target=run, args=(other, args.batches, "other"))
    thread.start()
    for _ in range(args.leak):
        mine.push("leak")
    run(mine, args.batches, "main")
    thread.join()
    none = mine.pops_of_none + other.pops_of_none
    common.write(args, {"pushed": pushed, "popped": popped, "pops_of_none": none})


if __name__ == "__main__":
    main()
