#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What stepflame costs a job, and itself: `make bench`.

One job runs all the time and writes when each step ended; stepflame is attached and detached in turn. Every attached
window is compared with the free windows before and after it, so that a machine that drifts or is shared does not
count. Printed are ratios with their spread; nothing here passes or fails.
"""
import argparse
import statistics
import tempfile
import time

from paired import TRAINING, Job, Recording, spread

def step_time(times: list[float], begin: float, end: float) -> float:
    """Median step of a window, its first and last tenth of a second left out."""
    inside = [t for t in times if begin + 0.1 < t < end - 0.1]
    return statistics.median(b - a for a, b in zip(inside, inside[1:]))


def cpu_time(times: list[float], begin: float, end: float, seconds: float) -> float:
    return seconds / sum(begin < t < end for t in times)


def paired(stepflame: str, folder: str, kind: str, width: int, rounds: int, seconds: float,
           options: list[str]) -> None:
    job, windows, cpu, reports = Job(folder, TRAINING, kind, str(width), "16"), [], [], []
    time.sleep(3)  # past the first epoch's warm-up
    try:
        for _ in range(rounds):
            a, cpu_a = time.perf_counter(), job.cpu_seconds()
            time.sleep(seconds)
            b, cpu_b = time.perf_counter(), job.cpu_seconds()
            recording = Recording(stepflame, folder, job.pid, *options)
            c, cpu_c = time.perf_counter(), job.cpu_seconds()
            time.sleep(seconds)
            d, cpu_d = time.perf_counter(), job.cpu_seconds()
            recording.stop()
            reports.append(recording.report())
            e = time.perf_counter()
            time.sleep(seconds)
            windows.append(((a, b), (c, d), (e, time.perf_counter())))
            cpu.append((cpu_b - cpu_a, cpu_d - cpu_c))
    finally:
        job.stop()
    times = [when for when, _ in job.stamps()]
    ratios, cpu_ratios, after, free = [], [], [], []
    for (before_window, window, after_window), (cpu_before, cpu_inside) in zip(windows, cpu):
        one, two, three = (step_time(times, *w) for w in (before_window, window, after_window))
        ratios.append(two / ((one + three) / 2))
        cpu_ratios.append(cpu_time(times, *window, cpu_inside) / cpu_time(times, *before_window, cpu_before))
        after.append(three / one)
        free.append(one)
    cost = [r["overhead"] for r in reports]
    print(f"{kind:9} step {statistics.median(free) * 1e3:7.2f} ms   attached/free {spread(ratios)}   "
          f"its CPU time {spread(cpu_ratios)}   after/before {spread(after)}")
    print(f"{'':9} own estimate {statistics.median(c['percent'] for c in cost):.2f} %, "
          f"{statistics.median(c['hits'] / max(1, r['window']['steps']) for c, r in zip(cost, reports)):.0f} hits a step "
          f"x {statistics.median(c['hit_ns'] for c in cost):.0f} ns; attach "
          f"{statistics.median(c['attach_ms'] for c in cost):.0f} ms, detach "
          f"{statistics.median(c['detach_ms'] for c in cost):.0f} ms; stepflame "
          f"{statistics.median(c['own_cpu_percent'] for c in cost):.2f} % of a core, "
          f"{max(c['own_rss_bytes'] for c in cost) / 1e6:.0f} MB", flush=True)
    if "--budget" in options:
        seen = [r["window"]["seconds"] / r["window"].get("whole_seconds", r["window"]["seconds"]) for r in reports]
        print(f"{'':9} recorded in {spread(seen, '.2f')} of the time", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--action", action="append", default=[], help="given to stepflame record; the job is job.py")
    parser.add_argument("--budget", help="given to stepflame record; most steps are free then, and the CPU time shows what it costs: --seconds 40")
    parser.add_argument("--job", action="append", metavar="KIND:WIDTH", help="plain:64 and the like; default: all four")
    args = parser.parse_args()
    options = [word for action in args.action for word in ("--action", action)]
    options += ["--budget", args.budget] if args.budget else []
    jobs = [(job.partition(":")[0], int(job.partition(":")[2])) for job in args.job or ("plain:64", "plain:2560", "lightning:32", "lightning:2560")]
    with tempfile.TemporaryDirectory() as folder:
        for kind, width in jobs:
            paired(args.stepflame, folder, kind, width, args.rounds, args.seconds, options)


main()
