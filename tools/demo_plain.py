# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The training run of `make demo SMALL=1`: a plain loop of torch, without Lightning, that knows nothing of stepflame.

A small network learns which of two spirals a point is on; DataLoader workers make the points.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, POINTS = 128, 128 * 60


class Spirals(Dataset):
    """Point i: on the first spiral when i is even, on the second when it is odd."""

    def __len__(self):
        return POINTS

    def __getitem__(self, i):
        random = torch.Generator().manual_seed(i)
        along = torch.rand(1, generator=random) * 9
        angle = along + torch.pi * (i % 2)
        return torch.cat([along * angle.cos(), along * angle.sin()]) + 0.2 * torch.randn(2, generator=random), i % 2


def train(model, optimizer, loader, until):
    step = 0
    while time.monotonic() < until:
        for points, kinds in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points), kinds)
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print("step %d loss %.3f" % (step, loss), flush=True)
            step += 1


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=int, default=60, help="how long to train")
    p.add_argument("--workers", type=int, default=1, help="of the DataLoader")
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Spirals(), batch_size=BATCH, num_workers=args.workers, persistent_workers=args.workers > 0)
    train(model, optimizer, loader, time.monotonic() + args.seconds)


if __name__ == "__main__":
    main()
