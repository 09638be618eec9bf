# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""skorch's NeuralNetClassifier; it validates at the end of each epoch."""

import clock
import faults
import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch.utils.data import Dataset

BATCH = 64


class Clock(Callback):
    def on_batch_end(self, net, training=False, **kwargs):
        if training:
            clock.step()


class Slow(Dataset):
    """skorch's own dataset, which may be slow."""

    def __init__(self, X, y=None, **kwargs):
        from skorch.dataset import Dataset as Own

        self.of = faults.dataset(Own(X, y, **kwargs), BATCH)

    def __len__(self):
        return len(self.of)

    def __getitem__(self, i):
        return self.of[i]


layers = [torch.nn.Linear(100, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 2)]
module = torch.nn.Sequential(*layers, torch.nn.Softmax(-1))
X = np.random.randn(8000, 100).astype("float32")
y = np.random.randint(0, 2, 8000)
faults.arm()
NeuralNetClassifier(module, max_epochs=10**6, batch_size=BATCH, dataset=Slow, callbacks=[Clock()], verbose=0).fit(X, y)
