# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
torch alone: loops that have to do with the machine: files that they write, calls that wait for many, threads and processes for which there
are too few CPUs, memory that workers copy. KIND says which; what each does is its function's first line.
"""

import asyncio
import collections
import ctypes
import gc
import mmap
import multiprocessing
import os
import struct
import sys
import threading
import time

import clock
import numpy
import torch
from kinds import ROWS, WIDTH, Trainer, parse
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20


def path_of(name):
    return os.environ["ZOO_TRUTH"] + "." + name


def every_tenth(trainer, save):
    batch, number = torch.randn(8 * ROWS, WIDTH), 0
    while True:
        trainer.update(batch)
        number += 1
        if number % 10 == 0:
            with clock.event("planted"):
                save()


def rewrites_file(trainer):
    """Every 10th step writes the same file anew, which has to wait until what it held is on the disk."""
    contents = os.urandom(48 * MIB)

    def rewrite_weights():
        with open(path_of("weights"), "wb", buffering=0) as file:
            file.write(contents)

    every_tenth(trainer, rewrite_weights)


def replaces_file(trainer):
    """Every 10th step writes a file, forces it to the disk and puts it in the place of the last one."""
    contents = os.urandom(16 * MIB)

    def replace_weights():
        with open(path_of("new"), "wb", buffering=0) as file:
            file.write(contents)
            os.fdatasync(file.fileno())
        os.replace(path_of("new"), path_of("weights"))

    every_tenth(trainer, replace_weights)


def reads_back(trainer):
    """Every 10th step saves, and reads from the disk what it has saved."""
    large = {"weights": torch.randn(6 * MIB)}

    def save_and_check():
        torch.save(large, path_of("saved"))
        with open(path_of("saved"), "rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            while file.read(1 << 18):
                pass

    every_tenth(trainer, save_and_check)


def copies_file(trainer):
    """Every 10th step copies a file that is in memory to the disk, past the cache, in calls that read and write."""
    with open(path_of("weights"), "wb") as file:
        file.write(os.urandom(16 * MIB))
    source = os.open(path_of("weights"), os.O_RDONLY)
    copy = os.open(path_of("copy"), os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)

    def copy_weights():
        os.lseek(copy, 0, os.SEEK_SET)
        at = 0
        while at < 16 * MIB:
            at += os.sendfile(copy, source, at, 16 * MIB - at)

    every_tenth(trainer, copy_weights)


class DirectBlocks:
    """Reads and writes of libaio, which no cache answers."""

    SETUP, GETEVENTS, SUBMIT = 206, 208, 209
    READ, WRITE = 0, 1
    BYTES = 8 * MIB

    def __init__(self):
        with open(path_of("blocks"), "wb") as file:
            for _ in range(16):
                file.write(os.urandom(self.BYTES))
            os.fsync(file.fileno())
        self.file = os.open(path_of("blocks"), os.O_RDWR | os.O_DIRECT)
        self.block = mmap.mmap(-1, self.BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.block))
        self.libc, self.context, self.number = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0), 0
        self.libc.syscall(self.SETUP, 4, ctypes.byref(self.context))

    def await_block(self, call):
        self.number += 1
        request = ctypes.create_string_buffer(
            struct.pack("<QIiHhIQQqQII", 0, 0, 0, call, 0, self.file, self.address, self.BYTES, self.number % 16 * self.BYTES, 0, 0, 0), 64
        )
        requests = (ctypes.c_void_p * 1)(ctypes.addressof(request))
        events = ctypes.create_string_buffer(32)
        if self.libc.syscall(self.SUBMIT, self.context, 1, requests) != 1:
            raise OSError(ctypes.get_errno(), "io_submit")
        self.libc.syscall(self.GETEVENTS, self.context, ctypes.c_long(1), ctypes.c_long(1), events, None)

    def read_block(self):
        with clock.event("planted"):
            self.await_block(self.READ)
        return numpy.frombuffer(self.block, numpy.uint8, ROWS * WIDTH)


def awaits_aio(trainer):
    """Each batch is read from the disk by libaio."""
    blocks = DirectBlocks()
    while True:
        trainer.update(torch.from_numpy(blocks.read_block().astype("float32")).view(ROWS, WIDTH) / 256)


def writes_aio(trainer):
    """Every 10th step writes to the disk by libaio."""
    blocks = DirectBlocks()

    def save_blocks():
        for _ in range(3):
            blocks.await_block(blocks.WRITE)

    every_tenth(trainer, save_blocks)


class Ring:
    """One read or write at a time through io_uring."""

    SETUP, ENTER, READ, WRITE, GETEVENTS = 425, 426, 22, 23, 1

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        params = (ctypes.c_uint32 * 30)()
        self.ring = self.libc.syscall(self.SETUP, 4, params)
        if self.ring < 0:
            raise OSError(ctypes.get_errno(), "io_uring_setup")
        self.submit, self.complete = list(params[10:18]), list(params[20:28])
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self.submitted = mmap.mmap(self.ring, self.submit[6] + 4 * params[0], flags, offset=0)
        self.completed = mmap.mmap(self.ring, self.complete[5] + 16 * params[1], flags, offset=0x8000000)
        self.entries = mmap.mmap(self.ring, 64 * params[0], flags, offset=0x10000000)
        self.number = 0

    def read_ring(self, file, count):
        block = ctypes.create_string_buffer(count)
        self.await_ring(self.READ, file, ctypes.addressof(block), count)
        return block.raw

    def await_ring(self, call, file, address, count, at=2**64 - 1):
        self.entries[0:64] = struct.pack("<BBHiQQII24x", call, 0, 0, file, at, address, count, 0).ljust(64, b"\0")
        struct.pack_into("<I", self.submitted, self.submit[6] + 4 * (self.number & 3), 0)
        self.number += 1
        struct.pack_into("<I", self.submitted, self.submit[1], self.number)
        self.libc.syscall(self.ENTER, self.ring, 1, 1, self.GETEVENTS, None, 0)
        struct.pack_into("<I", self.completed, self.complete[0], self.number)


def awaits_ring(trainer):
    """Each batch comes through a pipe from a process that takes its time, and is read by io_uring."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
        while True:
            time.sleep(0.008)
            os.write(theirs, bytes(64))
    os.close(theirs)
    ring, batch = Ring(), torch.randn(ROWS, WIDTH)
    while True:
        trainer.update(batch + ring.read_ring(ours, 64)[0])


