# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The job of docs/walk-slow-now.md: now and then it writes its weights to the disk in the middle of an epoch, and waits until they are there."""

import os
import tempfile

import common
import torch
from torch.utils.data import DataLoader, TensorDataset

EVERY = 50  # steps from one save to the next


def save(model, path):
    with open(path, "wb") as f:
        torch.save(model.state_dict(), f)
        f.flush()
        os.fsync(f.fileno())


def train(model, loader, directory):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            save(model, os.path.join(directory, "last.pt"))


def main():
    args = common.parser(__doc__, batches=600, work=1024).parse_args()
    common.prepare(args)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, args.work),
        torch.nn.GELU(),
        torch.nn.Linear(args.work, args.work),
        torch.nn.GELU(),
        torch.nn.Linear(args.work, 1),
    )
    rows = TensorDataset(torch.randn(32 * args.batches, 256), torch.randn(32 * args.batches, 1))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(args.out or "") or ".") as directory:
        common.wait(args)
        for _ in range(args.epochs):
            train(model, DataLoader(rows, batch_size=32, shuffle=True), directory)
    common.write(args, {"steps": args.epochs * args.batches, "every": EVERY})


if __name__ == "__main__":
    main()
