# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""fastai's Learner on a synthetic regression; it validates at the end of each epoch of 100 batches."""

import clock
import faults
import torch
from fastai.callback import progress  # noqa: F401: gives the learner no_bar
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner

BATCH = 32


class Clock(Callback):
    def after_batch(self):
        if self.training:
            clock.step()


class Rows:
    def __init__(self, count):
        self.x = torch.randn(count, 64)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.x[i].sum().unsqueeze(0)


faults.arm()
train = DataLoader(faults.dataset(Rows(3200), BATCH), bs=BATCH, shuffle=True, num_workers=0)
valid = DataLoader(Rows(1600), bs=BATCH, num_workers=0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
learner = Learner(DataLoaders(train, valid), model, loss_func=torch.nn.MSELoss(), cbs=[Clock()], path=".")
with learner.no_bar(), learner.no_logging():
    learner.fit(10**6)
