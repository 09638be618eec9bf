# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A thread that computes by the clock: in each period one function for the first 3 tenths, and another for the rest, less the time that it sleeps.

Its truth: {function: CPU seconds}, as the thread's own clock has them.
"""

import time

import common


def spin(until):
    x = 0
    while time.perf_counter() < until:
        for i in range(50):
            x = x * 3 + i & 0xFFFF
    return x


def first(until):
    return spin(until)


def second(until):
    return spin(until)


def main():
    p = common.parser(__doc__)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--period", type=float, default=0.01, help="in seconds")
    p.add_argument("--idle", type=float, default=0, help="the part of a period, at its end, that it sleeps")
    args = p.parse_args()
    common.wait(args)
    start, cpu, truth = time.perf_counter(), time.thread_time(), {"first": 0.0, "second": 0.0}
    for i in range(int(args.seconds / args.period)):
        for function, end in ((first, i + 0.3), (second, i + 1 - args.idle)):
            function(start + end * args.period)
            now = time.thread_time()
            truth[function.__name__] += now - cpu
            cpu = now
        time.sleep(max(0, start + (i + 1) * args.period - time.perf_counter()) if args.idle else 0)
    common.write(args, {"computed": truth})


if __name__ == "__main__":
    main()
