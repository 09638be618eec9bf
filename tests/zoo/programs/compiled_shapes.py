# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A model under torch.compile, whose batch has a shape that it has not met at every 40th step: it is compiled again."""

import clock
import faults
import torch

torch.set_num_threads(1)
torch._dynamo.config.recompile_limit = 10**6
torch._dynamo.config.accumulated_recompile_limit = 10**6
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock.by_optimizer()
faults.arm()
step = 0
while True:
    step += 1
    rows = 64 if step % 40 else 64 + step // 40
    compiled(torch.rand(rows, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
