# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program that switches stacks inside of Python functions: greenlets, resumed in turn, as gevent does."""

import time

import common
import greenlet

ROUNDS, GREENLETS, SWITCHES = 50, 5, 3
truth = {"callback": 0, "switches": 0, "longest": 0.0}


def callback(i):
    truth["callback"] += 1
    return i


def switches(n):
    start = time.perf_counter()
    truth["switches"] += 1
    for _ in range(n):
        hub.switch()
    truth["longest"] = max(truth["longest"], time.perf_counter() - start)


def run():
    # called by C: each is at the same depth of its own stack
    list(map(switches, [SWITCHES, SWITCHES]))


def main():
    args = common.parser(__doc__).parse_args()
    common.wait(args)
    for _ in range(ROUNDS):
        alive = [greenlet.greenlet(run) for _ in range(GREENLETS)]
        while alive:
            for each in alive:
                each.switch()
                # calls by the hub, at higher addresses of the stack than those that are suspended
                list(map(callback, range(3)))
            alive = [each for each in alive if not each.dead]
    common.write(args, truth)


hub = greenlet.getcurrent()
if __name__ == "__main__":
    main()
