# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""gpytorch's exact Gaussian process, as its tutorial trains it: no DataLoader, all data at once."""

import clock
import faults
import gpytorch
import torch

torch.set_num_threads(1)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


x = torch.linspace(0, 1, 300)
y = torch.sin(x * 6.28) + 0.2 * torch.randn(300)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
clock.by_optimizer()
faults.arm()
while True:
    optimizer.zero_grad()
    loss = -loss_of(model(x), y)
    loss.backward()
    optimizer.step()
