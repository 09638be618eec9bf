# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torch_geometric: graph classification with its FakeDataset, DataLoader and GCN."""

import clock
import faults
import torch
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_mean_pool

BATCH = 16
torch.set_num_threads(1)
dataset = FakeDataset(num_graphs=400, avg_num_nodes=60, num_channels=32)
model = GCN(dataset.num_features, hidden_channels=64, num_layers=3, out_channels=dataset.num_classes)
optimizer = torch.optim.Adam(model.parameters())
clock.by_optimizer()
faults.arm()
loader = DataLoader(faults.dataset(dataset, BATCH), batch_size=BATCH, shuffle=True)
for epoch in range(10**6):
    for batch in loader:
        optimizer.zero_grad()
        out = global_mean_pool(model(batch.x, batch.edge_index), batch.batch)
        torch.nn.functional.cross_entropy(out, batch.y).backward()
        optimizer.step()
