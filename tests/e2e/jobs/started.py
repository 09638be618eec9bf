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
    words = list(itertools.takewhile(bool, (environ[i] for i in itertools.count())))
    retitle.kept = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    ctypes.c_void_p.in_dll(libc, "environ").value = ctypes.addressof(retitle.kept)
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
            print("rank", rank, os.getpid(), flush=True)
        if number % 16 == 0:  # the ranks end together
            go_on[0] = Path(args.go_on).exists()
            dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
            if not go_on[0]:
                break
    dist.destroy_process_group()


def fit(args):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def training_step(self, batch, number):
            late(self.global_rank)
            if number == 2:
                print("rank", self.global_rank, os.getpid(), flush=True)
            if number % 16 == 0:
                go_on = torch.tensor([float(Path(args.go_on).exists())])
                dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
                self.trainer.should_stop = not go_on[0]
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    torch.set_num_threads(1)
    context = args.workers or None
    loader = DataLoader(Data(), BATCH, num_workers=1 if context else 0, multiprocessing_context=context)
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    lightning.Trainer(accelerator="cpu", devices=2, strategy=args.how, max_epochs=1, min_epochs=0, **off).fit(Module(), loader)


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
        fit(args)
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
