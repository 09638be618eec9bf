# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pytorch-metric-learning's own trainer MetricLossOnly."""

import logging

import clock
import faults
import torch
from pytorch_metric_learning import losses, samplers, trainers

BATCH = 32
logging.disable(logging.CRITICAL)
trunk = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
labels = torch.randint(0, 20, (2000,))
data = faults.dataset(torch.utils.data.TensorDataset(torch.randn(2000, 128), labels), BATCH)
optimizers = {"trunk_optimizer": torch.optim.Adam(trunk.parameters(), lr=1e-4)}
clock.by_optimizer()
faults.arm()
trainers.MetricLossOnly(
    {"trunk": trunk},
    optimizers,
    BATCH,
    {"metric_loss": losses.TripletMarginLoss()},
    data,
    sampler=samplers.MPerClassSampler(labels, 4, length_before_new_iter=2000),
    dataloader_num_workers=0,
).train(num_epochs=10**6)
