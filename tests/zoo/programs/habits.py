# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What people write around a model, with torch, numpy, aiohttp and the standard library: other optimizers, other sources, other ways to wait. KIND
says which; what each does is its function's first line.
"""

import asyncio
import http.server
import os
import queue
import random
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import clock
import numpy
import torch
from kinds import ROWS, WIDTH, Trainer, parse
from reports import die_with_parent, path_of
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

BATCH_BYTES = 4 * WIDTH * ROWS


class Measured(Dataset):
    """Rows of a table of SQLite, which has no index on what is asked for."""

    def __init__(self):
        self.store = sqlite3.connect(path_of("measured.db"))
        self.store.execute("create table rows (name text, value real)")
        self.store.executemany("insert into rows values (?, ?)", (("row-%d" % i, float(i % 7)) for i in range(20000)))
        self.store.commit()

    def __len__(self):
        return 20000

    def __getitem__(self, i):
        return torch.full((WIDTH,), self.look_up(i))

    def look_up(self, i):
        return self.store.execute("select value from rows where name = ?", ("row-%d" % i,)).fetchone()[0]


def queries_table(trainer):
    """Each row is looked up in a table that lacks an index, in the training process."""
    loader = DataLoader(Measured(), batch_size=8, shuffle=True)
    trainer.run(batch for _ in iter(int, 1) for batch in loader)


DECODER = "import os, time\nwhile True:\n    time.sleep(0.012)\n    os.write(1, bytes(%d))" % BATCH_BYTES


def reads_decoder(trainer):
    """A program that decodes, as ffmpeg does, writes to a pipe, from which each batch is read."""
    decoder = subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE, preexec_fn=die_with_parent)

    def read_frames():
        return torch.frombuffer(bytearray(decoder.stdout.read(BATCH_BYTES)), dtype=torch.float32).view(ROWS, WIDTH)

    while True:
        trainer.update(read_frames())


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", str(BATCH_BYTES))
        self.end_headers()
        self.wfile.write(bytes(BATCH_BYTES))

    def log_message(self, *words):
        pass


def serve():
    """A process that serves batches by HTTP: its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    if not os.fork():
        die_with_parent()
        server.serve_forever()
    return "http://127.0.0.1:%d/" % server.server_port


def asks_server(trainer):
    """Each batch is asked for by HTTP, when it is needed."""
    address = serve()

    def fetch_page():
        with urllib.request.urlopen(address) as answer:
            return torch.frombuffer(bytearray(answer.read()), dtype=torch.float32).view(ROWS, WIDTH)

    while True:
        trainer.update(fetch_page())


def gathers_pages(trainer):
    """Four parts of each batch are asked for at once, by asyncio and aiohttp."""
    import aiohttp

    address = serve()

    async def fetch_part(session):
        async with session.get(address) as answer:
            return torch.frombuffer(bytearray(await answer.read()), dtype=torch.float32).view(ROWS, WIDTH)

    async def train():
        async with aiohttp.ClientSession() as session:
            while True:
                parts = await asyncio.gather(*[fetch_part(session) for _ in range(4)])
                trainer.update(torch.cat(parts))

    asyncio.run(train())


def make_batches(batches):
    while True:
        parse(12000)
        batches.put(torch.randn(ROWS, WIDTH))


def takes_tensors(trainer):
    """A process parses, and hands tensors over by torch's own queue."""
    context = torch.multiprocessing.get_context("spawn")
    batches = context.Queue(2)
    context.Process(target=make_batches, args=(batches,), daemon=True).start()
    while True:
        trainer.update(batches.get())


def asks_again(trainer):
    """A thread reads from far; the loop asks its queue again and again, each time for a while."""
    batches = queue.Queue(2)

    def read_far():
        while True:
            time.sleep(0.012)
            batches.put(torch.randn(ROWS, WIDTH))

    threading.Thread(target=read_far, daemon=True).start()
    while True:
        try:
            batch = batches.get(timeout=0.002)
        except queue.Empty:
            continue
        trainer.update(batch)


