# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Forks --batches children, one after another; each computes for a moment and ends. It says their number at each hundredth. No torch."""

import os
import time

import common


def main():
    args = common.parser(__doc__, batches=300).parse_args()
    common.wait(args)
    for number in range(1, args.batches + 1):
        pid = os.fork()
        if pid == 0:
            sum(range(10000))
            os._exit(0)
        os.waitpid(pid, 0)
        if number % 100 == 0:
            print("%d children" % number, flush=True)
    time.sleep(1)  # stepflame is still looked at
    common.write(args, {"children": args.batches})


if __name__ == "__main__":
    main()
