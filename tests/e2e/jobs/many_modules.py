# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A plain loop whose sys.modules cannot be read, so long is it; until the file of --wait is there, from when on it is as usual."""

import argparse
import os
import sys
import time

import common
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--wait")
parser.add_argument("--out")
args = parser.parse_args()
modules = dict(sys.modules)
sys.modules.update({"entry %d" % i: None for i in range(100000)})
print("ready %d" % os.getpid(), flush=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.monotonic() + common.WAIT_SECONDS
while time.monotonic() < end:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    if modules and os.path.exists(args.wait):
        sys.modules.clear()
        sys.modules.update(modules)
        modules = None
