# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A plain loop in which some steps are slow for a cause that was planted.

Its truth is, of each step, when it ended and how long its parts took, by time.perf_counter(), and which were planted. A step ends with
the optimizer's; its number is its place, from 1.
"""

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time

import common
import torch
from torch.utils.data import DataLoader, Dataset

INPUTS, BATCH = 256, 64
MIB = 1 << 20
HELD_SECONDS = 0.06

HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
for line in sys.stdin:
    end = time.monotonic() + float(line)
    while time.monotonic() < end:
        pass
"""


class Plant:
    """Nothing: what all causes may do. Steps `every`, 2 * every, ... are planted."""

    every = 1 << 60
    workers = 0

    def __init__(self, directory):
        self.directory = directory

    def is_planted(self, step):
        return step % self.every == 0

    def in_dataset(self, step):
        pass

    def in_loop(self, step):
        """Behind backward."""

    def end(self):
        pass

    def truth(self):
        return {}


class Sleep(Plant):
    """The dataset sleeps."""

    every = 37

    def in_dataset(self, step):
        if self.is_planted(step):
            time.sleep(HELD_SECONDS)


class Cold(Plant):
    """The dataset reads a file that is in no cache."""

    every = 40

    def __init__(self, directory):
        super().__init__(directory)
        self.path = os.path.join(directory, "cold")
        with open(self.path, "wb") as f:
            for _ in range(96):
                f.write(os.urandom(MIB))
            os.fsync(f.fileno())

    def in_dataset(self, step):
        if not self.is_planted(step):
            return
        with open(self.path, "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            # no read-ahead: each read waits for the disk
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            while f.read(MIB):
                pass


class Fsync(Plant):
    """A file is forced to the disk, with changes so far apart that the disk has more to do than the CPU."""

    every = 50

    def __init__(self, directory):
        super().__init__(directory)
        self.file = open(os.path.join(directory, "checkpoint"), "wb", buffering=0)
        self.file.write(bytes(128 * MIB))
        os.fsync(self.file.fileno())

    def in_loop(self, step):
        if not self.is_planted(step):
            return
        for offset in range(0, 128 * MIB, MIB // 16):
            os.pwrite(self.file.fileno(), b"saved", offset)
        os.fsync(self.file.fileno())


class Collect(Plant):
    """Garbage is collected, amid many objects."""

    every = 25

    def __init__(self, directory):
        super().__init__(directory)
        gc.disable()
        self.kept = [[i] for i in range(1000000)]

    def in_loop(self, step):
        if self.is_planted(step):
            gc.collect()


class Lock(Plant):
    """Another thread holds a lock."""

    every = 30

    def __init__(self, directory):
        super().__init__(directory)
        self.lock = threading.Lock()
        self.wanted, self.held = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self.hold, daemon=True)
        self.thread.start()

    def hold(self):
        while True:
            self.wanted.acquire()
            with self.lock:
                self.held.release()
                time.sleep(HELD_SECONDS)

    def in_loop(self, step):
        if self.is_planted(step):
            self.wanted.release()
            self.held.acquire()
            with self.lock:
                pass

    def truth(self):
        return {"holder": self.thread.native_id}


class Hog(Plant):
    """Another program has the CPU."""

    every = 40

    def __init__(self, directory):
        super().__init__(directory)
        cpu = max(os.sched_getaffinity(0))
        self.hog = subprocess.Popen([sys.executable, "-c", HOG, str(cpu)], stdin=subprocess.PIPE)
        os.sched_setaffinity(0, {cpu})

    def in_loop(self, step):
        if self.is_planted(step):
            self.hog.stdin.write(b"%f\n" % HELD_SECONDS)
            self.hog.stdin.flush()

    def end(self):
        self.hog.stdin.close()
        self.hog.wait()


class Worker(Plant):
    """One of four workers is slow."""

    every = 4
    workers = 4

    def in_dataset(self, step):
        if self.is_planted(step):
            time.sleep(HELD_SECONDS)
            with open(os.path.join(self.directory, "slow_worker"), "w") as f:
                f.write(str(os.getpid()))

    def truth(self):
        with open(os.path.join(self.directory, "slow_worker")) as f:
            return {"worker": int(f.read())}


PLANTS = {
    "none": Plant,
    "sleep": Sleep,
    "cold": Cold,
    "fsync": Fsync,
    "gc": Collect,
    "lock": Lock,
    "hog": Hog,
    "worker": Worker,
}


class Rows(Dataset):
    def __init__(self, steps, plant):
        self.rows = torch.rand(BATCH, INPUTS)
        self.steps = steps
        self.plant = plant

    def __len__(self):
        return self.steps

    def __getitem__(self, i):
        self.plant.in_dataset(i + 1)
        return self.rows + i


def train(model, loader, plant):
    """Of each step: [end, data, forward, backward, optimizer, delayed by the machine] in seconds."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batches = iter(loader)
    log, delayed = [], common.delayed()
    for step in range(1, len(loader) + 1):
        times = [time.perf_counter()]
        (x,) = next(batches)
        times.append(time.perf_counter())
        loss = model(x).square().mean()
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        plant.in_loop(step)
        before_optimizer = time.perf_counter()
        optimizer.step()
        end = time.perf_counter()
        log.append([end] + [b - a for a, b in zip(times, times[1:])] + [end - before_optimizer])
        before, delayed = delayed, common.delayed()
        log[-1].append(delayed - before)
        optimizer.zero_grad()
    return log


def main():
    p = common.parser(__doc__, batches=250, work=768)
    p.add_argument("--plant", choices=list(PLANTS), default="none")
    args = p.parse_args()
    common.prepare(args)
    os.sync()  # what others wrote is on disk, and that is free
    common.come_first()
    layers = [torch.nn.Linear(INPUTS, args.work), torch.nn.ReLU(), torch.nn.Linear(args.work, args.work), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(args.work, 1))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(args.out)) as directory:
        plant = PLANTS[args.plant](directory)
        loader = DataLoader(Rows(args.batches, plant), batch_size=1, num_workers=plant.workers)
        # the first steps of a process make what all others use
        train(model, DataLoader(Rows(3, Plant(directory)), batch_size=1), Plant(directory))
        common.wait(args)
        log = train(model, loader, plant)
        plant.end()
        planted = [step for step in range(1, args.batches + 1) if plant.is_planted(step)]
        common.write(args, dict(plant.truth(), log=log, planted=planted, tid=threading.get_native_id()))


if __name__ == "__main__":
    main()
