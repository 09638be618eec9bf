# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training whose steps are short and many, until the file --stop is there. The truth: when each of them was in its middle, on CLOCK_MONOTONIC."""

import os
import time

import common
import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 4


class Rows(Dataset):
    def __init__(self, stop):
        self.stop = stop

    def __len__(self):
        return 1 << 40

    def __getitem__(self, i):
        return torch.ones(8) if not os.path.exists(self.stop) else None


def collate(rows):
    return None if any(row is None for row in rows) else torch.stack(rows)


def net(width=8):
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.Linear(width, 1))


def plain(loader, ticks, width):
    model = net(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for x in loader:
        if x is None:
            return
        optimizer.zero_grad()
        loss = model(x).square().mean()
        ticks.append(time.monotonic_ns())
        loss.backward()
        optimizer.step()


def two_optimizers(loader, ticks, width):
    """Two steps of optimizers for each batch, and two backwards."""
    models = [net(width), net(width)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-4) for model in models]
    for x in loader:
        if x is None:
            return
        for first, model, optimizer in zip((True, False), models, optimizers):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if first:
                ticks.append(time.monotonic_ns())
            loss.backward()
            optimizer.step()


def accumulate(loader, ticks, width):
    """A step takes three batches."""
    model = net(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for i, x in enumerate(loader):
        if x is None:
            return
        model(x).square().mean().backward()
        if i % 3 == 1:
            ticks.append(time.monotonic_ns())
        if i % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def lightning(loader, ticks, width):
    import warnings

    from lightning.pytorch import Callback, LightningModule, Trainer

    class Ticks(Callback):
        def on_before_backward(self, trainer, module, loss):
            ticks.append(time.monotonic_ns())

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net(width)

        def training_step(self, x, i):
            self.trainer.should_stop = os.path.exists(loader.dataset.stop)
            return self.net(x).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    warnings.filterwarnings("ignore")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(max_epochs=1, accelerator="cpu", callbacks=[Ticks()], **quiet).fit(Module(), DataLoader(torch.ones(1 << 24, 8), batch_size=BATCH))


KINDS = {"plain": plain, "two-optimizers": two_optimizers, "accumulate": accumulate, "lightning": lightning}


def main():
    p = common.parser(__doc__, work=8)
    p.add_argument("--stop", required=True)
    p.add_argument("--kind", choices=KINDS, default="plain")
    p.add_argument("--workers", type=int, default=0)
    args = p.parse_args()
    common.prepare(args)
    ticks = []
    loader = DataLoader(Rows(args.stop), batch_size=BATCH, num_workers=args.workers, collate_fn=collate, sampler=range(1 << 40))
    common.wait(args)
    KINDS[args.kind](loader, ticks, args.work)
    common.write(args, {"ticks": ticks})


if __name__ == "__main__":
    main()
