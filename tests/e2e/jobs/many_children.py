# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Forks --batches children, --rate of them a second (0: one after another, as fast as it can), of which each computes for a moment, lives for --live
seconds, and ends. It says their number at each hundredth. With --torch it is a job of torch, with a step of an optimizer for each hundred children.
Its truth: the number of children, of those that ended well, of steps, and of seconds.
"""

import os
import time

import common

AT_ONCE = 200


def no_step():
    pass


def steps_of_torch(args):
    import torch

    common.prepare(args)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.01).step


class Children:
    def __init__(self):
        self.alive = self.well = 0

    def fork(self, live):
        pid = os.fork()
        if pid == 0:
            sum(range(10000))
            time.sleep(live)
            os._exit(0)
        self.alive += 1

    def reap(self, leave):
        """Those that have ended, and others until so few are left."""
        while self.alive:
            pid, status = os.waitpid(-1, 0 if self.alive > leave else os.WNOHANG)
            if not pid:
                break
            self.alive -= 1
            self.well += status == 0


def main():
    p = common.parser(__doc__, batches=300)
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--live", type=float, default=0)
    p.add_argument("--torch", action="store_true")
    args = p.parse_args()
    step = steps_of_torch(args) if args.torch else no_step
    common.wait(args)
    children, start = Children(), time.monotonic()
    for number in range(1, args.batches + 1):
        children.fork(args.live)
        children.reap(AT_ONCE if args.rate else 0)
        if args.rate:
            time.sleep(max(0, start + number / args.rate - time.monotonic()))
        if number % 100 == 0:
            step()
            print("%d children" % number, flush=True)
    seconds = time.monotonic() - start
    children.reap(0)
    time.sleep(1)  # stepflame is still looked at
    common.write(args, {"children": args.batches, "well": children.well, "steps": args.batches // 100, "seconds": seconds})


if __name__ == "__main__":
    main()
