# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The job of docs/walk-since-yesterday.md: with --norms, what was added since yesterday, it logs the norm of each gradient in each step."""

import common
import torch
from torch.utils.data import DataLoader, TensorDataset


def log_norms(model, log):
    for name, p in model.named_parameters():
        log[name] = p.grad.norm().item()


def train(model, loader, norms):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = {}
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        if norms:
            log_norms(model, log)
        optimizer.step()


def main():
    p = common.parser(__doc__, batches=1500, work=64)
    p.add_argument("--norms", action="store_true", help="log them")
    args = p.parse_args()
    common.prepare(args)
    layers = [torch.nn.Linear(args.work, args.work) for _ in range(24)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(args.work, 1))
    rows = TensorDataset(torch.randn(64 * args.batches, args.work), torch.randn(64 * args.batches, 1))
    common.wait(args)
    for _ in range(args.epochs):
        train(model, DataLoader(rows, batch_size=64), args.norms)
    common.write(args, {"steps": args.epochs * args.batches})


if __name__ == "__main__":
    main()
