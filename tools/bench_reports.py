#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the reports and the page of an hour take: a part of `make bench`.

The recording is synthetic (tests/e2e/stepped.py): an hour of a training job at 99 samples a second, with 2 workers and 20 other
threads. Printed are the CPU time and the memory of each command: medians with their spread; nothing here passes or fails.
With --stepflame given twice the two programs take turns, and ratios to the first are printed too. A program of
another format's version needs a recording of its own: --tree names the work tree whose tests write it.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from paired import spread

ROOT = pathlib.Path(__file__).resolve().parent.parent
WRITE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import stepped
stepped.training(steps=int(sys.argv[3]), step_ns=int(sys.argv[4]), spots=400, other_threads=20).write(pathlib.Path(sys.argv[2]))
"""
COMMANDS = {
    "steps": ["report", "--steps"],
    "steps, JSON": ["report", "--steps", "--json"],
    "functions": ["report", "--advanced"],
    "page": ["flame", "-o", "/dev/null"],
}


def measure(command: list[str]) -> tuple[float, float]:
    """CPU seconds and MB of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: {error.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", action="append", default=[])
    parser.add_argument("--tree", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=36000)
    parser.add_argument("--step-ms", type=float, default=100)
    args = parser.parse_args()
    programs = args.stepflame or ["build/stepflame"]
    trees = [*args.tree, *[ROOT] * len(programs)][:len(programs)]
    with tempfile.TemporaryDirectory() as folder:
        recordings = [os.path.join(folder, f"{i}.rec") for i in range(len(programs))]
        for tree, path in zip(trees, recordings):
            subprocess.run([sys.executable, "-c", WRITE, os.path.join(tree, "tests/e2e"), path, str(args.steps), str(int(args.step_ms * 1e6))], check=True)
        for name, words in COMMANDS.items():
            figures = [[] for _ in programs]
            for _ in range(args.rounds):
                for i, (program, path) in enumerate(zip(programs, recordings)):
                    figures[i].append(measure([program, words[0], path, *words[1:]]))
            for i, of in enumerate(figures):
                cpu, memory = zip(*of)
                ratio = f"   to the first {spread([c / f for (c, _), (f, _) in zip(of, figures[0])], '.3f')}" if i else ""
                print(f"{name:12} CPU {spread(cpu, '.2f')} s   {max(memory):.0f} MB{ratio}", flush=True)


main()
