# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
torch alone: loops that get their data, or wait for others, in ways of their own. KIND says which; what each does is its function's first line.
"""

import multiprocessing
import os
import queue
import random
import sys
import threading
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import clock
import far_files
import torch
from torch.utils.data import DataLoader, Dataset

WIDTH, ROWS = 96, 64
STORAGE_SECONDS = 0.008  # of an item that comes from far


def parse(count):
    """Work in Python."""
    total = 0
    for i in range(count):
        total += len(str(i * 7919))
    return total


class Archive:
    def fetch_item(self):
        time.sleep(STORAGE_SECONDS)
        return torch.randn(ROWS, WIDTH)


def decode_item(number):
    parse(25000)
    return torch.randn(ROWS, WIDTH)


class Trainer:
    def __init__(self):
        torch.set_num_threads(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

    def update(self, batch):
        loss = (self.net(batch) - batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        clock.step()

    def run(self, batches):
        for batch in batches:
            self.update(batch)


def filled_by_thread(trainer):
    """A thread reads items from far, and fills a queue."""
    batches, archive = queue.Queue(maxsize=2), Archive()

    def fill():
        while True:
            batches.put(archive.fetch_item())

    threading.Thread(target=fill, daemon=True).start()
    while True:
        trainer.update(batches.get())


def asked_ahead(trainer):
    """One item is asked for ahead, in a pool of threads."""
    archive = Archive()
    with ThreadPoolExecutor(2) as pool:
        ahead = deque([pool.submit(archive.fetch_item)])
        while True:
            ahead.append(pool.submit(archive.fetch_item))
            trainer.update(ahead.popleft().result())


def decoded_by_processes(trainer):
    """A pool of one process decodes items."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        ahead = deque([pool.submit(decode_item, 0)])
        while True:
            ahead.append(pool.submit(decode_item, 1))
            trainer.update(ahead.popleft().result())


def generated(trainer):
    """A generator makes each batch in Python."""

    def batches():
        while True:
            parse(12000)
            yield torch.randn(ROWS, WIDTH)

    trainer.run(batches())


def reports_each_step(trainer):
    """A generator has its batches at hand; what each step waits for, behind its update, is a server of metrics."""
    ready = deque(torch.randn(4 * ROWS, WIDTH) for _ in range(8))

    def batches():
        while True:
            ready.rotate()
            yield ready[0]

    def send_metrics():
        time.sleep(STORAGE_SECONDS)

    for batch in batches():
        trainer.update(batch)
        send_metrics()


def at_hand(trainer):
    """Nothing to wait for."""
    batch = torch.randn(8 * ROWS, WIDTH)
    while True:
        trainer.update(batch)


def in_bursts_of_work(trainer):
    """Each step computes for 90 ms, and then awaits its turn."""
    batch = torch.randn(8 * ROWS, WIDTH)
    while True:
        end = time.process_time() + 0.09
        while time.process_time() < end:
            loss = (trainer.net(batch) - batch).square().mean()
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        time.sleep(0.06)
        clock.step()


class Rows(Dataset):
    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        time.sleep(STORAGE_SECONDS / 8)
        return torch.randn(WIDTH)


def in_bursts(trainer):
    """A thread iterates a DataLoader, and hands over six batches at a time."""
    batches, taken = queue.Queue(), threading.Semaphore(1)

    def fetch_ahead():
        loader = iter(DataLoader(Rows(), batch_size=8))
        while True:
            six = [next(loader) for _ in range(6)]
            taken.acquire()
            for batch in six:
                batches.put(batch)

    threading.Thread(target=fetch_ahead, daemon=True).start()
    while True:
        for _ in range(6):
            trainer.update(batches.get(timeout=60))
        taken.release()


