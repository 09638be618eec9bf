# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One of two ranks of torch.distributed over gloo: collectives one by one, and waits for them; or those that DDP makes in backward.

Its truth is what torch.profiler counts of c10d's operators, and how many works it waited for, and how long.
"""

import os
import time
from collections import Counter

import common
import torch
import torch.distributed as dist


class Waits:
    """Calls of Work.wait, with their time."""

    def __init__(self):
        self.count, self.seconds = 0, 0.0

    def __call__(self, work):
        start = time.perf_counter()
        work.wait()
        self.seconds += time.perf_counter() - start
        self.count += 1


def collectives(rank, wait, slow):
    x = torch.ones(1000)
    if rank:
        time.sleep(slow)
    wait(dist.all_reduce(x, async_op=True))
    wait(dist.broadcast(x, 0, async_op=True))
    wait(dist.reduce(x, 0, async_op=True))
    wait(dist.all_gather([torch.empty(1000), torch.empty(1000)], x, async_op=True))
    wait(dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0))


def train(model, steps, late=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        time.sleep(late)
        model(torch.ones(8, 32)).sum().backward()
        optimizer.step()
        dist.barrier()  # gloo's own threads wait for the works before it


def main():
    p = common.parser(__doc__, batches=20, work=256)
    p.add_argument("--rank", type=int, default=os.environ.get("RANK"))
    p.add_argument("--meet", metavar="FILE", help="where the ranks find each other; without it torchrun says")
    p.add_argument("--ddp", action="store_true", help="train with DistributedDataParallel")
    p.add_argument("--slow", type=float, default=0.005, help="seconds by which rank 1 comes late to the first collective")
    p.add_argument("--late", type=float, default=0, help="seconds that rank 1 sleeps in each step of DDP")
    args = p.parse_args()
    common.prepare(args)
    if args.meet:
        dist.init_process_group("gloo", init_method="file://" + args.meet, rank=args.rank, world_size=2)
    else:
        dist.init_process_group("gloo")
    if args.ddp:
        layers = torch.nn.Sequential(torch.nn.Linear(32, args.work), torch.nn.ReLU(), torch.nn.Linear(args.work, 1))
        model = torch.nn.parallel.DistributedDataParallel(layers)
        train(model, 3)  # DDP settles its buckets
    wait = Waits()
    common.wait(args)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        if args.ddp:
            train(model, args.batches, args.late if args.rank else 0)
        for _ in range(0 if args.ddp else args.batches):
            collectives(args.rank, wait, args.slow)
    ops = Counter({row.key: row.count for row in profiler.key_averages() if row.key.startswith("c10d::")})
    if not args.meet:
        args.out += str(args.rank)
    common.write(args, {"steps": args.batches, "ops": ops, "waits": wait.count, "wait_seconds": wait.seconds})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