class Uneven(IterableDataset):
    """Of two workers the second has a shard that takes its time."""

    def __iter__(self):
        slow = torch.utils.data.get_worker_info().id == 1
        while True:
            yield self.read_slow_shard() if slow else torch.randn(WIDTH)

    def read_slow_shard(self):
        time.sleep(0.003)
        return torch.randn(WIDTH)


def uneven_shards(trainer):
    """One of two workers is slow, and each second batch is its."""
    trainer.run(DataLoader(Uneven(), batch_size=8, num_workers=2))


class Texts(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return self.split_text(i)

    def split_text(self, i):
        parse(1500)
        return torch.randn(WIDTH)


def zips_loaders(trainer):
    """Two loaders in turn: one has its rows at hand, one parses them."""
    ready = DataLoader(TensorDataset(torch.randn(1 << 12, WIDTH)), batch_size=8)
    for _ in iter(int, 1):
        for (batch,), texts in zip(ready, DataLoader(Texts(), batch_size=8)):
            trainer.update(torch.cat([batch, texts]))


def steps_in_backward(trainer):
    """Each parameter has an optimizer of its own, which steps as soon as its gradient is there."""
    net = torch.nn.Sequential(*[torch.nn.Linear(4 * WIDTH, 4 * WIDTH) for _ in range(6)])
    owners = {p: torch.optim.AdamW([p], lr=1e-4) for p in net.parameters()}

    def step_parameter(p):
        owners[p].step()
        owners[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step_parameter)
    batch = torch.randn(2 * ROWS, 4 * WIDTH)
    while True:
        (net(batch) - batch).square().mean().backward()
        clock.step()


def climbs_first(trainer):
    """Two passes each step, as sharpness-aware training has them: of the first the weights are moved by hand."""
    net, optimizer = trainer.net, trainer.optimizer
    batch = torch.randn(8 * ROWS, WIDTH)

    def pass_once():
        (net(batch) - batch).square().mean().backward()

    while True:
        optimizer.zero_grad()
        pass_once()
        with torch.no_grad():
            moves = [p.grad * 0.05 for p in net.parameters()]
            for p, move in zip(net.parameters(), moves):
                p.add_(move)
        optimizer.zero_grad()
        pass_once()
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves):
                p.sub_(move)
        optimizer.step()
        clock.step()


def searches_lines(trainer):
    """LBFGS, whose step calls its closure several times."""
    optimizer = torch.optim.LBFGS(trainer.net.parameters(), lr=0.1, max_iter=8, tolerance_grad=0, tolerance_change=0)
    while True:
        batch = torch.randn(4 * ROWS, WIDTH)

        def closure():
            optimizer.zero_grad()
            loss = (trainer.net(batch) - batch).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        clock.step()


def two_players(trainer):
    """A generator and a critic, each with its optimizer: two updates are one step."""
    critic = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, 1))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4)
    for (real,) in iterate_for_ever(DataLoader(TensorDataset(torch.randn(1 << 12, WIDTH)), batch_size=128)):
        made = trainer.net(torch.randn(128, WIDTH))
        of_critic.zero_grad()
        (critic(made.detach()).mean() - critic(real).mean()).backward()
        of_critic.step()
        trainer.optimizer.zero_grad()
        (-critic(made).mean()).backward()
        trainer.optimizer.step()
        clock.step()


def iterate_for_ever(loader):
    while True:
        yield from loader


def learns_to_learn(trainer):
    """Four inner updates by torch.autograd.grad for each step of the optimizer."""
    net, batch = trainer.net, torch.randn(2 * ROWS, WIDTH)
    while True:
        weights = dict(net.named_parameters())
        for _ in range(4):
            loss = (torch.func.functional_call(net, weights, batch) - batch).square().mean()
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.01 * slope for (name, w), slope in zip(weights.items(), slopes)}
        trainer.optimizer.zero_grad()
        (torch.func.functional_call(net, weights, batch) - batch).square().mean().backward()
        trainer.optimizer.step()
        clock.step()


