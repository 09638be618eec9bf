#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a call of a Python function takes under `record --exact`, and before and after: for each Python given. Needs root.

    tools/bench_exact.py [--rounds 5] [--stepflame build/stepflame] PYTHON...

The job calls an empty function in a loop, and prints the best of 200 runs of 500 calls, ever again. A round takes the least of what it
prints in a second, free, recorded and free; medians of the rounds are printed, least and most in brackets.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time

from paired import Recording, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOB = os.path.join(ROOT, "tests/e2e/jobs/exact_speed.py")


def call_ns(path):
    lines, before, end = [], len(open(path).readlines()), time.monotonic() + 1
    while time.monotonic() < end or len(lines) < 3:
        time.sleep(0.1)
        lines = open(path).readlines()[before + 1 :]  # the first may have begun earlier
    return min(float(line.split()[0]) for line in lines if line.endswith(" ns\n"))


def measure(args, python, directory):
    path, rounds = os.path.join(directory, "job"), []
    with open(path, "w") as out:
        job = subprocess.Popen([python, JOB], stdout=out, env=dict(os.environ, PYTHONUNBUFFERED="1"))
    try:
        wait_for(path, " ns", job)
        for _ in range(args.rounds):
            before = call_ns(path)
            recording = Recording(args.stepflame, directory, job.pid, "--exact=force", "-F", "0", "-d", "60")
            recorded = call_ns(path)
            recording.stop()
            rounds.append((before, recorded, call_ns(path)))
    finally:
        job.kill()
    return zip(*rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stepflame", default=os.path.join(ROOT, "build/stepflame"))
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    args = parser.parse_args()
    print("| Python | free | recorded | after / before |\n|---|---|---|---|")
    for python in args.pythons:
        version = subprocess.check_output([python, "-c", "import platform; print(platform.python_version())"], text=True)
        with tempfile.TemporaryDirectory() as directory:
            before, recorded, after = measure(args, python, directory)
        ratios = [a / b for a, b in zip(after, before)]
        row = [(before, "%.0f ns"), (recorded, "%.0f ns"), (ratios, "%.2f")]
        cells = ["%s (%s to %s)" % tuple(form % f(values) for f in (statistics.median, min, max)) for values, form in row]
        print("| %s | %s |" % (version.strip(), " | ".join(cells)), flush=True)


if __name__ == "__main__":
    main()
