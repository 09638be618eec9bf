# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pytorch-tabnet's TabNetClassifier, which predicts on its validation set at the end of each epoch."""

import clock
import faults
import numpy as np
import torch
from pytorch_tabnet.tab_model import TabNetClassifier

torch.set_num_threads(1)
x, y = np.random.randn(6400, 16).astype("float32"), np.random.randint(0, 2, 6400)
clock.by_optimizer()
faults.arm()
TabNetClassifier(verbose=0, device_name="cpu").fit(
    x, y, eval_set=[(x[:2048], y[:2048])], max_epochs=10**6, patience=0, batch_size=256, virtual_batch_size=128, num_workers=0
)
