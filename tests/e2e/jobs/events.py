# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Equal steps of some ms until the file --stop is there. Each file that comes into the folder --events makes one step sleep as many seconds as it
says.
"""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import common
import torch


def sleep_for(folder):
    """Seconds of the next event; its file goes."""
    for event in folder.iterdir() if folder else ():
        seconds = float(event.read_text())
        event.unlink()
        return seconds
    return 0


def main():
    p = common.parser(__doc__, work=256)
    p.add_argument("--stop", required=True)
    p.add_argument("--events", type=Path)
    p.add_argument("--start", help="once it is released, and until it ends, another Python runs this with STEPFLAME_WATCH=0")
    args = p.parse_args()
    common.prepare(args)
    gc.disable()  # collections take a third of the imports of the first optimizer
    model = torch.nn.Sequential(*(torch.nn.Linear(args.work, args.work) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    gc.enable()
    x = torch.ones(args.work, args.work)
    common.wait(args)
    other = args.start and subprocess.Popen([sys.executable, "-c", args.start], env={**os.environ, "STEPFLAME_WATCH": "0"})
    steps, slow = 0, []
    while not os.path.exists(args.stop):
        seconds = sleep_for(args.events)
        if seconds:
            time.sleep(seconds)
            slow.append(steps)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        steps += 1
    common.write(args, {"steps": steps, "slow": slow, "pid": os.getpid(), "ended": time.monotonic()})


if __name__ == "__main__":
    main()
