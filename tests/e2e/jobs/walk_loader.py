# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The job of docs/walk-loader.md: each item is read from far away and then augmented in Python, by too few DataLoader workers."""

import time

import common
import torch
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH = 32, 16
FETCH_SECONDS = 0.002  # of an item, by the network


class Images(Dataset):
    def __init__(self, cnt):
        self.cnt = cnt

    def __len__(self):
        return self.cnt

    def __getitem__(self, i):
        return self.augment(self.fetch(i)), i % 10

    def fetch(self, i):
        time.sleep(FETCH_SECONDS)
        return torch.full((3, SIDE, SIDE), i / self.cnt)

    def augment(self, image):
        rows = [image[:, (y * 7) % SIDE] for y in range(SIDE)]
        return torch.stack(rows, 1).flip(2)


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def main():
    p = common.parser(__doc__, batches=200, work=16)
    p.add_argument("--workers", type=int, default=1, help="of the DataLoader")
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, args.work, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(args.work, 10),
    )
    common.wait(args)
    for _ in range(args.epochs):
        train(model, DataLoader(Images(BATCH * args.batches), batch_size=BATCH, num_workers=args.workers))
    common.write(args, {"steps": args.epochs * args.batches})


if __name__ == "__main__":
    main()
