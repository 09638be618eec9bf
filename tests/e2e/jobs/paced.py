# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Steps that take 5, 20 and 60 ms in turn, most of it asleep, until the file --stop is there. The truth: how many, and how long each one but the first
took, from the end of an optimizer's step to the next.
"""

import os
import time

import common
import torch

SLEEPS = (0.004, 0.019, 0.059)


def main():
    p = common.parser(__doc__, work=8)
    p.add_argument("--stop", required=True)
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Linear(args.work, args.work)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.ones(1, args.work)
    common.wait(args)
    ends = []
    while not os.path.exists(args.stop):
        optimizer.zero_grad()
        time.sleep(SLEEPS[len(ends) % len(SLEEPS)])
        model(x).sum().backward()
        optimizer.step()
        ends.append(time.monotonic())
    common.write(args, {"steps": len(ends), "durations": [after - before for before, after in zip(ends, ends[1:])]})


if __name__ == "__main__":
    main()
