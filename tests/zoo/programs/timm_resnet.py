# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""timm's resnet10t on torchvision's FakeData, through timm's loader."""

import clock
import faults
import timm
import timm.data
import timm.optim
import torch
import torchvision

BATCH = 8
torch.set_num_threads(1)
data = torchvision.datasets.FakeData(2000, (3, 64, 64), 10, transform=None)
data.transform = timm.data.create_transform((3, 64, 64), is_training=True)
loader = torch.utils.data.DataLoader(faults.dataset(data, BATCH), batch_size=BATCH, shuffle=True, drop_last=True)
model = timm.create_model("resnet10t", num_classes=10)
optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=1e-3)
clock.by_optimizer()
faults.arm()
for epoch in range(10**6):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
