# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Jobs whose frames, threads, code objects and processes change all the time, for Pythons from 3.8 on; they run until they are ended.

lightning, loop and workers need torch, the others nothing.
"""

import argparse
import os
import sys
import threading


def lightning():
    """Batches that take next to no time, under ten callbacks."""
    import logging

    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.callbacks import Callback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.net(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-4)

    def callback(number):
        def seen(self, *_):
            self.last = number

        hooks = ["on_train_batch_start", "on_train_batch_end", "on_before_backward", "on_after_backward"]
        return type("Callback%d" % number, (Callback,), dict.fromkeys(hooks, seen))()

    rows = torch.utils.data.TensorDataset(torch.ones(100000, 4))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback(i) for i in range(10)],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=1))


def loop():
    import torch

    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    x = torch.ones(1, 4)
    while True:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()


def workers():
    """Workers that come and go: an epoch of two batches."""
    import torch

    rows = torch.utils.data.TensorDataset(torch.ones(4, 4))
    while True:
        for _ in torch.utils.data.DataLoader(rows, batch_size=2, num_workers=2):
            pass


def functions():
    """Calls of a few levels, in five threads."""

    def inner(n):
        return n and inner(n - 1)

    def outer():
        while True:
            inner(5)

    for _ in range(4):
        threading.Thread(target=outer, daemon=True).start()
    outer()


def threads():
    """Each lives for some calls."""

    def work(n):
        return n and work(n - 1)

    while True:
        some = [threading.Thread(target=work, args=(20,)) for _ in range(8)]
        for thread in some:
            thread.start()
        for thread in some:
            thread.join()


def compiles():
    """Code objects that come and go, and modules that are imported anew."""
    number = 0
    while True:
        number += 1
        scope = {}
        exec(compile("def f%d(x):\n    return x + %d\ny = f%d(1)\n" % (number, number, number), "made%d.py" % number, "exec"), scope)
        for name in ("colorsys", "this_is_not_there"):
            sys.modules.pop(name, None)
            try:
                __import__(name)
            except ImportError:
                pass


def recursion():
    """Now deep, now shallow."""
    sys.setrecursionlimit(20000)
    threading.stack_size(64 << 20)

    def down(n):
        return n and down(n - 1)

    def work():
        while True:
            down(3)
            down(9000)

    threading.Thread(target=work).start()


def forks():
    """Children that end at once."""
    while True:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)


def generators():
    """Frames that are not on the stack of frames but now and then."""

    def inner():
        for i in range(5):
            yield i

    def outer():
        for _ in range(5):
            yield from inner()

    while True:
        list(outer())


KINDS = {f.__name__: f for f in (lightning, loop, workers, functions, threads, compiles, recursion, forks, generators)}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("kind", choices=KINDS)
    kind = p.parse_args().kind
    if kind in ("lightning", "loop", "workers"):
        import torch

        torch.set_num_threads(1)
    print("ready %d" % os.getpid(), flush=True)
    KINDS[kind]()


if __name__ == "__main__":
    main()
