# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A training loop with DataLoader workers, which log which of them made which batch, and when.

Its truth: for each worker its pid; for each batch the worker that made it, the time at which it was made, and the time that the
loop waited for it; so far, what came from the disk for its worker's reads, how long these took, and for how much of that it was blocked.
"""

import mmap
import os
import signal
import time

import common
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

BATCH = 2


class Rows(Dataset):
    """A row says who made it and when; worker args.slow_worker sleeps longer."""

    def __init__(self, args):
        self.args = args
        self.disk = 0  # bytes that came from the disk for this worker's files, by /proc
        self.read = self.blocked = 0.0  # seconds of its reads, and of those neither on a CPU nor ready for one

    def __len__(self):
        return self.args.batches * BATCH

    def __getitem__(self, i):
        worker, every = get_worker_info().id, self.args.slow_every
        if i == self.args.killed_at * BATCH:
            loads_a_row(KILLED_AFTER)
            os.kill(os.getpid(), signal.SIGKILL)
        slow = worker == self.args.slow_worker or (every and i // BATCH % every == 0)
        if slow and self.args.cold:
            before, start, ran = disk_bytes(), time.perf_counter(), time.thread_time() + common.delayed()
            reads_a_file(os.path.join(self.args.cold, "cold%d" % worker), self.args.mapped)
            seconds = time.perf_counter() - start
            self.read += seconds
            self.blocked += seconds - (time.thread_time() + common.delayed() - ran)
            self.disk += disk_bytes() - before
        else:
            loads_a_row(self.args.slow if slow else self.args.load)
        return torch.tensor([worker, os.getpid(), time.perf_counter(), self.disk, self.read, self.blocked], dtype=torch.float64)


def disk_bytes():
    with open("/proc/self/io") as f:
        return int(dict(line.split(": ") for line in f)["read_bytes"])


def loads_a_row(seconds):
    time.sleep(seconds)


KILLED_AFTER = 0.25
COLD_BYTES, MAPPED_BYTES = 16 << 20, 2 << 20


def reads_a_file(path, mapped):
    """So that each page comes from the disk."""
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        if not mapped:
            return f.read(COLD_BYTES)
        with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as pages:
            pages.madvise(mmap.MADV_RANDOM)
            return sum(pages[at] for at in range(0, MAPPED_BYTES, mmap.PAGESIZE))


def kill_a_worker(batches):
    """torch tells of it by a signal, whose handler raises where we are."""
    pids = [worker.pid for worker in batches._workers]
    print("workers", *pids, flush=True)
    os.kill(pids[1], signal.SIGKILL)
    time.sleep(common.WAIT_SECONDS)


def main():
    p = common.parser(__doc__, epochs=1, batches=60)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--load", type=float, default=0.001, help="seconds that a row takes")
    p.add_argument("--slow", type=float, default=0.03, help="seconds that a row of --slow-worker takes")
    p.add_argument("--slow-every", type=int, default=0, help="so does each row of every N-th batch")
    p.add_argument("--slow-worker", type=int, default=-1)
    p.add_argument("--step", type=float, default=0.004, help="seconds that a step takes besides")
    p.add_argument("--cold", metavar="DIRECTORY", help="what is slow reads a file there, of its worker, instead, from the disk")
    p.add_argument("--mapped", action="store_true", help="by a mapping")
    p.add_argument("--killed-at", type=int, default=-1, help="the worker that makes that batch is killed; the loop goes on with others")
    p.add_argument("--killed-in-step", type=int, default=-1, help="worker 1 is killed in that step, which lasts until torch says so")
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Rows(args), batch_size=BATCH, num_workers=args.workers)
    truth = {"pid": os.getpid(), "batches": []}
    for worker in range(args.workers if args.cold else 0):
        with open(os.path.join(args.cold, "cold%d" % worker), "wb") as f:
            f.write(os.urandom(COLD_BYTES))
            os.fsync(f.fileno())
    common.wait(args)
    for _ in range(args.epochs):
        batches = iter(loader)
        while True:
            start = time.perf_counter()
            try:
                rows = next(batches, None)
            except RuntimeError as error:
                truth["killed"] = {"message": str(error), "start": start, "waited": time.perf_counter() - start}
                args.killed_at = -1
                batches = iter(loader)
                continue
            waited = time.perf_counter() - start
            if rows is None:
                break
            worker, pid, made, disk, read, blocked = rows[-1].tolist()
            batch = {"worker": int(worker), "pid": int(pid), "made": made, "start": start, "waited": waited}
            truth["batches"].append({**batch, "disk": disk, "read": read, "blocked": blocked})
            optimizer.zero_grad()
            model(torch.ones(8)).sum().backward()
            time.sleep(args.step)
            if len(truth["batches"]) == args.killed_in_step:
                kill_a_worker(batches)
            optimizer.step()
    common.write(args, truth)


if __name__ == "__main__":
    main()
