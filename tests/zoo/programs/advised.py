# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
torch alone: jobs with one fault each, and the same jobs as the report advises. KIND says which; a second word "advised" is the latter.
"""

import gc
import mmap
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
import time

import clock
import torch
from kinds import ROWS, WIDTH, Trainer, far, near, opens, parse
from torch.utils.data import DataLoader, Dataset

ADVISED = "advised" in sys.argv[2:]


class Rows(Dataset):
    """Items that wait for storage; `cpu`: that are work in Python."""

    def __init__(self, count, seconds=0.0, cpu=0):
        self.count, self.seconds, self.cpu = count, seconds, cpu

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.seconds:
            time.sleep(self.seconds)
        parse(self.cpu)
        return torch.randn(WIDTH)


def set_up(worker):
    torch.set_num_threads(1)
    time.sleep(0.3)


def own_loader(trainer):
    """No workers; advised: as many as keep up."""
    trainer.run(DataLoader(Rows(1 << 24, seconds=0.001), batch_size=8, num_workers=6 if ADVISED else 0))


def few_workers(trainer):
    """One worker; advised: as many as the report says."""
    trainer.run(DataLoader(Rows(1 << 24, seconds=0.002), batch_size=8, num_workers=int(os.environ["ADVISED_NUMBER"]) if ADVISED else 1))


def restarts(trainer):
    """Workers that start anew for each epoch; advised: that stay."""
    loader = DataLoader(Rows(400), batch_size=8, num_workers=2, worker_init_fn=set_up, persistent_workers=ADVISED)
    while True:
        trainer.run(loader)


def many_threads(trainer):
    """More threads than CPUs; advised: one."""
    torch.set_num_threads(1 if ADVISED else 6 * len(os.sched_getaffinity(0)))
    large = torch.randn(512, 512)
    while True:
        trainer.update((large @ large)[:, :WIDTH].tanh())


def beside_threads(trainer):
    """Threads of its own compute beside it, one more than there are CPUs; advised: none."""
    large, batch = torch.randn(500, 500), torch.randn(8 * ROWS, WIDTH)

    def index_documents():
        while True:
            large @ large

    for _ in range(0 if ADVISED else 1 + len(os.sched_getaffinity(0))):
        threading.Thread(target=index_documents, daemon=True).start()
    while True:
        trainer.update(batch)


def generated(trainer):
    """A generator waits for each batch; advised: a thread fills a queue."""

    def batches():
        while True:
            time.sleep(0.003)
            yield torch.randn(8 * ROWS, WIDTH)

    def ahead():
        filled = queue.Queue(maxsize=4)

        def fill():
            for batch in batches():
                filled.put(batch)

        threading.Thread(target=fill, daemon=True).start()
        while True:
            yield filled.get()

    trainer.run(ahead() if ADVISED else batches())


def collects(trainer):
    """Collects garbage in each 5th step, over a large heap; advised: gc.freeze() when all is set up."""
    kept = [[i] for i in range(400000)]
    if ADVISED:
        gc.freeze()
    batch, number = torch.randn(8 * ROWS, WIDTH), 0
    while kept:
        trainer.update(batch)
        number += 1
        if number % 5 == 0:
            gc.collect()


def saves(trainer):
    """Saves in each 20th step; advised: in each 400th."""
    large = {"weights": torch.randn(4 << 20)}
    batch, number = torch.randn(8 * ROWS, WIDTH), 0
    while True:
        trainer.update(batch)
        number += 1
        if number % (400 if ADVISED else 20) == 0:
            torch.save(large, os.environ["ZOO_TRUTH"] + ".saved")


def sleeps(trainer):
    """Polls for an event with sleeps; advised: waits for the event itself."""
    batch, asked, done = torch.randn(8 * ROWS, WIDTH), threading.Event(), threading.Event()

    def answer():
        while True:
            asked.wait()
            asked.clear()
            done.set()

    threading.Thread(target=answer, daemon=True).start()
    while True:
        trainer.update(batch)
        asked.set()
        while not done.is_set():
            done.wait() if ADVISED else time.sleep(0.002)
        done.clear()


def evaluates(trainer):
    """Evaluates in each 20th step; advised: in each 400th."""
    batch, number = torch.randn(8 * ROWS, WIDTH), 0

    def estimate_loss():
        with torch.no_grad():
            return sum((trainer.net(batch) - batch).square().mean() for _ in range(60))

    while True:
        trainer.update(batch)
        number += 1
        if number % (400 if ADVISED else 20) == 0:
            estimate_loss()


def answerer():
    """A thread that makes something without the GIL when it is asked: what asks it, and what awaits its answer."""
    questions, answers, large = queue.Queue(), queue.Queue(), torch.randn(330, 330)

    def rank_answers():
        while True:
            questions.get()
            answers.put((large @ large @ large).sum())

    threading.Thread(target=rank_answers, daemon=True).start()
    return lambda: questions.put(1), answers.get


def in_turn(ask, answer):
    """A call that asks and awaits the answer; advised: that awaits the answer to the question of the step before, and asks the next one."""
    if ADVISED:
        ask()

    def take_turn():
        if not ADVISED:
            ask()
        got = answer()
        if ADVISED:
            ask()
        return got

    return take_turn


def asks_late(trainer):
    """Waits in front of the model for what another thread makes."""
    take_turn, batch = in_turn(*answerer()), torch.randn(8 * ROWS, WIDTH)
    while True:
        take_turn()
        trainer.update(batch)


def answers_late(trainer):
    """Waits for it behind the model's forward."""
    take_turn, batch = in_turn(*answerer()), torch.randn(8 * ROWS, WIDTH)
    while True:
        loss = (trainer.net(batch) - batch).square().mean()
        loss = loss + take_turn() * 0
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        clock.step()


