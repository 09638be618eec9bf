# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lightning_fit.py, which imports Lightning only now that torch is there and somebody records; --after SECONDS of another loop."""

import argparse
import importlib
import pathlib
import runpy
import sys
import time

import common
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--wait")
parser.add_argument("--after", type=float, default=0)
args, rest = parser.parse_known_args()


def train(seconds):
    """Without Lightning. Then there is some time to see that it is imported."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.01)
    importlib.import_module("lightning.pytorch")
    time.sleep(2)


common.wait(args)
assert not any("lightning" in name for name in sys.modules), torch.__file__
if args.after:
    train(args.after)
script = pathlib.Path(__file__).with_name("lightning_fit.py")
sys.argv = [str(script), *rest]
runpy.run_path(str(script), run_name="__main__")
