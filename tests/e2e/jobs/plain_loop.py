# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A plain torch training loop, on torch 1.13 as on 2.x.

Its truth is a pair of time.perf_counter() around each part: count and seconds of data, forward (model and loss),
backward, step, zero_grad and the user's own labels. Nothing is called between two parts, so that they adjoin. And the sum of
the weights behind each epoch.
"""

import contextlib
import os
import time

import common
import torch
from torch.utils.data import DataLoader, Dataset

INPUTS, BATCH = 32, 64


class Rows(Dataset):
    def __init__(self, rows, slow):
        self.rows = rows
        self.slow = slow

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        if self.slow:
            time.sleep(self.slow)
        x = torch.sin(torch.arange(INPUTS, dtype=torch.float32) * (i + 1))
        return x, x.sum().reshape(1)


class Clock:
    """Counts and seconds by name."""

    def __init__(self):
        self.parts = {}

    @contextlib.contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            part = self.parts.setdefault(name, {"count": 0, "seconds": 0.0})
            part["count"] += 1
            part["seconds"] += seconds


def epoch(args, model, optimizer, loader, clock, schedule):
    batches = iter(loader)
    while True:
        try:
            # the last call, which ends the loop, is a call of the DataLoader too
            with clock("data"):
                x, y = next(batches)
        except StopIteration:
            return
        # torch's zero_grad is labelled from 1.11 on
        with clock("zero_grad"):
            optimizer.zero_grad()
        with clock("forward"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        with clock("backward"):
            loss.backward()
        with clock("step"):
            optimizer.step()
        if args.labels:
            with clock("label"), torch.profiler.record_function("my label"):
                float((x @ x.t()).sum())
            with torch.profiler.record_function("outer"):
                with torch.profiler.record_function("inner \N{GREEK SMALL LETTER LAMDA}"):
                    torch.relu(x)
        if schedule:
            schedule.step()


def main():
    p = common.parser(__doc__, epochs=2, batches=100, work=256)
    p.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    p.add_argument("--slow", type=float, default=0, help="seconds to sleep for each row")
    p.add_argument("--labels", action="store_true", help="record_function blocks of the loop's own")
    p.add_argument("--torch-profiler", action="store_true", help="with a schedule, which makes ProfilerStep#N labels")
    p.add_argument("--optimizer", choices=["SGD", "Adam"], default="SGD")
    p.add_argument("--stop", metavar="FILE", help="behind the epoch in which FILE is there, train no more")
    args = p.parse_args()
    common.prepare(args)

    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, args.work), torch.nn.ReLU(), torch.nn.Linear(args.work, 1))
    optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=1e-3)
    loader = DataLoader(Rows(BATCH * args.batches, args.slow), batch_size=BATCH, num_workers=args.workers)
    clock = Clock()
    common.wait(args)

    schedule, weights = None, []
    if args.torch_profiler:
        schedule = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        )
    with schedule or contextlib.nullcontext():
        for _ in range(args.epochs):
            epoch(args, model, optimizer, loader, clock, schedule)
            weights.append(sum(p.sum().item() for p in model.parameters()))
            if args.stop and os.path.exists(args.stop):
                break
    truth = {"parts": clock.parts, "steps": len(weights) * args.batches, "weights": weights}
    common.write(args, truth)


if __name__ == "__main__":
    main()