def in_threes(trainer):
    """The same, three at a time, by a condition."""
    batches, changed = deque(), threading.Condition()

    def fetch_ahead():
        loader = iter(DataLoader(Rows(), batch_size=8))
        while True:
            three = [next(loader) for _ in range(3)]
            with changed:
                while batches:
                    changed.wait()
                batches.extend(three)
                changed.notify_all()

    def take_batch():
        with changed:
            while not batches:
                changed.wait()
            batch = batches.popleft()
            changed.notify_all()
            return batch

    threading.Thread(target=fetch_ahead, daemon=True).start()
    while True:
        trainer.update(take_batch())


def under_lock(trainer):
    """A thread writes statistics under the lock that the loop takes."""
    lock, batch = threading.Lock(), torch.randn(ROWS, WIDTH)
    large = torch.randn(700, 700)

    def write_statistics():
        while True:
            with lock:
                large @ large
            time.sleep(0.0005)

    def take_turn():
        with lock:
            pass

    threading.Thread(target=write_statistics, daemon=True).start()
    while True:
        take_turn()
        trainer.update(batch)


def filled_in_c(trainer):
    """A thread reads items from far, and hands them over in a queue that has no code in Python."""
    ready, archive = queue.SimpleQueue(), Archive()

    def fill():
        while True:
            ready.put(archive.fetch_item())
            while ready.qsize() > 2:
                time.sleep(0.001)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        trainer.update(ready.get())


def answered_in_c(trainer):
    """Between forward and backward the loop asks a thread, by two such queues."""
    asked, answers, batch = queue.SimpleQueue(), queue.SimpleQueue(), torch.randn(ROWS, WIDTH)
    large = torch.randn(600, 600)

    def rank_answers():
        for number in iter(asked.get, None):
            for _ in range(2):
                large @ large
            answers.put(number)

    threading.Thread(target=rank_answers, daemon=True).start()
    number = 0
    while True:
        loss = (trainer.net(batch) - batch).square().mean()
        asked.put(number)
        number = answers.get(timeout=60) + 1
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        clock.step()


def lock_beside_queue(trainer):
    """A thread holds the lock that the loop takes, in the function in which it takes from such a queue, which is never empty."""
    lock, ready, large = threading.Lock(), queue.SimpleQueue(), torch.randn(700, 700)
    ready.put(torch.randn(ROWS, WIDTH))

    def write_statistics():
        while True:
            with lock:
                large @ large
            time.sleep(0.0005)

    def take_turn():
        batch = ready.get()
        ready.put(batch)
        lock.acquire()
        lock.release()
        return batch

    threading.Thread(target=write_statistics, daemon=True).start()
    while True:
        trainer.update(take_turn())


def signalled_by_lock(trainer):
    """A lock is a signal: who has read an item lets go of it, and the loop takes it."""
    ready, wanted, archive, items = threading.Lock(), threading.Lock(), Archive(), []
    ready.acquire()

    def read_items():
        while True:
            items.append(archive.fetch_item())
            ready.release()
            wanted.acquire()

    wanted.acquire()
    threading.Thread(target=read_items, daemon=True).start()
    while True:
        ready.acquire()
        batch = items.pop()
        wanted.release()
        trainer.update(batch)


def signalled_twice(trainer):
    """The same between forward and backward, of a thread that computes what the loop waits for."""
    asked, answered, batch = threading.Lock(), threading.Lock(), torch.randn(ROWS, WIDTH)
    large = torch.randn(600, 600)
    asked.acquire()
    answered.acquire()

    def rank_answers():
        while True:
            asked.acquire()
            for _ in range(2):
                large @ large
            answered.release()

    threading.Thread(target=rank_answers, daemon=True).start()
    while True:
        loss = (trainer.net(batch) - batch).square().mean()
        asked.release()
        answered.acquire()
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        clock.step()


