#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a recording costs a job in truth, beside what stepflame says of it.

    sudo tools/bench_paused.py [--job NAME...] [--seconds 60] [--frequency HZ...]

`stepflame watch` records the job, and is told to pause and to resume it, in turn. Each recorded time of half a second is
compared with the paused ones before and behind it, by the CPU time of the job's steps, so that a machine that drifts or
is shared does not count: some 60 such pairs tell a difference of 0.3 %. The last line compares paused times with each other.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from paired import TRAINING, Job, wait_for

# name: kind, width of the model, batch
JOBS = {
    "plain-tiny": ("plain", 64, 16),
    "plain": ("plain", 1024, 64),
    "plain-long": ("plain", 2048, 64),
    "functions": ("functions", 1024, 64),
    "labels": ("labels", 64, 16),
    "transformer": ("transformer", 256, 16),
    "lightning-tiny": ("lightning", 64, 16),
    "lightning": ("lightning", 1024, 64),
}
HALF = 0.5  # seconds
SETTLED = 0.02  # seconds after a change that do not count


def ask(args: list[str]) -> tuple[float, float]:
    """Tells the one that watches; when that began and was done."""
    begin = time.monotonic()
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    return begin, time.monotonic()


def swing(stepflame: str, state: str, pid: int, seconds: float) -> list[tuple[bool, float, float]]:
    """Pauses and resumes in turn; (is recorded, from, to) of each part."""
    parts, was = [], time.monotonic()
    recorded = True
    end = was + seconds
    while time.monotonic() < end:
        time.sleep(HALF)
        begin, done = ask([stepflame, "watch", "pause" if recorded else "resume", str(pid), "--state", state])
        parts.append((recorded, was, begin))
        recorded, was = not recorded, done + SETTLED
    return parts


def step_cpu(stamps: list[tuple[float, float]], begin: float, end: float) -> float | None:
    """Mean CPU time of the steps that lie within, without the longest tenth."""
    took = sorted(b[1] - a[1] for a, b in zip(stamps, stamps[1:]) if begin <= a[0] and b[0] <= end)
    kept = took[: max(1, len(took) * 9 // 10)]
    return sum(kept) / len(kept) if len(took) >= 3 else None


def ratios(means: list[tuple[bool, float | None]], recorded: bool, stride: int) -> list[float]:
    found = []
    for a, b, c in zip(means, means[stride:], means[2 * stride :]):
        if b[0] == recorded and a[1] and b[1] and c[1]:
            found.append(2 * b[1] / (a[1] + c[1]))
    return found


def centre(values: list[float]) -> tuple[float, float]:
    """The mean without the lowest and the highest fifth, and its standard error."""
    values = sorted(values)
    cut = len(values) // 5
    kept = values[cut : len(values) - cut]
    # the variance of a trimmed mean is that of the values with the outermost ones moved to the cut
    moved = [kept[0]] * cut + kept + [kept[-1]] * cut
    return statistics.mean(kept), statistics.stdev(moved) / ((1 - 2 * cut / len(values)) * len(values) ** 0.5)


def said(stepflame: str, folder: str, pid: int, frequency: int) -> float:
    """By how many percent a recording says that it slows the job."""
    file = os.path.join(folder, "said.rec")
    subprocess.run([stepflame, "record", "-p", str(pid), "-d", "6s", "-F", str(frequency), "-o", file], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text = subprocess.run([stepflame, "report", "--simple", "--json", file], check=True, capture_output=True, text=True).stdout
    percent = json.loads(text)["overhead"]["percent"]  # of the job's time as it is recorded
    return 100 * percent / (100 - percent)


def measure(stepflame: str, name: str, frequency: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, TRAINING, *map(str, JOBS[name]))
        try:
            time.sleep(4)  # past the first epoch's warm-up
            says = said(stepflame, folder, job.pid, frequency)
            state = os.path.join(folder, "state")
            os.mkdir(state, 0o700)
            log = os.path.join(folder, "watch.log")
            with open(log, "w") as out:
                watch = subprocess.Popen([stepflame, "watch", "--state", state, "-F", str(frequency)], stdout=out, stderr=subprocess.STDOUT)
            try:
                wait_for(log, f"{job.pid}", watch)
                time.sleep(2)
                parts = swing(stepflame, state, job.pid, seconds)
            finally:
                watch.terminate()
                watch.wait()
            stamps = job.stamps()
        finally:
            job.stop()
    means = [(recorded, step_cpu(stamps, begin, end)) for recorded, begin, end in parts]
    ratio, error = centre(ratios(means, True, 1))
    control, control_error = centre(ratios(means, False, 2))
    step = statistics.median(m for recorded, m in means if m and not recorded)
    print(f"| {name} | {1e3 * step:.2f} ms | {frequency} | {100 * (ratio - 1):.2f} % (+-{100 * error:.2f}) | {says:.2f} % "
          f"| {100 * (control - 1):.2f} % (+-{100 * control_error:.2f}) |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--job", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--frequency", nargs="+", type=int, default=[99, 0])
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    if os.geteuid():
        sys.exit("bench_paused.py: run it as root")
    print("| job | CPU time of a step | -F | costs | says | paused against paused |\n|---|---|---|---|---|---|")
    for name in args.job:
        for frequency in args.frequency:
            measure(args.stepflame, name, frequency, args.seconds)


if __name__ == "__main__":
    main()
