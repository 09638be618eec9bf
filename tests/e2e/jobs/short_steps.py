# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Short steps without end: --batches of an optimizer that has nothing to do, some hundred thousand an hour of a real job. After each --work
steps it rests for a moment, so that who reads keeps up. Its truth: the number of steps, and the seconds from the end of the first to
that of the last.
"""

import time

import common
import torch


def main():
    args = common.parser(__doc__, batches=60000, work=200).parse_args()
    common.prepare(args)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.01)
    common.wait(args)
    for step in range(1, args.batches + 1):
        optimizer.step()
        if step == 1:
            start = time.perf_counter()
        if step == args.batches:
            seconds = time.perf_counter() - start
        if args.work and step % args.work == 0:
            time.sleep(0.005)
    common.write(args, {"steps": args.batches, "seconds": seconds})


if __name__ == "__main__":
    main()
