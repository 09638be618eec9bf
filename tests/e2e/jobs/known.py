# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A plain loop whose parts take known times: the dataset, the model's forward and a hook of the optimizer's step each sleep.

Its truth is, of each step, when it ended, how long its parts took and how long it slept, by time.perf_counter().
"""

import time

import common
import torch
from torch.utils.data import DataLoader, Dataset


slept = []  # of each sleep


def sleep(ms):
    begin = time.perf_counter()
    time.sleep(ms / 1e3)
    slept.append(time.perf_counter() - begin)


class Rows(Dataset):
    def __init__(self, rows, ms):
        self.rows = rows
        self.ms = ms

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        sleep(self.ms)
        return torch.full((8,), float(i)), torch.zeros(1)


class Model(torch.nn.Module):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x):
        sleep(self.ms)
        return self.layer(x)


class SlowSGD(torch.optim.SGD):
    """Its step is followed by a pause, all of it in Optimizer.step's label."""

    def __init__(self, parameters, ms):
        super().__init__(parameters, lr=1e-4)
        self.ms = ms
        self.register_step_post_hook(lambda *_: sleep(self.ms))


def main():
    p = common.parser(__doc__, epochs=1, batches=100)
    p.add_argument("--data-ms", type=float, default=3)
    p.add_argument("--forward-ms", type=float, default=4)
    p.add_argument("--step-ms", type=float, default=2)
    args = p.parse_args()
    common.prepare(args)
    model = Model(args.forward_ms)
    optimizer = SlowSGD(model.parameters(), args.step_ms)
    loader = DataLoader(Rows(args.batches, args.data_ms), batch_size=1)
    ends, parts = [], {"data": [], "forward": [], "step": []}
    common.wait(args)

    for _ in range(args.epochs):
        batches = iter(loader)
        for _ in range(args.batches):
            begin = time.perf_counter()
            x, y = next(batches)
            parts["data"].append(time.perf_counter() - begin)
            optimizer.zero_grad()
            begin = time.perf_counter()
            loss = torch.nn.functional.mse_loss(model(x), y)
            parts["forward"].append(time.perf_counter() - begin)
            loss.backward()
            begin = time.perf_counter()
            optimizer.step()
            parts["step"].append(time.perf_counter() - begin)
            ends.append(time.perf_counter())
    parts["sleep"] = [sum(of_step) for of_step in zip(slept[::3], slept[1::3], slept[2::3])]
    common.write(args, {"steps": len(ends), "ends": ends, "parts": parts})


if __name__ == "__main__":
    main()
