# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Trains the same small model anew in each round, and ends with an error where a round's result is not the first one's. It says how much CPU time
each round took.

--rest: times as long as a round took.

--fate: how it ends after --rounds (0: never), or what it does in each round.
"""

import os
import sys
import time

import common
import torch

STEPS = 20


def round_of():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(8, 16)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(first):
    if round_of() != first:
        sys.exit("another result")


def forked(first, deep):
    """A child that does a round too, and has a child of its own in which it is not waited for."""
    child = os.fork()
    if not child:
        if deep:
            forked(first, False)
        check(first)
        os._exit(0)
    if deep and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit("a child failed")


def main():
    p = common.parser(__doc__)
    p.add_argument("--rounds", type=int, default=0)
    p.add_argument("--rest", type=float, default=0)
    p.add_argument("--fate", choices=["end", "raise", "abort", "fork", "exec"], default="end")
    args = p.parse_args()
    common.prepare(args)
    first = round_of()
    common.wait(args)
    number = 0
    while not args.rounds or number < args.rounds:
        number += 1
        before = time.thread_time()
        check(first)
        took = time.thread_time() - before
        print("round %.6f" % took, flush=True)
        time.sleep(args.rest * took)
        if args.fate == "fork":
            forked(first, True)
    if args.fate == "raise":
        raise KeyError("as told")
    if args.fate == "abort":
        os.abort()
    if args.fate == "exec":
        os.execv(sys.executable, [sys.executable, "-c", "print('executed', sum(range(10 ** 6)))"])
    print("done", flush=True)


if __name__ == "__main__":
    main()
