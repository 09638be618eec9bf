# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls a Python function for ever and prints what a call takes, in ns: the least of some runs, ever again."""

import time

import common

CALLS = 500  # some run is not interrupted, on a busy machine too
RUNS = 200


def leaf(x):
    return x


def calls():
    start = time.perf_counter()
    for i in range(CALLS):
        leaf(i)
    return (time.perf_counter() - start) / CALLS * 1e9


def main():
    common.wait(common.parser(__doc__).parse_args())
    while True:
        print("%.1f ns" % min(calls() for _ in range(RUNS)), flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