def held_while_read(trainer):
    """A thread holds the lock that the loop takes while it reads, and lets others have it only for a moment."""
    lock, archive, batch = threading.Lock(), Archive(), torch.randn(ROWS, WIDTH)

    def refresh_cache():
        while True:
            with lock:
                archive.fetch_item()
            time.sleep(0.0005)

    def look_up():
        with lock:
            return batch

    threading.Thread(target=refresh_cache, daemon=True).start()
    while True:
        trainer.update(look_up())


class Round:
    """Work that two threads do together, after the forward."""

    def __init__(self):
        self.asked, self.done = threading.Event(), threading.Event()
        threading.Thread(target=self.score_rounds, daemon=True).start()

    def score_rounds(self):
        large = torch.randn(600, 600)
        while True:
            self.asked.wait()
            self.asked.clear()
            for _ in range(2):
                large @ large
            self.done.set()

    def await_scores(self):
        self.asked.set()
        self.done.wait()
        self.done.clear()


def scored_by_thread(trainer):
    """Between forward and backward the loop waits for what a thread computes."""
    scores, batch = Round(), torch.randn(ROWS, WIDTH)
    while True:
        loss = (trainer.net(batch) - batch).square().mean()
        scores.await_scores()
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        clock.step()


class Few(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, i):
        return torch.randn(WIDTH)


def epochs(trainer, persistent):
    loader = DataLoader(Few(), batch_size=8, num_workers=2, persistent_workers=persistent)
    while True:
        trainer.run(loader)


def short_epochs(trainer):
    """The workers start anew for each of many short epochs."""
    epochs(trainer, False)


def short_epochs_persistent(trainer):
    """The same, with workers that stay."""
    epochs(trainer, True)


def load_tables(worker):
    time.sleep(0.4)


def short_epochs_set_up(trainer):
    """Workers that start anew for each epoch, and then load something first."""
    loader = DataLoader(Few(), batch_size=8, num_workers=2, worker_init_fn=load_tables)
    while True:
        trainer.run(loader)


def simulate(pipe, seconds):
    while True:
        pipe.recv()
        end = time.process_time() + seconds
        while time.process_time() < end:
            parse(200)
        pipe.send(0.5)


def play(trainer, seconds):
    context, batch, pipes = multiprocessing.get_context("fork"), torch.randn(ROWS, WIDTH), []
    for each in seconds:
        ours, theirs = context.Pipe()
        context.Process(target=simulate, args=(theirs, each), daemon=True).start()
        pipes.append(ours)
    while True:
        with torch.no_grad():
            trainer.net(batch)
        for pipe in pipes:
            pipe.send(1)
        for pipe in pipes:
            pipe.recv()
        trainer.update(batch)


def slow_player(trainer):
    """Two simulations in processes, of which the second is slow."""
    play(trainer, (0.0005, 0.008))


def equal_players(trainer):
    """Two simulations in processes, equally slow."""
    play(trainer, (0.004, 0.004))


def skipped_updates(trainer):
    """Every 9th update is left out, as a scaler of gradients does."""
    batch, number = torch.randn(8 * ROWS, WIDTH), 0
    while True:
        loss = (trainer.net(batch) - batch).square().mean()
        trainer.optimizer.zero_grad()
        loss.backward()
        number += 1
        if number % 9:
            trainer.optimizer.step()
            clock.step()


def scaled(trainer):
    """Every 7th update is left out by torch's GradScaler, for its gradients are infinite."""
    batch, number, scaler = torch.randn(8 * ROWS, WIDTH), 0, torch.amp.GradScaler("cpu")
    while True:
        loss = (trainer.net(batch) - batch).square().mean()
        trainer.optimizer.zero_grad()
        number += 1
        scaler.scale(loss if number % 7 else loss * float("inf")).backward()
        scaler.step(trainer.optimizer)
        scaler.update(65536.0)
        if number % 7:
            clock.step()


def far(seconds):
    """A folder in a file system of a server that needs so long for a look-up."""
    folder = os.path.join(os.environ["ZOO_TRUTH"] + ".far")
    far_files.mount(folder, seconds)
    return folder


