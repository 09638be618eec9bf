# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the jobs share: their common options, the wait for the tracer, and the truth that they write at their end.

A job says `ready PID` on stdout when all but its training is done, then waits for the file named by --wait, so that a
tracer can be attached before the first step. At its end it writes what it knows of itself, as JSON, to --out.
Works with every Python and torch that the tests use, 3.11 with torch 1.13 among them.
"""

import argparse
import json
import os
import time

WAIT_SECONDS = 120 * int(os.environ.get("STEPFLAME_PATIENCE", 1))  # helpers.PATIENCE


def parser(doc, epochs=1, batches=50, work=64):
    p = argparse.ArgumentParser(description=doc)
    p.add_argument("--epochs", type=int, default=epochs)
    p.add_argument("--batches", type=int, default=batches, help="per epoch")
    p.add_argument("--work", type=int, default=work, help="width of the layers: the time of a batch")
    p.add_argument("--threads", type=int, default=1, help="of torch")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--wait", metavar="FILE", help="train only when FILE exists")
    p.add_argument("--out", metavar="FILE", help="write the truth there, as JSON, at the end")
    return p


def prepare(args):
    """Settings that make two runs alike; before the model is made."""
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)


def come_first():
    """What else runs on the machine is not planted: a session of its own, which the scheduler weighs as one, before the others."""
    os.setsid()
    try:
        with open("/proc/self/autogroup", "w") as f:
            f.write("-20")
    except OSError:
        os.nice(-20)


def wait(args):
    print("ready %d\n" % os.getpid(), end="", flush=True)  # one write: two ranks may share a stdout
    await_release(args)
    args.delayed_before = delayed()


def await_release(args):
    deadline = time.monotonic() + WAIT_SECONDS
    while args.wait and not os.path.exists(args.wait):
        if time.monotonic() > deadline:
            raise SystemExit("nobody created %s" % args.wait)
        time.sleep(0.01)


def delayed():
    """Seconds that this thread was ready to run and did not: how far two clocks beside each other may differ."""
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1]) / 1e9


def write(args, truth):
    """The truth, and how long the thread was delayed since wait()."""
    if not args.out:
        return
    truth = dict(truth, pid=os.getpid(), delayed=delayed() - args.delayed_before)
    # whole or not at all
    part = args.out + ".part"
    with open(part, "w") as f:
        json.dump(truth, f)
    os.rename(part, args.out)
