# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pyro's stochastic variational inference of a small regression: its optimizer makes one of torch's for each parameter."""

import clock
import faults
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

torch.set_num_threads(1)
x = torch.randn(2000, 10)
y = x.sum(-1) + 0.1 * torch.randn(2000)


def model(x, y):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(10), 1.0).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ weights, sigma), obs=y)


svi = SVI(model, AutoNormal(model), pyro.optim.ClippedAdam({"lr": 0.01}), loss=Trace_ELBO())
faults.arm()
while True:
    svi.step(x, y)
    clock.step()
