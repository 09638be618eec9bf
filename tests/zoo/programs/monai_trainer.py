# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""monai's SupervisedTrainer with a small UNet on random volumes, its transforms in a worker-less DataLoader, and its validation every epoch of 40."""

import clock
import faults
import monai
import torch
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import ValidationHandler
from monai.transforms import Compose, RandFlipd, RandRotate90d, ToTensord

torch.set_num_threads(1)
BATCH = 2
KEYS = ["image", "label"]


def volumes(count):
    transform = Compose([RandFlipd(KEYS, 0.5), RandRotate90d(KEYS, 0.5), ToTensord(KEYS)])
    rows = [{"image": torch.randn(1, 64, 64), "label": (torch.rand(1, 64, 64) > 0.5).float()} for _ in range(count)]
    return Dataset(rows, transform)


network = monai.networks.nets.UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8, 16), strides=(2, 2))
cpu = torch.device("cpu")
evaluator = SupervisedEvaluator(cpu, DataLoader(volumes(20), batch_size=BATCH), network)
clock.by_optimizer()
faults.arm()
SupervisedTrainer(
    cpu,
    10**6,
    DataLoader(faults.dataset(volumes(80), BATCH), batch_size=BATCH, shuffle=True),
    network,
    torch.optim.Adam(network.parameters()),
    monai.losses.DiceLoss(sigmoid=True),
    train_handlers=[ValidationHandler(1, evaluator)],
).run()
