# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Loops whose data, or whose environments, come from a library that has loaders of its own. KIND says which; what each does is its function's
first line.
"""

import os
import sys
import time

import clock
import torch
from kinds import ROWS, WIDTH, Trainer, parse


def path_of(name):
    return os.environ["ZOO_TRUTH"] + "." + name


def slow_row(number):
    time.sleep(0.02)
    return torch.full((WIDTH,), float(number % 7))


class SlowRows(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return slow_row(i)


def stateful_loader(trainer):
    """torchdata's StatefulDataLoader with three workers, whose items take their time."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    trainer.run(StatefulDataLoader(SlowRows(), batch_size=4, num_workers=3))


def stateful_loader_alone(trainer):
    """torchdata's StatefulDataLoader without workers."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    trainer.run(StatefulDataLoader(SlowRows(), batch_size=2))


def inherited_loader(trainer):
    """A class made from DataLoader, with two workers, whose items take their time."""

    class Loader(torch.utils.data.DataLoader):
        def __iter__(self):
            yield from super().__iter__()

    trainer.run(Loader(SlowRows(), batch_size=4, num_workers=2))


def plain_loader(trainer):
    """torch's DataLoader without workers."""
    trainer.run(torch.utils.data.DataLoader(SlowRows(), batch_size=2))


def from_grain(trainer):
    """grain's MapDataset, whose items are parsed."""
    import grain

    def parse_record(i):
        parse(1000)
        return torch.full((WIDTH,), float(i % 7))

    for batch in grain.MapDataset.range(1 << 20).map(parse_record).batch(16, batch_fn=torch.stack):
        trainer.update(batch)


def from_arrow(trainer):
    """pyarrow's dataset of one Parquet file, of which each batch is taken apart in Python."""
    import numpy
    import pyarrow
    import pyarrow.dataset
    import pyarrow.parquet

    text = ["%d,%d,%d" % (i, 3 * i, 7 * i) for i in range(200000)]
    pyarrow.parquet.write_table(pyarrow.table({"text": text}), path_of("parquet"))

    def take_apart(batch):
        rows = [[int(word) for word in row.split(",")] for row in batch.column("text").to_pylist()]
        return torch.from_numpy(numpy.resize(numpy.array(rows, "float32"), (ROWS, WIDTH))) / 1e6

    while True:
        for batch in pyarrow.dataset.dataset(path_of("parquet")).to_batches(batch_size=4000):
            trainer.update(take_apart(batch))


def from_zarr(trainer):
    """An array of zarr, compressed, of which each batch is a slice."""
    import numpy
    import zarr

    chance = numpy.random.default_rng(1)
    array = zarr.create_array(path_of("zarr"), shape=(4096, 1 << 16), chunks=(16, 1 << 14), dtype="float32")
    for i in range(0, 512, 16):
        array[i : i + 16] = chance.integers(0, 9, (16, 1 << 16))
    number = 0
    while True:
        number += 1
        rows = array[number * 16 % 512 : number * 16 % 512 + 16]
        trainer.update(torch.from_numpy(rows[:, : 4 * WIDTH].reshape(ROWS, WIDTH)))


def of_gymnasium(trainer, slow, in_processes=True):
    """Environments of gymnasium in processes, or in turn."""
    import gymnasium

    class Track(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (WIDTH,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, count):
            self.count = count

        def reset(self, seed=None, options=None):
            return self.observation_space.sample() * 0, {}

        def step(self, action):
            parse(self.count)
            return self.observation_space.sample(), 0.0, False, False, {}

    def with_count(count):
        return lambda: Track(count)

    envs = (gymnasium.vector.AsyncVectorEnv if in_processes else gymnasium.vector.SyncVectorEnv)([with_count(200), with_count(slow)])
    seen, _ = envs.reset()
    while True:
        with torch.no_grad():
            trainer.net(torch.from_numpy(seen))
        seen = envs.step(envs.action_space.sample())[0]
        trainer.update(torch.from_numpy(seen))


def slow_environment(trainer):
    """gymnasium's AsyncVectorEnv of two environments, of which one is slow."""
    of_gymnasium(trainer, 30000)


def quick_environments(trainer):
    """gymnasium's AsyncVectorEnv of two environments that take no time, and a model that takes much."""
    torch.set_num_threads(1)
    trainer.net.append(torch.nn.Sequential(torch.nn.Linear(WIDTH, 1 << 15), torch.nn.Linear(1 << 15, WIDTH)))
    of_gymnasium(trainer, 10)


def environments_in_turn(trainer):
    """gymnasium's SyncVectorEnv: the training process itself makes their steps."""
    of_gymnasium(trainer, 30000, in_processes=False)


def epochs_of_lightning(trainer):
    """Lightning's Trainer, whose two workers start anew for each of many short epochs."""
    import lightning.pytorch as pl
    from lightning.pytorch.demos import boring_classes

    class Clock(pl.Callback):
        def on_train_batch_end(self, *args):
            clock.step()

    loader = torch.utils.data.DataLoader(boring_classes.RandomDataset(32, 60), num_workers=2)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
    pl.Trainer(max_epochs=10**6, accelerator="cpu", callbacks=[Clock()], default_root_dir=path_of("out"), **quiet).fit(
        boring_classes.BoringModel(), loader
    )


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