def takes_lock(trainer):
    """Each step takes a lock that another thread holds while it works; advised: that one takes it only to hand its result over."""
    lock, large, batch, kept = threading.Lock(), torch.randn(330, 330), torch.randn(8 * ROWS, WIDTH), []

    def index_rows():
        while True:
            if ADVISED:
                found = (large @ large @ large).sum()
                with lock:
                    kept[:] = [found]
            else:
                with lock:
                    kept[:] = [(large @ large @ large).sum()]
            time.sleep(0.0005)

    threading.Thread(target=index_rows, daemon=True).start()
    while True:
        with lock:
            count = len(kept)
        trainer.update(batch + count * 0)


def opens_far(trainer):
    """Four small files of a server that is far away in each step; advised: of a local disk."""
    opens(trainer, near() if ADVISED else far(0.002))


def validates(trainer):
    """Evaluates on a DataLoader of its own in each 20th step; advised: in each 400th."""
    batches = iter(DataLoader(Rows(1 << 24), batch_size=ROWS))
    held_out, number = DataLoader(Rows(20 * ROWS), batch_size=ROWS), 0
    for batch in batches:
        trainer.update(batch)
        number += 1
        if number % (400 if ADVISED else 20) == 0:
            with torch.no_grad():
                for other in held_out:
                    (trainer.net(other) - other).square().mean()


def recompiles(trainer):
    """torch.compile compiles anew for each number of rows; advised: dynamic=True."""
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10**6
    compiled, number = torch.compile(trainer.net, backend="aot_eager", dynamic=ADVISED), 0
    while True:
        batch = torch.randn(8 * ROWS + number // 20, WIDTH)
        number += 1
        loss = (compiled(batch) - batch).square().mean()
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        clock.step()


def beside_others(trainer):
    """Alone; with the fault hog another program has the same CPU."""
    trainer.run(iter(lambda: torch.randn(8 * ROWS, WIDTH), None))


in_quota = beside_others


def spawns(trainer):
    """Waits in each 20th step for the end of a child; advised: starts it, and looks at its end in a thread."""
    batch, number = torch.randn(8 * ROWS, WIDTH), 0
    command = ["sleep", "0.05"]
    while True:
        trainer.update(batch)
        number += 1
        if number % 20 == 0:
            if ADVISED:
                threading.Thread(target=subprocess.run, args=(command,), daemon=True).start()
            else:
                subprocess.run(command)


def asks_pipe(trainer):
    """Waits for the answer of a process in each step; advised: asks a step earlier."""
    ours, theirs = multiprocessing.Pipe()

    def think():
        while True:
            question = theirs.recv()
            time.sleep(0.004)
            theirs.send(question)

    multiprocessing.get_context("fork").Process(target=think, daemon=True).start()
    take_turn, batch = in_turn(lambda: ours.send(1), ours.recv), torch.randn(8 * ROWS, WIDTH)
    while True:
        take_turn()
        trainer.update(batch)


def looks_up(trainer):
    """The forward looks up rows of a table in a mapped file; with the fault memory there is too little of it for the file's pages."""
    rows = 512 << 10
    with open(os.environ["ZOO_TRUTH"] + ".table", "wb+", buffering=0) as file:
        for _ in range(512):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
        pages = mmap.mmap(file.fileno(), 0)
    pages.madvise(mmap.MADV_RANDOM)
    table = torch.frombuffer(pages, dtype=torch.uint8).view(rows, -1)

    class Table(torch.nn.Module):
        def forward(self, batch):
            return batch + table[torch.randint(rows, (16,)), :WIDTH].float().mean()

    trainer.net = torch.nn.Sequential(Table(), *trainer.net)
    trainer.run(iter(lambda: torch.randn(ROWS, WIDTH), None))


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
