# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps that each wait for an item of a thread, which takes its time, in a queue that waits in C, and for a lock that nobody holds for long."""

import os
import queue
import threading
import time

import common
import torch

ITEM_SECONDS = 0.03


def fill(items, count):
    for _ in range(count):
        time.sleep(ITEM_SECONDS)
        items.put(torch.ones(8, 8))


def take(items):
    return items.get()


def main():
    p = common.parser(__doc__, work=8)
    args = p.parse_args()
    common.prepare(args)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    items = queue.SimpleQueue()
    common.wait(args)
    threading.Thread(target=fill, args=(items, args.batches), daemon=True).start()
    for _ in range(args.batches):
        x = take(items)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    common.write(args, {"steps": args.batches, "pid": os.getpid(), "taken": take.__code__.co_firstlineno})


if __name__ == "__main__":
    main()
