# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A small Lightning run with what real ones have: callbacks, clipping, a scheduler, validation, checkpoints.

Its truth is what Lightning's own SimpleProfiler recorded in the same process (--profiler simple).
"""

import inspect
import tempfile

import common
import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loops import fit_loop
from torch.utils.data import DataLoader, Dataset, IterableDataset
from true_profiler import TrueSimpleProfiler, quiet_lightning

quiet_lightning()
INPUTS, BATCH = 32, 16


class Rows(Dataset):
    """Row i is a function of i: no generator, so workers and repeats give the same."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        x = torch.sin(torch.arange(INPUTS, dtype=torch.float32) * (i + 1))
        return x, x.sum().reshape(1)


class Stream(IterableDataset):
    """The same rows with no length."""

    def __init__(self, rows):
        self.rows = Rows(rows)

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (self.rows[i] for i in range(start, len(self.rows), step))


def loader(args, batches):
    dataset = Stream(BATCH * batches) if args.iterable else Rows(BATCH * batches)
    return DataLoader(dataset, batch_size=BATCH, num_workers=args.workers)


class Data(pl.LightningDataModule):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def train_dataloader(self):
        return loader(self.args, self.args.batches)

    def val_dataloader(self):
        return loader(self.args, max(1, self.args.batches // 4))

    def test_dataloader(self):
        return self.val_dataloader()

    def predict_dataloader(self):
        return self.val_dataloader()


class Module(pl.LightningModule):
    def __init__(self, work):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, work),
            torch.nn.ReLU(),
            torch.nn.Linear(work, work),
            torch.nn.ReLU(),
            torch.nn.Linear(work, 1),
        )

    def loss(self, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch, batch_idx):
        return self.net(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Norms(Callback):
    """A user's own callback, with a state_key that holds a keyword dump like those of Lightning's."""

    def __init__(self, every):
        self.every = every
        self.norms = []

    @property
    def state_key(self):
        return self._generate_state_key(every=self.every)

    def state_dict(self):
        return {"norms": self.norms}

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.global_step % self.every == 0:
            self.norms.append(sum(p.grad.norm().item() for p in pl_module.parameters()))

    def on_train_epoch_end(self, trainer, pl_module):
        self.norms = self.norms[-100:]


class Ranges(Callback):
    """Two ranges of NVTX's around each batch, of which neither hook has both ends."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        torch.cuda.nvtx.range_push("batch range")
        torch.cuda.nvtx.range_push("inner range")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()


def callbacks(args, directory):
    if getattr(args, "nvtx", False):  # other jobs have these callbacks, too
        return [Ranges()]
    if not args.callbacks:
        return []
    found = [
        ModelCheckpoint(directory, save_last=True, save_top_k=1, monitor="val_loss"),
        Norms(every=5),
    ]
    return found + [LearningRateMonitor("step")] if args.logger == "csv" else found


def time_setup(trainer):
    """The release behind Lightning 2.6.6 times what starts the DataLoader's workers: so does this, where it does not yet."""

    def timed(fetcher):
        with trainer.profiler.profile("setup_train_dataloader"):
            return iter(fetcher)

    if "setup_train_dataloader" not in inspect.getsource(fit_loop):
        fit_loop.iter = timed  # its only call of iter()


def stage_options(args):
    """The arguments of trainer.fit(module, ...) and its siblings."""
    data = Data(args)
    if args.datamodule:
        options = {"datamodule": data}
    elif args.stage == "fit":
        options = {"train_dataloaders": data.train_dataloader(), "val_dataloaders": data.val_dataloader()}
    else:
        options = {"dataloaders": data.val_dataloader()}
    if args.stage in ("validate", "test"):
        options["verbose"] = False
    return options


def main():
    p = common.parser(__doc__, epochs=2, batches=100, work=256)
    p.add_argument("--profiler", default="simple", help="none, simple, or any name that Trainer takes")
    p.add_argument("--stage", choices=["fit", "validate", "test", "predict"], default="fit")
    p.add_argument("--workers", type=int, default=0, help="of the DataLoaders")
    p.add_argument("--iterable", action="store_true", help="datasets with no length")
    p.add_argument("--datamodule", action="store_true")
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--logger", choices=["none", "csv"], default="csv")
    p.add_argument("--no-callbacks", dest="callbacks", action="store_false")
    p.add_argument("--devices", type=int, default=1, help="ranks, of which this process is one: the environment says which")
    p.add_argument("--nvtx", action="store_true", help="ranges over hooks, and no other callback")
    p.add_argument("--setup-row", action="store_true", help="with the row of the release behind 2.6.6")
    args = p.parse_args()
    common.prepare(args)

    with tempfile.TemporaryDirectory() as directory:
        profiler = {"none": None, "simple": TrueSimpleProfiler()}.get(args.profiler, args.profiler)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=args.devices,
            strategy="ddp" if args.devices > 1 else "auto",
            max_epochs=args.epochs,
            profiler=profiler,
            callbacks=callbacks(args, directory),
            logger=CSVLogger(directory) if args.logger == "csv" else False,
            enable_checkpointing=args.callbacks,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=0.5,
            accumulate_grad_batches=args.accumulate,
            log_every_n_steps=10,
            default_root_dir=directory,
        )
        if args.setup_row:
            time_setup(trainer)
        module = Module(args.work)
        options = stage_options(args)
        common.wait(args)
        getattr(trainer, args.stage)(module, **options)
        truth = profiler.truth() if isinstance(profiler, TrueSimpleProfiler) else {}
        common.write(args, dict(truth, steps=trainer.global_step, weights=sum(p.sum().item() for p in module.parameters())))


if __name__ == "__main__":
    main()
