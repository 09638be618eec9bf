# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Lightning fit with DeviceStatsMonitor and a CSVLogger. Every other batch computes, the rest sleep.

Its truth is the rows that Lightning logged, and when psutil looked at the processors for each.
"""

import csv
import os
import tempfile
import time

import common
import lightning.pytorch as pl
import psutil
import torch
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import CSVLogger
from true_profiler import quiet_lightning

quiet_lightning()
looks = []  # when cpu_percent began and ended


def timed_cpu_percent(*args, original=psutil.cpu_percent):
    begin = time.monotonic()
    percent = original(*args)
    looks.append((begin, time.monotonic()))
    return percent


class Module(pl.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
        self.args = args

    def training_step(self, batch, batch_idx):
        end = time.monotonic() + self.args.pause
        while batch_idx % 2 and time.monotonic() < end:
            torch.ones(64, 64) @ torch.ones(64, 64)
        time.sleep(max(0, end - time.monotonic()))
        return self.net(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main():
    p = common.parser(__doc__, batches=8)
    p.add_argument("--pause", type=float, default=2, help="seconds of a batch")
    args = p.parse_args()
    common.prepare(args)
    psutil.cpu_percent = timed_cpu_percent
    with tempfile.TemporaryDirectory() as directory:
        logger = CSVLogger(directory)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            callbacks=[DeviceStatsMonitor(cpu_stats=True)],
            logger=logger,
            log_every_n_steps=1,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module(args)
        loader = torch.utils.data.DataLoader(torch.ones(args.batches, 8))
        common.wait(args)
        trainer.fit(module, loader)
        with open(os.path.join(logger.log_dir, "metrics.csv")) as f:
            rows = list(csv.DictReader(f))
    common.write(args, {"rows": rows, "looks": looks, "processors": os.sysconf("SC_NPROCESSORS_ONLN")})


if __name__ == "__main__":
    main()
