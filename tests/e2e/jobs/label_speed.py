# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Enters a label of torch for ever and prints what that takes, in ns: the least of some runs, ever again."""

import time

import common
import torch

LABELS = 50  # some run is not interrupted, on a busy machine too
RUNS = 500


def labels():
    start = time.perf_counter()
    for _ in range(LABELS):
        with torch.profiler.record_function("label"):
            pass
    return (time.perf_counter() - start) / LABELS * 1e9


def main():
    args = common.parser(__doc__).parse_args()
    common.prepare(args)
    common.wait(args)
    while True:
        print("%.1f ns" % min(labels() for _ in range(RUNS)), flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
