#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Two ranks, of which rank 1 sleeps in each step, started in one of the ways in which people start ranks (tests/e2e/test_starts.py has the list). Each
rank says `rank R PID` once it trains, and trains until the file of --go-on is gone.
"""

import argparse
import ctypes
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

LATE_SECONDS = 0.02
BATCH, WIDTH = 16, 64


def retitle(title):
    """
    What setproctitle does: moves the environment to other memory, and writes a title over the arguments and the environment with which the process
    was started.
    """
    libc = ctypes.CDLL(None)
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    libc.strdup.restype = libc.calloc.restype = ctypes.c_void_p  # never freed: an interpreter that ends still looks at it
    words = list(itertools.takewhile(bool, (environ[i] for i in itertools.count())))
    moved = libc.calloc(len(words) + 1, ctypes.sizeof(ctypes.c_void_p))
    (ctypes.c_void_p * len(words)).from_address(moved)[:] = [libc.strdup(word) for word in words]
    ctypes.c_void_p.in_dll(libc, "environ").value = moved
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[48])  # arg_start and env_end of proc(5), the state being the first
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title.encode(), len(title))
    libc.prctl(15, title.encode(), 0, 0, 0)  # PR_SET_NAME


class Data(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.randn(WIDTH)


def late(rank):
    if rank == 1:
        time.sleep(LATE_SECONDS)


def train(args, **group):
    dist.init_process_group("gloo", world_size=2, **group)
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if args.title == "before":
        retitle("training")
    context = args.workers or None
    loader = DataLoader(Data(), BATCH, num_workers=1 if context else 0, multiprocessing_context=context)
    go_on = torch.ones(1)
    for number, batch in enumerate(loader):
        late(rank)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if number == 2:
            if args.title == "after":
                retitle("training")
            os.write(1, b"rank %d %d\n" % (rank, os.getpid()))  # at once: the ranks have one file
        if number % 16 == 0:  # the ranks end together
            go_on[0] = Path(args.go_on).exists()
            dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
            if not go_on[0]:
                break
    dist.destroy_process_group()


def spawned(index, args, port):
    train(args, init_method="tcp://127.0.0.1:%d" % port, rank=index)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["env", "rank", "spawn", "process", "launch", "ddp", "ddp_spawn", "ddp_fork"])
    parser.add_argument("--go-on", required=True)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    parser.add_argument("--title", choices=["before", "after"])
    parser.add_argument("--workers", choices=["fork", "forkserver", "spawn"])
    args = parser.parse_args()
    if args.how.startswith("ddp"):
        import started_fit

        started_fit.fit(args)
    elif args.how == "spawn":
        mp.spawn(spawned, (args, args.port), nprocs=2)
    elif args.how == "process":  # with what is in the standard library
        processes = [mp.Process(target=spawned, args=(rank, args, args.port)) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    elif args.how == "launch":  # a launcher of one's own, which has imported torch
        command = [sys.executable, __file__, "rank", "--go-on", args.go_on, "--port", str(args.port)]
        children = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(2)]
        sys.exit(max(child.wait() for child in children))
    elif args.how == "rank":
        train(args, init_method="tcp://127.0.0.1:%d" % args.port, rank=args.rank)
    else:
        train(args)


if __name__ == "__main__":
    main()