def evaluates_elsewhere(trainer):
    """Every 20th step awaits a program that evaluates what was saved."""
    batch = torch.randn(8 * ROWS, WIDTH)

    def run_evaluation():
        subprocess.run([sys.executable, "-S", "-c", "for i in range(800000): str(i)"], check=True, preexec_fn=die_with_parent)

    step = 0
    while True:
        trainer.update(batch)
        step += 1
        if step % 20 == 0:
            with clock.event("planted"):
                run_evaluation()


def shuffles_many(trainer):
    """An epoch takes 40 batches of a million rows, all of which its sampler puts in order first."""
    rows = torch.randn(1 << 20, 8)
    net = torch.nn.Linear(8, 8)
    while True:
        order = DataLoader(TensorDataset(rows), sampler=RandomSampler(rows), batch_size=64)
        for i, (batch,) in enumerate(order):
            trainer.update(net(batch).detach().repeat(4, WIDTH // 8))
            if i == 39:
                break


def draws_negatives(trainer):
    """What is drawn for each batch, in collate_fn, is drawn from a million without a second time."""
    generator = numpy.random.RandomState(1)

    def draw_negatives(rows):
        generator.choice(300000, 64, replace=False)
        return torch.stack([row for (row,) in rows])

    loader = DataLoader(TensorDataset(torch.randn(1 << 12, WIDTH)), batch_size=64, collate_fn=draw_negatives)
    trainer.run(iterate_for_ever(loader))


def replays_moves(trainer):
    """Each batch is drawn from a memory of moves, and put together in Python."""
    memory = deque((numpy.random.rand(WIDTH).astype(numpy.float32) for _ in range(20000)), maxlen=20000)

    def draw_moves():
        moves = [memory[random.randrange(len(memory))] for _ in range(1024)]
        return torch.tensor(numpy.stack(moves))[: 2 * ROWS]

    while True:
        trainer.update(draw_moves())


class Parts(Dataset):
    """A batch's rows are read at once, by a pool of threads."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(4)

    def __len__(self):
        return 1 << 20

    def __getitems__(self, indices):
        return list(self.pool.map(self.read_part, indices))

    def read_part(self, i):
        time.sleep(0.005)
        return torch.randn(WIDTH)


def reads_parts(trainer):
    """Rows from far, by a pool of threads within the Dataset."""
    trainer.run(DataLoader(Parts(), batch_size=8))


def profiles_itself(trainer):
    """torch.profiler's own schedule is on: of 20 steps two are recorded."""
    profiler = torch.profiler
    batch = torch.randn(8 * ROWS, WIDTH)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=17, warmup=1, active=2),
        on_trace_ready=lambda p: p.export_chrome_trace(path_of("trace.json")),
    ) as profile:
        while True:
            trainer.update(batch)
            profile.step()


def evaluates_some(trainer):
    """Every 25th step an evaluation breaks off after some of its batches, which no DataLoader makes."""
    batch, held_out = torch.randn(8 * ROWS, WIDTH), [torch.randn(8 * ROWS, WIDTH) for _ in range(40)]

    def evaluate_some():
        with torch.no_grad(), clock.event("planted"):
            for i, rows in enumerate(held_out):
                trainer.net(rows)
                if i == 14:
                    break

    step = 0
    while True:
        trainer.update(batch)
        step += 1
        if step % 25 == 0:
            evaluate_some()


def awaits_file(trainer):
    """Every 15th step another process writes a file, for which the loop looks again and again."""
    path, batch = path_of("go"), torch.randn(8 * ROWS, WIDTH)
    writer = "import time, os\nwhile True:\n    time.sleep(0.001)\n    if os.path.exists(%r + '.ask'):\n        os.unlink(%r + '.ask'); time.sleep(0.12); open(%r, 'w').close()"
    subprocess.Popen([sys.executable, "-c", writer % (path, path, path)], preexec_fn=die_with_parent)

    def await_file():
        open(path + ".ask", "w").close()
        while not os.path.exists(path):
            time.sleep(0.005)
        os.unlink(path)

    step = 0
    while True:
        trainer.update(batch)
        step += 1
        if step % 15 == 0:
            with clock.event("planted"):
                await_file()


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
