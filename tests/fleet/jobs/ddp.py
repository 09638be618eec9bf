# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ranks that train together over gloo, under torchrun. Each writes the number of each step and the time at which it ended into STEPS_LOG.RANK."""

import argparse
import os
import random
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps-log", required=True)
parser.add_argument("--seconds", type=float, default=20)
parser.add_argument("--slow-rank", type=int, default=-1)
parser.add_argument("--slow-ms", type=float, default=6)
asked = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lengths = random.Random(1)  # of all ranks alike, as of batches that are sorted by length


def load(seconds):
    time.sleep(seconds)
    return torch.randn(8, 64)


def slow():
    time.sleep(asked.slow_ms / 1000)


def main():
    end = time.time() + asked.seconds
    stop = torch.zeros(1)
    with open(f"{asked.steps_log}.{rank}", "w", buffering=1) as log:
        print(os.getpid(), file=log)
        step = 0
        while not stop.item():
            batch = load(0.004 + 0.012 * lengths.random() ** 2)
            if rank == asked.slow_rank:
                slow()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(step, time.time_ns(), file=log)
            step += 1
            if step % 50 == 0:  # all ranks end with the same step
                stop.fill_(float(rank == 0 and time.time() > end))
                dist.broadcast(stop, 0)
    dist.destroy_process_group()


sys.exit(main())