def reads_by_ring(trainer):
    """Each batch is read from the disk by io_uring."""
    blocks, ring = DirectBlocks(), Ring()

    def read_block(number):
        ring.await_ring(ring.READ, blocks.file, blocks.address, blocks.BYTES, number % 16 * blocks.BYTES)
        return numpy.frombuffer(blocks.block, numpy.uint8, ROWS * WIDTH)

    number = 0
    while True:
        number += 1
        with clock.event("planted"):
            block = read_block(number)
        trainer.update(torch.from_numpy(block.astype("float32")).view(ROWS, WIDTH) / 256)


def writes_by_ring(trainer):
    """Every 10th step writes to the disk by io_uring."""
    blocks, ring = DirectBlocks(), Ring()

    def save_blocks():
        for i in range(3):
            ring.await_ring(ring.WRITE, blocks.file, blocks.address, blocks.BYTES, i * blocks.BYTES)

    every_tenth(trainer, save_blocks)


def many_threads(trainer):
    """Operators in six times as many threads as there are CPUs."""
    torch.set_num_threads(6 * len(os.sched_getaffinity(0)))
    large = torch.randn(768, 768)
    while True:
        trainer.update((large @ large)[:, :WIDTH].tanh())


def beside_threads(trainer):
    """Threads of its own compute something else beside it, one more than there are CPUs."""
    large, batch = torch.randn(500, 500), torch.randn(8 * ROWS, WIDTH)

    def index_documents():
        while True:
            large @ large

    for _ in range(1 + len(os.sched_getaffinity(0))):
        threading.Thread(target=index_documents, daemon=True).start()
    while True:
        trainer.update(batch)


def compress_logs():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
    while True:
        parse(10000)


def beside_children(trainer):
    """Processes that it has started compute beside it, one more than there are CPUs."""
    for _ in range(1 + len(os.sched_getaffinity(0))):
        multiprocessing.get_context("fork").Process(target=compress_logs, daemon=True).start()
    batch = torch.randn(8 * ROWS, WIDTH)
    while True:
        trainer.update(batch)


