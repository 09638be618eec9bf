# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Labels that do not nest: of generators, of coroutines, of an ExitStack. Its truth is how often each was entered, and for how long in all."""

import asyncio
import contextlib
import time

import common
import torch


class Labels:
    def __init__(self):
        self.entered, self.seconds = {}, {}

    @contextlib.contextmanager
    def label(self, name):
        self.entered[name] = self.entered.get(name, 0) + 1
        with torch.profiler.record_function(name):
            start = time.perf_counter()
            try:
                yield
            finally:  # the last row of one generator ends with its generator
                self.seconds[name] = self.seconds.get(name, 0) + time.perf_counter() - start

    def rows(self, name, count):
        """The label of a row ends when the next row is asked for."""
        for _ in range(count):
            with self.label(name):
                yield torch.randn(16, 8)

    async def wait_twice(self, name, seconds):
        for _ in range(2):
            with self.label(name):
                await asyncio.sleep(seconds)

    def step(self, x, model, optimizer):
        stack = contextlib.ExitStack()
        stack.enter_context(self.label("closed first"))
        with self.label("closed last"):
            stack.close()
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    async def train(self, count, model, optimizer):
        for x, y in zip(self.rows("row a", count), self.rows("row b", count)):
            tasks = [asyncio.create_task(self.wait_twice("task %d" % i, 0.0005 * (1 + i))) for i in range(3)]
            await asyncio.sleep(0.0007)
            self.step(x + y, model, optimizer)
            await asyncio.gather(*tasks)


def main():
    args = common.parser(__doc__, batches=100).parse_args()
    common.prepare(args)
    model = torch.nn.Linear(8, 1)
    labels = Labels()
    common.wait(args)
    asyncio.run(labels.train(args.batches, model, torch.optim.SGD(model.parameters(), lr=1e-4)))
    common.write(args, {"entered": labels.entered, "seconds": labels.seconds, "steps": args.batches})


if __name__ == "__main__":
    main()
