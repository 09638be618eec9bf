# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Python that calls nothing but itself and the interpreter: three functions that compute in turn, for Pythons from 3.8 on, with no torch.

Its truth: {function: CPU seconds of its own}, which it measures itself.
"""

import random
import time

import common


class Table:
    def __init__(self):
        self.counts = {str(i): i for i in range(500)}
        self.total = 0


def looks_up(table, rounds):
    for _ in range(rounds):
        for key in table.counts:
            table.total += table.counts[key]


def computes(table, rounds):
    x = table.total
    for i in range(rounds * 400):
        x = x * 3 + i & 0xFFFF
    table.total = x


def makes(table, rounds):
    for i in range(rounds * 60):
        table.total = len((i, str(i), [i, table], {i: table}))


SHARES = {looks_up: 60, computes: 30, makes: 15}


def turn(table, truth):
    for function, rounds in SHARES.items():
        rounds = int(rounds * random.uniform(0.2, 1.8))
        start = time.thread_time()
        function(table, rounds)
        truth[function.__name__] += time.thread_time() - start


def main():
    p = common.parser(__doc__)
    p.add_argument("--seconds", type=float, default=6)
    args = p.parse_args()
    table, truth = Table(), dict.fromkeys((f.__name__ for f in SHARES), 0.0)
    common.wait(args)
    until = time.perf_counter() + args.seconds
    while time.perf_counter() < until:
        turn(table, truth)
    common.write(args, {"computed": truth})


if __name__ == "__main__":
    main()
