# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The training run of `make demo`: an ordinary Lightning program that knows nothing of stepflame.

A small convolutional network learns to tell circles from squares in images that DataLoader workers draw; with
validation, a checkpoint at the end of each epoch and a learning rate schedule. It has no profiler.
"""

import argparse
import logging
import tempfile
import warnings
from datetime import timedelta

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH = 48, 32


class Shapes(Dataset):
    """Image i: a circle when i is even, a square when it is odd, somewhere, in noise."""

    def __init__(self, images, seed):
        self.images = images
        self.seed = seed

    def __len__(self):
        return self.images

    def __getitem__(self, i):
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        x, y, radius = (torch.rand(3, generator=random) * torch.tensor([24, 24, 6]) + torch.tensor([12, 12, 5])).tolist()
        across = torch.arange(SIDE) - x
        down = (torch.arange(SIDE) - y).unsqueeze(1)
        inside = across**2 + down**2 < radius**2 if i % 2 == 0 else torch.maximum(across.abs(), down.abs()) < radius
        image = inside.float() + 0.3 * torch.randn(SIDE, SIDE, generator=random)
        return image.unsqueeze(0), i % 2


class ShapeNet(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(32 * 16, 2),
        )

    def loss(self, batch):
        images, kinds = batch
        return nn.functional.cross_entropy(self.net(images), kinds)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Progress(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % 50 == 1:
            print("step %d loss %.3f" % (trainer.global_step, outputs["loss"]), flush=True)


class Checkpoint(Callback):
    """At the end of each epoch. (ModelCheckpoint's long state_key would make the demo's table wider than a screen.)"""

    def __init__(self, path):
        self.path = path

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.path)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=int, default=60, help="how long to train")
    p.add_argument("--workers", type=int, default=1, help="of the DataLoader")
    args = p.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    pl.seed_everything(1, verbose=False)

    def loader(images, seed):
        keep = {"num_workers": args.workers, "persistent_workers": args.workers > 0}
        return DataLoader(Shapes(images, seed), batch_size=BATCH, **keep)

    with tempfile.TemporaryDirectory(prefix="stepflame-demo-") as directory:
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=-1,
            max_time=timedelta(seconds=args.seconds),
            logger=CSVLogger(directory),
            callbacks=[Checkpoint(directory + "/last.ckpt"), LearningRateMonitor("epoch"), Progress()],
            gradient_clip_val=1.0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=50,
        )
        trainer.fit(ShapeNet(), loader(BATCH * 60, 1), loader(BATCH * 10, 2))


if __name__ == "__main__":
    main()
