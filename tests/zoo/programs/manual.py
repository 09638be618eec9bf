# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
torch alone: an LSTM without a DataLoader and without an optimizer of torch's: its parameters are moved by hand. --infer: it is not trained.
"""

import sys
import time

import clock
import faults
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.LSTM(64, 128, num_layers=2)
head = torch.nn.Linear(128, 64)
parameters = [*model.parameters(), *head.parameters()]
data = torch.rand(10000, 8, 64)


def get_batch(i):
    at = i * 20 % 9900
    return data[at : at + 20], data[at + 1 : at + 21]


def train():
    step = 0
    while True:
        step += 1
        x, y = get_batch(step)
        out, _ = model(x)
        loss = (head(out) - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p.add_(p.grad, alpha=-0.01)
                p.grad = None
        clock.step()
        if faults.name == "sleep" and step % faults.every == 0:
            write_summary()


def write_summary():
    with clock.event("planted"):
        time.sleep(faults.HELD_SECONDS)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, i):
        return data[i % 10000]


def infer():
    loader = torch.utils.data.DataLoader(faults.dataset(Rows(), 16), batch_size=16)
    with torch.inference_mode():
        for batch in loader:
            head(model(batch)[0]).mean().item()
            clock.step()


infer() if sys.argv[1:] == ["--infer"] else train()
