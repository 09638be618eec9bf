# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Faults that are planted around a training program: $ZOO_FAULT is one of FAULTS, with ":N" for every N-th step. What they do is logged as
"planted" by the program's own clock.

A fault is in a function of this file with a name that says what it does, which is what the report has to name. `hog` is not here: it is
another process, started by the harness; and what makes `disk` and `memory` slow is in ../limits.py.
"""

import gc
import mmap
import os
import random
import threading
import time

import clock

HELD_SECONDS = 0.08
MIB = 1 << 20

name, _, every = os.environ.get("ZOO_FAULT", "").partition(":")
every = int(every or 0)
steps = 0


def is_turn():
    return every and steps % every == 0


class SlowItems:
    """A dataset whose every N-th batch has an item that sleeps. Counted, for samplers shuffle."""

    def __init__(self, dataset, batch):
        self.dataset = dataset
        self.every_items = every * batch
        self.count = 0

    def __len__(self):
        return len(self.dataset)

    def __getattr__(self, attribute):
        if attribute.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(attribute)
        return getattr(self.dataset, attribute)

    def __getitem__(self, i):
        self.count += 1
        if self.count % self.every_items == 0:
            self.wait_for_storage()
        return self.dataset[i]

    def wait_for_storage(self, seconds=HELD_SECONDS):
        with clock.event("planted"):
            time.sleep(seconds)


class Crawl(SlowItems):
    """Each item takes N milliseconds."""

    def __getitem__(self, i):
        self.wait_for_storage(every / 1000)
        return self.dataset[i]


class Cold(SlowItems):
    """The item is in a file that is in no cache, and is read in pieces until that has taken its time."""

    def __init__(self, *args):
        super().__init__(*args)
        self.file = open(os.environ["ZOO_TRUTH"] + ".cold", "wb+", buffering=0)
        for _ in range(64):
            self.file.write(os.urandom(MIB))
        os.fsync(self.file.fileno())

    def wait_for_storage(self):
        with clock.event("planted"):
            descriptor = self.file.fileno()
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            # no read-ahead: each read waits for the disk
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            end = time.perf_counter() + HELD_SECONDS
            offset = 0
            while time.perf_counter() < end:
                os.pread(descriptor, 1 << 16, offset % (64 * MIB))
                offset += 1 << 16


class Disk(SlowItems):
    """Each item is N KiB of a file that is in no cache: how long that takes is the disk's, which the harness has made slow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.file = open(os.environ["ZOO_TRUTH"] + ".items", "wb+", buffering=0)
        for _ in range(256):
            self.file.write(os.urandom(MIB))
        os.fsync(self.file.fileno())
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def __getitem__(self, i):
        self.read_item()
        return self.dataset[i]

    def read_item(self):
        with clock.event("planted"):
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.count += 1
            os.pread(self.file.fileno(), every << 10, self.count * (every << 10) % (256 * MIB))


class Memory(SlowItems):
    """Each item is N pages, here and there, of a file that is mapped, for which the harness has left too little memory."""

    def __init__(self, *args):
        super().__init__(*args)
        size = 512 * MIB
        with open(os.environ["ZOO_TRUTH"] + ".mapped", "wb+", buffering=0) as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
            os.fsync(file.fileno())
            self.map = mmap.mmap(file.fileno(), 0)
        self.map.madvise(mmap.MADV_RANDOM)
        self.places = random.Random(1)

    def __getitem__(self, i):
        self.read_item()
        return self.dataset[i]

    def read_item(self):
        with clock.event("planted"):
            for _ in range(every):
                self.map[self.places.randrange(len(self.map))]


DATASETS = {"disk": Disk, "memory": Memory, "item": SlowItems, "crawl": Crawl, "cold": Cold}


def dataset(of, batch=1):
    """Of a dataset, the same or one that is slow: batch is how many items a step takes."""
    return DATASETS[name](of, batch) if name in DATASETS else of


class Fsync:
    """A file is forced to the disk, again and again until that has taken its time: how fast a disk is, is not known."""

    def __init__(self):
        self.file = open(os.environ["ZOO_TRUTH"] + ".saved", "wb", buffering=0)
        self.file.write(bytes(64 * MIB))
        os.fsync(self.file.fileno())

    def save_to_disk(self):
        end = time.perf_counter() + HELD_SECONDS
        offset = 0
        while time.perf_counter() < end:
            os.pwrite(self.file.fileno(), b"saved", offset % (64 * MIB))
            os.fsync(self.file.fileno())
            offset += MIB


class Collect:
    """Garbage is collected, amid many objects."""

    def __init__(self):
        self.kept = [[i] for i in range(1000000)]

    def clean_up(self):
        gc.collect()


class Lock:
    """Another thread holds a lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.wanted, self.held = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self.hold, daemon=True).start()

    def hold(self):
        while True:
            self.wanted.acquire()
            with self.lock:
                self.held.release()
                time.sleep(HELD_SECONDS)

    def take_lock(self):
        self.wanted.release()
        self.held.acquire()
        with self.lock:
            pass


class Work:
    """Python computes."""

    def log_statistics(self):
        sum(i % 7 for i in range(2000000))


# of which function is called behind every N-th step of an optimizer
FAULTS = {"fsync": (Fsync, "save_to_disk"), "gc": (Collect, "clean_up"), "lock": (Lock, "take_lock"), "work": (Work, "log_statistics")}


def arm():
    """To be called once, before the training."""
    if name not in FAULTS:
        return
    from torch.optim import optimizer

    make, method = FAULTS[name]
    plant = getattr(make(), method)

    def behind_step(which, args, kwargs):
        global steps
        steps += 1
        if is_turn():
            with clock.event("planted"):
                plant()

    optimizer.register_optimizer_step_post_hook(behind_step)
