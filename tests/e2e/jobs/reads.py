# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads 4 KiB of a cached file all the time, for --seconds; no torch.

Its truth: how many there were.
"""

import argparse
import json
import os
import time

READS = 1000


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--wait", metavar="FILE")
    p.add_argument("--out", metavar="FILE")
    p.add_argument("--seconds", type=float, default=6)
    args = p.parse_args()
    print("ready %d" % os.getpid(), flush=True)
    while not os.path.exists(args.wait):
        time.sleep(0.01)
    reads, pread, turns = 0, os.pread, range(READS)
    fd = os.open(__file__, os.O_RDONLY)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for _ in turns:
            pread(fd, 4096, 0)
        reads += READS
    with open(args.out + ".part", "w") as f:
        json.dump({"pid": os.getpid(), "reads": reads}, f)
    os.rename(args.out + ".part", args.out)


if __name__ == "__main__":
    main()
