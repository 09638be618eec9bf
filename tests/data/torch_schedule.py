#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What torch.profiler.schedule says of each step, of many schedules: prints torch_schedule.txt, which tests/bpf/test_op_windows.c reads, and
tests/e2e/test_ops.py compares with the torch that is there. In a Python with torch:

    python tests/data/torch_schedule.py > tests/data/torch_schedule.txt

A line: skip_first, wait, warmup, active, repeat, and for each step from 0 on the number of its torch.profiler.ProfilerAction.
"""

import itertools
import warnings

STEPS = 30


def lines():
    from torch.profiler import schedule

    warnings.simplefilter("ignore")  # that no warm-up skews results
    for repeat, active, warmup, wait, skip_first in itertools.product(range(4), range(1, 4), range(3), range(3), range(4)):
        action_of = schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
        actions = "".join(str(action_of(step).value) for step in range(STEPS))
        yield "%d %d %d %d %d %s" % (skip_first, wait, warmup, active, repeat, actions)


if __name__ == "__main__":
    print(*lines(), sep="\n")
