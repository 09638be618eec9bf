# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training loops as strangers write them: PyTorch's tutorial's order, and a second kind of work now and then, which no landmark tells.

Its truth is, of each step, when it ended and how long the forward and the second kind of work took, by time.perf_counter(), and which steps had some.
"""

import time

import common
import torch

INPUTS = 128
HELD_SECONDS = 0.04
HELD_CALLS = 240  # take some 40 ms, too: samples hit each of them


class Net(torch.nn.Module):
    def __init__(self, work):
        super().__init__()
        self.first, self.last = torch.nn.Linear(INPUTS, work), torch.nn.Linear(work, 1)
        self.held = False

    def forward(self, x):
        if self.held:
            self.write_log()
        return self.last(torch.relu(self.first(x)))

    def write_log(self):
        time.sleep(HELD_SECONDS)


def estimate_loss(model, x):
    """An evaluation with neither a DataLoader nor a label."""
    with torch.no_grad():
        return sum(model(x).square().mean().item() for _ in range(HELD_CALLS))


def stir(x):
    """Python alone."""
    return sum(i * i % 7 for i in range(400000)) + len(x)


def compiled(model):
    """Compiles anew for each shape, as far as operators."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 1000
    return torch.compile(model, backend="aot_eager", dynamic=False)


def second(args, model, x):
    if args.kind == "evaluate":
        estimate_loss(model, x)
    elif args.kind == "inline":
        with torch.no_grad():
            for _ in range(HELD_CALLS):
                model(x).square().mean().item()
    elif args.kind == "python":
        stir(x)


def train(args, model, log):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.rand(64, INPUTS)
    call = compiled(model) if args.kind == "compile" else model
    for step in range(1, args.batches + 1):
        due = step % args.every == 0
        began = time.perf_counter()
        if due:
            second(args, model, x)
        worked = time.perf_counter()
        model.held = due and args.kind == "sleep"
        if due and args.kind == "compile":
            x = torch.rand(64 + step, INPUTS)
        loss = call(x).square().mean()
        if args.zero == "late":
            before = time.perf_counter()
            optimizer.zero_grad()
            zeroed = time.perf_counter() - before
        forward = time.perf_counter()
        loss.backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        end = time.perf_counter()
        if args.zero == "early":
            optimizer.zero_grad()
        log.append([end, forward - worked - (zeroed if args.zero == "late" else 0), worked - began])


def main():
    p = common.parser(__doc__, batches=300, work=1024)
    p.add_argument("--kind", choices=["none", "sleep", "evaluate", "inline", "python", "compile"], default="none")
    p.add_argument("--every", type=int, default=25)
    p.add_argument("--zero", choices=["late", "early"], default="late", help="where zero_grad stands: behind the loss, or behind the step")
    p.add_argument("--clip", action="store_true")
    p.add_argument("--idle", action="store_true", help="does something that is no training")
    args = p.parse_args()
    common.prepare(args)
    common.come_first()
    model, log = Net(args.work), []
    train(argparse_copy(args, batches=3), model, [])
    common.wait(args)
    train(args, model, log)
    for _ in range(100 if args.idle else 0):
        stir(())
    common.write(args, {"log": log, "planted": [s for s in range(1, args.batches + 1) if s % args.every == 0 and args.kind != "none"]})


def argparse_copy(args, **changes):
    return type(args)(**dict(vars(args), **changes))


if __name__ == "__main__":
    main()
