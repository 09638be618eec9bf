# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Lightning's demo module LightningTransformer, by its Trainer, on random tokens; --validate: its demo BoringModel, with validation every
50 batches.
"""

import os
import sys

import clock
import faults
import lightning.pytorch as pl
import torch
from lightning.pytorch.demos import boring_classes
from lightning.pytorch.demos.transformer import LightningTransformer
from torch.utils.data import DataLoader

BATCH = 4


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, i):
        ids = torch.randint(0, 300, (17,))
        return ids[:-1], ids[1:]


class Clock(pl.Callback):
    def on_train_batch_end(self, *args):
        clock.step()


class Transformer(LightningTransformer):
    def prepare_data(self):
        """It would download a text."""


common = {
    "max_epochs": 10**6,
    "logger": False,
    "enable_progress_bar": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "default_root_dir": os.environ["ZOO_TRUTH"] + ".out",
    "callbacks": [Clock()],
}
faults.arm()
if sys.argv[1:] == ["--validate"]:
    trainer = pl.Trainer(val_check_interval=50, **common)
    train = DataLoader(faults.dataset(boring_classes.RandomDataset(32, 100000)))
    trainer.fit(boring_classes.BoringModel(), train, DataLoader(boring_classes.RandomDataset(32, 64)))
else:
    pl.Trainer(**common).fit(Transformer(vocab_size=300), DataLoader(faults.dataset(Tokens(), BATCH), batch_size=BATCH))
