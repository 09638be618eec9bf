# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
torch and the standard library: what engineers meet with trainings each day, in a few lines each. KIND says which; what each does is its
function's first line.
"""

import gzip
import io
import json
import multiprocessing
import os
import queue
import sqlite3
import sys
import tarfile
import threading
import time

import clock
import torch
from kinds import ROWS, WIDTH, Trainer, parse
from reports import die_with_parent, path_of
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

FILE_BYTES = 64 << 10


class SmallFiles(Dataset):
    """A file for each item, of which none is in memory."""

    def __init__(self):
        self.folder = path_of("images")
        os.mkdir(self.folder)
        for i in range(600):
            with open("%s/%d" % (self.folder, i), "wb") as file:
                file.write(os.urandom(FILE_BYTES))
                os.fsync(file.fileno())

    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        return self.read_image("%s/%d" % (self.folder, i % 600))

    def read_image(self, path):
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            data = file.read()
        return torch.full((WIDTH,), float(data[0]))


def reads_small_files(trainer):
    """Two workers read many small files; with the fault disk it is the disk that is slow, for all workers together."""
    trainer.run(DataLoader(SmallFiles(), batch_size=8, num_workers=2))


class Shards(IterableDataset):
    """Rows of compressed archives, one behind the other, as of WebDataset."""

    def __init__(self):
        self.path = path_of("shard.tar.gz")
        with tarfile.open(self.path, "w:gz", compresslevel=1) as archive:
            for i in range(200):
                info = tarfile.TarInfo("%d.bin" % i)
                info.size = 40000
                archive.addfile(info, io.BytesIO(os.urandom(4000) * 10))

    def __iter__(self):
        while True:
            yield from self.rows_of_shard()

    def rows_of_shard(self):
        with gzip.open(self.path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                yield torch.full((WIDTH,), float(archive.extractfile(member).read()[0]))


def streams_archive(trainer):
    """One worker takes compressed archives apart."""
    trainer.run(DataLoader(Shards(), batch_size=16, num_workers=1))


def accumulates_checkpointed(trainer):
    """Four batches for an update, whose layers are computed again in the backward (torch.utils.checkpoint)."""
    torch.set_num_threads(1)
    layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(6))
    optimizer, batch = torch.optim.AdamW(layers.parameters()), torch.randn(4 * ROWS, WIDTH)
    while True:
        for _ in range(4):
            out = batch
            for layer in layers:
                out = checkpoint(layer, out, use_reentrant=False)
            (out - batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()


def keeps_outputs(trainer):
    """What each step predicts is kept for a metric at the end of the epoch, which never comes: memory grows."""
    batch, kept = torch.randn(8 * ROWS, WIDTH), []
    while True:
        trainer.update(batch)
        kept.append(batch + len(kept))


def commits_each_step(trainer):
    """A tracker of experiments commits a row to SQLite behind each step, which forces it to the disk."""
    data, batch, number = sqlite3.connect(path_of("runs.db")), torch.randn(ROWS, WIDTH), 0
    data.execute("create table metrics (step integer, loss real)")

    def log_metric():
        data.execute("insert into metrics values (?, ?)", (number, 0.5))
        data.commit()

    while True:
        trainer.update(batch)
        number += 1
        log_metric()


class Slow(Dataset):
    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        return self.decode_row(i)

    def decode_row(self, i):
        time.sleep(0.002)
        return torch.full((WIDTH,), float(i % 7))


def prefetches_loader(trainer):
    """A thread goes through a DataLoader with two workers, which are too slow, and fills a queue."""
    filled = queue.Queue(maxsize=4)

    def fill():
        for batch in DataLoader(Slow(), batch_size=8, num_workers=2):
            filled.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    trainer.run(iter(filled.get, None))


class Worked(Slow):
    def decode_row(self, i):
        parse(2000)
        return torch.full((WIDTH,), float(i % 7))


def loads_by_workers(trainer):
    """Two workers decode in Python; with the fault quota all have 0.4 CPUs together."""
    trainer.run(DataLoader(Worked(), batch_size=8, num_workers=2))


def parses_in_thread(trainer):
    """A thread parses large documents, without letting go of the GIL, for a log that the training does not wait for."""
    text, batch = json.dumps([{"id": i, "tokens": [i, i + 1, "word %d" % i]} for i in range(4000)]), torch.randn(ROWS, WIDTH)

    def index_documents():
        while True:
            json.loads(text)

    threading.Thread(target=index_documents, daemon=True).start()
    while True:
        trainer.update(batch)


class HeldOut(Dataset):
    def __len__(self):
        return 4 * ROWS

    def __getitem__(self, i):
        return torch.full((WIDTH,), float(i % 7))


def validates_by_new_workers(trainer):
    """Every 40th step evaluates on a DataLoader whose workers start anew for it."""
    held_out, batch, number = DataLoader(HeldOut(), batch_size=ROWS, num_workers=2), torch.randn(8 * ROWS, WIDTH), 0

    @torch.no_grad()
    def evaluate_model():
        return sum((trainer.net(each) - each).square().mean().item() for each in held_out)

    while True:
        trainer.update(batch)
        number += 1
        if number % 40 == 0:
            with clock.event("planted"):
                evaluate_model()


class Cached(Slow):
    """What is decoded is kept in files, each of which is forced to the disk."""

    def decode_row(self, i):
        with open(path_of("cache-%d" % (i % 50)), "wb") as file:
            file.write(bytes(20000))
            self.keep_on_disk(file)
        return torch.full((WIDTH,), float(i % 7))

    def keep_on_disk(self, file):
        file.flush()
        os.fsync(file.fileno())


def caches_in_workers(trainer):
    """Two workers write what they decode to a cache on the disk, and wait for it."""
    trainer.run(DataLoader(Cached(), batch_size=8, num_workers=2))


def spins_for_answer(trainer):
    """Behind each step a loop in Python looks again and again whether another process has its answer."""
    question, answer = multiprocessing.RawValue("q", 0), multiprocessing.RawValue("q", 0)
    if os.fork() == 0:
        die_with_parent()
        while True:
            while answer.value == question.value:
                time.sleep(0.0002)
            time.sleep(0.006)
            answer.value = question.value
    batch = torch.randn(ROWS, WIDTH)

    def await_answer():
        question.value += 1
        while answer.value != question.value:
            pass

    while True:
        trainer.update(batch)
        await_answer()


class Nested(IterableDataset):
    """Mixes two sources, each with a DataLoader of its own, in a worker."""

    def __iter__(self):
        for pair in zip(DataLoader(Slow(), batch_size=4), DataLoader(HeldOut(), batch_size=4)):
            yield from torch.cat(pair)


def nests_loaders(trainer):
    """A worker goes through two DataLoaders, of which one is slow."""
    while True:
        trainer.run(DataLoader(Nested(), batch_size=8, num_workers=1))


def concatenates_history(trainer):
    """Each step puts its batch behind all those before, and so copies them: steps grow longer."""
    batch, history = torch.randn(ROWS, WIDTH), torch.zeros(0, WIDTH)

    def remember(history):
        return torch.cat([history[-100000:], batch])

    while True:
        trainer.update(batch)
        history = remember(history)


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
