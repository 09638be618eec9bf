# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Two ranks over gloo, by torchrun: DDP, or with --fsdp FSDP's fully_shard. With the fault rank, rank 1 computes longer. With --wide the gradients
are many for the work; with --accumulate 7 of 8 batches leave them to themselves; with --saves rank 0 saves in every 10th step, as in most trainings.
"""

import contextlib
import os
import sys

import clock
import faults
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(len(os.sched_getaffinity(0)) if "--threads" in sys.argv else 1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
wide = 4096 if "--wide" in sys.argv else 512
model = torch.nn.Sequential(torch.nn.Linear(256, wide), torch.nn.ReLU(), torch.nn.Linear(wide, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
if "--fsdp" in sys.argv:
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(6400, 256), torch.randint(0, 10, (6400,)))
sampler = DistributedSampler(data)
loader = DataLoader(faults.dataset(data, 32) if rank == 1 else data, batch_size=32, sampler=sampler)
clock.by_optimizer()


def augment(x):
    for _ in range(40):
        x = (x @ torch.ones(256, 256)).tanh()
    return x


def save_weights():
    with clock.event("planted"), open(os.environ["ZOO_TRUTH"] + ".weights", "wb") as file:
        for _ in range(8):
            torch.save(torch.randn(1 << 20), file)
        file.flush()
        os.fsync(file.fileno())


accumulates, number = "--accumulate" in sys.argv, 0
for epoch in range(10**6):
    for x, y in loader:
        number += 1
        if faults.name == "rank" and rank == 1:
            x = augment(x)
        alone = accumulates and number % 8
        with model.no_sync() if alone else contextlib.nullcontext():
            torch.nn.functional.cross_entropy(model(x), y).backward()
        if not alone:
            optimizer.step()
            optimizer.zero_grad()
        if "--saves" in sys.argv and rank == 0 and number % 10 == 0:
            save_weights()
