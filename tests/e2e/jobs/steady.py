# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps that are all equal, some ms each, until the file --stop is there."""

import os
import time

import common
import torch


def main():
    p = common.parser(__doc__, work=256)
    p.add_argument("--stop", required=True)
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Sequential(*(torch.nn.Linear(args.work, args.work) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.ones(args.work, args.work)
    common.wait(args)
    steps = 0
    while not os.path.exists(args.stop):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        steps += 1
    common.write(args, {"steps": steps, "pid": os.getpid(), "ended": time.monotonic()})


if __name__ == "__main__":
    main()
