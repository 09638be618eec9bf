# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Ways to train by Lightning that lightning_fit.py does not have: --way NAME, of which each is a function here. Its truth is what Lightning's own
SimpleProfiler recorded in the same process.
"""

import os
import signal
import tempfile
import threading

import common
import lightning.pytorch as pl
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import CombinedLoader
from lightning_fit import BATCH, Module, Rows
from torch.utils.data import DataLoader
from true_profiler import TrueSimpleProfiler

BATCHES = 40


def loader(batches=BATCHES):
    return DataLoader(Rows(BATCH * batches), batch_size=BATCH)


def trainer(profiler, directory, **options):
    defaults = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 2}
    return pl.Trainer(accelerator="cpu", devices=1, profiler=profiler, default_root_dir=directory, **{**defaults, **options})


def sweep(profiler, directory):
    """Several fits in one process, each with a Trainer and a model of its own."""
    for work in (16, 32, 64):
        trainer(profiler, directory, max_epochs=1).fit(Module(work), loader(), loader(4))


def many_callbacks(profiler, directory):
    """Averages weights, stops early, changes the accumulation, validates in the middle of an epoch, makes loaders anew."""
    used = [
        callbacks.StochasticWeightAveraging(1e-2, swa_epoch_start=1),
        callbacks.EarlyStopping("val_loss", patience=100),
        callbacks.GradientAccumulationScheduler({0: 2, 1: 1}),
        callbacks.Timer(),
        callbacks.LambdaCallback(on_train_batch_end=lambda *args: None),
    ]
    model = Module(32)
    model.train_dataloader, model.val_dataloader = loader, lambda: loader(3)
    options = {"val_check_interval": 0.25, "reload_dataloaders_every_n_epochs": 1, "precision": "bf16-mixed", "detect_anomaly": True}
    trainer(profiler, directory, callbacks=used, max_epochs=3, **options).fit(model)


def finds_rate(profiler, directory):
    """Looks for a learning rate, and then fits."""

    class Tuned(Module):
        lr = 1e-3

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    one = trainer(profiler, directory, enable_checkpointing=True)
    model = Tuned(32)
    Tuner(one).lr_find(model, loader(), num_training=30)
    one.fit(model, loader())


def closures(profiler, directory):
    """LBFGS, which calls its closure, and with it training_step, several times a step."""

    class Closed(Module):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=4)

    trainer(profiler, directory).fit(Closed(16), loader())


def fails(profiler, directory):
    """A training_step raises an exception, is caught, and another fit goes well."""

    class Failing(Module):
        def training_step(self, batch, batch_idx):
            if batch_idx == 17:
                raise ValueError("a batch that is no batch")
            return super().training_step(batch, batch_idx)

    try:
        trainer(profiler, directory).fit(Failing(16), loader())
    except ValueError:
        pass
    trainer(profiler, directory).fit(Module(16), loader())


def interrupted(profiler, directory):
    """Ctrl-C in the middle of a fit, which Lightning ends by itself; then it validates."""
    one = trainer(profiler, directory, max_epochs=10000)
    model = Module(16)
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        one.fit(model, loader())
    except (KeyboardInterrupt, SystemExit):
        pass
    trainer(profiler, directory).validate(model, loader(), verbose=False)


def combined(profiler, directory):
    """Two loaders to train with, of different lengths, and two to validate with."""

    class Two(Module):
        def training_step(self, batch, batch_idx):
            return sum(self.loss(part) for part in batch.values() if part is not None)

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("val_loss", self.loss(batch))

    train = CombinedLoader({"a": loader(BATCHES), "b": loader(BATCHES // 2)}, "max_size_cycle")
    trainer(profiler, directory).fit(Two(16), train, [loader(3), loader(5)])


def compiled(profiler, directory):
    """A module that torch.compile has compiled."""
    model = torch.compile(Module(16), backend="eager")
    trainer(profiler, directory).fit(model, loader(), loader(4))


def by_steps(profiler, directory):
    """max_steps ends it in the middle of an epoch, with two optimizers by hand."""

    class Manual(Module):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.loss(batch))
                self.clip_gradients(optimizer, 0.5, "norm")
                optimizer.step()

        def configure_optimizers(self):
            return torch.optim.SGD(self.net[0].parameters(), lr=1e-3), torch.optim.Adam(self.net[2].parameters(), lr=1e-3)

    trainer(profiler, directory, max_epochs=-1, max_steps=90).fit(Manual(16), loader())


def all_stages(profiler, directory):
    """Fits, validates, tests, predicts, and fits on from a checkpoint."""

    one, model = trainer(profiler, directory), Module(16)
    one.fit(model, loader(), loader(4))
    one.save_checkpoint(directory + "/last.ckpt")
    for stage in (one.validate, one.test):
        stage(model, loader(4), verbose=False)
    one.predict(model, loader(4))
    trainer(profiler, directory, max_epochs=3).fit(model, loader(), ckpt_path=directory + "/last.ckpt")


def main():
    p = common.parser(__doc__)
    p.add_argument("--way", required=True)
    args = p.parse_args()
    common.prepare(args)
    profiler = TrueSimpleProfiler()
    with tempfile.TemporaryDirectory() as directory:
        common.wait(args)
        globals()[args.way](profiler, directory)
    common.write(args, profiler.truth())


if __name__ == "__main__":
    main()
