# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Forks a child, tells its PID, and then both call a Python function for ever."""

import os
import time

import common


def leaf(x):
    return x


def calls():
    for i in range(1000):
        leaf(i)


def main():
    args = common.parser(__doc__).parse_args()
    common.wait(args)
    parent = os.getpid()
    child = os.fork()
    if child:
        print("child %d" % child, flush=True)
    while child or os.getppid() == parent:
        calls()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
