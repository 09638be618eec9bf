# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The job of started.py as Lightning starts it: in a module, because ddp_spawn pickles it."""

import os
from pathlib import Path

import lightning
import torch
import torch.distributed as dist
from started import BATCH, WIDTH, Data, late
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self, go_on):
        super().__init__()
        self.go_on = go_on
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def training_step(self, batch, number):
        late(self.global_rank)
        if number == 2:
            os.write(1, b"rank %d %d\n" % (self.global_rank, os.getpid()))  # at once: the ranks have one file
        if number % 16 == 0:
            go_on = torch.tensor([float(Path(self.go_on).exists())])
            dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
            self.trainer.should_stop = not go_on[0]
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def fit(args):
    torch.set_num_threads(1)
    context = args.workers or None
    loader = DataLoader(Data(), BATCH, num_workers=1 if context else 0, multiprocessing_context=context)
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    lightning.Trainer(accelerator="cpu", devices=2, strategy=args.how, max_epochs=1, min_epochs=0, **off).fit(Module(args.go_on), loader)
