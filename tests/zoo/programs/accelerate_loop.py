# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""accelerate as its documentation shows it: two batches are accumulated, and the state is saved every 20 steps by save_state."""

import os

import clock
import faults
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
data = faults.dataset(TensorDataset(torch.randn(4000, 128), torch.randint(0, 10, (4000,))), 2 * BATCH)
clock.by_optimizer()
faults.arm()
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), DataLoader(data, BATCH, shuffle=True))
step = 0
while True:
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        step += accelerator.sync_gradients
        if accelerator.sync_gradients and step % 20 == 0:
            with clock.event("checkpoint"):
                accelerator.save_state(os.environ["ZOO_TRUTH"] + ".state")
