# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Lightning run under Lightning's own AdvancedProfiler, which looks at one action, so that no other one is cut out of it, and by the
CPU's time of the thread.

Its truth: {functions: [[file, line, name, own, total]], seconds: all of it}, of that action. What built-in functions take is the own time of
the Python function that calls them.
"""

import cProfile
import pstats
import random
from collections import defaultdict
from time import thread_time

import common
import lightning.pytorch as pl
import torch
from lightning.pytorch.profilers import AdvancedProfiler
from torch.utils.data import DataLoader, Dataset
from true_profiler import quiet_lightning

quiet_lightning()


def turns(cnt, x=1):
    for i in range(int(cnt * random.uniform(0.2, 1.8))):
        x = x * 3 + i & 0xFFFF
    return x


def scale(x):
    return x + 0 * turns(20000)


def augment(x):
    x = scale(x)
    for i in range(int(40000 * random.uniform(0.2, 1.8))):
        i * i
    return x


def score(x):
    for i in range(int(60000 * random.uniform(0.2, 1.8))):
        i + i
    return x.square().mean()


def decode(i):
    return torch.full((4,), float(i + 0 * turns(6000)))


class Numbers(Dataset):
    def __init__(self, cnt):
        self.cnt = cnt

    def __len__(self):
        return self.cnt

    def __getitem__(self, i):
        return decode(i)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return score(self.layer(augment(batch)))

    def on_train_batch_start(self, batch, batch_idx):
        turns(10000)

    def on_before_zero_grad(self, optimizer):
        turns(15000)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class OneAction(AdvancedProfiler):
    def __init__(self, action):
        super().__init__()
        self.action, self.profile_of = action, cProfile.Profile(thread_time)
        self.profiled_actions = defaultdict(lambda: self.profile_of)

    def start(self, action_name):
        if action_name == self.action:
            super().start(action_name)

    def stop(self, action_name):
        if action_name == self.action:
            super().stop(action_name)

    def summary(self):
        return ""


def truth_of(profile):
    stats = pstats.Stats(profile).stats
    own = {key: row[2] for key, row in stats.items() if key[0] != "~"}
    for key, row in stats.items():
        for caller, edge in row[4].items() if key[0] == "~" else ():
            if caller in own:
                own[caller] += edge[2]
    return {"seconds": sum(row[2] for row in stats.values()), "functions": [[*key, own[key], stats[key][3]] for key in own]}


def main():
    p = common.parser(__doc__, batches=400)
    p.add_argument("--action", required=True)
    args = p.parse_args()
    common.prepare(args)
    profiler = OneAction(args.action)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=args.epochs, profiler=profiler, **options)
    module, data = Module(), DataLoader(Numbers(4 * args.batches), batch_size=4)
    common.wait(args)
    trainer.fit(module, data)
    common.write(args, truth_of(profiler.profile_of))


if __name__ == "__main__":
    main()