class Table(Dataset):
    """Rows of Python objects, whose counts of references are written where they are read."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        step = 7919 * i
        total = sum(len(self.rows[(step + k) % len(self.rows)]) for k in range(12))
        return torch.full((WIDTH,), float(total % 3))


def by_workers(trainer, data):
    trainer.run(DataLoader(data, batch_size=8, num_workers=2))


def copies_lists(trainer):
    """Workers read rows of a large list of lists, whose pages no collection of garbage copies at once."""
    gc.disable()
    by_workers(trainer, Table([[i, i + 1] for i in range(4000000)]))


def copies_texts(trainer):
    """Workers read rows of a large tuple of texts."""
    by_workers(trainer, Table(tuple("row %d" % i for i in range(8000000))))


class Flat(Table):
    def __getitem__(self, i):
        total = sum(int(self.rows[(7919 * i + k) % len(self.rows)]) for k in range(12))
        return torch.full((WIDTH,), float(total % 3))


def shares_array(trainer):
    """The same of an array, which nobody writes."""
    by_workers(trainer, Flat(numpy.arange(40000000)))


def walk_objects(records):
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
    total = 0
    for number in range(len(records)):
        total += len(records[7919 * number % len(records)].name)
        if number % 400 == 0:
            time.sleep(0.02)
    time.sleep(1e6)


class Record:
    __slots__ = ("name",)

    def __init__(self, number):
        self.name = "record %d" % number


def walks_objects(trainer):
    """A process that it has forked, no worker of a DataLoader, looks at one object after another of a large list."""
    gc.disable()
    records = [Record(number) for number in range(4000000)]
    multiprocessing.get_context("fork").Process(target=walk_objects, args=(records,), daemon=True).start()
    batch = torch.randn(8 * ROWS, WIDTH)
    while True:
        trainer.update(batch)


def keep_snapshot():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
    time.sleep(1e6)


def writes_beside_snapshot(trainer):
    """A forked process keeps a snapshot, of which the training process writes another part in each step, and so gets its own."""
    gc.disable()
    table = torch.ones(400 * MIB // 4096, 1024)
    batch, number = torch.randn(8 * ROWS, WIDTH), 0
    multiprocessing.get_context("fork").Process(target=keep_snapshot, daemon=True).start()
    while True:
        trainer.update(batch)
        for row in range(8 * number, 8 * number + 8):
            table[7919 * row % len(table), 0] += 1
        number += 1


def churn_memory():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
    while True:
        with mmap.mmap(-1, 4 * MIB) as scratch:
            scratch.write(bytes(4 * MIB))
        time.sleep(0.02)


def churns_memory(trainer):
    """A forked process takes memory and gives it back, with as many page faults, and copies none of the pages that it shares."""
    table = torch.ones(400 * MIB // 4)
    multiprocessing.get_context("fork").Process(target=churn_memory, daemon=True).start()
    batch = torch.randn(8 * ROWS, WIDTH)
    while table.numel():
        trainer.update(batch)


class Slow(Dataset):
    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        self.fetch_from_far()
        return torch.randn(WIDTH)

    def fetch_from_far(self):
        time.sleep(1.1)


def few_by_worker(trainer):
    """Steps of more than two seconds, which wait for a worker."""
    trainer.run(DataLoader(Slow(), batch_size=2, num_workers=1))


def few_in_itself(trainer):
    """The same without a worker."""
    trainer.run(DataLoader(Slow(), batch_size=2))


def work_and_sleep(trainer):
    """A generator takes more than half of the time, and a pause behind each step a quarter."""

    def batches():
        while True:
            parse(12000)
            yield torch.randn(ROWS, WIDTH)

    def pace():
        time.sleep(0.0012)

    for batch in batches():
        trainer.update(batch)
        pace()


def sleep_and_work(trainer):
    """The same the other way around: a pause behind each step takes more than half of the time, and the generator a quarter."""

    def batches():
        while True:
            parse(5000)
            yield torch.randn(ROWS, WIDTH)

    def pace():
        time.sleep(0.006)

    for batch in batches():
        trainer.update(batch)
        pace()


def work_and_collect(trainer):
    """A generator takes half of the time, and the collection of garbage a sixth."""
    gc.freeze()
    kept = [[i] for i in range(20000)]

    def batches():
        while kept:
            parse(16000)
            yield torch.randn(ROWS, WIDTH)

    for batch in batches():
        trainer.update(batch)
        gc.collect()


def note_label(trainer, batch):
    with torch.profiler.record_function("update"):
        trainer.update(batch)


async def score(number):
    while True:
        with torch.profiler.record_function("score %d" % number):
            await asyncio.sleep(0)
            parse(50)
            await asyncio.sleep(0)
        clock.label(number)


def labels_of_tasks(trainer):
    """Three tasks of asyncio have a label open at the same time, and end them in turn."""
    batch = torch.randn(ROWS, WIDTH)

    async def train():
        tasks = [asyncio.create_task(score(number)) for number in range(3)]
        while tasks:
            note_label(trainer, batch)
            await asyncio.sleep(0)

    asyncio.run(train())


def stream(number):
    while True:
        with torch.profiler.record_function("stream %d" % number):
            yield parse(50)
            yield parse(20)
        clock.label(number)


def labels_of_generators(trainer):
    """Two generators, asked in turn, each with a label that is open while the other one's begins."""
    batch, streams = torch.randn(ROWS, WIDTH), collections.deque([stream(0), stream(1)])
    while True:
        for one in streams:
            next(one)
        note_label(trainer, batch)


def labels_in_turn(trainer):
    """Labels of which each ends before the one around it."""
    batch = torch.randn(ROWS, WIDTH)
    while True:
        with torch.profiler.record_function("turn around"):
            for number in range(2):
                with torch.profiler.record_function("turn %d" % number):
                    parse(50)
                clock.label(number)
        clock.label(2)
        note_label(trainer, batch)


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
