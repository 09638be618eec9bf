# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Trains until it dies, in one of the ways in which jobs do: an exit, an exception, a signal, or with no goodbye at all; out of memory, out of shared
memory in a worker, or because a worker was killed.
"""

import mmap
import os
import signal
import sys

import common
import torch
from torch.utils.data import DataLoader, Dataset


def die(how):
    if how == "exit":
        sys.exit(7)
    if how == "raise":
        raise RuntimeError("out of luck")
    if how == "_exit":
        os._exit(7)
    if how == "memory":
        held = []
        while True:
            held.append(bytearray(1 << 22))
    if how in ("shm", "worker"):
        for _ in DataLoader(Last(how), num_workers=1):
            pass
    os.kill(os.getpid(), getattr(signal, how))


class Last(Dataset):
    """Its first item is the last thing that a worker does."""

    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 1

    def __getitem__(self, index):
        if self.how == "shm":
            with open("/dev/shm/full-%d" % os.getpid(), "w+b") as file:
                file.truncate(1 << 30)
                pages = mmap.mmap(file.fileno(), 1 << 30)
                for at in range(0, 1 << 30, mmap.PAGESIZE):
                    pages[at] = 1
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    p = common.parser(__doc__, batches=200)
    p.add_argument("--how", choices=["exit", "raise", "_exit", "memory", "shm", "worker", "SIGKILL", "SIGABRT", "SIGTERM", "SIGSEGV", "SIGXCPU"], default="exit")
    p.add_argument("--inside", action="store_true", help="in the middle of a label and of a backward")
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.ones(4, 8)
    common.wait(args)
    for i in range(args.batches):
        optimizer.zero_grad()
        loss = model(x).sum()
        if args.inside and i == args.batches - 1:
            loss.register_hook(lambda grad: die(args.how))
            with torch.profiler.record_function("last"):
                loss.backward()
        loss.backward()
        optimizer.step()
    die(args.how)


if __name__ == "__main__":
    main()
