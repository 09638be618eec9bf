# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A loop whose code raises where a tracer has probes: inside labels, inside backward, inside ops. All is caught.

Its truth is how often each was entered, how often it was left by an exception, and the longest time that one took.
"""

import time

import common
import torch


class Fragile(torch.autograd.Function):
    """Raises in its backward, on the autograd engine's way through C++."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("backward")


class Counts:
    def __init__(self):
        self.entered = {}
        self.raised = {}
        self.longest = {}

    def run(self, name, call):
        self.entered[name] = self.entered.get(name, 0) + 1
        start = time.perf_counter()
        try:
            call()
        except (RuntimeError, ValueError):
            self.raised[name] = self.raised.get(name, 0) + 1
        self.longest[name] = max(self.longest.get(name, 0), time.perf_counter() - start)


def label(name, call):
    with torch.profiler.record_function(name):
        call()


def fail():
    raise ValueError("in Python")


def step(i, model, optimizer, counts):
    x = torch.full((4, 8), float(i % 7))

    def good_backward():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def bad_backward():
        Fragile.apply(model(x)).sum().backward()

    counts.run("good", lambda: label("good", good_backward))
    counts.run("backward", good_backward)
    # a c10::Error, thrown in C++ and unwound over every native frame of the op
    counts.run("bad op", lambda: label("bad op", lambda: x.mm(x)))
    counts.run("bad python", lambda: label("bad python", fail))
    counts.run("outer", lambda: label("outer", lambda: label("inner", fail)))
    counts.run("backward raises", bad_backward)
    if i % 50 == 0:
        # what the exception left open must not be taken for the next one, whose frame lies where its was
        time.sleep(0.03)
    counts.run("backward", good_backward)
    counts.run("backward raises", bad_backward)
    counts.run("bad backward", lambda: label("bad backward", bad_backward))


def main():
    args = common.parser(__doc__, batches=500).parse_args()
    common.prepare(args)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    counts = Counts()
    common.wait(args)
    for i in range(args.epochs * args.batches):
        step(i, model, optimizer, counts)
    weights = sum(p.sum().item() for p in model.parameters())
    truth = {"entered": counts.entered, "raised": counts.raised, "longest": counts.longest, "weights": weights}
    common.write(args, truth)


if __name__ == "__main__":
    main()
