# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ranges of PyPI's package nvtx: its names are strings that it registers with a tool."""

import time

import common
import nvtx


@nvtx.annotate("decorated", domain="one")
def decorated():
    time.sleep(0.0002)


def main():
    p = common.parser(__doc__)
    args = p.parse_args()
    common.prepare(args)
    common.wait(args)
    domain = nvtx.get_domain("two")
    for _ in range(args.batches):
        with torch.profiler.record_function("around"):
            with nvtx.annotate("context"):
                decorated()
                domain.push_range(message="overlapping")
            nvtx.push_range("plain")
            domain.pop_range()
            nvtx.pop_range()
    common.write(args, {"rounds": args.batches})


if __name__ == "__main__":
    import torch

    main()
