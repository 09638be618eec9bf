# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts children in each of the ways that training programs do, and trains in the parent and in the forked ones.

Its truth is who the children were, and how many steps each process made.
"""

import multiprocessing
import os
import subprocess
import sys
import time

import common
import torch


def train(batches):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.ones(4, 8)
    for _ in range(batches):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        time.sleep(0.002)


def child(args):
    if args.early:
        common.await_release(args)
    train(args.batches)
    # no atexit handlers, no second flush of the parent's buffers
    os._exit(0)


def start(kind, args):
    """(pid, wait) of a new child."""
    if kind == "fork":
        pid = os.fork()
        if pid == 0:
            child(args)
        return pid, lambda: os.waitpid(pid, 0)
    if kind == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=child, args=(args,))
        process.start()
        return process.pid, process.join
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    return process.pid, process.wait


def main():
    p = common.parser(__doc__, batches=200)
    p.add_argument("--early", action="store_true", help="start the children before the tracer, not under it")
    args = p.parse_args()
    common.prepare(args)
    kinds = ["fork", "multiprocessing", "subprocess"]
    if not args.early:
        common.wait(args)
    # no autograd in the parent before the fork: torch's backward threads do not survive one
    children = {kind: start(kind, args) for kind in kinds}
    if args.early:
        common.wait(args)
    train(args.batches)
    for _, wait in children.values():
        wait()
    steps = {kind: 0 if kind == "subprocess" else args.batches for kind in kinds}
    pids = {kind: pid for kind, (pid, _) in children.items()}
    common.write(args, {"children": pids, "child_steps": steps, "steps": args.batches})


if __name__ == "__main__":
    main()
