# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
One of two ranks of torch.distributed over gloo, in DistributedDataParallel, whose steps sleep 40 ms each, until the file --stop is there. While the
file --late is there, rank 1 sleeps 6 ms longer.
"""

import os
import time

import common
import torch
import torch.distributed as dist

USUAL, LATE = 0.04, 0.046


def work(args):
    time.sleep(LATE if args.rank and os.path.exists(args.late) else USUAL)


def main():
    p = common.parser(__doc__, work=16)
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--meet", metavar="FILE", required=True)
    p.add_argument("--stop", required=True)
    p.add_argument("--late", required=True)
    args = p.parse_args()
    common.prepare(args)
    dist.init_process_group("gloo", init_method="file://" + args.meet, rank=args.rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(args.work, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x, stop, steps = torch.ones(4, args.work), torch.zeros(1), 0
    common.wait(args)
    while not stop:
        optimizer.zero_grad()
        work(args)
        model(x).sum().backward()
        optimizer.step()
        steps += 1
        if steps % 50 == 0:  # both end after the same step
            stop.fill_(os.path.exists(args.stop))
            dist.all_reduce(stop)
    common.write(args, {"steps": steps})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
