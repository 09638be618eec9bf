# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps of a model of modules inside modules, and where torch.profiler says that each operator was called.

Its truth: for each operator of torch.profiler's tree, the innermost Python function around it, and the
torch.nn.Modules.
"""

import common
import torch
from torch._C._profiler import _EventType, _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(width, width))

    def forward(self, x):
        return x + self.rest(self.norm(self.first(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(8) for _ in range(2)])
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(scaled(x))


def scaled(x):
    return (x * 2).tanh()


def python_calls(event):
    """Around an operator, the innermost first."""
    while event.parent:
        event = event.parent
        if event.tag == _EventType.PyCall:
            yield event.extra_fields


def origins(events, found):
    for event in events:
        if event.tag == _EventType.TorchOp:
            calls = list(python_calls(event))
            function = calls[0].callsite if calls else None
            modules = [call.module.cls_name for call in calls if call.module]
            found.add(
                (
                    event.name,
                    function and function.file_name.rpartition("site-packages/")[2],
                    function and function.function_name,
                    "/".join(reversed(modules)),
                )
            )
        origins(event.children, found)


def main():
    args = common.parser(__doc__, batches=5).parse_args()
    common.prepare(args)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data, target = torch.randn(4, 8), torch.randint(0, 3, (4,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(data), target).backward()
        optimizer.step()

    def profiled(steps):
        with profile(
            activities=[ProfilerActivity.CPU],
            with_stack=True,
            with_modules=True,
            experimental_config=_ExperimentalConfig(verbose=True),
        ) as p:
            for _ in range(steps):
                step()
        return p

    profiled(2)
    common.wait(args)
    p = profiled(args.batches)
    found = set()
    origins(p.profiler.kineto_results.experimental_event_tree(), found)
    common.write(args, {"origins": sorted(found, key=str)})


main()
