# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two DataLoaders of one process, "train" and "val", with workers and speeds of their own; in a plain loop, or under Lightning.

Its truth: for each loader its batches: who made each and when, when it was asked for, and how long that took.
"""

import os
import time

import common
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

BATCH = 2


class Rows(Dataset):
    """A row says who made it and when."""

    def __init__(self, batches, load):
        self.rows, self.load = batches * BATCH, load

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        time.sleep(self.load)
        return torch.tensor([get_worker_info().id, os.getpid(), time.perf_counter()], dtype=torch.float64)


class Log:
    def __init__(self):
        self.batches = []

    def add(self, rows, start):
        worker, pid, made = rows[-1].tolist()
        taken = {"start": start, "waited": time.perf_counter() - start}
        self.batches.append(dict(taken, worker=int(worker), pid=int(pid), made=made))


class Timed(DataLoader):
    """For loops that are not ours: its iterator logs."""

    def __init__(self, log, *args, **options):
        super().__init__(*args, **options)
        self.log = log

    def __iter__(self):
        batches = super().__iter__()
        while True:
            start = time.perf_counter()
            try:
                rows = next(batches)
            except StopIteration:
                return
            self.log.add(rows, start)
            yield rows


class Loop:
    def __init__(self, args, log):
        self.args, self.log = args, log
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def train(self):
        self.optimizer.zero_grad()
        self.model(torch.ones(8)).sum().backward()
        time.sleep(self.args.step)
        self.optimizer.step()

    def evaluate(self):
        with torch.no_grad():
            self.model(torch.ones(8)).sum().item()
        time.sleep(self.args.step)

    def epochs(self, train, val):
        """A loop for each."""
        for _ in range(self.args.epochs):
            batches = iter(train)
            start = time.perf_counter()
            for rows in batches:
                self.log["train"].add(rows, start)
                self.train()
                start = time.perf_counter()
            batches = iter(val)
            start = time.perf_counter()
            for rows in batches:
                self.log["val"].add(rows, start)
                self.evaluate()
                start = time.perf_counter()

    def phases(self, train, val):
        """One loop for both, as in torch's tutorials."""
        for _ in range(self.args.epochs):
            for phase, loader in (("train", train), ("val", val)):
                batches = iter(loader)
                start = time.perf_counter()
                for rows in batches:
                    self.log[phase].add(rows, start)
                    self.train() if phase == "train" else self.evaluate()
                    start = time.perf_counter()

    def zip(self, train, val):
        """A batch of each for a step."""
        for _ in range(self.args.epochs):
            a, b = iter(train), iter(val)
            for _ in range(self.args.batches):
                for name, batches in (("train", a), ("val", b)):
                    start = time.perf_counter()
                    self.log[name].add(next(batches), start)
                self.train()


def run_lightning(args, train, val):
    import lightning.pytorch as pl
    from true_profiler import quiet_lightning

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(8, 1)

        def training_step(self, batch, batch_idx):
            time.sleep(args.step)
            return self.net(torch.ones(8)).sum()

        def validation_step(self, batch, batch_idx):
            time.sleep(args.step)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet_lightning()
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=args.epochs, **options)
    module = Module()
    common.wait(args)
    trainer.fit(module, train, val)


def main():
    p = common.parser(__doc__, epochs=2, batches=60)
    p.add_argument("--how", choices=["epochs", "phases", "zip", "lightning"], default="epochs")
    p.add_argument("--workers", type=int, nargs=2, default=[1, 1], metavar=("TRAIN", "VAL"))
    p.add_argument("--load", type=float, nargs=2, default=[0.004, 0.004], metavar=("TRAIN", "VAL"), help="seconds that a row takes")
    p.add_argument("--step", type=float, default=0.004)
    p.add_argument("--persistent", action="store_true")
    args = p.parse_args()
    common.prepare(args)
    log = {"train": Log(), "val": Log()}
    sizes = [args.batches, args.batches if args.how == "zip" else args.batches // 3]
    loaders = []
    for i, name in enumerate(log):
        options = {"batch_size": BATCH, "num_workers": args.workers[i], "persistent_workers": args.persistent}
        rows = Rows(sizes[i], args.load[i])
        loaders.append(Timed(log[name], rows, **options) if args.how == "lightning" else DataLoader(rows, **options))
    if args.how == "lightning":
        run_lightning(args, *loaders)
    else:
        common.wait(args)
        getattr(Loop(args, log), args.how)(*loaders)
    common.write(args, {name: one.batches for name, one in log.items()})


if __name__ == "__main__":
    main()
