# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pytorch-ignite's supervised trainer, with its evaluator every 50 iterations and its checkpoint every 200."""

import os

import clock
import faults
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Accuracy
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32
model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 26 * 26, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = create_supervised_trainer(model, optimizer, torch.nn.CrossEntropyLoss())
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})


def images(count):
    return TensorDataset(torch.randn(count, 1, 28, 28), torch.randint(0, 10, (count,)))


valid = DataLoader(images(640), batch_size=BATCH)


@trainer.on(Events.ITERATION_COMPLETED)
def count(engine):
    clock.step()


@trainer.on(Events.ITERATION_COMPLETED(every=50))
def evaluate(engine):
    evaluator.run(valid)


saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver(os.environ["ZOO_TRUTH"] + ".saved-by-ignite"), n_saved=1)
trainer.add_event_handler(Events.ITERATION_COMPLETED(every=200), saver)
faults.arm()
trainer.run(DataLoader(faults.dataset(images(3200), BATCH), batch_size=BATCH, shuffle=True), max_epochs=10**6)
