# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls of the CUDA runtime's waits, as torch's C++ code makes them. With no GPU they fail at once: they are calls all
the same.

Its truth is how many it made, and their time; nothing where torch has no CUDA.
"""

import ctypes
import re
import time

import common
import torch

CALLS = {"cudaDeviceSynchronize": 0, "cudaStreamSynchronize": 1, "cudaEventSynchronize": 1}


def main():
    p = common.parser(__doc__, batches=200)
    args = p.parse_args()
    common.prepare(args)
    with open("/proc/self/maps") as maps:
        found = re.search(r"/\S*/libcudart[.-]\S+$", maps.read(), re.M)
    runtime = found and ctypes.CDLL(found.group())
    common.wait(args)

    truth = {}
    for name, arguments in CALLS.items() if runtime else ():
        call = getattr(runtime, name)
        start = time.perf_counter()
        for _ in range(args.batches):
            call(*[None] * arguments)
        truth[name] = {"count": args.batches, "seconds": time.perf_counter() - start}
    common.write(args, {"calls": truth, "cuda": torch.version.cuda})


if __name__ == "__main__":
    main()
