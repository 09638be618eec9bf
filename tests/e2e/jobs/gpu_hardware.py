# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job on a GPU (or, to try the tests themselves, on the CPU) that does what it is told on its standard input, a command a line,
and says how each went on its standard output: "did JSON".

  warm KIND             before all else
  run KIND N            N steps
  profile KIND N FILE   N steps under torch.profiler, whose trace goes to FILE
  begin FILE, end       torch.profiler is there meanwhile
  quit

KIND: plain (a model), copies (pinned memory both ways), streams (three beside each other), graph (of CUDA), many (--launches
kernels that take --step-ms), compiled; with --lightning all are batches of a fit.
What is said: `pid`, `steps` (seconds of each, with what the GPU did), `copied` (bytes that `copies` asked for, by direction),
`ops` (by torch.profiler: {name: [count, microseconds of its own on the GPU]}), `error`.
"""

import argparse
import json
import os
import sys
import time

import torch
from torch import nn

PINNED_BYTES = 4 << 20
WARM = 5


class Kinds:
    """Steps by kind, each of which is made ready by warm()."""

    def __init__(self, args):
        self.args, self.device = args, torch.device(args.device)
        self.cuda = args.device == "cuda"
        self.width, self.batch = (1024, 256) if self.cuda else (64, 16)
        self.copied = {}
        self.made = {}

    def warm(self, kind):
        self.made[kind] = getattr(self, "make_" + kind)()
        for _ in range(WARM):
            self.made[kind]()
        self.synchronize()

    def step(self, kind):
        self.made[kind]()

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def count(self, direction, tensor):
        self.copied[direction] = self.copied.get(direction, 0) + tensor.numel() * tensor.element_size()

    def pinned(self):
        memory = torch.ones(PINNED_BYTES // 4)
        return memory.pin_memory() if self.cuda else memory

    def model(self):
        layers = [nn.Linear(self.width, self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.LayerNorm(self.width), nn.Linear(self.width, 10)]
        return nn.Sequential(*layers).to(self.device)

    def training(self, model):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        x = torch.randn(self.batch, self.width, device=self.device)
        y = torch.randint(10, (self.batch,), device=self.device)

        def step():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        return step

    def make_plain(self):
        return self.training(self.model())

    def make_compiled(self):
        return self.training(torch.compile(self.model()))

    def make_copies(self):
        there, back = self.pinned(), self.pinned()
        on_device = torch.empty_like(there, device=self.device)

        def step():
            on_device.copy_(there, non_blocking=True)
            self.count("host to device", there)
            on_device.mul_(1.5)
            back.copy_(on_device, non_blocking=True)
            self.count("device to host", back)

        return step

    def make_streams(self):
        streams = [torch.cuda.Stream() for _ in range(3)] if self.cuda else []
        matrices = [torch.randn(self.width, self.width, device=self.device) for _ in range(3)]

        def step():
            if not streams:
                return [m @ m for m in matrices]
            here = torch.cuda.current_stream()
            for stream, matrix in zip(streams, matrices):
                stream.wait_stream(here)
                with torch.cuda.stream(stream):
                    matrix @ matrix
            for stream in streams:
                here.wait_stream(stream)
            return None

        return step

    def make_graph(self):
        a = torch.randn(self.width, self.width, device=self.device)

        def work():
            return torch.relu(a @ a).sum()

        if not self.cuda:
            return work
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        self.graph = graph
        return graph.replay

    def make_many(self):
        """So large a tensor that the kernels take --step-ms together: the GPU is what the step waits for."""
        launches, each = self.args.launches, self.args.step_ms / self.args.launches / 1e3
        size = 1 << 12
        while True:
            tensor = torch.ones(size, device=self.device)

            def step(tensor=tensor):
                for _ in range(launches):
                    tensor.mul_(1.0)

            step()
            self.synchronize()
            start = time.perf_counter()
            step()
            self.synchronize()
            if time.perf_counter() - start >= launches * each or size >= 1 << 28:
                return step
            size *= 2


class Commands:
    """
    wait() for them before the first step, and step() after each: whoever trains need not know of them. What a loop does for a
    step before it (Lightning moves the next batch to the GPU) is so done within one command.
    """

    def __init__(self, args, kinds):
        self.args, self.kinds = args, kinds
        self.kind, self.left, self.profiler, self.goes_on = "", 0, None, True

    def profile(self, file):
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self.args.device == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self.file = file
        self.profiler = torch.profiler.profile(activities=kinds)
        self.profiler.start()

    def stop(self):
        said = {}
        if self.profiler:
            self.profiler.stop()
            self.profiler.export_chrome_trace(self.file)
            for row in self.profiler.key_averages():
                said[row.key] = [row.count, getattr(row, "self_device_time_total", 0)]
        self.profiler = None
        return said

    def say(self, **said):
        print("did " + json.dumps({"pid": os.getpid(), **said}), flush=True)

    def wait(self):
        """Until there are steps to be made, or none will be."""
        while not self.left and self.goes_on:
            words = sys.stdin.readline().split() or ["quit"]
            try:
                self.obey(*words)
            except Exception as error:  # no compiler for torch.compile, say
                self.left = 0
                self.say(error="%s: %s" % (type(error).__name__, str(error)[:300]))
        self.kinds.synchronize()
        self.start = time.perf_counter()

    def obey(self, what, *words):
        if what == "quit":
            self.stop()
            self.goes_on = False
        elif what == "begin":
            self.profile(*words)
            self.say()
        elif what == "end":
            self.say(ops=self.stop())
        elif what == "warm":
            self.kinds.warm(*words)
            self.say()
        else:
            self.kind, self.left, self.ends_profile = words[0], int(words[1]), what == "profile"
            self.seconds = []
            self.kinds.copied.clear()
            if self.ends_profile:
                self.profile(words[2])

    def step(self):
        self.kinds.synchronize()
        now = time.perf_counter()
        self.seconds.append(now - self.start)
        self.start = now
        self.left -= 1
        if self.left:
            return
        self.say(steps=self.seconds, copied=self.kinds.copied, ops=self.stop() if self.ends_profile else {})
        self.wait()


def train_plain(args):
    kinds = Kinds(args)
    commands = Commands(args, kinds)
    print("ready %d" % os.getpid(), flush=True)
    commands.wait()
    while commands.goes_on:
        kinds.step(commands.kind)
        commands.step()


def train_lightning(args):
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, TensorDataset

    kinds = Kinds(args)
    commands = Commands(args, kinds)

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = kinds.model()

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-4)

    class Told(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
            if batch_index == WARM:
                print("ready %d" % os.getpid(), flush=True)
                commands.wait()
            elif batch_index > WARM:
                commands.step()
            if not commands.goes_on:
                trainer.should_stop = True

    data = TensorDataset(torch.randn(kinds.batch * 20, kinds.width).repeat(100, 1), torch.randint(10, (kinds.batch * 2000,)))
    trainer = pl.Trainer(
        max_epochs=1, accelerator="gpu" if args.device == "cuda" else "cpu", devices=1, callbacks=[Told()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(data, kinds.batch))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda")
    p.add_argument("--lightning", action="store_true")
    p.add_argument("--launches", type=int, default=2000)
    p.add_argument("--step-ms", type=float, default=50)
    args = p.parse_args()
    torch.manual_seed(1)
    if args.device == "cpu":
        torch.set_num_threads(1)
    (train_lightning if args.lightning else train_plain)(args)


if __name__ == "__main__":
    main()
