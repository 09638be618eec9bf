# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Trains until it dies, in one of the ways in which jobs do: an exit, an exception, a signal, or with no goodbye at all.
"""

import os
import signal
import sys

import common
import torch


def die(how):
    if how == "exit":
        sys.exit(7)
    if how == "raise":
        raise RuntimeError("out of luck")
    if how == "_exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))


def main():
    p = common.parser(__doc__, batches=200)
    p.add_argument("--how", choices=["exit", "raise", "_exit", "SIGKILL", "SIGABRT", "SIGTERM"], default="exit")
    p.add_argument("--inside", action="store_true", help="in the middle of a label and of a backward")
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.ones(4, 8)
    common.wait(args)
    for i in range(args.batches):
        optimizer.zero_grad()
        loss = model(x).sum()
        if args.inside and i == args.batches - 1:
            loss.register_hook(lambda grad: die(args.how))
            with torch.profiler.record_function("last"):
                loss.backward()
        loss.backward()
        optimizer.step()
    die(args.how)


if __name__ == "__main__":
    main()