def near():
    folder = os.path.join(os.environ["ZOO_TRUTH"] + ".near")
    os.makedirs(folder)
    for number in range(far_files.FILES):
        with open(os.path.join(folder, str(number)), "wb") as file:
            file.write(far_files.CONTENTS)
    return folder


class Files:
    def __init__(self, folder):
        self.folder, self.number = folder, 0

    def read_file(self):
        self.number += 1
        with open(os.path.join(self.folder, str(self.number % far_files.FILES)), "rb") as file:
            return len(file.read())

    def check_files(self):
        self.number += 1
        return sum(os.path.exists(os.path.join(self.folder, str(self.number + i))) for i in range(4)) + len(os.listdir(self.folder))


def opens(trainer, folder):
    files, batch = Files(folder), torch.randn(ROWS, WIDTH)
    while True:
        total = sum(files.read_file() for _ in range(4))
        trainer.update(batch + total % 2)


def opens_far(trainer):
    """Each step opens four small files of a server that is far away."""
    opens(trainer, far(0.002))


def opens_near(trainer):
    """The same of the own disk, where they are in memory."""
    opens(trainer, near())


def lists_far(trainer):
    """A thread asks which files there are, and says so in a queue."""
    files, batch, ready = Files(far(0.003)), torch.randn(ROWS, WIDTH), queue.Queue(maxsize=1)

    def look_up():
        while True:
            ready.put(files.check_files())

    threading.Thread(target=look_up, daemon=True).start()
    while True:
        trainer.update(batch + ready.get() % 2)


def accumulated_by_hand(trainer):
    """Three backwards for each update, which is by hand; the optimizer only clears the gradients."""
    batches = [torch.randn(4 * ROWS, WIDTH) for _ in range(3)]
    while True:
        for batch in batches:
            (trainer.net(batch) - batch).square().mean().backward()
        with torch.no_grad():
            for p in trainer.net.parameters():
                p -= 1e-3 * p.grad
        trainer.optimizer.zero_grad()
        clock.step()


def accumulated_and_compiled(trainer):
    """An optimizer whose step torch.compile has taken in, after two to five backwards."""
    batch = torch.randn(4 * ROWS, WIDTH)
    update = torch.compile(trainer.optimizer.step, backend="aot_eager")
    number = 0
    while True:
        trainer.optimizer.zero_grad(set_to_none=False)
        number += 1
        for _ in range(2 + number % 4):
            (trainer.net(batch) - batch).square().mean().backward()
        update()
        clock.step()


def updated_by_hand(trainer):
    """One backward for each update by hand, and a zero_grad for each."""
    batch = torch.randn(4 * ROWS, WIDTH)
    while True:
        (trainer.net(batch) - batch).square().mean().backward()
        with torch.no_grad():
            for p in trainer.net.parameters():
                p -= 1e-3 * p.grad
        trainer.optimizer.zero_grad()
        clock.step()


def in_blocks(choose, rows):
    """A net of blocks, as many of which take part in a step as choose() says."""
    torch.set_num_threads(1)
    blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(12))
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
    while True:
        used, batch = choose(), torch.randn(rows(), 256)
        state = batch
        for block in blocks[:used]:
            state = block(state)
        optimizer.zero_grad()
        (state - batch).square().mean().backward()
        optimizer.step()
        clock.step()


def drops_layers(trainer):
    """Each step uses some of the layers, by chance: in all phases its work is so many times as much, the optimizer's too, as with a slower CPU."""
    chance = random.Random(1)
    in_blocks(lambda: 12 if chance.random() < 0.12 else 4, lambda: 192)


def longer_batches(trainer):
    """Some batches are longer, by chance: there is as much to do for the optimizer as ever."""
    chance = random.Random(1)
    in_blocks(lambda: 12, lambda: 1024 if chance.random() < 0.12 else 128)


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
