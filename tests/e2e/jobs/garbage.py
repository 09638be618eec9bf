# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collections of garbage, automatic and asked for, on two threads, with finalizers that make labels.

Its truth is what gc.callbacks is told: per generation, count and seconds from "start" to "stop".
"""

import gc
import threading
import time

import common
import torch


class Clock:
    def __init__(self):
        self.generations = {}
        self.start = 0.0

    def __call__(self, phase, info):
        now = time.perf_counter()
        if phase == "start":
            self.start = now
            return
        part = self.generations.setdefault("gc generation %d" % info["generation"], {"count": 0, "seconds": 0.0})
        part["count"] += 1
        part["seconds"] += now - self.start


class Node:
    labels = 0

    def __init__(self, label):
        self.me = self
        self.label = label

    def __del__(self):
        if self.label:
            with torch.profiler.record_function("finalizer"):
                Node.labels += 1


def litter(batches):
    for i in range(batches):
        for k in range(1000):
            Node(k % 100 == 0)
        gc.collect(i % 3)


def main():
    p = common.parser(__doc__, batches=60)
    args = p.parse_args()
    common.prepare(args)
    # none but those below
    gc.disable()
    kept = [[i] for i in range(100000)]
    clock = Clock()
    litter(1)
    Node.labels = 0
    common.wait(args)

    gc.callbacks.append(clock)
    gc.enable()
    other = threading.Thread(target=litter, args=(args.batches,))
    other.start()
    litter(args.batches)
    other.join()
    gc.disable()
    gc.callbacks.remove(clock)
    common.write(args, {"generations": clock.generations, "labels": Node.labels, "kept": len(kept)})


if __name__ == "__main__":
    main()
