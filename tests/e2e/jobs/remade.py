# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes a function, calls it, and lets it end, over and over: its code object is mostly where that of the one before was.

Its truth: for each function when it was called and when it had returned, and how many had the address of an earlier one.
"""

import time

import common

SOURCE = """
def made_{:06d}(until):
    x = 0
    while monotonic() < until:
        for i in range(50):
            x = x * 3 + i & 0xFFFF
    return x
"""


def call(number, seconds):
    names = {"monotonic": time.monotonic}
    exec(SOURCE.format(number), names)
    function = names.pop("made_%06d" % number)  # so that it ends as it goes out of here
    start = time.monotonic_ns()
    function(time.monotonic() + seconds)
    return id(function.__code__), start, time.monotonic_ns()


def main():
    p = common.parser(__doc__)
    p.add_argument("--seconds", type=float, nargs="+", default=[3], help="of each phase")
    p.add_argument("--each", type=float, nargs="+", default=[0.015], help="seconds that a function computes in the phase")
    args = p.parse_args()
    common.wait(args)
    calls, addresses, again = [], set(), 0
    for seconds, each in zip(args.seconds, args.each):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code, *called = call(len(calls), each)
            again += code in addresses
            addresses.add(code)
            calls.append(called)
    common.write(args, {"calls": calls, "again": again})


if __name__ == "__main__":
    main()
